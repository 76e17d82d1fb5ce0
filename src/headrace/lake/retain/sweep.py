"""The sweep: data files, lines of Delta's logs, plans and answered requests that nobody needs any more.

    a data file stays while            the newest version holds it, or
                                       it was removed less than the grace time ago (Delta's tombstones), or
                                       a mark that is there names a version that holds it, or
                                       an Iceberg snapshot does (`lake.format.exportfile`)
    a line of a log stays while        a checkpoint older than the grace time does not replace it, or
                                       a mark that is there needs it: its checkpoint and what follows on that
    a plan stays while                 a mark that is there has no catalog of its own after it

A mark *is there* while a file that holds it is: also one that was thinned out, for the grace time. So whoever
opened a cut keeps reading it for so long, and one rule holds for all. Files of marks are therefore the first
to go. Files that no log ever held are orphans of writers that were ended; they go if their epoch is over,
and never from a table that is being copied, whose files are named by their plan much later.

Everything in here can be ended at any moment and begun again: what is deleted is needed by nobody, in
whatever order. What epochs write that come meanwhile carries their numbers, which are later than `newest`;
marks that come meanwhile need no other files than those, and those of the marks that were seen.

The marks that are there (`marks_there`):

    kept       the log of the marks holds its file
    gone       the log holds it no more, and its file is there, for the grace time

Marks that are young, from less than the grace time ago, are left out: nothing that they name was removed.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.errors import HeadraceError
from headrace.core.failpoint import failpoint
from headrace.core.names import TableName
from headrace.lake.format import datafile, exportfile, layout, requests
from headrace.lake.format.vector import FileRows
from headrace.lake.log import catalog
from headrace.lake.log.marks import MARKS, Marks
from headrace.lake.log.table import LakeTable, find_unneeded
from headrace.lake.retain import mark_files
from headrace.lake.retain.thinning import Keeping
from headrace.lake.store.contract import Store

# So much longer than asked for files are kept: clocks differ, and a sweep takes its time. What it does not
# get to within a part of that it leaves for the next one.
_SLACK = timedelta(minutes=15)
_SWEPT_WITHIN = timedelta(minutes=10)
_CHECKPOINTED = 50  # commits without a checkpoint, after which one is made
_LOG = re.compile(r"(\d{20})\.(json|checkpoint\.parquet)\Z")


@dataclass(slots=True)
class SweepResult:
    """The amount that went, or would go."""

    files: int = 0
    log: int = 0
    plans: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True)
class Sweeper:
    """One sweep through a source's part of the lake."""

    store: Store
    source: str
    keeping: Keeping
    newest: int  # the last epoch that was durable when the sweep began: no power cut takes it back
    now: datetime  # when it began
    busy: frozenset[TableName]  # tables that are being copied
    dry: bool = False

    @property
    def hours(self) -> int:
        """For how long removed files are kept: whole hours are what delta-rs can tell apart."""
        dense = self.keeping.dense
        return math.ceil((dense + _SLACK) / timedelta(hours=1)) if dense else 0

    @property
    def before(self) -> datetime:
        """Leave out what was published after this: none of its files went."""
        return self.now - self.keeping.dense

    # --- the whole ------------------------------------------------------------------------------

    def sweep(self, tell: Callable[[str, HeadraceError], None]) -> SweepResult:
        """All of it; a table that cannot be swept is told of and left alone."""
        found = SweepResult()
        self._table(layout.marks_folder(self.source), {}, found)
        there = marks_there(self.store, self.source, self.before)
        # After the marks: an exporter pins what a mark names, then sees that the mark is still kept.
        exported = exportfile.pinned_versions(self.store, self.source, self.before)
        for folder, table in self._in_turn():
            if table in self.busy:
                continue
            if self.keeping.dense and datetime.now(UTC) - self.now > _SWEPT_WITHIN:
                # Files of marks that were young when it began would be taken for old ones.
                if not self.dry:
                    _note(self.store, layout.sweep_key(self.source), {"folder": folder})
                break
            try:
                named = there.versions.get(folder, {})
                shown = exported.get(folder, {})
                pins = {v: max(named.get(v, 0), shown.get(v, 0)) for v in named.keys() | shown.keys()}
                self._table(folder, pins, found)
            except HeadraceError as error:
                tell(folder, error)
        self._records(there, found)
        self._requests(found)
        return found

    def _in_turn(self) -> list[tuple[str, TableName | None]]:
        """The folders, from the one on that the last sweep did not get to."""
        folders = list(self._folders())
        begin = _read_note(self.store, layout.sweep_key(self.source)).get("folder")
        at = next((number for number, (folder, _) in enumerate(folders) if folder == begin), 0)
        return folders[at:] + folders[:at]

    def _folders(self) -> Iterator[tuple[str, TableName | None]]:
        for folder, table in self._named_files(layout.tables_folder(self.source)):
            yield folder, table
        for folder, table in self._named_files(layout.histories_folder(self.source)):
            yield from ((f"{folder}/{k}", table) for k in self.store.folders(folder))
        # A copy writes there too, long before its plan names the files.
        if not self.busy:
            yield layout.errors_folder(self.source), None

    def _named_files(self, room: str) -> Iterator[tuple[str, TableName]]:
        for schema in self.store.folders(room):
            for name in self.store.folders(f"{room}/{schema}"):
                yield f"{room}/{schema}/{name}", TableName(layout.unquote(schema), layout.unquote(name))

    # --- a table --------------------------------------------------------------------------------

    def _table(self, folder: str, pins: Mapping[int, int], found: SweepResult) -> None:
        table = LakeTable(self.store, folder)
        if table.refresh() < 0:
            return
        # A log remembers for days what was removed and is long deleted.
        there = {key.removeprefix(f"{folder}/") for key in self.store.list(folder)}
        # What a later epoch removed is still needed if a power cut takes that epoch back.
        last = self._last(table)
        held, strays = find_unneeded(table, self.hours, last)
        over = {path for path in there & (held | strays) if self._over(path, held=path in held)}
        spent = sorted(over - self._pinned_files(table, over, pins))
        failpoint("maintain.files.before", layout.place(folder))
        self._delete((f"{folder}/{path}" for path in spent), len(spent))
        failpoint("maintain.files.after", layout.place(folder))
        found.files += len(spent)
        if not self.dry:
            self._checkpoint(table)
        lines = spent_log(table, self.before, {*pins, last}, last)
        if lines and not self.dry:
            # They are replaced by a checkpoint, which nobody else syncs.
            self._sync_checkpoints(folder)
        failpoint("maintain.log.before", layout.place(folder))
        self._delete(lines, len(lines))
        failpoint("maintain.log.after", layout.place(folder))
        found.log += len(lines)

    def _pinned_files(self, table: LakeTable, paths: Set[str], pins: Mapping[int, int]) -> Set[str]:
        """Find the files that a pinned version holds; `pins` has the last epoch of a mark that names it.

        Versions never change, so a note keeps which one holds a file: each sweep opens only those versions
        that may hold what the sweep before did not meet. Newer ones come first; a file is removed at last
        from the newest.
        """
        if not paths or not pins:
            return frozenset()
        key = layout.held_key(self.source, table.folder)
        noted = _read_note(self.store, key)
        holders = {path: noted[path] for path in paths & noted.keys() if noted[path] in pins}
        open_ = set(paths - holders.keys())
        for version in sorted(pins, reverse=True):
            wanted = {path for path in open_ if (layout.epoch_of(path) or 0) <= pins[version]}
            if wanted:
                here = wanted & table.at(version).live()
                holders |= dict.fromkeys(here, version)
                open_ -= here
        if holders != noted and not self.dry:
            _note(self.store, key, holders)
        return holders.keys()

    def _last(self, table: LakeTable) -> int:
        """The version of a table as of the last durable epoch."""
        version = table.version
        while version > 0 and ((entry := table.entry(version)) and (entry.epoch or 0) > self.newest):
            version -= 1
        return version

    def _over(self, path: str, *, held: bool) -> bool:
        """Tell whether the epoch of a file is over; a later one's may be named by a mark that we did not see.

        What is not named as ours are goes if a log held it, and is somebody's otherwise.
        """
        epoch = layout.epoch_of(path)
        return held if epoch is None else epoch <= self.newest

    def _checkpoint(self, table: LakeTable) -> None:
        checkpoints = _log(table)[1]
        if table.version - max(checkpoints, default=0) >= _CHECKPOINTED:
            table.checkpoint()
            self._sync_checkpoints(table.folder)

    def _sync_checkpoints(self, folder: str) -> None:
        log = self.store.list(f"{folder}/_delta_log")
        self.store.sync(key for key in log if "checkpoint" in key.rpartition("/")[2])

    # --- what the owner knows -------------------------------------------------------------------

    def _records(self, there: There, found: SweepResult) -> None:
        """Plans and catalogs that no mark needs which is there."""
        limit = min(there.gone_epochs, default=self.newest)
        needed = [epoch for epoch in there.old if epoch < limit]
        if not needed:
            return
        if self.dry:
            plans = self.store.list(layout.plans_folder(self.source))
            found.plans += sum(layout.plan_of(key)[0] <= needed[-1] for key in plans)
            return
        known = set(self.store.list(layout.checkpoints_folder(self.source)))
        planned = {layout.plan_of(key)[0] for key in self.store.list(layout.plans_folder(self.source))}
        missing = [epoch for epoch in needed if layout.checkpoint_key(self.source, epoch) not in known]
        # Where there is a catalog and no plan any more, an earlier sweep has made the catalog durable.
        fresh = sorted({*missing, *planned.intersection(needed)})
        for epoch in missing:
            catalog.write(self.store, catalog.load(self.store, self.source, epoch))
        self.store.sync([layout.checkpoint_key(self.source, epoch) for epoch in fresh])
        failpoint("maintain.plans.before")
        found.plans += catalog.clean(self.store, self.source, needed[-1], frozenset(needed))
        failpoint("maintain.plans.after")

    def _requests(self, found: SweepResult) -> None:
        """Answers that nobody fetched."""
        for request in requests.finished_requests(self.store, self.source, self.before):
            found.requests += 1
            if not self.dry:
                requests.forget(self.store, self.source, request)

    def _delete(self, keys: Iterable[str], count: int) -> None:
        if count and not self.dry:
            for key in keys:
                self.store.delete(key)


def _read_note(store: Store, key: str) -> dict[str, Any]:
    """Read a note of an earlier sweep; without one it only takes longer."""
    try:
        found = json.loads(store.get(key) or b"{}")
    except ValueError:
        return {}  # a power cut tore it
    return found if isinstance(found, dict) else {}


def _note(store: Store, key: str, note: Mapping[str, Any]) -> None:
    store.put(key, json.dumps(note).encode())


def spent_log(table: LakeTable, before: datetime, versions: Collection[int], last: int) -> list[str]:
    """The keys of the log's lines that neither these versions need nor any from after that moment.

    All after the version `last` stays.
    """
    lines, checkpoints, strange = _log(table)
    floor = max(
        (each for each in checkpoints if each <= last and _commit_time(table, each) <= before), default=0
    )
    if strange or not floor:
        return []
    starts = {v: max((c for c in checkpoints if c <= v), default=-1) for v in versions if v < floor}
    needed = {version for v, start in starts.items() for version in range(max(0, start), v + 1)}
    spent_lines = [v for v in lines if v < floor and v not in needed]
    spent_checkpoints = [c for c in checkpoints if c < floor and c not in starts.values()]
    folder = f"{table.folder}/_delta_log"
    return [f"{folder}/{v:020d}.json" for v in sorted(spent_lines)] + [
        f"{folder}/{c:020d}.checkpoint.parquet" for c in sorted(spent_checkpoints)
    ]


def _log(table: LakeTable) -> tuple[set[int], set[int], bool]:
    """The versions that have lines, those that have checkpoints, and whether there are others than ours."""
    lines: set[int] = set()
    checkpoints: set[int] = set()
    strange = False
    for key in table.store.list(f"{table.folder}/_delta_log"):
        match = _LOG.search(key)
        if match is not None:
            (lines if match[2] == "json" else checkpoints).add(int(match[1]))
        else:
            strange |= ".checkpoint." in key or "_sidecars" in key
    return lines, checkpoints, strange


def _commit_time(table: LakeTable, version: int) -> datetime:
    """The time of a version's commit; the beginning of time where its line is gone."""
    text = table.store.get(f"{table.folder}/_delta_log/{version:020d}.json")
    for line in (text or b"").splitlines():
        stamp = json.loads(line).get("commitInfo", {}).get("timestamp")
        if stamp is not None:
            return datetime.fromtimestamp(stamp / 1000, UTC)
    return datetime.min.replace(tzinfo=UTC)


# --- the marks that are there ---------------------------------------------------------------------


_PAIRS = pa.schema([("name", pa.string()), ("version", pa.int64()), ("epoch", pa.int64())])


@dataclass(frozen=True, slots=True)
class There:
    """The marks that are there: those that are kept, and those that went less than a grace time ago."""

    old: tuple[int, ...]  # epochs of kept marks from before the time in which nothing is removed
    gone_epochs: tuple[int, ...]  # epochs of marks that are no longer kept
    # Of each table the versions that all of those name, each with the epoch of the last one that does.
    versions: Mapping[str, Mapping[int, int]]


def marks_there(store: Store, source: str, before: datetime) -> There:
    """Find every mark of which a file is there, but for those published after `before`."""
    marks = Marks(store, source)
    kept = marks.index()
    first = mark_files.first_young(kept, before)
    end = bisect_left(kept, first, key=lambda mark: mark.epoch)
    old = kept.between(0, end)
    epochs = old["epoch"].to_pylist()
    left = [row for row in _left_behind(marks.table, first) if row["epoch"] not in set(epochs)]
    return There(
        tuple(epochs),
        tuple(sorted({row["epoch"] for row in left})),
        _versions(source, pa.concat_tables([old, pa.Table.from_pylist(left, schema=MARKS)])),
    )


def _versions(source: str, marks: pa.Table) -> dict[str, dict[int, int]]:
    """The versions that marks name, by the folders of tables."""
    named = pa.concat_tables(map(_pairs, marks.to_batches())) if marks.num_rows else _PAIRS.empty_table()
    newest = named.group_by(["name", "version"]).aggregate([("epoch", "max")])
    found: dict[str, dict[int, int]] = {}
    for name, version, epoch in zip(
        *(newest[column].to_pylist() for column in ("name", "version", "epoch_max")), strict=True
    ):
        found.setdefault(layout.table_folder(source, TableName.parse(name)), {})[version] = epoch
    return found


def _pairs(marks: pa.RecordBatch) -> pa.Table:
    """A row for each table that a mark names."""
    versions = marks["versions"]
    counts = np.diff(versions.offsets.to_numpy())
    start, stop = versions.offsets[0].as_py(), versions.offsets[-1].as_py()
    epochs = pa.array(np.repeat(marks["epoch"].to_numpy(), counts))
    names, numbers = (each.slice(start, stop - start) for each in (versions.keys, versions.items))
    return pa.table([names, numbers, epochs], schema=_PAIRS)


def _left_behind(table: LakeTable, first: int) -> Iterator[dict[str, Any]]:
    """The marks in files that the log holds no more and that are still there, but for young ones."""
    live = table.live()
    for key in table.store.list(table.folder):
        path = key.removeprefix(f"{table.folder}/")
        left = path.endswith(".parquet") and "/" not in path and path not in live
        if left and not mark_files.young(path, first):
            yield from datafile.read(table.store, table.folder, FileRows(path), schema=MARKS).to_pylist()
