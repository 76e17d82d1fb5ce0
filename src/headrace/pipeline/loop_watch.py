"""The watch over the loop: the reporter's thread measures a run's progress itself, even if the loop hangs.

    the loop       reports the work that it begins (`doing`), each turn (`turns`), each answer of the source
                   (`hears`)
    the reporter   asks the spool how far the stream is, and the receiver when it heard the source (`look`)

So the lag grows while the loop hangs, and the status names the work in which it hangs. `look` has a spool
reader of its own, and of the loop it reads only values that are replaced whole. Call it under the reporter's
lock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from headrace.core.errors import HeadraceError
from headrace.lake.format.status import (
    PositionStatus,
    RunningStatus,
    SourceStatus,
    WorkStatus,
    moment_text,
)
from headrace.spool.places import Places
from headrace.spool.reader import SpoolReader

if TYPE_CHECKING:
    from headrace.ingest.supervisor import Receiver
    from headrace.pipeline.state.ledger import Acknowledger, Ledger
    from headrace.pipeline.state.records import SourceRecord
    from headrace.pipeline.stream.epoch import EpochRunner
    from headrace.pipeline.stream.source_clock import SourceClock


class WatchedRun(Protocol):
    """The part of a run that shows its progress to another thread."""

    @property
    def ledger(self) -> Ledger: ...
    @property
    def receiver(self) -> Receiver: ...
    @property
    def acknowledger(self) -> Acknowledger: ...
    @property
    def runner(self) -> EpochRunner: ...
    @property
    def clock(self) -> SourceClock: ...
    @property
    def cursor(self) -> int: ...


class LoopWatch:
    """The watch over the loop of one run, over all of its attempts."""

    def __init__(self) -> None:
        self.position: PositionStatus | None = None
        self.running: RunningStatus | None = None
        self.work: WorkStatus | None = None
        self._run: WatchedRun | None = None
        self._reader: SpoolReader | None = None
        self._beside: SpoolReader | None = None  # the loop's reader, when ours was opened
        self._turned = self._heard = 0.0

    @property
    def turned_at(self) -> str | None:
        return moment_text(self._turned) if self._turned else None

    @property
    def contact_at(self) -> str | None:
        return moment_text(self._heard) if self._heard else None

    def resume(self, status: SourceStatus) -> None:
        """Begin with the last figures of the run before, and their age."""
        self.position = status.position
        if status.contact_at is not None:
            self._heard = datetime.fromisoformat(status.contact_at).timestamp()

    # --- the loop's thread ------------------------------------------------------------------------

    def turns(self, run: WatchedRun) -> None:
        """Note a turn of the loop; `leave` ends an attempt."""
        self._run, self._turned = run, time.time()

    def hears(self) -> None:
        """Note that the source has just answered."""
        self._heard = time.time()

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Show this work of the loop while the block runs; afterwards show the work around it again."""
        before, self.work = self.work, WorkStatus(what, moment_text(time.time()))
        try:
            yield
        finally:
            self.work = before

    # --- under the reporter's lock ----------------------------------------------------------------

    def look(self) -> None:
        """Update the positions; keep the last ones while the spool is being made anew."""
        run = self._run
        if run is None:
            return
        run.receiver.listen()
        progress = run.receiver.progress
        self._heard = max(self._heard, progress.heard_at)
        self.running = RunningStatus(progress.running, progress.running_bytes)
        with suppress(HeadraceError, OSError):
            self.position = _position(run, self._spool(run))

    def leave(self) -> None:
        """Stop looking: the attempt is over. Its last positions stay, with their time."""
        self._run = self._reader = self._beside = self.work = None

    def _spool(self, run: WatchedRun) -> SpoolReader:
        """Return a reader of the loop's spool; a receiver that was started anew needs a new one."""
        if self._reader is None or self._beside is not run.runner.reader:
            self._beside, self._reader = run.runner.reader, SpoolReader(Path(run.runner.spool))
        return self._reader


def source_of(run: WatchedRun) -> SourceRecord:
    """Return the record of the run's source."""
    assert run.ledger.source is not None
    return run.ledger.source


def _position(run: WatchedRun, reader: SpoolReader) -> PositionStatus:
    now, newest, mark = time.time(), reader.newest(), run.ledger.mark
    source_end = int(newest["source_end"]) if newest is not None else 0
    source_end = max(source_end, 0 if run.clock.end is None else run.clock.end.time)
    received = int(newest["end"]) if newest is not None else 0
    waiting = _waiting(run, reader, received)
    acknowledged = run.acknowledger.acknowledged
    source = source_of(run)
    heard = (
        source.exactly_at(received) or Places(Path(run.runner.spool)).upto(received) or run.ledger.position
    )
    return PositionStatus(
        frontier=str(mark.position),
        received_until=str(source.at(received, heard)),
        source=str(source.at(source_end, max(heard, run.clock.end or heard))),
        acknowledged_until=None if acknowledged is None else str(acknowledged),
        complete_until=None if mark.complete_until is None else mark.complete_until.isoformat(),
        lag_bytes=max(0, source_end - (received if waiting is None else int(waiting["time"]))),
        spool_bytes=reader.held_bytes(),
        kept_bytes=sum(file.size for file in run.ledger.kept.values()),
        waiting_since=None if waiting is None else moment_text(int(waiting["commit_ts"]) / 1e6),
        at=moment_text(now),
    )


def _waiting(run: WatchedRun, reader: SpoolReader, received: int) -> np.void | None:
    """Find the oldest transaction that is received and in no mark.

    If there is none, the received log behind the mark has nothing for us.
    """
    if received <= run.ledger.frontier.time:
        return None
    found = reader.transactions(run.cursor, 1)
    return found[0] if len(found) else None
