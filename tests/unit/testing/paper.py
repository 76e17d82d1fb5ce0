"""Lakes made by hand: what each mark holds and what history says, to be told wrong on purpose."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.core.history import own_fields
from headrace.lake.read.cut import NoHistory

Update = tuple[int, int, tuple[Any, ...], int]  # time, ordinal, row, diff


@dataclass(frozen=True)
class PaperMark:
    epoch: int
    time: int
    versions: dict[str, int]


@dataclass
class PaperTable:
    """A table's columns, its rows at the beginning, and everything that happened to them."""

    schema: pa.Schema
    start: list[tuple[Any, ...]] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)

    def at(self, time: int) -> list[tuple[Any, ...]]:
        rows = Counter(self.start)
        for when, _, row, diff in self.updates:
            if when <= time:
                rows[row] += diff
        return list(rows.elements())

    def version(self, time: int) -> int:
        """A version for each time at which something happened."""
        return len({when for when, *_ in self.updates if when <= time})

    def arrow(self, rows: list[tuple[Any, ...]]) -> pa.Table:
        columns = [[row[i] for row in rows] for i in range(len(self.schema))]
        return pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, self.schema, strict=True)], schema=self.schema
        )

    def history(self, updates: list[Update]) -> pa.Table:
        table = self.arrow([row for _, _, row, _ in updates])
        own = {
            "_time": [time for time, *_ in updates],
            "_diff": [diff for *_, diff in updates],
            "_ordinal": [ordinal for _, ordinal, _, _ in updates],
            "_xid": [time for time, *_ in updates],
            "_commit_ts": [time for time, *_ in updates],
        }
        for entry in own_fields().values():
            table = table.append_column(entry, pa.array(own[entry.name], pa.int64()).cast(entry.type))
        return table


class PaperLake:
    """Marks at the given times over true tables; then whatever a test does to them."""

    def __init__(self, tables: dict[str, PaperTable], times: list[int]) -> None:
        self.tables = tables
        self.written = [
            PaperMark(epoch, time, {name: table.version(time) for name, table in tables.items()})
            for epoch, time in enumerate(times, 1)
        ]
        self.rows = {
            (mark.epoch, name): table.at(mark.time) for mark in self.written for name, table in tables.items()
        }
        self.updates = {name: list(table.updates) for name, table in tables.items()}

    def marks(self, source: str | None = None) -> list[PaperMark]:
        return self.written

    def at(self, *, epoch: int | None = None, source: str | None = None) -> PaperCut:
        return PaperCut(self, self.written[-1 if epoch is None else epoch - 1])


@dataclass(frozen=True)
class PaperCut:
    lake: PaperLake
    mark: PaperMark

    def arrow(self, name: str) -> pa.Table:
        assert name in self.mark.versions
        return self.lake.tables[name].arrow(self.lake.rows[self.mark.epoch, name])

    def schema(self, name: str) -> pa.Schema:
        return self.arrow(name).schema

    def history(self, name: str) -> pa.Table:
        if not self.lake.updates[name]:
            raise NoHistory("LAKE_NO_HISTORY", "none", hint="none")
        return self.lake.tables[name].history(self.lake.updates[name])
