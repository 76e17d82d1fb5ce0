"""The sizes of tables, and the ranges of pages in which a table is copied, each by one COPY.

A table is cut by its size in pages. If it grows later, the last range has more work, since it has no end. A
partitioned table is cut partition by partition. The driver cuts ranges; a `follower` copies them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.core.names import TableName, quote_identifier
from headrace.sources.contract.copying import Piece, TableSizes
from headrace.sources.contract.values import TableDef, TableSize
from headrace.sources.postgres.catalog import locks
from headrace.sources.postgres.catalog import locks as in_pages
from headrace.sources.postgres.catalog.definitions import read_entries
from headrace.sources.postgres.catalog.locks import RelationSize
from headrace.sources.postgres.catalog.partition_tree import Branch, fingerprint, leaves
from headrace.sources.postgres.catalog.table_def import is_root
from headrace.sources.postgres.copy.table_access import overtaken
from headrace.sources.postgres.session.statements import Session
from headrace.sources.shared.copying import SMALL_BYTES, parts_per_task


@dataclass(frozen=True, slots=True)
class PostgresMeasure(TableSizes):
    """The sizes of tables, and the errors of those that can't be read now."""

    numbers: Mapping[TableName, int]
    pages: Mapping[int, in_pages.RelationSize] = field(repr=False)
    roots: Mapping[int, tuple[Branch, ...]] = field(repr=False)

    def pieces(self, tables: Collection[TableName], target_bytes: int) -> list[Piece]:
        return [piece for name in tables for piece in self._pieces(name, self.numbers[name], target_bytes)]

    def _pieces(self, name: TableName, number: int, target_bytes: int) -> Sequence[Piece]:
        if number in self.roots:
            return ranges_of_root(name, number, self.roots[number], self.pages, target_bytes)
        return ranges(name, number, self.pages[number], target_bytes)


def measure(connection: Session, tables: Sequence[TableDef]) -> PostgresMeasure:
    """Ask how big these tables are; a table that was dropped meanwhile is among those that can't be read."""
    numbers = {table.name: table.number for table in tables}
    roots = _trees(connection, tables)
    beneath = {leaf.oid: name for name, number in numbers.items() for leaf in leaves(roots.get(number, ()))}
    found = locks.measure(connection, {number: name for name, number in numbers.items()} | beneath)
    there = {
        name: _size(number, roots.get(number, ()), found.sizes)
        for name, number in numbers.items()
        if name not in found.busy and _is_there(number, roots.get(number, ()), found.sizes)
    }
    gone = {
        name: overtaken(f"{name} was dropped or made anew a moment ago")
        for name in numbers
        if name not in there and name not in found.busy
    }
    return PostgresMeasure(there, {**found.busy, **gone}, numbers, found.sizes, roots)


def _trees(connection: Session, tables: Sequence[TableDef]) -> dict[int, tuple[Branch, ...]]:
    """The trees beneath the partitioned tables, as they are now."""
    numbers = [table.number for table in tables if is_root(table.details)]
    entries = read_entries(connection, numbers).values() if numbers else ()
    return {entry.oid: entry.tree for entry in entries}


def _is_there(number: int, tree: Sequence[Branch], sizes: Mapping[int, in_pages.RelationSize]) -> bool:
    return number in sizes and all(leaf.oid in sizes for leaf in leaves(tree))


def _size(number: int, tree: Sequence[Branch], sizes: Mapping[int, in_pages.RelationSize]) -> TableSize:
    size = in_pages.total([sizes[number], *(sizes[leaf.oid] for leaf in leaves(tree))])
    return TableSize(size.bytes, size.rows, size.changes_an_hour)


@dataclass(frozen=True, slots=True)
class CopyRange(Piece):
    """Pages `low_page <= page < high_page` of a table; the last range of a table has no end.

    A partitioned table has pages only in its partitions: `leaf` is the partition to read. `tree` is the
    fingerprint of the partitions that the table was cut by.
    """

    table: TableName
    oid: int  # of the table: by now its name may belong to another one
    low_page: int
    high_page: int | None
    rows: int  # estimates, for progress and for the size of the file
    bytes: int
    leaf: TableName | None = None
    leaf_oid: int = 0
    tree: int | None = None

    @property
    def read(self) -> TableName:
        """The table whose rows are read: the partition, or the table itself."""
        return self.leaf or self.table

    @property
    def read_oid(self) -> int:
        return self.leaf_oid or self.oid


def ranges_of_root(
    table: TableName, oid: int, tree: Sequence[Branch], sizes: Mapping[int, RelationSize], target_bytes: int
) -> list[CopyRange]:
    """Cut the partitions of a root into ranges; a root without partitions is one range without rows."""
    mark = fingerprint(tree)
    cut = [
        replace(piece, leaf=leaf.name, leaf_oid=leaf.oid, tree=mark)
        for leaf in leaves(tree)
        for piece in ranges(table, oid, sizes[leaf.oid], target_bytes)
    ]
    return cut or [CopyRange(table, oid, 0, None, 0, 0, tree=mark)]


def ranges(table: TableName, oid: int, size: RelationSize, target_bytes: int) -> list[CopyRange]:
    """Cut a table into ranges of about `target_bytes` each, TOAST included; each page is in exactly one."""
    count = max(1, min(size.pages, round(size.bytes / target_bytes)))
    edges = [size.pages * k // count for k in range(count)]
    return [
        CopyRange(
            table=table,
            oid=oid,
            low_page=low,
            high_page=edges[k + 1] if k + 1 < count else None,
            rows=size.rows * (k + 1) // count - size.rows * k // count,
            bytes=size.bytes * (k + 1) // count - size.bytes * k // count,
        )
        for k, low in enumerate(edges)
    ]


def shares(pieces: Sequence[Piece], readers: int) -> list[list[Piece]]:
    """Deal ranges to readers, small tables first: several small ranges in one share, the others alone."""
    held: Counter[TableName] = Counter()
    for piece in pieces:
        held[piece.table] += piece.bytes
    by_size = sorted(pieces, key=lambda piece: held[piece.table])
    small = [piece for piece in by_size if piece.bytes <= SMALL_BYTES]
    large = [piece for piece in by_size if piece.bytes > SMALL_BYTES]
    some = parts_per_task(len(small), readers)
    return [small[at : at + some] for at in range(0, len(small), some)] + [[one] for one in large]


def copy_statement(columns: Sequence[str], piece: CopyRange, condition: str = "") -> str:
    """The COPY of a range's rows under a condition, if there is one.

    ONLY: the children of an inheritance parent are copied as themselves.
    """
    listed = ", ".join(quote_identifier(column) for column in columns)
    bounds = [f"ctid >= '({piece.low_page},0)'::tid"] if piece.low_page else []
    if piece.high_page is not None:
        bounds.append(f"ctid < '({piece.high_page},0)'::tid")
    bounds += [condition] if condition else []
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    return f"COPY (SELECT {listed} FROM ONLY {piece.read}{where}) TO STDOUT"
