"""A lake made from a list of transactions, and what each of its tables held after any of them.

    transactions    [(commit LSN, commit timestamp, {table: [(row, diff), ...]}), ...]
    epochs          how many transactions go into each mark

The lake is written by the real commit machine; states are a Counter, summed up one by one. Rows are tuples
of a schema with the types that engines like to get wrong, drawn from few values so that they often meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.change_batch import TIMESTAMP
from headrace.core.history import own_fields, own_names
from headrace.core.keycode import keycode
from headrace.core.names import TableName
from headrace.lake.format import datafile, formatfile, layout, schemas
from headrace.lake.format.plan import DataFile, Plan, TableStep
from headrace.lake.format.vector import Vector
from headrace.lake.log.commit import EpochLog
from headrace.lake.log.marks import Mark, Marks
from headrace.lake.log.table import tables_of
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store

SOURCE = "main"
START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
AWKWARD = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("_diff", pa.string()),  # a user's column of our name
        pa.field("f", pa.float64()),
        pa.field("g", pa.list_(pa.float32())),
        pa.field("a b", pa.binary()),
        pa.field("d", pa.decimal128(38, 2)),
        pa.field("t", pa.timestamp("us", tz="UTC")),
        pa.field("l", pa.list_(pa.string())),
        pa.field("day", pa.date32()),
    ]
)
VALUES: Mapping[str, tuple[Any, ...]] = {
    "id": (1, 2, None),
    "_diff": ("", "x", None),
    "f": (0.0, -0.0, float("nan"), float("inf"), None),
    "g": ([0.0], [-0.0], [float("nan"), None], [], None),
    "a b": (b"", b"\x00", b"\x00\x00", None),
    "d": (Decimal("1.00"), Decimal("-0.01"), None),
    "t": (datetime(1, 1, 1, tzinfo=UTC), START, None),
    "l": ([], [""], [None], ["a,b"], None),
    "day": (date(1582, 10, 10), None),
}

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Transaction:
    """One of the source; `lsn` is its time."""

    lsn: int
    second: int  # of its commit, after START
    updates: Mapping[str, Sequence[tuple[Row, int]]]

    @property
    def committed(self) -> datetime:
        return START + timedelta(seconds=self.second)


def rows(values: Sequence[Row], schema: pa.Schema = AWKWARD) -> pa.Table:
    """The rows as Arrow."""
    columns = [pa.array([row[i] for row in values], kind.type) for i, kind in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def counted(table: pa.Table) -> Counter[bytes]:
    """Count the codes of a table's rows."""
    if not table.num_rows:
        return Counter()
    return Counter(keycode(table.columns).to_pylist())


@dataclass
class Chronicle:
    """Publishes transactions, and remembers what they add up to."""

    path: str
    since: int = 100
    states: dict[int, dict[str, Counter[bytes]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._store = open_store(self.path)
        formatfile.create_lake(self._store)
        self.now = START - timedelta(seconds=1)
        marks, tables = Marks(self._store, SOURCE), tables_of(self._store)
        self._log = EpochLog(SOURCE, self._store, marks, tables, clock=lambda: self.now)
        self._mark: Mark = self._log.takeover().mark
        self._held: dict[str, list[Row]] = {}
        self._versions: dict[str, int] = {}
        self._live: dict[str, str] = {}
        self._lengths: Counter[str] = Counter()
        self._ids = count(1)
        self.lake = Lake(self.path)

    @property
    def mark(self) -> Mark:
        return self._mark

    def copy(self, contents: Mapping[str, Sequence[Row]], at: int) -> None:
        """The first mark: tables as they were copied, exact from `since` on."""
        self._held |= {name: list(values) for name, values in contents.items()}
        steps = [self._replaced(name) for name in contents]
        self._publish(at, steps, None, records=list(contents))
        self._remember(at - 1)

    def publish(
        self,
        transactions: Sequence[Transaction],
        *,
        absent: Sequence[str] = (),
        until: datetime | None = None,
    ) -> None:
        """One epoch of whole transactions; its mark is complete until that moment of the source's clock."""
        self.now = START + timedelta(minutes=2)
        touched = sorted({name for each in transactions for name in each.updates})
        for each in transactions:
            for name, updates in each.updates.items():
                self._apply(name, updates)
            self._remember(each.lsn)
        steps = [self._replaced(name) for name in touched]
        steps += [self._history(name, transactions) for name in touched]
        latest = max((each.committed for each in transactions), default=None)
        frontier = max((each.lsn for each in transactions), default=self._mark.time) + 1
        self._publish(frontier, steps, latest, absent=absent, until=until)
        self._remember(self._mark.time)

    def state(self, time: int) -> dict[str, Counter[bytes]]:
        """Contents of each table after everything up to this time."""
        return self.states[max(known for known in self.states if known <= time)]

    def _apply(self, name: str, updates: Sequence[tuple[Row, int]]) -> None:
        held = self._held[name]
        for row, diff in updates:
            if diff > 0:
                held.append(row)
            else:
                code = counted(rows([row]))
                held.remove(next(each for each in held if counted(rows([each])) == code))

    def _remember(self, time: int) -> None:
        self.states[time] = {name: counted(rows(values)) for name, values in self._held.items()}

    def _publish(
        self,
        frontier: int,
        steps: Sequence[TableStep],
        latest: datetime | None,
        *,
        absent: Sequence[str] = (),
        records: Sequence[str] = (),
        until: datetime | None = None,
    ) -> None:
        plan = Plan(
            source=SOURCE,
            epoch=self._mark.epoch + 1,
            plan_id=f"p{next(self._ids)}",
            kind="stream",
            incarnation=1,
            frontier=f"0/{frontier:X}",
            time=frontier - 1,
            upstream_commit_ts=None if latest is None else latest.isoformat(),
            steps=tuple(steps),
            versions={name: at for name, at in self._versions.items() if name not in absent},
            state={"source": {"kind": "postgres"}}
            | {f"table/{name}": {"since": self.since} for name in records},
            complete_until=None if until is None else until.isoformat(),
        )
        self._log.put_plan(plan)
        mark = self._log.finish(plan)
        assert isinstance(mark, Mark)
        self._mark = mark

    def _replaced(self, name: str) -> TableStep:
        folder = layout.table_folder(SOURCE, TableName.parse(name))
        old = self._live.get(name)
        held = rows(self._held[name])
        if old is None or not held.num_rows:
            file = self._file(folder, held)
        else:  # with a row that is deleted: who reads it, counts it twice
            file = self._file(folder, pa.concat_tables([held, held.slice(0, 1)]))
            file = replace(file, vector=Vector.of(np.array([held.num_rows])))
        self._live[name] = file.path
        step = self._step(folder, file, AWKWARD, old)
        self._versions[name] = step.base + 1
        return step

    def _history(self, name: str, transactions: Sequence[Transaction]) -> TableStep:
        folder = layout.history_folder(SOURCE, TableName.parse(name), 1)
        told = list(_told(name, transactions))
        table = rows([row for row, *_ in told])
        called = own_names(table.column_names)
        for place, (plain, own) in enumerate(own_fields().items(), 1):
            values = pa.array([each[place] for each in told], own.type)
            table = table.append_column(pa.field(called[plain], own.type), values)
        return self._step(folder, self._file(folder, table), table.schema, None)

    def _file(self, folder: str, table: pa.Table) -> DataFile:
        return datafile.write(self._store, folder, layout.file_name(self._mark.epoch + 1), table)

    def _step(self, folder: str, file: DataFile, schema: pa.Schema, old: str | None) -> TableStep:
        base = self._lengths[folder] - 1
        self._lengths[folder] += 1
        remove = () if old is None else (old,)
        return TableStep(folder, base, (file,), remove, schemas.encode(schema) if base < 0 else None)


def _told(name: str, transactions: Sequence[Transaction]) -> Iterator[tuple[Any, ...]]:
    """The rows of history: a row that goes and one that comes behind it are an update, of one ordinal."""
    for each in transactions:
        ordinal, before = -1, 0
        for row, diff in each.updates.get(name, ()):
            update = before < 0 < diff
            ordinal += 0 if update else 1
            before = 0 if update else diff
            yield row, each.lsn, diff, ordinal, each.lsn, each.committed


assert AWKWARD.field("t").type == TIMESTAMP
