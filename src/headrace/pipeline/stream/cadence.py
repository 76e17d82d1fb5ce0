"""The cadence of marks: when the next one is due, and when it waits.

    mark ── every ──► mark ── every ──► mark        a source with steady traffic
    commit ─► mark              commit ─► mark      one that was quiet for longer: at once

A mark waits because of its price: it costs a dozen files, whether it brings one transaction or a thousand.
With `every = "auto"` marks come as often as `interval` can afford, by what the last marks cost. A mark does
not wait if something depends on it: a position that a command asked for, a table that joins, a backlog. If
nothing was committed for us, a mark is due once a minute, or when the log has grown by some megabytes, so
that the source is acknowledged.

While tables wait for their copy and none follows the stream yet, marks name no table. They serve the
acknowledgement alone, so they are as rare as on a source where nothing is committed. The stream is in the
spool meanwhile, where a quick copy finds all of it.

Marks omit a table that a session has locked exclusively. Only looks tell whether it is free, and they become
rarer while nothing changes: a lock may be held for days.

Some DDL sends nothing through the stream: TRUNCATE of a partition, ALTER TABLE that rewrites rows. Only the
log moves on. So where it did, and brought nothing for us, a look is due after `LOOK_SECONDS`; it leads to a
mark if it finds a change.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Protocol

from headrace.core.chunks import exact_from
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.ingest.supervisor import Receiver
from headrace.pipeline.state.epoch import last_with_room
from headrace.pipeline.state.ledger import lacks_room
from headrace.pipeline.state.owner import Owner
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.schema_check import RecordsCheck
from headrace.pipeline.state.table_state import State
from headrace.pipeline.stream.batches import EpochBatch
from headrace.pipeline.stream.source_clock import SourceClock

IDLE_SECONDS = 60.0
IDLE_BYTES = 16 << 20
KEEP_SECONDS = IDLE_SECONDS  # while no table follows the stream
LOCKED_SECONDS = 0.5
LOCKED_MOST_SECONDS = 5.0
LOOK_SECONDS = 5.0  # between two looks at a source whose log moves on without a change for us
LOOK_PAUSE = 200  # the same in times that one look took: looks take at most a two-hundredth of the time
CORE_SHARE = 0.05  # of `every = "auto"`: what marks may take of a core
FILES_PER_SECOND = 1.6  # and of files: 6,000 an hour
SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 10.0
LONGEST_FOR_FILES = 20.0  # where marks are dear by their files, as those of many tables are
_REMEMBERED = 5  # costs of marks: one that met a cold or a busy machine counts for little


@dataclass(frozen=True, slots=True)
class MarkCost:
    """The cost of one mark: the CPU time that it took, and the files that it wrote."""

    cpu_seconds: float
    files: int


def interval(costs: Iterable[MarkCost]) -> float:
    """Return the seconds between two marks of `every = "auto"`, by the costs of the last marks.

    Marks then take at most `CORE_SHARE` of a core and write at most `FILES_PER_SECOND`; but they are never
    further apart than `LONGEST_SECONDS` for their time, and `LONGEST_FOR_FILES` for their files.
    """
    known = list(costs)
    if not known:
        return SHORTEST_SECONDS
    for_time = median_low(cost.cpu_seconds for cost in known) / CORE_SHARE
    for_files = median_low(cost.files for cost in known) / FILES_PER_SECOND
    return max(SHORTEST_SECONDS, min(for_time, LONGEST_SECONDS), min(for_files, LONGEST_FOR_FILES))


class MarkRun(Owner, Protocol):
    """The part of a run on which the pace of its marks depends."""

    @property
    def once(self) -> bool: ...
    @property
    def receiver(self) -> Receiver: ...
    @property
    def wanted_position(self) -> Position | None: ...
    @property
    def target(self) -> Position: ...
    @property
    def published_at(self) -> float: ...
    @property
    def clock(self) -> SourceClock: ...
    def check_schema(
        self, records: Sequence[TableRecord], batch: EpochBatch | None = None
    ) -> RecordsCheck: ...
    @property
    def proven_from(self) -> Mapping[str, Position]: ...
    def room(self, time: int) -> int: ...
    def read_clock(self) -> None: ...


@dataclass(slots=True)
class Cadence:
    """The pace of one source's marks, in one attempt."""

    every: float | None  # seconds; None: by what marks cost
    _costs: deque[MarkCost] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _more: bool = False  # the stream's last mark left something in the spool
    _published_at: float = -math.inf
    _began: float = field(default_factory=time.monotonic)
    _left_out: frozenset[TableName] = frozenset()
    _pause: float = LOCKED_SECONDS
    _again: float = 0.0
    _looked_until: int = 0  # the frontier at the last look that left nothing open
    _next_look: float = 0.0

    @property
    def interval(self) -> float:
        """Return the seconds between two marks that hold at this moment."""
        return interval(self._costs) if self.every is None else self.every

    @property
    def due_in(self) -> float:
        """Return the seconds until a mark may follow the stream's last one."""
        return max(0.0, self._published_at + self.interval - time.monotonic())

    def on_published(self, *, more: bool, cost: MarkCost | None = None) -> None:
        """Note that the stream had a mark; `more`: the spool holds further transactions."""
        self._published_at, self._more = time.monotonic(), more
        if cost is not None:
            self._costs.append(cost)

    def rests(self, run: MarkRun) -> bool:
        """Tell whether the next mark may wait for its time, because nothing depends on it."""
        ledger = run.ledger
        if not ledger.followed_tables and (ledger.awaited_tables or ledger.catching_up):
            return self._rests_alone(run)
        if not self.due_in or self._more or run.once or run.receiver.progress.full:
            return False
        replacing = any(not r.state.awaits_copy for r in run.ledger.staged.values())
        return not (is_waited_for(run) or _joining(run) or replacing)

    def _rests_alone(self, run: MarkRun) -> bool:
        """Tell whether a mark may wait that would only keep the stream and acknowledge it."""
        progress, position = run.receiver.progress, run.ledger.position
        wanted = run.wanted_position is not None and position < run.wanted_position
        much = progress.frontier - position.time >= IDLE_BYTES
        early = time.monotonic() - max(self._published_at, self._began) < KEEP_SECONDS
        return early and not (much or wanted or progress.full)

    def check_for(
        self, run: MarkRun, batch: EpochBatch, attached_tables: Sequence[TableRecord]
    ) -> RecordsCheck | None:
        """Look at the catalog for the next mark, after its batch was received; None if no mark is due."""
        if len(batch.transactions) or _due(run, batch.frontier):
            run.read_clock()
            return self._look(run, batch, attached_tables)
        live = (name for name, record in run.ledger.tables.items() if record.state.is_named)
        left_out = frozenset(name for name in live if str(name) not in run.ledger.mark.versions)
        again = self._worth_a_check(left_out)
        if not (again or (attached_tables and self._may_hide_ddl(run, batch.frontier))):
            return None
        check = self._look(run, batch, attached_tables)
        if again and not left_out <= check.locked_tables:
            return check
        if again:
            self._pause = min(2 * self._pause, LOCKED_MOST_SECONDS)
            self._again = time.monotonic() + self._pause
        return check if check.errors or check.wider_tables or check.rewritten else None

    def _look(self, run: MarkRun, batch: EpochBatch, attached_tables: Sequence[TableRecord]) -> RecordsCheck:
        begun = time.monotonic()
        check = run.check_schema(attached_tables, batch)
        now = time.monotonic()
        self._next_look = now + max(LOOK_SECONDS, LOOK_PAUSE * (now - begun))
        if not check.locked_tables:  # a lock may hide a change that the log has already
            self._looked_until = batch.frontier.time
        return check

    def _may_hide_ddl(self, run: MarkRun, frontier: Position) -> bool:
        """Tell whether to look now because the log has moved on: it may hold DDL that sends no message."""
        seen = max(self._looked_until, run.ledger.position.time)
        return not run.once and frontier.time > seen and time.monotonic() >= self._next_look

    def _worth_a_check(self, left_out: frozenset[TableName]) -> bool:
        """Tell whether to look now if marks may name these tables again."""
        now = time.monotonic()
        if left_out != self._left_out:
            self._left_out, self._pause, self._again = left_out, LOCKED_SECONDS, now + LOCKED_SECONDS
        return bool(left_out) and now >= self._again


def is_waited_for(run: MarkRun) -> bool:
    """Tell whether a command waits for a mark that is not there yet."""
    return run.wanted_position is not None and run.ledger.frontier < run.wanted_position


def _due(run: MarkRun, frontier: Position) -> bool:
    """Tell whether a frontier without transactions deserves a mark."""
    ledger = run.ledger
    # During a recovery of a lost position the marks stay where they are.
    if run.once and not (ledger.recovering or run.clock.began) and run.clock.reaches(run.room(frontier.time)):
        return True
    behind = run.room(frontier.time) - ledger.position.time
    joining = _joining(run)
    asked = run.once and ledger.frontier < run.target
    asked |= is_waited_for(run)
    moved = behind > 0 and (asked or joining or behind >= IDLE_BYTES)
    return moved or time.monotonic() - run.published_at >= IDLE_SECONDS or _may_join(run, frontier)


def _joining(run: MarkRun) -> bool:
    """Tell whether a copied table waits for the stream: to join it, to reach its own beginning, or for room
    in which it replaces its table.
    """
    position = run.ledger.position
    ahead = (r for r in run.ledger.present if r.state is State.CATCHING_UP)
    joining = any(r.state is State.JOINING for r in run.ledger.followed_tables)
    joining |= lacks_room(run.ledger)
    return joining or any(r.frontier is not None and r.frontier > position for r in ahead)


def _may_join(run: MarkRun, frontier: Position) -> bool:
    """Tell whether a table that was copied is exact at this frontier, without anything to apply.

    A new copy needs room behind its mark for the one in which it replaces its table. Other tables need none,
    but no mark names them during a recovery of a lost position.
    """
    ledger = run.ledger
    reached = max(run.room(frontier.time), ledger.position.time)
    has_room = last_with_room(frontier.time) >= ledger.position.time
    joining = (r for r in ledger.followed_tables if r.state is State.JOINING)
    able = (r for r in joining if (not ledger.recovering if r.copy_id is None else has_room))
    proven = (r for r in able if r.key not in run.proven_from or run.proven_from[r.key].time <= reached)
    return any(r.handoff is not None and exact_from(r.handoff).time <= reached for r in proven)
