"""The queue's schema: made once by whoever comes first, refused where it is not ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from headrace.core.errors import Misconfigured
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.connection import connect
from headrace.sources.queue.creation import Queue, ensure_queue
from headrace.sources.queue.objects import Objects
from headrace.testing.postgres import Database

pytestmark = pytest.mark.server

MAIN = Objects("headrace", "main")


def ensure(database: Database, objects: Objects = MAIN) -> Queue:
    with closing(connect(Address.parse(database.url(user="app")), role="test")) as session:
        return ensure_queue(session, objects)


def test_two_that_come_at_once_make_one_queue(database: Database) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = set(pool.map(lambda _: ensure(database).incarnation, range(4)))
    assert len(made) == 1
    other = ensure(database, Objects("headrace", "other"))
    assert other.incarnation not in made
    assert ensure(database).incarnation in made


def test_a_schema_of_somebody_else_is_refused_and_left_alone(database: Database) -> None:
    database.execute("CREATE SCHEMA headrace; CREATE TABLE headrace.mine (id int)", user="app")
    with pytest.raises(Misconfigured, match="holds other things") as refused:
        ensure(database)
    assert refused.value.code == "QUEUE_SCHEMA_FOREIGN"
    left = "SELECT relname FROM pg_class WHERE relnamespace = 'headrace'::regnamespace"
    assert database.execute(left) == [("mine",)]


def test_a_queue_of_a_newer_version_is_refused(database: Database) -> None:
    ensure(database)
    database.execute("UPDATE headrace.queue SET version = version + 1")
    with pytest.raises(Misconfigured) as refused:
        ensure(database)
    assert (refused.value.code, refused.value.hint) == ("QUEUE_VERSION", "use a newer headrace")


@pytest.mark.parametrize("name", ["Upper", "a'b", "", "a" * 41, "1a"])
def test_a_name_that_objects_cannot_be_made_of_is_refused(name: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        Objects("headrace", name)
    assert refused.value.code == "QUEUE_NAME_MALFORMED"
