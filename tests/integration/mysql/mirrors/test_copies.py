"""Copies beside writers, and one that lasts for longer than the server lets a session of ours sleep."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from headrace.core.errors import HeadraceError
from headrace.core.schema import Column
from headrace.lake.read.lake import Lake
from headrace.pipeline import run
from headrace.pipeline.commands.ask import ask
from headrace.pipeline.resync import replacement
from headrace.pipeline.resync.comparison import KnownChecksums
from headrace.pipeline.resync.replacement import Workers
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.status_report import Reporter
from headrace.pipeline.verify import proof
from headrace.sources.contract.copying import Piece, PieceRead
from headrace.sources.contract.values import Json
from headrace.sources.mysql.copy import locks
from headrace.sources.mysql.copy.leader import MysqlLeader
from headrace.sources.mysql.copy.reader import MomentReader
from headrace_testing import validators
from headrace_testing.mysql import Database
from headrace_testing.postmaster import wait_for
from tests.conformance.conftest import Mirror
from tests.integration.mysql.mirrors.judging import assert_exact, kinds

pytestmark = pytest.mark.server

SLEEP_SECONDS = 1


class _Writer:
    """Transactions of so many rows: slowly, and half of them at most, until `let_go`; then all at once."""

    def __init__(self, database: Database, transactions: int, rows: int) -> None:
        self.committed = 0
        self.let_go = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(database, transactions, rows))

    def __enter__(self) -> _Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go.set()
        self._thread.join()

    def _write(self, database: Database, transactions: int, rows: int) -> None:
        with database.connect() as connection, connection.cursor() as cursor:
            for number in range(1, transactions + 1):
                values = ", ".join(f"(NULL, {number})" for _ in range(rows))
                cursor.execute(f"INSERT INTO t VALUES {values}")
                self.committed = number
                self.let_go.wait(0.02 if 2 * number < transactions else None)


@kinds("mysql")
@pytest.mark.parametrize(
    ("copied", "transactions", "rows"),
    [(4096, 200, 10), pytest.param(1_000_000, 1000, 100, marks=pytest.mark.full)],
)
def test_rows_that_come_while_a_table_is_copied_are_there_once(
    mirror: Mirror,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    copied: int,
    transactions: int,
    rows: int,
) -> None:
    """The moment stands amid the writer's transactions, and most of them come while its rows are read."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY AUTO_INCREMENT, number int NOT NULL)")
    _fill(database, copied)
    read, before = MomentReader.read, list[int]()

    @contextmanager
    def beside(
        reader: MomentReader, columns: Sequence[Column], piece: Piece, known: Json
    ) -> Iterator[PieceRead]:
        with read(reader, columns, piece, known) as reading:
            before.append(writer.committed)
            writer.let_go.set()
            wait_for(lambda: writer.committed >= (before[0] + transactions) // 2, "rows beside the copy")
            yield reading

    monkeypatch.setattr(MomentReader, "read", beside)
    with _Writer(database, transactions, rows) as writer:
        wait_for(lambda: writer.committed > 3, "rows before the copy")
        lake = mirror.once()
        there = [_numbers(lake, mark.epoch) for mark in lake.marks() if mark.versions]
    lake = mirror.once()
    there += [_numbers(lake, lake.marks()[-1].epoch)]
    for found in there:
        assert found == {0: copied, **dict.fromkeys(range(1, len(found)), rows)}
    assert 3 < before[0] < transactions
    assert sum(there[-1].values()) == copied + transactions * rows
    assert_exact(lake, mirror.place.url)


def _fill(database: Database, rows: int) -> None:
    database.execute("INSERT INTO t VALUES (NULL, 0)")
    there = 1
    while there < rows:
        more = min(there, rows - there)
        database.execute(f"INSERT INTO t SELECT NULL, 0 FROM t LIMIT {more}")
        there += more


def _numbers(lake: Lake, epoch: int) -> Counter[int]:
    """Count the rows of each transaction that a mark shows."""
    return Counter(lake.at(epoch=epoch).arrow("t")["number"].to_pylist())


@kinds("mysql")
def test_a_snapshot_lasts_for_as_long_as_its_readers_read(
    mirror: Mirror, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session that holds the snapshot is idle meanwhile, and the server ends idle sessions."""
    monkeypatch.setattr(locks, "KEPT_SECONDS", SLEEP_SECONDS)
    monkeypatch.setattr(locks, "PING_SECONDS", SLEEP_SECONDS / 5)
    monkeypatch.setattr(locks, "LOOK_SECONDS", SLEEP_SECONDS / 5)
    for name in ("a", "b"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
        database.execute(f"INSERT INTO {name} VALUES (1), (2)")
    times = Counter[str]()
    read = MomentReader.read

    @contextmanager
    def slowly(
        reader: MomentReader, columns: Sequence[Column], piece: Piece, known: Json
    ) -> Iterator[PieceRead]:
        times[piece.table.name] += 1
        with read(reader, columns, piece, known) as reading:
            yield reading
        if times.total() > 1:
            return
        leader = reader._follower._ticket.connection
        there = f"SELECT COUNT(*) FROM information_schema.processlist WHERE id = {leader}"
        end = time.monotonic() + 2.5 * SLEEP_SECONDS
        wait_for(lambda: time.monotonic() > end or database.execute(there) == [(0,)], "the leader stays")

    monkeypatch.setattr(MomentReader, "read", slowly)
    lake = mirror.once(snapshot_connections=1)
    assert times == {"a": 1, "b": 1}
    assert_exact(lake, mirror.place.url)


@kinds("mariadb")
def test_a_moment_that_no_reader_saw_is_tried_again_and_no_live_table_waits(
    mirror: Mirror, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends the attempt has every live table of the source wait until the next one."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1), (2)")
    opened, gates, settle = Counter[str](), MysqlLeader._open_gates, Reporter.settle
    said: list[str] = []

    def too_late(leader: MysqlLeader) -> list[int]:
        opened["gates"] += 1
        return [] if opened["gates"] < 3 else gates(leader)

    def heard(reporter: Reporter, state: str, *reason: HeadraceError) -> None:
        said.append(state)
        settle(reporter, state, *reason)

    monkeypatch.setattr(MysqlLeader, "_open_gates", too_late)
    monkeypatch.setattr(Reporter, "settle", heard)
    lake = mirror.once()
    assert opened["gates"] >= 3  # a busy machine may have the readers miss it once more
    assert "waiting" not in said
    assert_exact(lake, mirror.place.url)


def _mirror_two(mirror: Mirror, database: Database) -> None:
    for name in ("a", "b"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
        database.execute(f"INSERT INTO {name} VALUES (1), (2)")
    mirror.once()


@kinds("mysql")
def test_a_proof_is_tried_again_for_the_tables_whose_readers_missed_the_moment(
    mirror: Mirror, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine lets readers miss it: first all of them, then all but one."""
    _mirror_two(mirror, database)
    opened, gates = list[int](), MysqlLeader._open_gates

    def too_late(leader: MysqlLeader) -> list[int]:
        opened.append(leader.ticket.readers)
        present = gates(leader)
        return present[: len(opened) - 1]

    monkeypatch.setattr(MysqlLeader, "_open_gates", too_late)
    monkeypatch.setattr(proof, "MISSED_SECONDS", (0.0, 0.0))
    assert mirror.verify() == {f"{database.name}.{name}": "equal" for name in ("a", "b")}
    assert len(opened) == 3


@kinds("mysql")
def test_a_proof_whose_readers_come_too_late_takes_nothing_back(
    mirror: Mirror, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verify reads rows that differ at a moment of their own, and retries later the tables it missed."""
    _mirror_two(mirror, database)
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("INSERT INTO a VALUES (3)")
        cursor.execute("INSERT INTO b VALUES (3)")
        connection.commit()
    opened, gates = list[int](), MysqlLeader._open_gates
    present = [1]  # reader: one table's, and nobody from then on

    def late(leader: MysqlLeader) -> list[int]:
        opened.append(leader.ticket.readers)
        here = gates(leader)
        return here[: present.pop()] if present else []

    monkeypatch.setattr(MysqlLeader, "_open_gates", late)
    monkeypatch.setattr(proof, "MISSED_SECONDS", (0.0, 0.0))
    assert sorted(mirror.verify().values()) == ["different", "not compared"]
    assert len(opened) == 1 + 3 + 2  # one table, its rows that differ, the other table
    present[:] = [1, 1, 1, 0, 1]  # the last is the first: the rows of one are there at the second try
    assert sorted(mirror.verify().values()) == ["different", "different"]
    assert not present


@kinds("mysql")
def test_rows_of_no_transaction_are_proved_read_and_told_like_any_others(
    mirror: Mirror, database: Database
) -> None:
    """A copy brings what was never logged; history has those rows beside others of the same file."""
    _mirror_two(mirror, database)
    name = f"{database.name}.a"
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("INSERT INTO a VALUES (30)")
        connection.commit()
    database.execute("INSERT INTO a VALUES (31)")
    mirror.once()
    assert mirror.verify()[name] == "different"
    mirror.ask("resync", "a")
    executed = "gtid_binlog_pos" if database.server.flavour.is_mariadb else "gtid_executed"
    told = list[tuple[str, int]]()
    for number in (32, 33):
        database.execute(f"INSERT INTO a VALUES ({number})")
        told.append((str(database.server.execute(f"SELECT @@global.{executed}")[0][0]), number))
    lake = mirror.once()
    assert mirror.verify()[name] == "equal"
    ask(str(mirror.path), "maintain", {}, url=mirror.place.url)  # history becomes one file
    assert mirror.verify()[name] == "equal"
    for position, newest in told:
        assert max(lake.at(position=position).arrow(name)["id"].to_pylist()) == newest
    assert {30, 31, 32, 33} <= set(lake.at().arrow(name)["id"].to_pylist())
    assert validators.definite(lake) == []


@kinds("mysql")
def test_new_copies_that_are_ready_one_by_one_wait_for_no_commit_and_hide_none(
    mirror: Mirror, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One position has room for three differences, and this server does not move by itself."""
    tables = [f"t{number}" for number in range(5)]
    for table in tables:
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
        database.execute(f"INSERT INTO {table} VALUES (1)")
    mirror.once()
    mirror.ask("resync", *tables)
    begun = time.monotonic()

    def near(ledger: Ledger, runner: Workers, copy: TableRecord, checksums: KnownChecksums) -> bool:
        replaced = len(tables) - len(ledger.staged)
        return replaced >= tables.index(copy.name.name) or time.monotonic() - begun > 10

    monkeypatch.setattr(replacement, "near", near)
    mirror.once()
    mirror.ask("resync", "t0")
    monkeypatch.setattr(run, "ATTEMPTS_ONCE", 1)
    assert mirror.stops().code == "RESYNC_WAITS"
    database.execute("INSERT INTO t0 VALUES (2)")
    assert_exact(mirror.once(), mirror.place.url)
