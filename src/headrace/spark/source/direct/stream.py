"""A direct stream, as its query's own process on the driver sees it.

    latest(start)         the end of the next batch; it is durable by then
    tasks(start, end)     its tasks: slices of the stream, or pieces of the snapshot; while Spark works on
                          them, a thread cuts the next batch, if a whole one is there
    commit(end)           Spark has it: acknowledged at the source, its files deleted

Nothing here is lost with the process. The one that comes after it takes the state folder over, receives
behind the newest batch, and offers the earlier ones as they are. Spark ends this process without a word; the
receiver ends with its standard input, and the source's objects are free within seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from headrace.core.errors import HeadraceError
from headrace.core.failpoint import failpoint
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.ingest.last_commits import LastCommits
from headrace.lake.store.open import open_store
from headrace.sources import registry
from headrace.spark.source.direct.beginning import SnapshotCopy, establish, examine, require_columns
from headrace.spark.source.direct.offsets import DirectOffset
from headrace.spark.source.direct.reception import Reception, SourceLink, StreamPlace
from headrace.spark.source.direct.refusals import speaking_of_states
from headrace.spark.source.direct.rows import DirectPlan, DirectTask, SliceTask, SnapshotTask
from headrace.spark.source.direct.state import (
    FORMAT,
    Beginning,
    DirectTable,
    StateFolder,
    StateRecord,
    new_id,
    older_checkpoint_error,
    older_state_error,
    open_state,
    other_state_error,
)

ADVANCE_SECONDS = 1.0  # between two tries to move the end of a quiet source's log
_POLL_SECONDS = 0.01
_AHEAD_SECONDS = 0.05  # between two looks for a whole batch


class DirectStream:
    """The stream of a query. It belongs to one thread, but for the batch that is cut ahead."""

    def __init__(self, plan: DirectPlan) -> None:
        self._plan = plan
        kind = registry.kind_of(plan.url)
        source = registry.by_kind(kind)
        address, fresh = source.address(plan.url), new_id()
        wanted = StateRecord(
            format=FORMAT,
            id=fresh,
            kind=kind,
            address=address.without_secrets(),
            upstream=source.plan(fresh, "direct", plan.options),
            patterns=plan.tables,
            options=plan.options,
            is_typed=plan.columns is not None,
        )
        self._state = open_state(open_store(plan.state), wanted)
        self._state.take_over()
        self._link = SourceLink(source, address, self._state.record)
        self._address = address
        self.reception: Reception | None = None
        self._target: Position | None = None
        self._using = threading.Lock()
        self._ahead: threading.Event | None = None  # set: a batch is asked for, so none is cut ahead

    def initial(self) -> DirectOffset:
        """The offset of a query that has read nothing."""
        start = self._offset(0)
        self._require(start)
        return start

    @speaking_of_states()
    def end_at_newest(self) -> None:
        """Let the stream end where the source is now."""
        with self._using:
            self._receive()
            self._target = self._link.mirror.end()

    def go_on(self) -> None:
        """Let the stream have no end again."""
        self._target = None

    @speaking_of_states()
    def latest(self, start: DirectOffset | None) -> DirectOffset:
        """The end of the next batch behind `start`; of all that are there, if that is not known."""
        if self._ahead is not None:
            self._ahead.set()
        with self._using:
            if start is not None:
                self._require(start)
            reception, advanced = self._receive(), time.monotonic()
            while True:
                newest = self._state.newest
                if start is not None and start.batch < newest:
                    return self._offset(start.batch + 1)
                received = reception.received_until
                is_over = self._ends_before(reception.place.until)
                if not is_over and reception.cut():
                    continue
                is_over = is_over or (self._ends_before(received) and not reception.waits)
                if is_over and self._is_proven(reception):
                    reception.require_unaltered()
                    return self._offset(newest)
                if self._target is None:
                    return self._offset(newest)
                advanced = self._advance(advanced)

    def tasks(self, start: DirectOffset, end: DirectOffset) -> list[DirectTask]:
        """The tasks of the batches behind `start`, up to `end`."""
        for offset in (start, end):
            self._require(offset)
        known = self._state.beginning
        if known is None:
            return []
        found = list(_snapshot_tasks(self._state, known)) if start.batch < 1 <= end.batch else []
        for number in range(max(start.batch, 1) + 1, end.batch + 1):
            found += _slice_tasks(self._state, known, number)
        if self.reception is not None and end.batch == self._state.newest:
            self._ahead = threading.Event()
            working = (self.reception, self._using, self._ahead, self._ends_before)
            threading.Thread(target=_cut_ahead, args=working, name="headrace-ahead", daemon=True).start()
        return found

    def commit(self, end: DirectOffset) -> None:
        """Let the source forget all up to here: Spark has it."""
        self._require(end)
        with self._using:
            if end.batch > self._state.committed_batch:
                failpoint("direct.commit.before")
                self._state.require_owner()
                self._state.commit(end.batch)
                failpoint("direct.commit.after")
                if self.reception is not None:
                    self.reception.acknowledge(self._state.end_of(end.batch))

    def _offset(self, batch: int) -> DirectOffset:
        return DirectOffset(batch, self._state.record.id)

    def _require(self, offset: DirectOffset) -> None:
        """Refuse a checkpoint that this state does not belong to."""
        state = self._state
        if offset.state != state.record.id:
            raise other_state_error(state.store.url)
        if offset.batch > state.newest:
            raise older_state_error(state.store.url, state.newest, offset.batch)
        if offset.batch < state.committed_batch:
            raise older_checkpoint_error(state.store.url, state.committed_batch, offset.batch)

    def _ends_before(self, reached: int) -> bool:
        return self._target is not None and self._target.time <= reached

    def _is_proven(self, reception: Reception) -> bool:
        """Tell whether a target may lie behind us: a server that was set back refuses its receiver."""
        target, end = self._target, reception.place.end
        return target is None or target.time >= end.time or reception.listen()

    # --- the beginning, and going on --------------------------------------------------------------

    def _receive(self) -> Reception:
        """Begin the stream, or go on with it, when it is first needed."""
        if self.reception is None:
            known = self._state.beginning
            self.reception = self._begin() if known is None else self._go_on(known)
        return self.reception

    def _go_on(self, known: Beginning) -> Reception:
        state, start = self._state, known.start
        if state.newest > 1:
            place = StreamPlace.behind(state.batch(state.newest))
        else:
            place = StreamPlace(1, start, start.time, LastCommits(start.time), known.filled_tables)
        tables = tuple(table.definition for table in known.tables)
        self._link.bind(known)
        self._link.mirror.confirm(known.identity, place.end)
        return Reception(self._plan, state, self._link, tables, place)

    def _begin(self) -> Reception:
        plan, state, link = self._plan, self._state, self._link
        report = examine(link.source, self._address, plan, registry.declaration(state.record.kind).title)
        state.clear()
        origin = establish(link, state, report)
        link.bind(origin)
        tables, start = tuple(origin.tables.fit_defs), origin.start
        if plan.columns is not None:
            require_columns(tables, plan.columns)
        numbers = frozenset(table.number for table in tables)
        place = StreamPlace(1, start, start.time, LastCommits(start.time), numbers)
        reception = Reception(plan, state, link, tables, place)
        files, handoff = SnapshotCopy(link, state, tables, plan.columns is not None).run(plan)
        self._cut_until(reception, handoff.until or link.mirror.end())
        known = Beginning(
            identity=origin.identity,
            upstream=origin.upstream,
            start=start,
            reference=reception.reference,
            tables=tuple(map(DirectTable.of, tables)),
            files=files,
            handoff=to_record(handoff),
            held_until=reception.place.batch,
        )
        state.begin(known)
        if known.held_until == 1:
            reception.place = replace(reception.place, filled_tables=known.filled_tables)
        return reception

    def _cut_until(self, reception: Reception, until: Position) -> None:
        """Cut all transactions that the snapshot may hold."""
        advanced = time.monotonic()
        while True:
            received = reception.received_until
            if not reception.cut():
                if received >= until.time and not reception.waits:
                    return
                advanced = self._advance(advanced)

    def _advance(self, last: float) -> float:
        """Wait a little for the stream; a source that nobody writes to may have to move its log for that."""
        time.sleep(_POLL_SECONDS)
        now = time.monotonic()
        if now < last + ADVANCE_SECONDS:
            return last
        captures = self._link.mirror.captures
        if captures is not None:
            captures.advance_log()
        return now


def _cut_ahead(
    reception: Reception, using: threading.Lock, asked: threading.Event, ends_before: Callable[[int], bool]
) -> None:
    """Cut the next batch while Spark works on the newest one, as soon as a whole one is there."""
    newest = reception.place.batch
    while not asked.wait(_AHEAD_SECONDS):
        with using:
            place = reception.place
            if asked.is_set() or place.batch > newest or ends_before(place.until):
                return
            try:
                if reception.cut(whole=True):
                    return
            except HeadraceError:
                return  # it comes again when the batch is asked for


def _snapshot_tasks(state: StateFolder, known: Beginning) -> Iterator[DirectTask]:
    """The first batch: the snapshot, and what is taken back of the batches that it reaches into."""
    for file in known.files:
        yield SnapshotTask(file.key, file.table, known.start.last)
    for number in range(2, known.held_until + 1):
        yield from _slice_tasks(state, known, number, back=True)


def _slice_tasks(
    state: StateFolder, known: Beginning, number: int, *, back: bool = False
) -> Iterator[DirectTask]:
    numbers, batch = tuple(table.number for table in known.tables), state.batch(number)
    typed = known.tables[0] if state.record.is_typed else None
    for part in batch.slices:
        yield SliceTask(
            kind=state.record.kind,
            reference=known.reference,
            key=batch.key,
            slice=part,
            tables=numbers,
            typed_table=typed,
            snapshot=known.snapshot if back else None,
            time=known.start.last,
        )
