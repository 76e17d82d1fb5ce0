"""The sizes of tables, and how they are cut into ranges of pages.

Called by `source` for whoever copies or compares tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.core.names import TableName
from headrace.sources.contract.copying import Piece
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.tables import Size, TableDef
from headrace.sources.postgres.catalog import locks
from headrace.sources.postgres.catalog import sizes as in_pages
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.snapshot.page_ranges import ranges
from headrace.sources.postgres.snapshot.table_access import overtaken


@dataclass(frozen=True, slots=True)
class MeasuredTables:
    """The sizes of tables; those that cannot be read just now, with the error that says why."""

    sizes: Mapping[TableName, Size]
    busy: Mapping[TableName, TableBusy]
    numbers: Mapping[TableName, int]
    pages: Mapping[int, in_pages.Size] = field(repr=False)

    def pieces(self, tables: Collection[TableName], target_bytes: int) -> list[Piece]:
        return [
            piece
            for name in tables
            for piece in ranges(name, self.numbers[name], self.pages[self.numbers[name]], target_bytes)
        ]


def measure(connection: Session, tables: Sequence[TableDef]) -> MeasuredTables:
    """Ask how big these tables are; of one that was dropped meanwhile nothing can be read either."""
    numbers = {table.name: table.number for table in tables}
    found = locks.measured(connection, {number: name for name, number in numbers.items()})
    there = {name: found.sizes[number] for name, number in numbers.items() if number in found.sizes}
    gone = {
        name: overtaken(f"{name} was dropped or made anew a moment ago")
        for name in numbers
        if name not in there and name not in found.busy
    }
    sizes = {name: Size(size.bytes, size.rows) for name, size in there.items()}
    return MeasuredTables(sizes, {**found.busy, **gone}, numbers, found.sizes)
