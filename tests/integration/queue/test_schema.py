"""The queue's schema: made once by whoever comes first, refused where it is not ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from headrace.core.errors import Misconfigured
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
from headrace.sources.queue import proof, readers, tick
from headrace.sources.queue.creation import Queue, ensure_queue
from headrace.sources.queue.ddl import schema_check
from headrace.sources.queue.upstream import Objects
from headrace_testing.postgres import Database
from tests.integration.queue.capturing import LAKE, capturing, executed

pytestmark = pytest.mark.server

MAIN = Objects("headrace", "main")


def ensure(database: Database, objects: Objects = MAIN) -> Queue:
    with closing(connect(PostgresAddress.parse(database.url(user="app")), role="test")) as session:
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


def test_a_queue_of_a_newer_version_is_refused_under_a_lake_that_reads_it_too(database: Database) -> None:
    ensure(database)
    with capturing(database) as queue:
        newest = tick.take(queue.session, MAIN)
        readers.register(queue.session, LAKE, newest)
        proof.prove_still(queue.session, LAKE, newest)
        database.execute("UPDATE headrace.queue SET version = version - 1")
        with pytest.raises(Misconfigured, match="is of version 3") as refused:
            ensure(database)
        assert refused.value.code == "QUEUE_VERSION"
        database.execute("UPDATE headrace.queue SET version = version + 2")
        for met in (
            lambda: ensure(database),
            lambda: proof.confirm(queue.session, identify(queue.session), LAKE, newest.position(LAKE.log)),
            lambda: proof.prove_still(queue.session, LAKE, newest),
            lambda: schema_check.check(queue.session, LAKE, {}),
        ):
            with pytest.raises(Misconfigured) as refused:
                met()
            assert (refused.value.code, refused.value.hint) == ("QUEUE_VERSION", "use a newer headrace")


@pytest.mark.parametrize(
    "damage",
    [
        "DROP SEQUENCE headrace.current_main",
        "ALTER TABLE headrace.event_main_1 RENAME TO mine",
        "DROP TRIGGER headrace_guard ON headrace.event_main_0",
        "ALTER TABLE headrace.event_main_2 DISABLE TRIGGER ALL",
        "DROP FUNCTION headrace.guard_main() CASCADE",
        "CREATE OR REPLACE FUNCTION headrace.guard_main() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        " SET search_path = '' AS 'BEGIN RETURN NULL; END'",
    ],
)
def test_a_queue_that_lost_what_it_writes_by_or_is_guarded_by_is_another_one(
    database: Database, damage: str
) -> None:
    """An unguarded queue may have lost events by somebody's hand."""
    executed(database, ["CREATE TABLE t (id int)"])
    with capturing(database) as queue:
        made = ensure(database)
        assert made.whole
        executed(database, [damage])
        lost = proof.remade(queue.session, replace(LAKE, incarnation=made.incarnation))
        assert lost is not None
        assert lost.code == "QUEUE_REMADE"
        again = ensure(database)
        assert again.whole
        assert again.incarnation != made.incarnation
        queue.capture("t")
        executed(database, ["INSERT INTO t VALUES (1)", "TRUNCATE headrace.event_main_0"])
        assert ensure(database).incarnation != again.incarnation


def test_what_is_made_later_is_given_to_whoever_reads_the_queue_by_grants(database: Database) -> None:
    """Nobody loses what others granted."""
    role = f"lake_{database.name}"
    asked = (
        "SELECT c.relname, a.privilege_type FROM pg_class c, aclexplode(c.relacl) a"
        f" WHERE c.relnamespace = 'headrace'::regnamespace AND a.grantee = '{role}'::regrole ORDER BY 1, 2"
    )
    database.execute(f"CREATE ROLE {role}")
    try:
        ensure(database)
        given = "SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA headrace"
        for rights in (given, "SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA headrace"):
            database.execute(f"GRANT {rights} TO {role}", user="app")
        before = database.execute(asked)
        executed(database, ["DROP TABLE headrace.event_main_1"])
        assert ensure(database).whole
        assert database.execute(asked) == before
    finally:
        database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_queue_older_than_that_is_refused_with_what_takes_it_away(database: Database) -> None:
    ensure(database)
    executed(
        database,
        [
            "ALTER TABLE headrace.event_main_0 ALTER id TYPE bigint USING 0",
            "UPDATE headrace.queue SET version = 2",
        ],
    )
    with pytest.raises(Misconfigured) as refused:
        ensure(database)
    assert refused.value.code == "QUEUE_UNTRUSTED"
    database.execute(refused.value.hint.split("; or ")[0])
    assert ensure(database).whole


@pytest.mark.parametrize("name", ["Upper", "a'b", "", "a" * 41, "1a"])
def test_a_name_that_objects_cannot_be_made_of_is_refused(name: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        Objects("headrace", name)
    assert refused.value.code == "QUEUE_NAME_MALFORMED"
