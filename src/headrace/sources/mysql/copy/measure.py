"""The sizes of tables, and the ranges of an index that large ones are cut into, each copied to its own files.

    integers        even steps from the least to the greatest
    other types     steps of a number of rows along the key's index, as long as there is time
    no key, or a type that the server orders in one way and compares in another: one piece

    cuts     k1 < k2 < k3                      values of the key's first column, in the server's order
    pieces   key < k1 │ k1 <= key < k2 │ ...   the first is open to the left, the last to the right

All pieces are read at one moment, and compared with fixed values in the server's own order of the column. So
each row is in exactly one piece, wherever it is moved meanwhile. The cuts are SQL literals, as the server
gave them to the driver.

Sizes and cuts are estimated, or read without a lock. If the table changes meanwhile, or its keys are dense in
one place, only the work is uneven. `measure` cuts ranges, `reader` reads them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from itertools import pairwise

from headrace.core.names import TableName
from headrace.core.schema import Column
from headrace.sources.contract.copying import Piece, TableSizes
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.values import TableDef, TableSize
from headrace.sources.mysql.catalog import questions as catalog
from headrace.sources.mysql.catalog.candidates import sizes
from headrace.sources.mysql.catalog.questions import denial
from headrace.sources.mysql.copy.locks import lock_denied, may_lock
from headrace.sources.mysql.copy.table_access import busy, marks, of_table, overtaken, spell
from headrace.sources.mysql.session.statements import MysqlConnection, Parameter, literal, query, quote
from headrace.sources.mysql.types.columns import base_of
from headrace.sources.shared.refusals import StatementCancelled, TableGone


@dataclass(frozen=True, slots=True)
class IndexRange(Piece):
    """The rows of a table from one value of its key's first column up to another; None means no limit."""

    table: TableName
    mark: str  # of the table when it was measured; another table has another mark (`table_access`)
    column: str | None  # the key's first; None: the whole table
    low: str | None
    high: str | None
    rows: int  # estimates, for progress and for the size of the file
    bytes: int


@dataclass(frozen=True, slots=True)
class Cuts:
    """The places where a table can be cut into parts of about the same size, few or many."""

    column: str | None = None
    literals: tuple[str, ...] = ()


def ranges(table: TableName, mark: str, size: TableSize, cuts: Cuts, target_bytes: int) -> list[IndexRange]:
    """Cut a table into ranges of about `target_bytes` each, as far as there are places to cut it."""
    places = len(cuts.literals) + 1
    count = max(1, min(places, round(size.bytes / target_bytes)))
    edges = [None, *(cuts.literals[places * k // count - 1] for k in range(1, count)), None]
    return [
        IndexRange(
            table=table,
            mark=mark,
            column=cuts.column,
            low=low,
            high=high,
            rows=size.rows * (k + 1) // count - size.rows * k // count,
            bytes=size.bytes * (k + 1) // count - size.bytes * k // count,
        )
        for k, (low, high) in enumerate(pairwise(edges))
    ]


def shares(pieces: Sequence[Piece], readers: int) -> list[list[Piece]]:
    """Deal pieces to the readers, about as many bytes to each; small tables come first in a share.

    If a reader is left out, every table that it has a piece of fails. So a table goes to one reader as a
    whole, unless it is larger than a reader's part.
    """
    held: Counter[TableName] = Counter()
    for piece in pieces:
        held[piece.table] += piece.bytes
    part = sum(held.values()) / readers
    lots: dict[object, list[Piece]] = {}
    for number, piece in enumerate(pieces):
        lots.setdefault(piece.table if held[piece.table] <= part else number, []).append(piece)
    loads = [(0, number) for number in range(readers)]
    heapify(loads)
    dealt: list[list[Piece]] = [[] for _ in range(readers)]
    for lot in sorted(lots.values(), key=_bytes, reverse=True):
        load, number = loads[0]
        dealt[number] += lot
        # An empty table takes time, too.
        heapreplace(loads, (load + _bytes(lot) + 1, number))
    return [sorted(share, key=lambda piece: held[piece.table]) for share in dealt if share]


def _bytes(pieces: Sequence[Piece]) -> int:
    return sum(piece.bytes for piece in pieces)


def where(piece: IndexRange, more: str = "") -> str:
    """The WHERE clause of a range, with one more condition if there is one."""
    limits = [more] if more else []
    if piece.column is not None:
        column = quote(piece.column)
        limits += [f"{column} >= {piece.low}"] if piece.low is not None else []
        limits += [f"{column} < {piece.high}"] if piece.high is not None else []
    return f" WHERE {' AND '.join(limits)}" if limits else ""


def range_number(pieces: Sequence[IndexRange]) -> str:
    """An expression for the number of the range that a row is in; `pieces` are all ranges of its table."""
    cases = [
        f"WHEN {quote(each.column or '')} < {each.high} THEN {number}"
        for number, each in enumerate(pieces)
        if each.high is not None
    ]
    return f"CASE {' '.join(cases)} ELSE {len(pieces) - 1} END" if cases else "0"


STEP_BYTES = 16 << 20  # between two places
_MOST = 4096  # places to cut one table
_WALK_SECONDS = 10.0  # for the steps through one table
_INTEGERS = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint"))
_ORDERED = frozenset(
    ("char", "varchar", "binary", "varbinary", "date", "datetime", "timestamp", "decimal", "uuid")
)


@dataclass(frozen=True, slots=True)
class MysqlTableSizes(TableSizes):
    """The sizes of tables, and the errors of those that can't be read now."""

    marks: Mapping[TableName, str]
    cuts: Mapping[TableName, Cuts] = field(repr=False)

    def pieces(self, tables: Collection[TableName], target_bytes: int) -> list[Piece]:
        return [piece for name in tables for piece in self._ranges(name, target_bytes)]

    def _ranges(self, name: TableName, target_bytes: int) -> list[IndexRange]:
        return ranges(name, self.marks[name], self.sizes[name], self.cuts.get(name, Cuts()), target_bytes)


def measure(connection: MysqlConnection, tables: Sequence[TableDef]) -> MysqlTableSizes:
    """Ask how big these tables are; a table that was dropped meanwhile is among those that can't be read."""
    names = [table.name for table in tables]
    try:
        found, known = _look_at(connection, names)
        held: dict[TableName, TableBusy] = {}
    except catalog.MysqlTableBusy:
        found, known, held = _one_by_one(connection, names)
    cuts: dict[TableName, Cuts] = {}
    for table in (table for table in tables if table.name in found and table.name in known):
        try:
            with of_table(table.name):
                cuts[table.name] = _cuts(connection, table, found[table.name])
        except (TableBusy, TableGone) as error:
            held[table.name] = busy(table.name, error)
    there = {name: found[name] for name in names if name in found and name in known and name not in held}
    for table in tables:
        if table.name not in there and table.name not in held:
            held[table.name] = _unseen_error(connection, table)
    held |= _denied_tables(connection, there)
    return MysqlTableSizes({n: size for n, size in there.items() if n not in held}, held, known, cuts)


def _denied_tables(connection: MysqlConnection, names: Collection[TableName]) -> dict[TableName, TableBusy]:
    """The tables of databases in which we may lock no table: a copy can't take a moment of them."""
    barred = {schema for schema in {name.schema for name in names} if not may_lock(connection, schema)}
    return {name: busy(name, lock_denied([name.schema])) for name in names if name.schema in barred}


def _unseen_error(connection: MysqlConnection, table: TableDef) -> TableBusy:
    """The reason why the server does not show a table."""
    denied = denial(connection, table.name, [column.name for column in table.schema.columns])
    if denied is not None:
        return busy(table.name, denied)
    return overtaken(f"{table.name} was dropped, or somebody alters it just now")


def _look_at(
    connection: MysqlConnection, names: Sequence[TableName]
) -> tuple[dict[TableName, TableSize], dict[TableName, str]]:
    return sizes(connection, names), marks(connection, names)


def _one_by_one(
    connection: MysqlConnection, names: Sequence[TableName]
) -> tuple[dict[TableName, TableSize], dict[TableName, str], dict[TableName, TableBusy]]:
    """Measure tables one by one, if the server left out one of them."""
    found: dict[TableName, TableSize] = {}
    known: dict[TableName, str] = {}
    held: dict[TableName, TableBusy] = {}
    for name in names:
        try:
            size, mark = _look_at(connection, [name])
        except catalog.MysqlTableBusy as error:
            held[name] = busy(name, error)
        else:
            found |= size
            known |= mark
    return found, known, held


def _cuts(connection: MysqlConnection, table: TableDef, size: TableSize) -> Cuts:
    """The places where a table can be cut."""
    steps = min(_MOST, size.bytes // STEP_BYTES)
    if steps < 2 or not table.schema.key:
        return Cuts()
    first = table.schema.key[0]
    [column] = [each for each in table.schema.columns if each.name == first]
    if column.clear_type is not None:
        return Cuts()  # the places are values, and a task is handed them
    base = base_of(column.source_type)
    if base in _INTEGERS:
        return Cuts(first, _even(connection, table.name, column, steps))
    if base in _ORDERED:
        return Cuts(first, _walk(connection, table.name, column, max(1, size.rows // steps)))
    return Cuts()


def _even(connection: MysqlConnection, table: TableName, column: Column, steps: int) -> tuple[str, ...]:
    """Whole numbers at even distances between the least and the greatest, which the index has at its ends."""
    key = quote(column.name)
    [(least, greatest)] = query(connection, f"SELECT MIN({key}), MAX({key}) FROM {spell(table)}")
    if least is None or greatest is None:
        return ()
    low, high = int(str(least)), int(str(greatest))
    places = {low + (high - low) * k // steps for k in range(1, steps)}
    return tuple(literal(place) for place in sorted(places - {low}))


def _walk(connection: MysqlConnection, table: TableName, column: Column, rows: int) -> tuple[str, ...]:
    """Values with about `rows` rows between them, as many as are found in time."""
    key, found = quote(column.name), list[str]()
    deadline = time.monotonic() + _WALK_SECONDS
    while len(found) < _MOST and (left := deadline - time.monotonic()) > 0:
        behind = f" WHERE {key} > {found[-1]}" if found else ""
        statement = f"SELECT {key} FROM {spell(table)}{behind} ORDER BY {key} LIMIT 1 OFFSET {rows}"
        try:
            values = query(connection, statement, seconds=left)
        except StatementCancelled:
            break
        if not values:
            break
        value: Parameter = values[0][0]
        found.append(literal(value))
    return tuple(found)
