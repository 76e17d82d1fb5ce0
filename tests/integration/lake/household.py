"""A lake that a source's owner wrote, without a server and without Spark, and what it held at each time.

    transactions    each inserts, changes and deletes rows of two tables; by the pipeline's own ledger
    marks           one an epoch, published when the test's clock says

Tables grow a file an epoch, as under a trickle of inserts, so that there is something to put in order. A row
is `(id, v)`; what a table held after each transaction is remembered as a dictionary.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import pyarrow as pa

from headrace.core.history import history_schema
from headrace.core.names import TableName
from headrace.core.schema import Column, TableSchema
from headrace.lake.format import datafile, formatfile
from headrace.lake.format.vector import FileRows
from headrace.lake.read.lake import Lake
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.pipeline.maintain.maintenance import maintain
from headrace.pipeline.state.config import LakeConfig, SourceConfig
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.owner import Owner
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_state import State
from headrace.pipeline.tasks.files import Writing, write_history, write_sorted
from headrace.pipeline.tasks.table_task import LakeAddress, Outcome
from headrace.spark.jobs import DriverRunner
from tests.places import place_at
from tests.records import source_record

SCHEMA = TableSchema(
    columns=(Column("id", pa.int64(), "int8", "bigint"), Column("v", pa.string(), "text", "text")),
    key=("id",),
    full=True,
)
NAMES = (TableName("public", "a"), TableName("public", "b"))
START = place_at(1000)
SOURCE = source_record(start=START)
Rows = dict[int, str]
T = TypeVar("T")


@dataclass
class _Place:
    store: Any
    lake: LakeConfig
    driver: DriverRunner = field(default_factory=DriverRunner)
    config: SourceConfig = field(default_factory=lambda: SourceConfig(""))

    @property
    def spark(self) -> DriverRunner:
        return self.driver


@dataclass
class Household:
    """The owner, its tables, and what they held."""

    path: Path
    seed: int = 1
    store: Store | None = None  # where the lake is, if not at the path
    states: dict[int, dict[TableName, Rows]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        store = self.store or open_store(self.path)
        formatfile.create_lake(store)
        self.dice = random.Random(self.seed)
        self.now = datetime.now(UTC) - timedelta(days=30)
        self.place = _Place(store, LakeConfig(str(self.path)))
        self.held: dict[TableName, Rows] = {name: {} for name in NAMES}
        self.files: dict[TableName, dict[str, Rows]] = {name: {} for name in NAMES}
        self.frontier = START
        self.ledger = self._owned()
        records = tuple(
            TableRecord(
                name, State.LIVE, number, SCHEMA, {"attributes": [], "types": []}, None, since=START.time
            )
            for number, name in enumerate(NAMES, 1)
        )
        created = tuple(record.name for record in records)
        empty = tuple(Outcome(name) for name in created)
        begun = int(self.now.timestamp() * 1_000_000)
        self.publish(
            Epoch(
                "copy",
                START,
                records=records,
                outcomes=empty,
                new_tables=created,
                source=SOURCE,
                begun_at=begun,
            )
        )
        self.states[START.last] = {name: {} for name in NAMES}

    def _owned(self) -> Ledger:
        ledger = Ledger(self.place.store, "main")
        ledger.log._clock = lambda: self.now
        options = tuple(self.place.store.storage_options.items())
        ledger.address = LakeAddress(self.place.store.url, options)  # a run has them from its environment
        return ledger

    def again(self) -> None:
        """Another run takes the source over, and knows what the lake tells."""
        self.ledger = self._owned()
        self.learn()

    def copied(self, path: Path) -> Household:
        """Copy the household to another place, as its next run finds it."""
        shutil.copytree(self.path, path)
        made = copy(self)
        made.path = path
        made.dice = deepcopy(self.dice)
        made.states = dict(self.states)
        made.held = {name: dict(rows) for name, rows in self.held.items()}
        made.files = {name: dict(files) for name, files in self.files.items()}
        made.place = _Place(open_store(path), LakeConfig(str(path)))
        made.ledger = made._owned()
        made.ledger.sync()  # as a run does with what it found, before it acknowledges any of it
        return made

    @property
    def lake(self) -> Lake:
        if self.store is None:
            return Lake(self.path)
        return Lake(self.store.url, self.store.storage_options)

    def publish(self, epoch: Epoch) -> None:
        self.ledger.sync(self.ledger.publish(epoch))

    # --- what the source does -------------------------------------------------------------------

    def live(self, epochs: int, ago: timedelta = timedelta(0), every: timedelta = timedelta(0)) -> None:
        """So many epochs of a few transactions, their marks published from so long ago on."""
        begin = datetime.now(UTC) - ago
        for number in range(epochs):
            self.now = begin + number * every
            self.epoch(self.dice.randint(1, 3))
        self.now = datetime.now(UTC)

    def epoch(self, transactions: int, *, absent: frozenset[TableName] = frozenset()) -> None:
        told: dict[TableName, list[tuple[int, str, int, int, int]]] = {}
        before = {name: dict(rows) for name, rows in self.held.items()}
        for _ in range(transactions):
            time = self.frontier.time + self.dice.randint(0, 40)
            self._transaction(time, told)
            self.frontier = place_at(time + self.dice.randint(1, 5))
            self.states[time] = {name: dict(rows) for name, rows in self.held.items()}
        outcomes = tuple(self._outcome(name, before[name], told[name]) for name in told)
        self.publish(
            Epoch(
                "stream",
                self.frontier,
                outcomes=outcomes,
                absent=absent,
                all_seen=True,
                transactions=transactions,
                commit_ts=int(self.now.timestamp() * 1_000_000),
            )
        )

    def _transaction(self, time: int, told: dict[TableName, list[tuple[int, str, int, int, int]]]) -> None:
        for name in self.dice.sample(NAMES, self.dice.randint(1, 2)):
            sides = told.setdefault(name, [])
            for ordinal in range(self.dice.randint(1, 4)):
                key = self.dice.randint(1, 60)
                rows = self.held[name]
                if key in rows:
                    sides.append((key, rows.pop(key), time, -1, ordinal))
                if self.dice.random() < 0.75:
                    rows[key] = f"{time}.{ordinal}"
                    sides.append((key, rows[key], time, 1, ordinal))

    def _outcome(self, name: TableName, before: Rows, told: list[tuple[int, str, int, int, int]]) -> Outcome:
        """Files that hold a changed key are written anew; new keys get a file of their own."""
        task = self.ledger.outline(self.ledger.tables[name])
        writing = Writing(self.place.store, self.ledger.mark.epoch + 1)
        changed = {key for key, *_ in told}
        removed = [path for path, rows in self.files[name].items() if changed & rows.keys()]
        pieces = [self._kept(name, self.files[name].pop(path)) for path in removed]
        pieces.append({key: v for key, v in self.held[name].items() if key in changed - before.keys()})
        added = []
        for rows in pieces:
            for new in write_sorted(writing, task, _arrow(rows)):
                self.files[name][new.file.path] = rows
                added.append(new)
        sides = [(*side, 7, self.now) for side in told]
        schema = history_schema(SCHEMA)
        columns = [pa.array([side[at] for side in sides], kind.type) for at, kind in enumerate(schema)]
        table = pa.Table.from_arrays(columns, schema=schema)
        return Outcome(
            name,
            add=tuple(added),
            remove=tuple(removed),
            history=write_history(writing, task, table),
            changes=len(told),
        )

    def _kept(self, name: TableName, rows: Rows) -> Rows:
        return {key: self.held[name][key] for key in rows if key in self.held[name]}

    # --- what is asked --------------------------------------------------------------------------

    @property
    def owner(self) -> Owner:
        return cast(Owner, self)

    def maintained(self, **arguments: Any) -> Mapping[str, Any]:
        """Maintain it, here and now."""
        steps = maintain(self.owner, arguments)
        try:
            errand = next(steps)
            while True:
                errand = steps.send(errand())
        except StopIteration as end:
            report: Mapping[str, Any] = end.value
        self.learn()
        return report

    def learn(self) -> None:
        """Note which rows are in which files now."""
        for name in NAMES:
            table = self.ledger.live.table(self.ledger.task_folder(name))
            table.refresh()
            self.files[name] = {path: _rows(self._read(name, path)) for path in table.live()}

    def _read(self, name: TableName, path: str) -> pa.Table:
        return datafile.read(self.place.store, self.ledger.task_folder(name), FileRows(path))

    def state(self, time: int) -> dict[TableName, Rows]:
        """Contents of each table after everything up to this time."""
        return self.states[max(known for known in self.states if known <= time)]

    def wrong(self, since: int = 0, *, most: int = 12) -> list[str]:
        """List where the lake contradicts what was: at some of its times, and at some marks."""
        return [*self._wrong_between(since, most), *self._wrong_at_marks(most)]

    def _wrong_between(self, since: int, most: int) -> Iterator[str]:
        lake = self.lake
        last = lake.at().mark.time
        for time in _some([time for time in sorted(self.states) if since <= time <= last], most):
            cut = lake.at(position=place_at(time + 1))
            for name in NAMES:
                if _rows(cut.arrow(str(name))) != self.state(time)[name]:
                    yield f"{name} at {time}"

    def _wrong_at_marks(self, most: int) -> Iterator[str]:
        lake = self.lake
        for mark in _some([mark for mark in lake.marks() if mark.versions], most):
            cut = lake.at(epoch=mark.epoch)
            for name in map(TableName.parse, mark.versions):
                if _rows(cut.arrow(str(name))) != self.state(mark.time)[name]:
                    yield f"{name} at mark {mark.epoch}"


def _some(values: list[T], most: int) -> list[T]:
    """Evenly spread ones, the first and the last among them."""
    if len(values) <= most:
        return values
    return [values[at * (len(values) - 1) // (most - 1)] for at in range(most)]


def _arrow(rows: Rows) -> pa.Table:
    return pa.table(
        [pa.array(list(rows), pa.int64()), pa.array(list(rows.values()), pa.string())], schema=SCHEMA.arrow()
    )


def _rows(table: pa.Table) -> Rows:
    keys = table["id"].to_pylist()
    assert len(set(keys)) == len(keys), "a row is there twice"
    return dict(zip(keys, table["v"].to_pylist(), strict=True))
