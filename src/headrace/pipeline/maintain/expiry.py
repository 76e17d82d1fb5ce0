"""Letting go of what is older than its retention: the reach of a source's history, and its oldest marks.

    retention ago          the last mark before that: E
    ───────────────────────●─────────────────────────────►      E.time becomes the reach, told durably;
    history up to E goes,  E is the first place to read          a grace time later the files go

Two steps that may be days apart, since somebody may read what lies before at this moment. Whoever looks later
finds the reach first. Also here: which marks stay (`lake.retain.thinning` decides) and what is known of the
tables at each. What only reads and writes files runs in a thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from headrace.lake.format import layout
from headrace.lake.format.plan import DataFile
from headrace.lake.log import catalog, histories, horizon
from headrace.lake.log.horizon import Reach
from headrace.lake.log.marks import Mark, Marks
from headrace.lake.log.table import LakeTable
from headrace.lake.retain import mark_files
from headrace.lake.retain.mark_files import TidyResult
from headrace.lake.retain.thinning import Keeping, Known
from headrace.lake.store.contract import Store
from headrace.pipeline.state.epoch import Rewrite
from headrace.pipeline.state.records import TABLE_PREFIX


@dataclass(frozen=True, slots=True)
class Tidying:
    """The fate of the marks: their new files are written, unless it is a rehearsal."""

    result: TidyResult
    files: tuple[DataFile, ...] = ()


def start_mark(store: Store, source: str, now: datetime, keeping: Keeping) -> Mark | None:
    """The mark at which reading should begin, where that is later than where it begins now."""
    if keeping.retention is None:
        return None
    kept = Marks(store, source).index()
    # A clock of ours that jumps ahead makes nothing old: the source's own is in the marks.
    if kept and (until := kept[-1].complete_until) is not None:
        now = min(now, until)
    at = bisect_right(kept, now - keeping.retention, key=lambda mark: mark.published_at)
    known = horizon.read(store, source)
    if not at or kept[at - 1].time < 0 or (known is not None and kept[at - 1].time <= known.time):
        return None
    return kept[at - 1]


def set_right(reach: Reach | None, now: datetime) -> Reach | None:
    """The reach, told now where it seems to be told later: the clock was ahead then, and is set back."""
    return reach if reach is None or reach.since <= now else replace(reach, since=now)


def ripe(reach: Reach | None, now: datetime, grace: timedelta) -> bool:
    """Tell whether what lies before the reach may go."""
    return reach is not None and now - reach.since >= grace


def spent_files(store: Store, source: str, time: int) -> list[Rewrite]:
    """The files of history that hold nothing later than a time."""
    found = []
    for table in histories.tables(store, source):
        for folder in histories.folders(store, source, table):
            paths = _before(folder, time)
            if paths:
                found.append(Rewrite(folder.folder, remove=paths, same=False))
    return found


def _before(folder: LakeTable, time: int) -> tuple[str, ...]:
    column = layout.lake_column(histories.HistoryPart(folder, folder.schema(), (), (None, 0)).own["_time"])
    latest = histories.bounds(folder, column).items()
    return tuple(sorted(path for path, (_, last) in latest if last is not None and last <= time))


def tidy(store: Store, source: str, now: datetime, keeping: Keeping, least: int, *, dry: bool) -> Tidying:
    """Thin out the marks and put their files together."""
    marks = Marks(store, source)
    floor = horizon.read(store, source)
    seen: dict[int, Known] = {}

    def known_of(mark: Mark) -> Known:
        if mark.epoch not in seen:
            seen[mark.epoch] = _known_of(catalog.load(store, source, mark.epoch).records)
        return seen[mark.epoch]

    found = mark_files.tidy_files(marks.index(), now, keeping, floor.time if floor else None, known_of, least)
    return Tidying(found, () if dry else found.write(store, marks.table.folder))


def _known_of(records: Mapping[str, Any]) -> Known:
    """Find for each table where its history begins, and its schema there."""
    return {
        key.removeprefix(TABLE_PREFIX): (record["since"], record["schema"])
        for key, record in records.items()
        if key.startswith(TABLE_PREFIX)
    }
