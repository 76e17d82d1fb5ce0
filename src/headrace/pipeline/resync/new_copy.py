"""The work of the loop on new copies (`replacement`), once a turn.

ready     it is compared beside the loop; then the difference goes into one epoch
failed    it is given up; its table goes on as before
waiting   the source's position has to move; if nothing else moves it, we do
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.core.failpoint import failpoint
from headrace.pipeline.resync import replacement
from headrace.pipeline.resync.comparison import KnownChecksums
from headrace.pipeline.resync.replacement import Workers
from headrace.pipeline.state.epoch import ROOM, has_room, last_with_room
from headrace.pipeline.state.ledger import lacks_room
from headrace.pipeline.state.owner import Owner, Warner
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.schema_check import RecordsCheck
from headrace.pipeline.state.table_epochs import stop_copies
from headrace.pipeline.state.table_state import State

WAITS = "RESYNC_WAITS"
STIR_SECONDS = 1.0
AGAIN_SECONDS = 0.5


class CopyRun(Owner, Protocol):
    """The part of a run that its new copies need."""

    @property
    def runner(self) -> Workers: ...
    @property
    def reporter(self) -> Warner: ...
    def check_schema(self, records: Sequence[TableRecord]) -> RecordsCheck: ...
    def room(self, time: int) -> int: ...


@dataclass(slots=True)
class Renewal:
    """The new copies of one attempt."""

    moved_at: float = field(default_factory=time.monotonic)
    checksums_by_copy: dict[str, KnownChecksums] = field(default_factory=dict)  # by the id of the copy
    has_spent_copies: bool = True  # there may be files of copies that are over; they go once that is durable
    again_at: float = 0.0  # a table that somebody held exclusively is asked for again, but not all the time
    awaits_commit: bool = False  # a new copy waits for a later position, and we can't move the source

    def turn(self, run: CopyRun) -> None:
        """Put ready copies in place, give up failed ones, help waiting ones."""
        room = has_room(run.ledger.position.time)
        ready = self._near(run) if room and time.monotonic() >= self.again_at else []
        if ready or (room and replacement.is_over(run.ledger)):
            check = run.check_schema(ready)
            if changed := check.changed_tables(ready):
                run.publish(stop_copies(run.ledger, changed))
            elif check.locked_tables:
                self.again_at = time.monotonic() + AGAIN_SECONDS
            else:
                epoch = replacement.epoch(run.ledger, run.runner, ready, self.checksums_by_copy)
                failpoint("reconcile.before")
                run.publish(epoch)
                failpoint("reconcile.after")
                self.has_spent_copies = True
        elif not run.ledger.recovering:
            self._give_up(run)
        self._stir(run)
        if self.has_spent_copies and run.ledger.durable:
            self.has_spent_copies = False
            replacement.clean_up(run.ledger)

    def _near(self, run: CopyRun) -> list[TableRecord]:
        """Find the new copies that can replace their tables at once: others have too many rows to compare."""
        ready = replacement.ready(run.ledger)
        stages = [replacement.stage_of(copy) for copy in ready]
        self.checksums_by_copy = {
            copy_id: self.checksums_by_copy.get(copy_id) or KnownChecksums() for copy_id in stages
        }
        near = [
            copy
            for copy_id, copy in zip(stages, ready, strict=True)
            if replacement.near(run.ledger, run.runner, copy, self.checksums_by_copy[copy_id])
        ]
        together = run.ledger.recovering and len(near) < len(ready)
        return [] if together or self._takes_last_room(run, near) else near

    def _takes_last_room(self, run: CopyRun, near: Sequence[TableRecord]) -> bool:
        """Tell whether other copies would have to wait for a commit, at a source that we cannot move."""
        left = [copy for copy in run.ledger.staged.values() if copy.state is not State.STOPPED]
        last = not has_room(run.ledger.position.time + ROOM)
        return last and len(near) < len(left) and run.mirror.captures is None

    def _give_up(self, run: CopyRun) -> None:
        failed = replacement.failed_copies(run.ledger)
        for copy in failed:
            assert copy.error is not None
            run.reporter.gave_up(copy.name, copy.error)
        if failed:
            run.publish(replacement.giving_up(run.ledger, failed))
            self.has_spent_copies = True

    def _stir(self, run: CopyRun) -> None:
        """Move a source where nothing happens, if a new copy waits for a later position of it."""
        frontier = run.runner.reader.frontier()
        over = replacement.is_over(run.ledger) and not has_room(run.ledger.position.time)
        joining = any(r.state is State.JOINING for r in run.ledger.staged.values())
        waits = over or joining or lacks_room(run.ledger)
        if not waits or frontier is None or run.room(frontier) > run.ledger.position.time:
            self.moved_at, self.awaits_commit = time.monotonic(), False
            run.reporter.clear(WAITS)
        elif time.monotonic() - self.moved_at >= STIR_SECONDS:
            captures = run.mirror.captures
            moved = captures is not None and captures.advance_log()
            self.awaits_commit = not moved and last_with_room(frontier) < run.ledger.position.time
            if not moved:
                run.reporter.warn(WAITS, "a table that was copied anew waits for the source's next commit")
            self.moved_at = time.monotonic()
