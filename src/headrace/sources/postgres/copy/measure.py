"""The sizes of tables, and how they are cut into ranges of pages."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.core.names import TableName
from headrace.sources.contract.copying import Piece
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.values import TableDef, TableSize
from headrace.sources.postgres.catalog import locks
from headrace.sources.postgres.catalog import sizes as in_pages
from headrace.sources.postgres.catalog.definitions import read_entries
from headrace.sources.postgres.catalog.partition_tree import Branch, leaves
from headrace.sources.postgres.catalog.table_def import is_root
from headrace.sources.postgres.copy.page_ranges import ranges, ranges_of_root
from headrace.sources.postgres.copy.table_access import overtaken
from headrace.sources.postgres.session.statements import Session


@dataclass(frozen=True, slots=True)
class PostgresMeasure:
    """The sizes of tables; those that cannot be read just now, with the error that says why."""

    sizes: Mapping[TableName, TableSize]
    busy: Mapping[TableName, TableBusy]
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
    """Ask how big these tables are; of one that was dropped meanwhile nothing can be read either."""
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
    """The trees beneath those that are partitioned, as they are now."""
    numbers = [table.number for table in tables if is_root(table.details)]
    entries = read_entries(connection, numbers).values() if numbers else ()
    return {entry.oid: entry.tree for entry in entries}


def _is_there(number: int, tree: Sequence[Branch], sizes: Mapping[int, in_pages.RelationSize]) -> bool:
    return number in sizes and all(leaf.oid in sizes for leaf in leaves(tree))


def _size(number: int, tree: Sequence[Branch], sizes: Mapping[int, in_pages.RelationSize]) -> TableSize:
    size = in_pages.total([sizes[number], *(sizes[leaf.oid] for leaf in leaves(tree))])
    return TableSize(size.bytes, size.rows)
