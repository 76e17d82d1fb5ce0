"""Tables that may not stay in our publication, and their way out of it.

    stopped                     nobody reads its changes; `tables resync` puts it back, checked anew
    no usable identity any more  the server refuses the application's own UPDATE and DELETE for as long as
                                a publication that publishes updates holds the table

Called once a turn by the loop of `loop`. Without an identity counts from the moment that the server's
catalog says so, which is asked for each second: no mark is due where all the application does is fail. Such a
table leaves the publication first and is looked at then, so that it stops with what was done to it.

ALTER PUBLICATION ... DROP TABLE waits for nobody who reads or writes the table, but for DDL and VACUUM it
does. It gives up after a moment, which is all that the loop ever waits for it, is tried again later each
time, and `status` warns of it. Its commit waits for no standby. What belongs to the user is never touched.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from headrace.core.errors import HeadraceError
from headrace.pipeline.commands.serve import CommandQueue
from headrace.pipeline.resync.new_copy import CopyRun
from headrace.pipeline.state.stops import stop_copies, stop_tables
from headrace.sources import registry
from headrace.sources.contract.tables import Tables

POLL_SECONDS = 1.0
LONGEST_PAUSE = 30.0


class TableRun(CopyRun, Protocol):
    """A run, as far as tables that leave the publication need it."""

    @property
    def commands(self) -> CommandQueue: ...


@dataclass(slots=True)
class Withdrawal:
    """The tables that have to leave our publication, as one attempt knows of them."""

    out: frozenset[int] = frozenset()  # numbers that are known not to be in it
    polled_at: float = 0.0
    again_at: float = 0.0
    pause: float = POLL_SECONDS
    warned: str | None = None  # the code by which the operator was told that a table could not leave

    def turn(self, run: TableRun) -> None:
        """Take out what has to leave, unless a request is putting something in at this moment."""
        source = run.ledger.source
        assert source is not None
        now = time.monotonic()
        if run.commands.in_hand is not None:
            self.out = frozenset()  # it may put something in, and be refused after that
            return
        ours = registry.by_kind(source.kind).owns_capture(source.upstream)
        if not ours or now < self.again_at:
            return
        stopped = _stopped(run)
        self.out &= stopped
        tables = run.session.tables(source.upstream)
        flawed = frozenset[int]()
        if now - self.polled_at >= POLL_SECONDS:
            self.polled_at = now
            flawed = tables.unwritable()
        if leaving := (stopped - self.out) | flawed:
            self._withdraw(run, tables, leaving)
            _stop(run, flawed)
        elif self.polled_at == now:
            self._warn(run, None)  # it left by another hand, or may stay again

    def _withdraw(self, run: TableRun, tables: Tables, leaving: frozenset[int]) -> None:
        try:
            tables.release_now(leaving)
        except HeadraceError as error:
            if run.session.closed:
                raise
            self.again_at = time.monotonic() + self.pause
            self.pause = min(2 * self.pause, LONGEST_PAUSE)
            self._warn(run, error)
        else:
            self.out |= leaving
            self.pause = POLL_SECONDS
            self._warn(run, None)

    def _warn(self, run: TableRun, error: HeadraceError | None) -> None:
        """Say what keeps a table in, and take back what was said before."""
        if self.warned is not None and (error is None or error.code != self.warned):
            run.reporter.clear(self.warned)
        self.warned = None if error is None else error.code
        if error is not None:
            text = f"a table could not be taken out of our publication: {error.primary}"
            run.reporter.warn(error.code, text)


def _stopped(run: TableRun) -> frozenset[int]:
    """The numbers of tables that stopped and have no new copy; nobody else goes by them."""
    ledger = run.ledger
    tables = ledger.tables.items()
    stopped = {r.number for n, r in tables if not r.state.is_published and n not in ledger.staged}
    others = {record.number for _, record in tables if record.state.is_published}
    return frozenset(stopped - others - {r.number for r in ledger.staged.values()})


def _stop(run: TableRun, numbers: frozenset[int]) -> None:
    """Stop the tables that these are now, and not only when a mark is due."""
    ledger = run.ledger
    tables = [] if ledger.recovering else list(ledger.tables.values())
    for known, stop in ((tables, stop_tables), (list(ledger.staged.values()), stop_copies)):
        concerned = [r for r in known if r.number in numbers and r.state.is_published]
        if concerned and (changed := run.check_schema(concerned).changed(concerned)):
            run.publish(stop(ledger, changed))
