"""A queue holds what its slowest reader needs, and no statement of a writer waits for its being emptied."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest

from headrace.core.errors import Misconfigured, Transient
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.queue import health as queue_health
from headrace.sources.queue import readers, tick
from headrace.sources.queue.batch import TxidSnapshot
from headrace.sources.queue.creation import ensure_queue
from headrace.sources.queue.health import health
from headrace.sources.queue.statements import current_place
from headrace.sources.queue.stream import retention
from headrace.sources.queue.stream.retention import tend
from headrace.sources.queue.upstream import QueueUpstream
from headrace_testing.postgres import Database
from tests.integration.queue.capturing import EVENTS, LAKE, Capturing, capturing, executed

pytestmark = pytest.mark.server

OTHER = replace(LAKE, lake="other")
CURRENT = current_place(LAKE.objects)


@pytest.fixture
def queue(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Capturing]:
    monkeypatch.setattr(retention, "ENOUGH", 8192)
    executed(database, ["CREATE TABLE t (id serial PRIMARY KEY, v text)"])
    with capturing(database) as opened:
        opened.capture("t")
        yield opened


def passed(queue: Capturing, upstream: QueueUpstream = LAKE) -> int:
    """A tick that a reader has passed."""
    taken = tick.take(queue.session, upstream.objects)
    readers.register(queue.session, upstream, taken)
    return taken.number


def counts(queue: Capturing) -> list[int]:
    found = []
    for table in LAKE.objects.events:
        [row] = queue.session.execute(f"SELECT count(*) FROM {table}".encode()).fetchall()
        found.append(row[0])
    return found


def places(queue: Capturing) -> tuple[int, int]:
    """The current event table by the queue's row, and the one that writers write to."""
    [(row, sequence)] = queue.session.execute(
        f"SELECT current, coalesce({CURRENT}, 0) FROM headrace.queue".encode()
    ).fetchall()
    return row, sequence


def write(database: Database, rows: int = 200) -> None:
    executed(database, [f"INSERT INTO t (v) SELECT repeat('x', 50) FROM generate_series(1, {rows})"])


def test_tables_take_turns_and_hold_no_more_than_the_slowest_reader_needs(
    database: Database, queue: Capturing
) -> None:
    passed(queue)
    most = 0
    for _ in range(12):
        write(database)
        passed(queue)
        tend(queue.session, LAKE.objects)
        most = max(most, sum(counts(queue)))
    assert most <= 400, "what was written since the last turn, and what it left behind"
    assert queue.session.execute("SELECT count(*) FROM headrace.tick").fetchall() == [(1,)]
    slow = passed(queue, OTHER)
    for _ in range(4):
        write(database)
        passed(queue)
        tend(queue.session, LAKE.objects)
    assert sum(counts(queue)) >= 800, "the other one has not read them"
    assert queue.session.execute("SELECT min(tick) FROM headrace.tick").fetchall() == [(slow,)]
    found = health(queue.session, LAKE, limit=1000)
    assert found.excess is not None
    assert found.excess.code == "QUEUE_MAX_WAL"
    assert found.figures is not None
    assert found.figures["readers"][OTHER.lake] == slow
    assert found.figures["ticks_behind"] == 0
    passed(queue, OTHER)
    for _ in range(3):
        tend(queue.session, LAKE.objects)
    assert sum(counts(queue)) <= 400


def test_ticks_that_an_old_snapshot_keeps_dead_cost_nothing(database: Database, queue: Capturing) -> None:
    """Index entries of rows that are deleted stay for as long as it is open, and a scan passes over each."""
    passed(queue)
    with database.connect() as old, old.transaction():
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1")
        queue.session.execute(
            "INSERT INTO headrace.tick (queue, tick, taken, snapshot, nonce)"
            " SELECT 'main', i, now(), pg_current_snapshot(), gen_random_uuid()"
            " FROM generate_series(2, 3000) i"
        )
        passed(queue)
        since = tend(queue.session, LAKE.objects)
        assert queue.session.execute("SELECT count(*) FROM headrace.tick").fetchall() == [(1,)]
        before = index_entries(queue)
        for _ in range(20):
            passed(queue)
            since = tend(queue.session, LAKE.objects, since)
        assert index_entries(queue) - before < 1000
        assert queue.session.execute("SELECT min(tick) FROM headrace.tick").fetchall() == [(since,)]


def index_entries(queue: Capturing) -> int:
    """The entries of the ticks' index that scans have come by."""
    queue.session.execute("SELECT pg_stat_force_next_flush()")
    read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = 'headrace' AND relname = 'tick'"
    [(entries,)] = queue.session.execute(read).fetchall()
    return int(entries)


def test_what_is_not_captured_by_now_is_said_before_any_mark(database: Database, queue: Capturing) -> None:
    passed(queue)
    said = "changes are not captured of: public.t"
    assert said not in health(queue.session, LAKE).lines
    executed(database, ["ALTER TABLE t DISABLE TRIGGER headrace_main_delete"])
    assert said in health(queue.session, LAKE).lines


def test_what_is_not_committed_or_not_passed_is_never_let_go(database: Database, queue: Capturing) -> None:
    """Not even what is written under a snapshot from before the turn."""
    passed(queue)
    write(database)
    with database.connect(user="app") as late, database.connect(user="app") as old:
        late.execute("BEGIN")
        late.execute("INSERT INTO t (v) VALUES ('late')")
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT switched FROM headrace.queue")
        for _ in range(4):
            write(database)
            passed(queue)
            tend(queue.session, LAKE.objects)
        old.execute("INSERT INTO t (v) VALUES ('old')")
        late.execute("COMMIT")
        for _ in range(4):
            tend(queue.session, LAKE.objects)
        rows = queue.session.execute(f"SELECT row FROM ({EVENTS}) e WHERE row ~ 'late'".encode()).fetchall()
        assert len(rows) == 1, "no reader has passed it"
        old.execute("COMMIT")
        for _ in range(4):
            tend(queue.session, LAKE.objects)
        rows = queue.session.execute(f"SELECT row FROM ({EVENTS}) e WHERE row ~ 'old'".encode()).fetchall()
        assert len(rows) == 1
    passed(queue)
    for _ in range(4):
        tend(queue.session, LAKE.objects)
    assert not queue.session.execute(
        f"SELECT row FROM ({EVENTS}) e WHERE row ~ 'old|late'".encode()
    ).fetchall()


def test_turns_beside_writers_lose_no_event_and_fail_no_write(database: Database, queue: Capturing) -> None:
    """Readers of everything see each event in some batch, whatever is emptied meanwhile."""
    reached = passed(queue)
    over, failures = threading.Event(), []

    def work(isolation: str) -> None:
        with database.connect(user="app") as connection:
            connection.execute(f"SET default_transaction_isolation = '{isolation}'".encode())
            connection.execute("SET lock_timeout = '2s'")
            while not over.is_set():
                try:
                    connection.execute("INSERT INTO t (v) SELECT 'w' FROM generate_series(1, 20)")
                except psycopg.Error as error:
                    failures.append(str(error))

    workers = [threading.Thread(target=work, args=[how]) for how in ("read committed", "repeatable read")]
    for worker in workers:
        worker.start()
    read, turns = 0, set()
    with closing(connect(PostgresAddress.parse(database.url(user="app")), role="test")) as session:
        for number in range(60):
            if number == 50:
                over.set()
                for worker in workers:
                    worker.join()
            taken = tick.take(session, LAKE.objects)
            [(count,)] = session.execute(
                f"SELECT count(*) FROM ({EVENTS}) e, headrace.tick a WHERE a.tick = %s"
                " AND pg_visible_in_snapshot(e.tx::text::xid8, %s::pg_snapshot)"
                " AND NOT pg_visible_in_snapshot(e.tx::text::xid8, a.snapshot)".encode(),
                [reached, _text(taken.snapshot)],
            ).fetchall()
            read, reached = read + count, taken.number
            readers.register(session, LAKE, taken)
            tend(session, LAKE.objects)
            turns.update(session.execute(f"SELECT coalesce({CURRENT}, 0)".encode()).fetchall())
    assert failures == []
    assert turns == {(0,), (1,), (2,)}
    assert queue.session.execute("SELECT count(*) FROM public.t").fetchall() == [(read,)]


def _text(snapshot: TxidSnapshot) -> str:
    return f"{snapshot.xmin}:{snapshot.xmax}:{','.join(map(str, snapshot.xip))}"


def test_nothing_that_is_committed_is_taken_for_shown(database: Database, queue: Capturing) -> None:
    """A writer that nobody who ended is younger than is in no snapshot's list of those that run."""
    objects = LAKE.objects
    executed(database, ["INSERT INTO t (v) VALUES ('first')"])
    assert tick.newest(queue.session, objects).has_more
    first = tick.reach(queue.session, objects)
    with database.connect(user="app") as writer, database.connect(user="app") as other:
        writer.execute("BEGIN")
        writer.execute("INSERT INTO t (v) VALUES ('open')")
        assert tick.reach(queue.session, objects).number == first.number, "nothing has come"
        amid = tick.take(queue.session, objects)
        other.execute("BEGIN")
        other.execute("INSERT INTO t (v) VALUES ('undone')")
        other.execute("ROLLBACK")
        assert not tick.newest(queue.session, objects).has_more
        writer.execute("COMMIT")
    assert tick.newest(queue.session, objects).has_more
    assert tick.reach(queue.session, objects).number == amid.number + 1
    executed(database, ["SELECT pg_current_xact_id()"])
    assert not tick.newest(queue.session, objects).has_more, "who writes elsewhere moves nothing"


def test_a_reading_of_the_clock_is_of_the_newest_tick_and_takes_none(
    database: Database, queue: Capturing
) -> None:
    objects = LAKE.objects
    first = tick.take(queue.session, objects)
    executed(database, ["INSERT INTO t (v) VALUES ('x')"])
    read = queue_health.clock(queue.session, LAKE)
    assert (read.at, read.position) == (first.taken_at, first.position(LAKE.log)), "x may be older than now"
    assert tick.newest(queue.session, objects).tick == first
    second = tick.take(queue.session, objects)
    read = queue_health.clock(queue.session, LAKE)
    assert read.position == second.position(LAKE.log)
    assert second.taken_at < read.at < tick.take(queue.session, objects).taken_at


@pytest.mark.parametrize("point", ["queue.turn.before", "queue.turn.after"])
def test_a_turn_that_breaks_off_is_made_again_and_loses_nothing(
    database: Database, queue: Capturing, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The sequence is in no transaction: writers may go on in a table that the row does not call current."""
    passed(queue)
    write(database)
    monkeypatch.setenv("HEADRACE_FAILPOINT", f"{point}=error")
    with pytest.raises(Transient):
        tend(queue.session, LAKE.objects)
    monkeypatch.delenv("HEADRACE_FAILPOINT")
    assert places(queue) == (0, 1 if point == "queue.turn.after" else 0)
    write(database)
    assert sum(counts(queue)) == 400
    tend(queue.session, LAKE.objects)
    write(database)
    tend(queue.session, LAKE.objects)
    assert sum(counts(queue)) == 600, "no reader has passed them"
    row, sequence = places(queue)
    assert row == sequence
    for _ in range(4):
        passed(queue)
        tend(queue.session, LAKE.objects)
        write(database)
    assert sum(counts(queue)) <= 600
    assert places(queue)[0] == places(queue)[1]


# What somebody may do to the sequence by hand; what he sets in a transaction that is rolled back stays set.
BY_HAND = (
    "SELECT setval('headrace.current_main', 2)",
    "BEGIN; SELECT setval('headrace.current_main', 1); ROLLBACK",
    "SELECT nextval('headrace.current_main')",
    "ALTER SEQUENCE headrace.current_main RESTART WITH 2",
    "ALTER SEQUENCE headrace.current_main MINVALUE -9 MAXVALUE 5000000000 CYCLE;"
    " SELECT setval('headrace.current_main', 4000000000)",
    "SELECT setval('headrace.current_main', -9)",
    "ALTER SEQUENCE headrace.current_main SET UNLOGGED",
    "DROP SEQUENCE headrace.current_main;"
    " CREATE SEQUENCE headrace.current_main AS smallint MINVALUE 0 MAXVALUE 2",
)


def test_whatever_is_set_by_hand_loses_nothing_and_fails_no_write(
    database: Database, queue: Capturing
) -> None:
    passed(queue)
    written = 0
    with database.connect(user="app") as writer:
        for statement in BY_HAND:
            database.execute(statement, user="app")
            for _ in range(2):
                writer.execute("INSERT INTO t (v) SELECT repeat('x', 50) FROM generate_series(1, 200)")
                written += 200
                tend(queue.session, LAKE.objects)
                assert places(queue)[0] == places(queue)[1], statement
            assert sum(counts(queue)) == written, statement
    ensure_queue(queue.session, LAKE.objects)


def test_a_sequence_without_the_numbers_of_all_tables_is_refused_with_what_mends_it(
    database: Database, queue: Capturing
) -> None:
    executed(
        database,
        [
            "ALTER SEQUENCE headrace.current_main START 1 RESTART WITH 1 MINVALUE 1 MAXVALUE 2",
            "INSERT INTO t (v) VALUES ('written all the same')",
        ],
    )
    with pytest.raises(Misconfigured) as refused:
        ensure_queue(queue.session, LAKE.objects)
    assert refused.value.code == "QUEUE_UNTRUSTED"
    executed(database, [refused.value.hint.split("; or ")[0]])
    ensure_queue(queue.session, LAKE.objects)
    assert sum(counts(queue)) == 1
