"""A small pipeline over the commit machine: what writes, what disturbs it, and what must be true.

The source is a list of transactions 0, 1, 2, ...; a frontier F means that all below F are held.
Transaction t touches the tables `TOUCHED[t % 4]`: it inserts the rows t and `BRIEF + t`. It deletes row
`BRIEF + s` of the last transaction s that touched the table, and row r of the one before. So what each table
holds at each frontier is a function (`contents`) that no writer needs to be asked about, every mark can be
checked against it, and every epoch both adds and removes. The files of one table are written anew without
the deleted rows; those of the others get a deletion vector, and go once all of their rows are deleted.
History is a table of its own with every row ever inserted into anything.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any, Protocol, TypeVar

import numpy as np

from headrace.core.errors import Definite, Misconfigured, Transient
from headrace.core.position import Position
from headrace.lake.format.plan import DataFile, Plan, TableStep
from headrace.lake.format.vector import FileRows, Vector
from headrace.lake.log import catalog
from headrace.lake.log.commit import DeltaTables, EpochLog, PlanFiles, PublishingMarkLog, plan_base
from headrace.lake.log.marks import Mark
from tests.laws.lake.schedule import Actor

T = TypeVar("T")

SOURCE = "main"
HISTORY = "history/main/s/all/1"
TOUCHED: tuple[tuple[str, ...], ...] = (("a", "b"), ("b", "c"), ("c",), ("a",))
BRIEF = 10_000  # added to the number of a row that lasts until its table is touched again
REWRITTEN = "b"  # the table whose files are written anew
_PATIENCE = 30


def folder(table: str) -> str:
    return f"tables/main/s/{table}"


def contents(table: str, frontier: int) -> Counter[int]:
    """Contents of the table once all transactions below the frontier are applied."""
    touching = [t for t in range(frontier) if table in TOUCHED[t % len(TOUCHED)]]
    return Counter([*touching[-2:], *(BRIEF + t for t in touching[-1:])])


class Bench(Protocol):
    """The tables that writers work on: the twin, or the real thing."""

    def open(self) -> tuple[PlanFiles, PublishingMarkLog, Callable[[str], DeltaTables]]: ...

    def write_file(self, folder: str, epoch: int, rows: set[int]) -> DataFile: ...

    def rows_of(self, folder: str, file: FileRows) -> set[int]: ...

    def schema(self) -> str | None: ...

    def length(self, folder: str) -> int:
        """Number of the table's versions."""

    def disturb(self, folder: str, length: int, *, faithful: bool) -> bool:
        """Commit as another program: all live files put into one, unfaithfully with a row more."""

    def compact_marks(self) -> None: ...


class Gated:
    """An object each of whose methods is one step of the schedule."""

    def __init__(self, actor: Actor, inner: Any) -> None:
        self._actor = actor
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not callable(method):
            return method
        return lambda *args: self._actor.do(lambda: method(*args))


class Writer:
    """A pipeline that takes over a source and then mirrors some transactions, one in an epoch."""

    def __init__(
        self, bench: Bench, epochs: int, published: list[tuple[Plan, Mark]], *, tidy: bool = False
    ) -> None:
        self.bench = bench
        self.epochs = epochs
        self.tidy = tidy
        self.published = published
        self._ids = itertools.count()

    def __call__(self, actor: Actor) -> None:
        files, marks, table = self.bench.open()
        self.new_id: Callable[[], str] = lambda: f"{actor.name}-{next(self._ids)}"
        self._files: Any = Gated(actor, files)
        self._open_table: Callable[[str], Any] = cache(lambda path: Gated(actor, table(path)))
        self.log = EpochLog(
            SOURCE,
            self._files,
            Gated(actor, marks),
            self._open_table,
            new_id=self.new_id,
        )
        self.stopped: set[str] = set()
        try:
            mark = _patiently(partial(self.log.takeover, origin=Position(0, "0"))).mark
            self.catalog = _patiently(partial(catalog.load, self._files, SOURCE, mark.epoch))
            for _ in range(self.epochs):
                mark = self._epoch(mark)
        except Misconfigured as error:
            if error.code != "LAKE_FENCED":
                raise
        except Definite as error:
            # Another owner has cleaned up since: this one is fenced too, it only doesn't know it yet.
            if error.code != "LAKE_PLAN_MISSING" or self.log.newest_mark() == mark:
                raise

    def _epoch(self, mark: Mark) -> Mark:
        """Publish the next transaction, planning anew for as long as others come in between."""
        for _ in range(_PATIENCE):
            plan = _patiently(partial(self._plan, mark))
            _patiently(partial(self.log.put_plan, plan))
            outcome = _patiently(partial(self.log.finish, plan))
            if isinstance(outcome, Mark):
                _patiently(partial(self.log.syncing.sync, plan))
                self.published.append((plan, outcome))
                self.catalog = self.catalog.after(plan)
                if self.tidy:
                    _patiently(self._clean)
                return outcome
            mark = _patiently(partial(self.log.withdraw, outcome))
            self.catalog = self.catalog.at(mark.epoch)
        raise AssertionError("an epoch never got through")

    def _plan(self, mark: Mark) -> Plan:
        frontier, epoch = int(mark.frontier), mark.epoch + 1
        steps = [self._append_history(epoch, frontier)]
        changes = {table: self._change(table, epoch, frontier) for table in TOUCHED[frontier % len(TOUCHED)]}
        steps += [step for step in changes.values() if step is not None]
        versions = {table: at for table, at in mark.versions.items() if table not in changes}
        versions |= {table: step.base + 1 for table, step in changes.items() if step is not None}
        return Plan(
            source=SOURCE,
            epoch=epoch,
            plan_id=self.new_id(),
            kind="stream",
            incarnation=0,
            frontier=str(frontier + 1),
            time=frontier,
            steps=tuple(steps),
            versions=versions,
            state={"frontier": str(frontier + 1)},
        )

    def _clean(self) -> None:
        """Write the catalog down as of every mark, and delete the plans that it replaces."""
        catalog.save(self._files, self.catalog, interval=1)
        catalog.clean(self._files, SOURCE, self.catalog.epoch)

    def _append_history(self, epoch: int, frontier: int) -> TableStep:
        base = plan_base(self._open_table(HISTORY))
        file = self.bench.write_file(HISTORY, epoch, {frontier})
        return TableStep(HISTORY, base, add=(file,), schema=self.bench.schema() if base < 0 else None)

    def _change(self, table: str, epoch: int, frontier: int) -> TableStep | None:
        """The files that hold a row to delete are rewritten without it, or get a vector."""
        path = folder(table)
        try:
            base = plan_base(self._open_table(path))
        except Definite as error:
            if error.code != "LAKE_FOREIGN_COMMIT":
                raise
            self.stopped.add(table)
        if table in self.stopped:
            return None
        before, after = contents(table, frontier), contents(table, frontier + 1)
        gone, come = set(before - after), set(after - before)
        files = sorted(self._open_table(path).contents(), key=lambda file: str(file.path))
        touched = {file: rows for file in files if (rows := self.bench.rows_of(path, file)) & gone}
        schema, removed = self.bench.schema() if base < 0 else None, tuple(file.path for file in touched)
        if table == REWRITTEN:
            kept = set().union(*touched.values()) - gone if touched else set()
            return TableStep(path, base, (self.bench.write_file(path, epoch, kept | come),), removed, schema)
        worn = [self._without(path, file, gone) for file, rows in touched.items() if rows - gone]
        return TableStep(path, base, (*worn, self.bench.write_file(path, epoch, come)), removed, schema)

    def _without(self, path: str, file: FileRows, gone: set[int]) -> DataFile:
        """The file with a vector that deletes these rows, too."""
        every = sorted(self.bench.rows_of(path, FileRows(file.path)))
        there = self.bench.rows_of(path, file) - gone
        vector = Vector.of(np.array([at for at, row in enumerate(every) if row not in there]))
        added: DataFile = self._open_table(path).with_vector(file.path, vector)
        return added


def compactor(bench: Bench, path: str, *, faithful: bool = True) -> Callable[[Actor], None]:
    """Another program, which commits to a table as soon as there is one."""

    def body(actor: Actor) -> None:
        done = False
        while not done:
            length = actor.do(partial(bench.length, path))
            done = length == 0 or actor.do(partial(bench.disturb, path, length, faithful=faithful))

    return _once(body)


def mark_compactor(bench: Bench) -> Callable[[Actor], None]:
    """A compaction of the marks table: a commit there that is no mark."""
    return _once(lambda actor: actor.do(bench.compact_marks))


def _once(body: Callable[[Actor], None]) -> Callable[[Actor], None]:
    """Whoever only disturbs gives up at the first trouble."""

    def tried(actor: Actor) -> None:
        with suppress(Transient):
            body(actor)

    return tried


def _patiently(call: Callable[[], T]) -> T:
    """Repeat the call after `Transient`, as the pipeline does."""
    for _ in range(_PATIENCE):
        try:
            return call()
        except Transient:
            continue
    raise AssertionError("trouble without end")
