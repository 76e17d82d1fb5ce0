"""Chunks of a table on real servers: where they end, what they hold, and whom they keep waiting."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event

import pyarrow as pa
import pytest

from headrace.core.chunks import Bound, KeySpan
from headrace.core.errors import Definite
from headrace.core.handoff import ByPosition
from headrace.core.keycode import keycode
from headrace.core.names import TableName
from headrace.core.position import STEP
from headrace.sources.contract.copying import CopyOrder, KeyRange, Reader
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.values import ALONE, TableDef
from headrace.sources.mysql.copy import reader as readers
from headrace.sources.mysql.copy.plan import MysqlCopyPlan, MysqlKeyWalk
from headrace.sources.mysql.copy.reader import reader
from headrace.sources.mysql.declaration import CHUNKS, HANDOFF
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.upstream import MysqlUpstream
from headrace_testing.mysql import Database
from headrace_testing.postmaster import wait_for
from tests.bound import mysql_mirror
from tests.integration.mysql.copy.copies import defined
from tests.integration.mysql.copy.moments import TOTAL, Transfers, executed

pytestmark = pytest.mark.server


@contextmanager
def planned(database: Database, *names: str) -> Iterator[tuple[MysqlCopyPlan, dict[str, TableDef]]]:
    """The plan of a copy in chunks, and its tables."""
    tables = defined(database, *names)
    address = MysqlAddress.parse(database.url(user="mirror"))
    with connect(address, role="test") as session:
        mirror = mysql_mirror(session, MysqlUpstream())
        order = CopyOrder(list(tables.values()), 1, {HANDOFF.name: CHUNKS})
        yield mirror.plan_copy(order), {name.name: table for name, table in tables.items()}


@contextmanager
def walking(database: Database, name: str) -> Iterator[tuple[MysqlKeyWalk, Reader, TableDef]]:
    """A walk along the key of a table, and a reader of its chunks."""
    with planned(database, name) as (plan, tables), plan.key_walk(ALONE) as walk:
        server = plan.server
        with reader(server.address, server.identity, walk.ticket, role="copy") as reading:
            yield walk, reading, tables[name]


def piece(table: TableDef, *spans: KeySpan) -> KeyRange:
    return KeyRange(table.name, table.number, table.schema.key, spans, 1, 1)


def read(
    reading: Reader, table: TableDef, *spans: KeySpan, before: Callable[[], object] = lambda: None
) -> tuple[pa.Table, ByPosition]:
    """The rows of these ranges; `before` is called before the first of them."""
    with reading.read(table.schema.columns, piece(table, *spans)) as one:
        before()
        rows = [copied.rows for copied in one.rows]
        assert isinstance(one.handoff, ByPosition)
        return pa.concat_tables(rows or [table.schema.arrow().empty_table()]), one.handoff


def ends(walk: MysqlKeyWalk, table: TableDef, rows: int) -> list[Bound]:
    """The ends of chunks of so many rows."""
    found: list[Bound] = []
    while True:
        low = found[-1] if found else None
        bound = walk.next_bound(table, KeySpan(low), rows, lambda: None)
        if bound is None:
            return found
        found.append(bound)


KEYS = {
    "numbers": ("a bigint unsigned, b decimal(20,3), c tinyint", "a, b, c"),
    "times": ("a date, b datetime(6), c timestamp(3)", "b, a, c"),
    "bytes": ("a varbinary(9), b binary(4), c smallint", "a, b, c"),
}


def _values(kind: str, dice: random.Random) -> str:
    if kind == "numbers":
        big = dice.choice([0, 1, 2**63 - 1, 2**63, 2**64 - 1])
        return f"{big}, {dice.randint(-3, 3)}.{dice.randint(0, 2)}, {dice.randint(-3, 3)}"
    if kind == "times":
        day = f"20{dice.randint(10, 12)}-0{dice.randint(1, 3)}-0{dice.randint(1, 3)}"
        second = f"{day} 00:00:0{dice.randint(0, 2)}.{dice.choice(['0', '000001', '5'])}"
        return f"'{day}', '{second}', '{day} 01:00:00.{dice.randint(0, 2)}'"
    a, b = (dice.choice([b"", b"\0", b"a", b"a\0", b"a ", b"A", b"\xff"]).hex() for _ in range(2))
    return f"X'{a}', X'{b}', {dice.randint(-3, 3)}"


@pytest.mark.parametrize("kind", KEYS)
def test_the_chunks_of_a_table_hold_each_row_once_in_the_lakes_order(
    database: Database, kind: str, seed: int
) -> None:
    columns, key = KEYS[kind]
    dice = random.Random(seed)
    database.execute(f"CREATE TABLE t ({columns}, PRIMARY KEY ({key}))")
    values = ", ".join(f"({_values(kind, dice)})" for _ in range(300))
    database.execute(f"INSERT IGNORE INTO t VALUES {values}")
    with walking(database, "t") as (walk, reading, table):
        bounds = ends(walk, table, 7)
        edges = [None, *bounds, None]
        spans = [KeySpan(low, high) for low, high in itertools.pairwise(edges)]
        parts = [read(reading, table, span)[0] for span in spans]
        whole, _ = read(reading, table, KeySpan())
        one, other = bounds[1], bounds[-1]
        single, _ = read(reading, table, *(KeySpan(each, each.behind) for each in (one, other)))
        between, _ = read(reading, table, KeySpan(one.behind, other))
        rest, _ = read(reading, table, KeySpan(None, one), KeySpan(other.behind, None))
    codes = [keycode([part.column(name) for name in table.schema.key]).to_pylist() for part in parts]
    assert [len(each) for each in codes[:-1]] == [7] * len(bounds)
    assert len(codes) > 20
    for number, each in enumerate(codes):
        assert all(edges[number] is None or edges[number].code <= code for code in each)  # type: ignore[union-attr]
        assert all(edges[number + 1] is None or code < edges[number + 1].code for code in each)  # type: ignore[union-attr]
    assert sum(map(len, codes)) == whole.num_rows == single.num_rows + between.num_rows + rest.num_rows
    assert single.num_rows == 2


def test_a_chunk_is_what_its_handoff_says_and_nobody_waits_long(bank: Database) -> None:
    """The chunk is of the table that counts the moves."""
    before = executed(bank)
    with walking(bank, "moves") as (_, reading, table), Transfers(bank, 4) as transfers:
        wait_for(lambda: transfers.done > 20, "the writers")
        seen = []
        for _ in range(20):
            # While rows are read, each of the writers goes on, whatever waited for the lock.
            rows, handoff = read(reading, table, KeySpan(), before=transfers.go_on)
            seen.append((rows.num_rows, (handoff.frontier.time - before) // STEP))
        # Nothing else wrote to this server: each transfer is one transaction of the log, with one move.
        assert [shown for shown, _ in seen] == [held for _, held in seen]
    assert len(set(seen)) > 10
    assert bank.execute("SELECT (SELECT SUM(v) FROM a) + (SELECT SUM(v) FROM b)") == [(TOTAL,)]


def test_tables_whose_keys_have_another_order_are_copied_in_one_moment(database: Database) -> None:
    for name, columns in {
        "fit": "a int PRIMARY KEY",
        "keyless": "a int",
        "text_key": "a varchar(20) PRIMARY KEY",
        "unique_only": "a int NOT NULL UNIQUE",
        "digits": "a decimal(65,0) PRIMARY KEY",
        "half_text": "a int, b char(3), PRIMARY KEY (a, b)",
        "floating": "a double PRIMARY KEY",
        "prefix": "a blob, PRIMARY KEY (a(3))",
    }.items():
        database.execute(f"CREATE TABLE {name} ({columns})")
    every = ("fit", "keyless", "text_key", "unique_only", "digits", "half_text", "floating", "prefix")
    with planned(database, *every) as (plan, _):
        assert plan.by_ranges == {TableName(database.name, "fit")}


def test_a_chunk_whose_lock_is_not_to_be_had_leaves_its_table_to_another_copy(
    bank: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "LOCK_SECONDS", 0.5)
    with walking(bank, "a") as (_, reading, table):
        with bank.connect() as writer, writer.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("UPDATE a SET v = v + 1 WHERE id = 1")
            with pytest.raises(TableBusy) as refused:
                read(reading, table, KeySpan())
            assert refused.value.code == "MY_TABLES_HELD"
            cursor.execute("ROLLBACK")
        rows, _ = read(reading, table, KeySpan())
    assert rows.num_rows == 10


@pytest.mark.parametrize(
    "change", ["DROP TABLE a", "ALTER TABLE a MODIFY id bigint", "ALTER TABLE a DROP PRIMARY KEY"]
)
def test_a_table_that_is_another_by_now_is_not_read(bank: Database, change: str) -> None:
    with walking(bank, "a") as (_, reading, table):
        bank.execute(change)
        with pytest.raises(TableBusy) as refused:
            read(reading, table, KeySpan())
    assert refused.value.code in ("MY_COPY_OVERTAKEN", "MY_TABLE_GONE")


def test_a_reader_that_ends_within_a_chunk_keeps_nobody_waiting(bank: Database) -> None:
    stopped = Event()
    with walking(bank, "a") as (_, reading, table):
        with suppress(Definite), reading.read(table.schema.columns, piece(table, KeySpan())) as one:
            next(one.rows)
            bank.execute("UPDATE a SET v = v + 1 WHERE id = 1")  # the lock has gone before the rows come
            stopped.set()
        bank.execute("ALTER TABLE a ADD w int")  # and the view with its chunk
    assert stopped.is_set()
