"""Tables have the triggers that any lake wants, whatever somebody did to them; no writer waits long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from headrace.core.errors import Misconfigured, Transient
from headrace.core.names import TableName
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.values import Waiting
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.statements import query
from headrace.sources.queue import capture
from headrace.sources.queue.triggers import patiently
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.queue.capturing import LAKE, Capturing, capturing, executed

pytestmark = pytest.mark.server

T = TableName("public", "t")
OTHER = replace(LAKE, lake="headrace_ffffffff_main")


@pytest.fixture
def queue(database: Database) -> Iterator[Capturing]:
    executed(database, ["CREATE TABLE t (id int PRIMARY KEY)"])
    with capturing(database) as opened:
        yield opened


def triggers(database: Database) -> list[str]:
    rows = database.execute(
        "SELECT tgname || tgenabled::text FROM pg_trigger WHERE tgrelid = 't'::regclass ORDER BY 1"
    )
    return [name for (name,) in rows]


OURS = [
    "headrace_main_before_truncateA",
    "headrace_main_deleteA",
    "headrace_main_insertA",
    "headrace_main_truncateA",
    "headrace_main_updateA",
]


def test_triggers_stay_while_any_lake_wants_them(database: Database, queue: Capturing) -> None:
    queue.capture("t")
    made = capture.capture(queue.session, OTHER, [T]).defs[T].details
    assert triggers(database) == OURS
    assert (
        capture.captured_tables(queue.session, LAKE) == capture.captured_tables(queue.session, OTHER) == {T}
    )
    capture.release(queue.session, LAKE, [T])
    assert (capture.captured_tables(queue.session, LAKE), triggers(database)) == (frozenset(), OURS)
    again = capture.capture(queue.session, LAKE, [T]).defs[T].details
    assert again == made, "what was right is not made anew: other lakes go by it"
    capture.release(queue.session, LAKE, [T])
    capture.release_now(queue.session, OTHER, [again["oid"]])
    assert triggers(database) == []
    assert database.execute("SELECT * FROM headrace.tracked") == []


HARM = {
    "disabled": ["ALTER TABLE t DISABLE TRIGGER headrace_main_update"],
    "all disabled": ["ALTER TABLE t DISABLE TRIGGER ALL"],
    "dropped": ["DROP TRIGGER headrace_main_truncate ON t"],
    "renamed": ["ALTER TRIGGER headrace_main_update ON t RENAME TO mine"],
    "twice": [
        "CREATE TRIGGER more AFTER INSERT ON t REFERENCING NEW TABLE AS new_rows EXECUTE FUNCTION"
        " headrace.capture_main()"
    ],
    "another": [
        "CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE OR REPLACE TRIGGER headrace_main_delete AFTER DELETE ON t EXECUTE FUNCTION other()",
    ],
    "function dropped": ["DROP FUNCTION headrace.capture_main() CASCADE"],
    "function replaced": [
        "CREATE OR REPLACE FUNCTION headrace.capture_main() RETURNS trigger LANGUAGE plpgsql"
        " SECURITY DEFINER AS 'BEGIN RETURN NULL; END'"
    ],
    "function altered": ["ALTER FUNCTION headrace.capture_main() RESET ALL"],
    "function of the writer's": ["ALTER FUNCTION headrace.capture_main() SECURITY INVOKER"],
}


def test_what_somebody_did_is_seen_and_put_right(database: Database, queue: Capturing) -> None:
    for name, statements in HARM.items():
        queue.capture("t")
        before = capture.define(queue.session, LAKE, capture.examine(queue.session, LAKE, [T]).fit_defs)
        assert before.errors == {}, name
        executed(database, statements)
        found = capture.define(queue.session, LAKE, before.fit_defs)
        assert found.errors[T].code == "QUEUE_TABLE_UNCAPTURED", name
        assert capture.capture(queue.session, LAKE, [T]).errors == {}, name
        assert triggers(database) == OURS, name
        executed(
            database, ["TRUNCATE t", "INSERT INTO t VALUES (1), (2)", "UPDATE t SET id = 3 WHERE id = 2"]
        )
        queue.agree("t")


def test_what_was_undone_between_two_looks_leaves_its_trace(database: Database, queue: Capturing) -> None:
    queue.capture("t")
    first = capture.examine(queue.session, LAKE, [T]).defs[T]
    assert capture.examine(queue.session, LAKE, [T]).defs[T] == first
    executed(
        database,
        [
            "ALTER TABLE t DISABLE TRIGGER headrace_main_update",
            "ALTER TABLE t ENABLE ALWAYS TRIGGER headrace_main_update",
        ],
    )
    assert capture.examine(queue.session, LAKE, [T]).defs[T] != first


def test_a_table_that_is_not_ours_is_captured_by_the_right_to_make_triggers(database: Database) -> None:
    """Then only its owner takes the triggers away, and sessions of the replica role are not captured."""
    database.execute("CREATE TABLE t (id int); GRANT SELECT ON t TO app")
    with capturing(database) as queue:
        with pytest.raises(Misconfigured) as refused:
            capture.capture(queue.session, LAKE, [T])
        assert refused.value.code == "QUEUE_TRIGGER_PRIVILEGE"
        assert refused.value.hint is not None
        assert refused.value.hint.startswith("CREATE TRIGGER headrace_main_insert AFTER INSERT ON public.t")
        database.execute("GRANT TRIGGER ON t TO app")
        queue.capture("t")
        assert triggers(database) == [name[:-1] + "O" for name in OURS]
        assert capture.with_inactive_triggers(queue.session, LAKE) == [T]
        executed(database, ["INSERT INTO t VALUES (1)"], user="postgres")
        queue.agree("t")
        capture.release(queue.session, LAKE, [T])
        assert (capture.captured_tables(queue.session, LAKE), len(triggers(database))) == (frozenset(), 5)
        assert capture.capture(queue.session, LAKE, [T]).errors == {}


def test_the_owners_own_script_is_enough(database: Database) -> None:
    database.execute("CREATE TABLE t (id int); GRANT SELECT ON t TO app")
    with capturing(database) as queue:
        with pytest.raises(Misconfigured) as refused:
            capture.capture(queue.session, LAKE, [T])
        assert refused.value.hint is not None
        executed(database, refused.value.hint.split("; "), user="postgres")
        queue.capture("t")
        assert triggers(database) == OURS
        assert capture.with_inactive_triggers(queue.session, LAKE) == []


def test_writers_do_not_wait_behind_us_for_somebody_elses_transaction(
    database: Database, queue: Capturing
) -> None:
    """While a transaction that wrote the table stays open, others write it all the time."""
    written = 0
    passes: list[int] = []
    over = threading.Event()

    def write() -> None:
        nonlocal written
        with database.connect(user="app") as connection:
            while not over.is_set():
                connection.execute("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t")
                written += 1

    def pass_by(_: Transient) -> None:
        """Each of our waits ends by itself, after a tenth of a second, and the writer goes on."""
        before = written
        wait_for(lambda: written > before + 1, "the writer goes on")
        passes.append(written)

    oid = capture.examine(queue.session, LAKE, [T]).defs[T].number
    with database.connect(user="app") as holder, holder.transaction():
        holder.execute("DELETE FROM t WHERE id = -1")
        writer = threading.Thread(target=write)
        writer.start()
        try:
            with pytest.raises(TableBusy) as refused:
                patiently(
                    queue.session,
                    LAKE.objects,
                    (oid, T),
                    lambda: query(queue.session, "LOCK TABLE public.t IN SHARE ROW EXCLUSIVE MODE"),
                    Waiting(tell=pass_by),
                    seconds=2.0,
                )
            assert refused.value.detail is not None
            assert "holds RowExclusiveLock" in refused.value.detail
        finally:
            over.set()
            writer.join()
    assert passes
    queue.capture("t")
    assert triggers(database) == OURS


def test_a_table_that_somebody_holds_keeps_no_other_from_its_triggers(
    database: Database, queue: Capturing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "PATIENCE", 0.2)
    executed(database, ["CREATE TABLE s (id int)"])
    other = TableName("public", "s")
    with database.connect(user="app") as holder, holder.transaction():
        holder.execute("INSERT INTO s VALUES (1)")
        found = capture.capture(queue.session, LAKE, [other, T])
    assert {name: error.code for name, error in found.errors.items()} == {other: "PG_TABLE_LOCKED"}
    assert (found.fit, triggers(database)) == ([T], OURS)


def test_two_lakes_that_come_and_go_at_once_leave_what_one_of_them_wants(
    database: Database, queue: Capturing
) -> None:
    queue.capture("t")
    done = threading.Event()

    def come_and_go() -> None:
        with closing(connect(PostgresAddress.parse(database.url(user="app")), role="test")) as session:
            for _ in range(15):
                capture.capture(session, OTHER, [T])
                capture.release(session, OTHER, [T])
        done.set()

    other = threading.Thread(target=come_and_go)
    other.start()
    while not done.is_set():
        capture.release(queue.session, LAKE, [T])
        assert capture.capture(queue.session, LAKE, [T]).errors == {}
    other.join()
    assert triggers(database) == OURS
