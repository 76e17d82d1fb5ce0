"""A stream of a table's changes, as its query's own process on the driver sees it.

    latest(start)            the mark up to which the next batch goes
    tasks(start, end)        its files: of history, or of the table at the end's mark if nothing was read yet

A look at a lake in which nothing happened is one request: whether the log of its marks has a further line.
All else is asked for when there is a new mark. A batch that is asked for again has the same rows: what lies
between two times in history never changes, however its files are put together meanwhile.

Whatever would be a gap is an error instead, and the checkpoint stays where it was: history that does not lead
from the start (its retention ran out, or the table was copied anew), columns that the query does not have,
another lake or an older one at the same place. Nothing here holds history back from its retention.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice

import pyarrow as pa

from headrace.core.errors import Definite, Misconfigured
from headrace.core.names import TableName
from headrace.core.portions import portions
from headrace.lake.format import layout
from headrace.lake.format.vector import file_rows
from headrace.lake.log import catalog, histories
from headrace.lake.log.histories import Bounds, HistoryPart
from headrace.lake.log.marks import Mark, MarkIndex, Marks
from headrace.lake.log.table import keeps_columns, tables_of
from headrace.lake.read import changes as changing
from headrace.lake.read.catalogs import Catalogs
from headrace.lake.read.cut import Cut
from headrace.lake.read.lake import Lake, Moment
from headrace.lake.read.resolve import CommitPlace, place_of
from headrace.lake.store.contract import Store
from headrace.spark.source.change_rows import (
    ChangesTask,
    ContentsTask,
    HistoryFiles,
    StreamPlan,
    StreamTask,
)
from headrace.spark.source.offsets import Offset, beginning
from headrace.spark.source.options import StreamOptions
from headrace.spark.source.planning import select_columns

TASK_BYTES = 32 << 20  # of files, before a batch gets a further task
_NO_END = 1 << 62


def plan_stream(options: StreamOptions) -> StreamPlan:
    """Find the table at the newest mark, and the place from which a new query begins."""
    lake = Lake(options.lake)
    cut = lake.at(source=options.source)
    source, table = full = cut.standings.resolve(options.table)
    mark = cut.places[source].mark
    assert mark is not None, "the newest place is a mark"
    schema = select_columns(cut.standings.schema(full), options.columns)
    record = cut.standings.pasts[source].records(mark).get(f"table/{table}") or {}
    key = tuple(record.get("schema", {}).get("key", ()))
    if options.form == "upserts":
        _require_key(str(table), key, schema)
    return StreamPlan(
        lake=lake.store.url,
        source=source,
        table=str(table),
        form=options.form,
        schema=schema,
        whole=options.columns is None,
        key=key,
        epoch=mark.epoch,
        start=_start(lake, source, options.after),
        max_marks=options.max_marks,
    )


def _require_key(table: str, key: Sequence[str], schema: pa.Schema) -> None:
    if not key:
        raise Misconfigured(
            "STREAM_NO_KEY",
            f"table {table} has no key, and upserts are the last rows of keys",
            hint='.option("as", "changes") gives every row that came or went',
        )
    select_columns(schema, key)


def _start(lake: Lake, source: str, after: str | None) -> Offset:
    """The offset of a new query: a place that the user names, or the beginning."""
    if after is None:
        return beginning(lake.format.lake_id, source)
    text = after.strip()
    moment: Moment = int(text) if text.isdecimal() else text
    place = lake.cut(moment, source).places[source]
    mark = place.mark or _mark_before(Marks(lake.store, source).index(), place.time)
    return replace(_offset(lake.format.lake_id, source, mark), time=place.time)


def _mark_before(index: MarkIndex, time: int) -> Mark:
    """The mark before a time; of a time before all of them the first."""
    return index[max(0, bisect_right(index, time, key=lambda mark: mark.time) - 1)]


def _offset(lake: str, source: str, mark: Mark) -> Offset:
    return Offset(mark.time, mark.epoch, lake, source, mark.plan_id)


class ChangeStream:
    """The stream of a plan; it lives as long as its query, and holds nothing but what it has looked up."""

    def __init__(self, plan: StreamPlan) -> None:
        self.plan = plan
        self._lake = Lake(plan.lake)
        self._store = self._lake.store
        self._marks = Marks(self._store, plan.source)
        self._catalogs = Catalogs(self._store)
        self._index: MarkIndex | None = None  # as of the newest mark that was seen
        self._open_table = tables_of(self._store)  # folders of history
        self._columns: tuple[Offset, int, pa.Schema] | None = None  # the table's at a mark, and its version
        self._end = _NO_END  # the epoch behind which nothing is offered

    def end_at_newest(self) -> None:
        """Offer nothing that is published from here on."""
        newest = self._marks.newest()
        self._end = 0 if newest is None else newest.epoch

    def latest(self, start: Offset | None) -> Offset:
        """The end of the next batch, or `start` where there is nothing; None: nobody says where it starts."""
        newest = self._marks.newest()
        if newest is None or (start is not None and start.is_mark(self._at(newest))):
            return start or self.plan.start
        self._index = self._marks.index()
        if start is not None:
            self._verify(start, newest)
        mark = self._last_mark(start)
        if mark is None:
            self._refuse_stopped(newest)
            return start or self.plan.start
        return self._at(mark)

    def _at(self, mark: Mark) -> Offset:
        return _offset(self._lake.format.lake_id, self.plan.source, mark)

    def _last_mark(self, start: Offset | None) -> Mark | None:
        """The mark with the table to which a batch goes; there is no limit where nothing was read yet."""
        index, most = self._known_marks(), self.plan.max_marks
        low = 0 if start is None else index.count_to(start.epoch)
        high = index.count_to(self._end)
        if most is None or start is None or start.begins:
            return next(self._with_table(range(high - 1, low - 1, -1)), None)
        found = list(islice(self._with_table(range(low, high)), most))
        return found[-1] if found else None

    def _with_table(self, places: Iterable[int]) -> Iterator[Mark]:
        index = self._known_marks()
        return (mark for mark in (index[at] for at in places) if self.plan.table in mark.versions)

    def _known_marks(self) -> MarkIndex:
        if self._index is None:
            self._index = self._marks.index()
        return self._index

    def _verify(self, offset: Offset, newest: Mark) -> None:
        """Refuse an offset of another lake, or of another life of this one."""
        ours = (offset.lake, offset.source) == (self._lake.format.lake_id, self.plan.source)
        mark = self._known_marks().find(offset.epoch)
        if offset.begins and ours:
            return
        same = mark is None or mark.plan_id == offset.plan_id
        if ours and offset.epoch <= newest.epoch and same and _has_plan(self._store, offset):
            return
        there = "has other marks: it was restored, perhaps" if ours else "is another one"
        raise Misconfigured(
            "STREAM_OTHER_LAKE",
            "the checkpoint is of another lake than the one that is there now",
            detail=f'it stands at epoch {offset.epoch} of source "{offset.source}"; the lake there {there}',
            hint=f'begin anew with a checkpoint of its own: .option("after", {newest.epoch}), or without '
            '"after" for the contents first',
        )

    def _refuse_stopped(self, newest: Mark) -> None:
        """Say that a table stopped, once all of it was read; about one that only waits nothing is said."""
        if self.plan.table in newest.versions:
            return
        stop = self._cut(place_of(newest)).standings.pasts[self.plan.source].stop(self._table())
        if stop is not None:
            raise Definite(
                "STREAM_TABLE_STOPPED",
                f"table {self.plan.table} stopped, and all changes before that were read",
                detail=stop,
                hint="headrace tables resync copies it anew; then begin with a new checkpoint",
            )

    def _table(self) -> TableName:
        return TableName.parse(self.plan.table)

    def _cut(self, place: CommitPlace) -> Cut:
        return Cut(self._store, {self.plan.source: place}, self._catalogs)

    def tasks(self, start: Offset, end: Offset) -> list[StreamTask]:
        """The tasks of a batch; raises where it would not be whole."""
        newest = self._marks.newest()
        if newest is None or start.time == end.time:
            return []
        self._verify(start, newest)
        self._verify(end, newest)
        mark = self._known_marks().find(end.epoch)
        cut = self._cut(place_of(mark) if mark else CommitPlace(end.time, "", newest.incarnation))
        full = self.plan.source, self._table()
        columns = self._columns_at(cut, start, end)
        self._require_columns(columns, end)
        if start.begins:
            return list(_contents(cut, self.plan))
        begin = CommitPlace(start.time, "", newest.incarnation)
        parts = changing.changed_parts(self._store, cut, full, begin, columns, self._open_table)
        return [task for part in parts for task in self._changes(part, start, end)]

    def _columns_at(self, cut: Cut, start: Offset, end: Offset) -> pa.Schema:
        """The table's columns at the end; where its log has no others since the start, it is not opened."""
        full = self.plan.source, self._table()
        mark = cut.places[self.plan.source].mark
        version = None if mark is None else mark.versions.get(self.plan.table)
        if version is None:
            return cut.standings.schema(full)
        folder, known = layout.table_folder(*full), self._columns
        same = known is not None and known[0].is_mark(start)
        if known is None or not same or not keeps_columns(self._store, folder, known[1], version):
            known = end, version, cut.standings.schema(full)
        self._columns = end, version, known[2]
        return self._columns[2]

    def _require_columns(self, columns: pa.Schema, end: Offset) -> None:
        """Refuse columns that the query lacks or has otherwise; one that came later is NULL before."""
        have = self.plan.schema
        new = [name for name in columns.names if self.plan.whole and name not in have.names]
        gone = [name for name in have.names if name not in columns.names and end.epoch >= self.plan.epoch]
        both = [name for name in have.names if name in columns.names]
        other = [name for name in both if columns.field(name).type != have.field(name).type]
        if new or gone or other:
            raise Definite(
                "STREAM_COLUMNS_CHANGED",
                f"the columns of table {self.plan.table} changed since the query began",
                detail=", ".join([*(f"+{name}" for name in new), *(f"-{name}" for name in gone), *other]),
                hint="start the query again: it goes on with the new columns from where it stands; if it "
                f'says this again, begin anew with another checkpoint: .option("after", {end.epoch})',
            )

    def _changes(self, part: HistoryPart, start: Offset, end: Offset) -> Iterator[StreamTask]:
        chosen = set(part.paths)
        sizes = {path: file.size for path, file in part.table.files().items() if path in chosen}
        times = histories.bounds(part.table, layout.lake_column(part.own["_time"]))
        files = HistoryFiles(part.table.folder, tuple(part.columns), part.own, tuple(sorted(sizes)))
        whole = ChangesTask(files, start.time, end.time)
        groups = list(_worth_a_task(sizes))
        if self.plan.form == "upserts":
            yield from (replace(whole, share=(number, len(groups))) for number in range(len(groups)))
            return
        marks = self._marks_between(start, end) if self.plan.form == "feed" else ()
        for paths in groups:
            beside = _overlapping(times, paths, files.paths)
            yield replace(whole, files=replace(files, paths=paths), beside=beside, marks=marks)

    def _marks_between(self, start: Offset, end: Offset) -> tuple[tuple[int, int], ...]:
        """The times and epochs of the marks of a batch, the end's at least."""
        index = self._known_marks()
        low = bisect_right(index, start.time, key=lambda mark: mark.time)
        high = bisect_right(index, end.time, key=lambda mark: mark.time)
        rows = index.between(low, high)
        # Of several marks of one time the first brought its changes.
        found = dict(zip(rows["time"].to_pylist()[::-1], rows["epoch"].to_pylist()[::-1], strict=True))
        return tuple(sorted({end.time: end.epoch, **found}.items()))


def _has_plan(store: Store, offset: Offset) -> bool:
    """Tell whether the lake has the plan of an offset, which tables that stay open would not tell."""
    plan = catalog.final_plan(store, offset.source, offset.epoch)
    return plan is None or plan.plan_id == offset.plan_id  # old plans are cleaned away


def _contents(cut: Cut, plan: StreamPlan) -> Iterator[StreamTask]:
    """The tasks of the table at the mark of the cut."""
    mark = cut.mark
    table = cut.standings.open((plan.source, TableName.parse(plan.table)), mark)
    commit_ts = mark.upstream_commit_ts or mark.published_at
    files = table.files()
    for group in _worth_a_task({path: file.size for path, file in files.items()}):
        live = tuple(file_rows(files[path]) for path in group)
        yield ContentsTask(table.folder, live, mark.time, mark.epoch, commit_ts)


def _worth_a_task(sizes: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """The files in their order, so many together that they are worth a task."""
    return map(tuple, portions(sorted(sizes), (TASK_BYTES, lambda path: sizes[path])))


def _overlapping(times: Mapping[str, Bounds], paths: Sequence[str], among: Sequence[str]) -> tuple[str, ...]:
    """Find the other files that may have times of one of the paths."""
    inside = set(paths)
    unknown: Bounds = (None, None)
    spans = [times.get(path, unknown) for path in paths]
    others = [path for path in among if path not in inside]
    if any(None in span for span in spans):
        return tuple(others)
    spans.sort()
    firsts = [first for first, _ in spans]
    lasts = list(accumulate((last for _, last in spans), max))  # of all spans up to this one

    def overlaps(path: str) -> bool:
        low, high = times.get(path, unknown)
        if low is None or high is None:
            return True
        begun = bisect_right(firsts, high)
        return begun > 0 and bool(lasts[begun - 1] >= low)

    return tuple(filter(overlaps, others))
