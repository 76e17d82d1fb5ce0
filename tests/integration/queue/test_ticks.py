"""Ticks and batches on a server: each committed event once, transactions whole, and no scan for either."""

from __future__ import annotations

import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from headrace.core.errors import Transient
from headrace.core.names import TableName
from headrace.core.position import STEP, Position
from headrace.core.records import to_record
from headrace.sources import registry
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.mirror import StreamOrder
from headrace.sources.contract.values import Waiting
from headrace.sources.postgres.session.identity import identify
from headrace.sources.queue import capture, origin
from headrace.sources.queue import tick as ticks
from headrace.sources.queue.batch import TickBatch
from headrace.sources.queue.creation import ensure_queue
from headrace.sources.queue.position import TickPlace
from headrace.sources.queue.stream.queue_stream import COLUMNS
from headrace_testing.binaries import ServerUser
from headrace_testing.postgres import Database, Server, postgres
from headrace_testing.postmaster import wait_for
from tests.bound import named_only
from tests.integration.queue.capturing import EVENTS, LAKE, Capturing, capturing, executed
from tests.integration.queue.reading import Reading, end_of, open_at, reading

pytestmark = pytest.mark.server

OTHER = replace(LAKE, lake="headrace_5678abcd_main")


def _captured(database: Database) -> dict[int, int]:
    """The events that are committed, each with its writer."""
    return dict(database.execute(f"SELECT id, tx FROM ({EVENTS}) e"))


def _write(database: Database, seed: int) -> None:
    """Transactions of any kind: short and long, rolled back in part, as a whole, or prepared."""
    chance = random.Random(seed)
    with psycopg.connect(database.url(user="app"), autocommit=True) as writer:
        for number in range(40):
            writer.execute("BEGIN")
            for _ in range(chance.randint(1, 4)):
                writer.execute("SAVEPOINT s")
                writer.execute(
                    "INSERT INTO t SELECT generate_series(1, %s), %s", [chance.randint(1, 9), seed]
                )
                if chance.random() < 0.3:
                    writer.execute("ROLLBACK TO SAVEPOINT s")
            match chance.choice(["COMMIT", "COMMIT", "ROLLBACK", "PREPARE"]):
                case "PREPARE":
                    name = f"{database.name}_{seed}_{number}"
                    writer.execute(f"PREPARE TRANSACTION '{name}'".encode())
                    writer.execute(f"{chance.choice(['COMMIT', 'ROLLBACK'])} PREPARED '{name}'".encode())
                case end:
                    writer.execute(end)


def _exact(found: Reading, database: Database) -> None:
    assert found.writers == _captured(database)
    places: dict[int, set[int]] = {}
    for number, tx in found.writers.items():
        places.setdefault(tx, set()).add(found.times[number])
    assert all(len(times) == 1 for times in places.values()), "a transaction came in parts"


@pytest.fixture
def table(database: Database) -> Any:
    database.execute("CREATE TABLE t (id int, seed int)", user="app")
    with capturing(database) as queue:
        queue.capture("t")
        yield queue


def test_two_receivers_read_each_committed_event_once_at_the_same_tick(
    database: Database, table: Capturing
) -> None:
    with reading(database, (LAKE, OTHER)) as streams, ThreadPoolExecutor(6) as pool:
        writers = [pool.submit(_write, database, seed) for seed in range(4)]
        readers = [pool.submit(s.read_while, lambda: not all(w.done() for w in writers)) for s in streams]
        for each in (*writers, *readers):
            each.result()
        end = end_of(table.session)
        for stream in streams:
            stream.until(end)
            _exact(stream, database)
        assert streams[0].times == streams[1].times
        numbers = [row for (row,) in database.execute("SELECT tick FROM headrace.tick ORDER BY tick")]
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), "ticks have no gaps"


def test_a_quiet_queue_moves_when_it_is_asked_to(database: Database, table: Capturing) -> None:
    kind = registry.by_kind("queue")
    address = kind.address(f"queue+{database.url(user='app')}")
    with reading(database) as [stream], closing(kind.connect(address, role="test")) as session:
        captures = session.mirror(to_record(LAKE)).captures
        assert captures is not None
        for _ in range(3):
            before = end_of(table.session)
            assert captures.advance_log()
            [(newest,)] = database.execute("SELECT max(tick) FROM headrace.tick")
            assert TickPlace.parse(before.text).tick + 1 == newest
            stream.until(Position(before.time + STEP, ""))
    assert not stream.writers


def test_a_transaction_that_was_open_for_long_comes_late_and_holds_up_nobody(
    database: Database, table: Capturing
) -> None:
    with reading(database) as [stream], psycopg.connect(database.url(user="app")) as late:
        late.execute("INSERT INTO t VALUES (0, 0)")
        [(xid,)] = late.execute("SELECT pg_current_xact_id()::text::int8").fetchall()
        for number in range(20):
            executed(database, [f"INSERT INTO t VALUES ({number}, 1)"] * 100)
            stream.until(end_of(table.session))
        assert len(stream.writers) == 2000
        before = stream.complete
        late.commit()
        stream.until(end_of(table.session))
        [event] = [number for number, tx in stream.writers.items() if tx == xid]
        assert stream.times[event] > before
        _exact(stream, database)


def test_ticks_go_by_number_though_the_clock_is_set_back(database: Database, table: Capturing) -> None:
    with reading(database) as [stream]:
        executed(database, ["INSERT INTO t VALUES (1, 1)"])
        stream.until(end_of(table.session))
        # As if the newest tick had been taken before the clock was set back by an hour.
        database.execute("UPDATE headrace.tick SET taken = taken + interval '1 hour'")
        executed(database, ["INSERT INTO t VALUES (2, 2)"])
        stream.until(end_of(table.session))
        assert stream.clocks == sorted(stream.clocks)
        assert stream.clocks[-1] - stream.clocks[0] > 3_500_000_000
        _exact(stream, database)


def test_nothing_is_written_to_a_source_at_which_nothing_happens(
    database: Database, table: Capturing
) -> None:
    with reading(database) as [stream], psycopg.connect(database.url(user="app")) as running:
        running.execute("INSERT INTO t VALUES (1, 1)")
        stream.until(end_of(table.session))
        [(newest,)] = database.execute("SELECT max(tick) FROM headrace.tick")
        # Others come and go, and one of the queue's own is open all the while.
        for _ in range(20):
            database.execute("SELECT pg_current_xact_id()")
            stream.once()
        assert database.execute("SELECT max(tick) FROM headrace.tick") == [(newest,)]
        running.commit()
        stream.until(end_of(table.session))
        _exact(stream, database)


def test_a_tick_waits_for_the_one_before_and_its_snapshot_is_younger(
    database: Database, table: Capturing
) -> None:
    """Whoever takes a snapshot before the lock may have an older one under a greater number."""
    with capturing(database) as other:
        waiting = threading.Thread(target=ticks.take, args=(other.session, LAKE.objects))
        with ticks.taking(table.session, LAKE.objects) as first:
            waiting.start()
            lock = "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"
            wait_for(lambda: database.execute(lock) == [(1,)], "the other waits")
            executed(database, ["INSERT INTO t VALUES (1, 1)"])
        waiting.join()
    [second] = ticks.after(table.session, LAKE.objects, first.number, 9)
    assert second.number == first.number + 1
    [xid] = _captured(database).values()
    assert TickBatch.between(first.snapshot, second.snapshot).holds(xid)


def test_a_lake_begins_behind_rows_that_were_printed_by_what_a_type_was(database: Database) -> None:
    executed(database, ["CREATE TYPE size AS ENUM ('small', 'large')", "CREATE TABLE s (id int, size size)"])
    second = replace(LAKE, lake="headrace_second_main")
    names = [TableName("public", "s")]
    with capturing(database) as queue, database.connect(user="app") as writer:
        queue.capture("s")
        looked = capture.examine(queue.session, second, names).defs.values()
        writer.execute("BEGIN")
        writer.execute("INSERT INTO s VALUES (1, 'small')")
        executed(database, ["ALTER TYPE size RENAME VALUE 'small' TO 'tiny'"])
        told: list[Transient] = []

        def commit(reason: Transient) -> None:
            told.append(reason)
            writer.execute("COMMIT")

        order = StreamOrder(named_only(*names))
        origin.establish(queue.session, identify(queue.session), second, order, Waiting(tell=commit))
        assert [reason.code for reason in told] == ["PG_SNAPSHOT_BARRED"]
        shown = "SELECT pg_visible_in_snapshot(e.tx::text::xid8, t.snapshot)"
        newest = f"(SELECT snapshot FROM {LAKE.objects.tick} ORDER BY tick DESC LIMIT 1) t"
        assert database.execute(f"{shown} FROM ({EVENTS}) e, {newest}") == [(True,)]
        # What was looked at before is something else by now.
        with pytest.raises(TableBusy, match="a type of its columns was altered"):
            capture.define(queue.session, second, looked)
        looked = capture.examine(queue.session, second, names).defs.values()
        assert capture.define(queue.session, second, looked).errors == {}


def test_nobody_without_rights_holds_up_ticks_and_who_has_them_is_named(
    database: Database, table: Capturing
) -> None:
    objects = LAKE.objects
    with database.connect() as stranger, database.connect(user="app") as holder:
        # Whatever number one of ours might take: nobody's advisory lock keeps us.
        stranger.execute("SELECT pg_advisory_lock(1952805739, hashtext('headrace.main'))")
        stranger.execute("SELECT pg_advisory_lock(1751474532)")
        stranger.execute("BEGIN; LOCK TABLE headrace.queue IN ACCESS SHARE MODE")
        ticks.take(table.session, objects)
        ensure_queue(table.session, objects)
        table.session.execute("SET lock_timeout = '100ms'")
        for statement in (
            "SELECT 1 FROM headrace.queue FOR UPDATE",
            "LOCK TABLE headrace.queue IN EXCLUSIVE MODE",
        ):
            holder.execute("BEGIN")
            holder.execute(statement.encode())
            with pytest.raises(Transient) as refused:
                ticks.take(table.session, objects)
            assert refused.value.code == "QUEUE_LOCKED"
            assert f"pid {holder.info.backend_pid} (user app" in (refused.value.detail or ""), statement
            holder.execute("COMMIT")
        ticks.take(table.session, objects)


def test_ticks_are_none_of_serializable_transactions_business(database: Database) -> None:
    """Under such a default a tick could wait for writers, or have one of them fail."""
    for name, value in {"isolation": "serializable", "deferrable": "on", "read_only": "on"}.items():
        database.execute(f"ALTER DATABASE {database.name} SET default_transaction_{name} = '{value}'")
    settings = "BEGIN ISOLATION LEVEL SERIALIZABLE, READ WRITE"
    with database.connect(user="app") as one, database.connect(user="app") as two:
        one.execute("BEGIN READ WRITE; CREATE TABLE t (id int, seed int); COMMIT")
        with capturing(database) as queue:
            queue.capture("t")
            assert queue.session.execute("SHOW transaction_isolation").fetchall() == [("read committed",)]
            assert queue.session.execute("SHOW transaction_deferrable").fetchall() == [("off",)]
            for number in range(20):
                for writer in (one, two):
                    writer.execute(settings)
                    writer.execute("INSERT INTO t VALUES (%s, 1)", [number])
                    ticks.take(queue.session, LAKE.objects)
                    current = f"SELECT setval('headrace.current_main', {number % 3})"
                    queue.session.execute(current.encode())
                ours = "SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND pid = %s"
                assert queue.session.execute(ours, [queue.session.info.backend_pid]).fetchall() == [(0,)]
                one.execute("COMMIT")
                two.execute("COMMIT")
            assert len(queue.events("t")) == 40


@pytest.mark.parametrize("role", ["batches", ""])
def test_a_connection_that_is_ended_is_noticed_and_what_it_had_not_brought_comes_again(
    database: Database, table: Capturing, role: str
) -> None:
    with reading(database) as [stream]:
        ended = database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
            [f"headrace receiver {LAKE.lake} {role}".strip()],
        )
        assert ended == [(True,)]
        executed(database, ["INSERT INTO t VALUES (1, 1)"])
        with pytest.raises(Transient):
            stream.until(end_of(table.session))
        again = open_at(database, LAKE, stream.stream.start)
        try:
            again.until(end_of(table.session))
            _exact(again, database)
        finally:
            again.stream.close()


def _scanned(plan: dict[str, Any]) -> int:
    """The rows that a plan looks at, those that it throws away too."""
    own = sum(int(v) for k, v in plan.items() if k.startswith("Rows Removed")) * plan["Actual Loops"]
    rows = plan["Actual Rows"] * plan["Actual Loops"] if "Scan" in plan["Node Type"] else 0
    return int(own + rows) + sum(map(_scanned, plan.get("Plans", ())))


def test_a_batch_looks_at_its_own_rows_however_long_a_transaction_was_open(
    database: Database, table: Capturing
) -> None:
    with psycopg.connect(database.url(user="app")) as late:
        late.execute("INSERT INTO t VALUES (0, 0)")
        executed(database, ["INSERT INTO t SELECT i, 1 FROM generate_series(1, 200) i"] * 500)
        before = ticks.take(table.session, LAKE.objects)
        late.commit()
    executed(database, ["INSERT INTO t SELECT i, 1 FROM generate_series(1, 50) i"])
    now = ticks.take(table.session, LAKE.objects)
    batch = TickBatch.between(before.snapshot, now.snapshot).query(LAKE.objects, COLUMNS)
    [(plan,)] = database.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {batch}")
    assert "Seq Scan" not in json.dumps([p for p in _nodes(plan[0]["Plan"]) if p["Actual Rows"] > 0])
    assert 51 <= _scanned(plan[0]["Plan"]) < 500, "of a hundred thousand that lie between"


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [node for each in plan.get("Plans", ()) for node in _nodes(each)]
    return [{"Node Type": plan["Node Type"], "Actual Rows": plan["Actual Rows"]}, *inner]


_BEFORE_WRAP = (1 << 32) - 200


def _near_the_end_of_an_epoch(server: Server) -> None:
    """Set the counter of transactions forward, on a server all of whose rows are frozen."""
    for (name,) in server.execute("SELECT datname FROM pg_database WHERE datallowconn"):
        server.execute("VACUUM FREEZE", database=name)
    server.stop()
    data, user = server.postmaster.data, ServerUser.choose()
    # The server wants to look up, in the log of commits, what became of the ones that are skipped.
    segment = data / "pg_xact" / f"{_BEFORE_WRAP >> 20:04X}"
    segment.write_bytes(bytes(256 << 10))
    user.own(segment)
    forward = ["-x", str(_BEFORE_WRAP), "-u", str(_BEFORE_WRAP - 1), "-D", str(data)]
    user.run([server.postmaster.binaries["pg_resetwal"], *forward], cwd=data)
    server.start()


def test_ids_of_transactions_go_on_across_the_end_of_an_epoch() -> None:
    own = postgres(settings={"wal_level": "replica", "autovacuum": False})
    with own as server, server.database() as database:
        database.execute("CREATE TABLE t (id int, seed int)", user="app")
        with capturing(database) as queue:
            queue.capture("t")
        _near_the_end_of_an_epoch(server)
        with capturing(database) as queue, reading(database) as [stream]:
            with psycopg.connect(database.url(user="app")) as late:
                late.execute("INSERT INTO t VALUES (0, 0)")
                for _ in range(8):
                    executed(database, ["INSERT INTO t VALUES (1, 1)"] * 50)
                    stream.until(end_of(queue.session))
                late.commit()
            stream.until(end_of(queue.session))
            _exact(stream, database)
            assert min(stream.writers.values()) < 1 << 32 < max(stream.writers.values())
            assert len(stream.writers) == 401
