"""The queue's schema: made once by whoever comes first, refused where it is not ours."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from headrace.core.errors import Misconfigured
from headrace.sources.contract.findings import Level
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
from headrace.sources.queue import readers, schema_check, tick, upstream
from headrace.sources.queue.creation import Queue, ensure_queue
from headrace.sources.queue.objects import Objects
from headrace.sources.queue.preflight.making import check_queue
from headrace.sources.queue.statements import capture_function, current_place, step_statements
from headrace.testing.postgres import Database
from headrace.testing.postmaster import wait_for
from tests.integration.queue.capturing import LAKE, capturing, executed

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


def test_a_queue_of_a_newer_version_is_refused_under_a_lake_that_reads_it_too(database: Database) -> None:
    ensure(database)
    with capturing(database) as queue:
        newest = tick.take(queue.session, MAIN)
        readers.register(queue.session, LAKE, newest)
        upstream.prove_still(queue.session, LAKE, newest)
        database.execute("UPDATE headrace.queue SET version = version + 1")
        for met in (
            lambda: ensure(database),
            lambda: upstream.confirm(queue.session, identify(queue.session), LAKE, newest.position(LAKE.log)),
            lambda: upstream.prove_still(queue.session, LAKE, newest),
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
    """What is not guarded may have lost events by somebody's hand."""
    executed(database, ["CREATE TABLE t (id int)"])
    with capturing(database) as queue:
        made = ensure(database)
        assert made.whole
        executed(database, [damage])
        lost = upstream.remade(queue.session, replace(LAKE, incarnation=made.incarnation))
        assert lost is not None
        assert lost.code == "QUEUE_REMADE"
        again = ensure(database)
        assert again.whole
        assert again.incarnation != made.incarnation
        queue.capture("t")
        executed(database, ["INSERT INTO t VALUES (1)", "TRUNCATE headrace.event_main_0"])
        assert ensure(database).incarnation != again.incarnation


def test_a_queue_beside_one_of_version_3_can_take_ticks(database: Database) -> None:
    """All queues of a schema share its tables."""
    ensure(database)
    executed(database, ["ALTER TABLE headrace.tick DROP attached"])
    other = Objects("headrace", "other")
    assert ensure(database, other).whole
    with capturing(database) as queue:
        assert tick.take(queue.session, other).number == 1


@pytest.mark.parametrize("how", ["mended", "brought over"])
def test_what_is_made_later_is_given_to_whoever_reads_the_queue_by_grants(
    database: Database, how: str
) -> None:
    """And nothing is taken from him that others gave."""
    role = f"lake_{how[:6]}_{database.name}"
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
        if how == "mended":
            executed(database, ["DROP TABLE headrace.event_main_1"])
            assert ensure(database).whole
        else:
            as_version_3(database)
            with database.connect() as dba:
                for statement in step_statements(MAIN, "app"):
                    dba.execute(statement.encode())
        assert database.execute(asked) == before
    finally:
        database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def as_version_3(database: Database) -> None:
    """What version 3 had: triggers asked the queue's row which event table is current, without a sequence."""
    asked = "SELECT q.current INTO place FROM headrace.queue q WHERE q.name = 'main';"
    new = f"place := {current_place(MAIN)};"
    assert new in capture_function(MAIN)
    executed(
        database,
        [
            capture_function(MAIN).replace(new, asked),
            "DROP SEQUENCE headrace.current_main",
            "ALTER TABLE headrace.tick DROP attached",
            "UPDATE headrace.queue SET version = 3, current = 2",
        ],
    )


def test_a_queue_of_version_3_is_brought_over_beside_writers(database: Database) -> None:
    executed(database, ["CREATE TABLE t (id serial PRIMARY KEY, v text)"])
    with capturing(database) as queue, ThreadPoolExecutor(3) as pool:
        queue.capture("t")
        as_version_3(database)
        found, over = list(check_queue(queue.session, MAIN)), threading.Event()
        assert [(each.code, each.level) for each in found] == [("QUEUE_VERSION", Level.ERROR)]
        with pytest.raises(Misconfigured, match="is of version 3"):
            ensure(database)

        def work(isolation: str) -> int:
            written = 0
            with database.connect(user="app") as writer:
                writer.execute(f"SET default_transaction_isolation = '{isolation}'".encode())
                writer.execute("SET lock_timeout = '2s'")
                while not over.is_set():
                    writer.execute("BEGIN; INSERT INTO t (v) VALUES ('a')")
                    writer.execute("INSERT INTO t (v) SELECT 'b' FROM generate_series(1, 3); COMMIT")
                    written += 4
            return written

        working = [pool.submit(work, how) for how in ("read committed", "repeatable read", "serializable")]
        behind = "SELECT count(*) > 100 FROM t"
        wait_for(lambda: database.execute(behind) == [(True,)], "writers")
        with database.connect() as dba:
            for statement in found[0].then:
                dba.execute(statement.encode())
        behind = f"SELECT count(*) > {database.execute('SELECT count(*) + 100 FROM t')[0][0]} FROM t"
        wait_for(lambda: database.execute(behind) == [(True,)], "more of them")
        over.set()
        written = sum(each.result(20) for each in working)
        assert ensure(database).whole
        assert list(check_queue(queue.session, MAIN)) == []
        assert len(queue.events("t")) == written
        assert database.execute("SELECT current, last_value FROM headrace.queue, headrace.current_main") == [
            (2, 2)
        ]
        assert database.execute("SELECT count(*) FROM headrace.event_main_0") == [(0,)], "it is where it was"
        ours = "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = %s::regnamespace"
        assert database.execute(ours, ["headrace"]) == [("app",)]


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
