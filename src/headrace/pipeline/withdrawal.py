"""Tables that may not stay in our publication, and their way out of it.

    stopped                     nobody reads its changes; `tables resync` puts it back, checked anew
    no usable identity any more  the server refuses the application's own UPDATE and DELETE for as long as
                                a publication that publishes updates holds the table

A table counts as one without identity as soon as the server's catalog says so. The run asks each second: no
mark is due while the application's writes fail. Such a table leaves the publication first. Then the run looks
at it, so that it stops with the right error.

ALTER PUBLICATION ... DROP TABLE does not wait for sessions that read or write the table, but it waits for DDL
and VACUUM. So each table has a pause of its own: a locked one is tried again after growing pauses, and does
not keep others in. A try gives up after a moment, which is all that the loop ever waits, and `status` warns
of it. Its commit waits for no standby. Objects that belong to the user are never touched.

No withdrawal waits for a request that is under way, not even for one that puts tables into the publication
(`CommandQueue.captures`): of its tables only those leave that hurt the application, and the next look finds
that. A bug of ours in here ends no run: the run warns of it, and tries again after the longest pause.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from headrace.core.errors import HeadraceError, is_fault, place_of
from headrace.pipeline.commands.serve import CommandQueue
from headrace.pipeline.resync.new_copy import CopyRun
from headrace.pipeline.state.table_epochs import stop_copies, stop_tables
from headrace.sources.contract.mirror import Captures

WAITS, FAULT = "WITHDRAWAL_WAITS", "WITHDRAWAL_FAILED"
POLL_SECONDS = 1.0
LONGEST_PAUSE = 30.0
LONGEST_HURTING = 4.0  # the longest pause while the application's own writes fail
_MOST_WAITS = 2  # tries that the loop waits for in one turn


class TableRun(CopyRun, Protocol):
    """The part of a run that tables which leave the publication need."""

    @property
    def commands(self) -> CommandQueue: ...


@dataclass(slots=True)
class _Pause:
    """The earliest time of the next try for a table that could not be taken out."""

    seconds: float
    again_at: float


@dataclass(slots=True)
class Withdrawal:
    """The tables that have to leave our publication, as far as one attempt knows."""

    out: frozenset[int] = frozenset()  # numbers of tables known not to be in it
    pauses: dict[int, _Pause] = field(default_factory=dict)  # by number
    polled_at: float = 0.0

    def turn(self, run: TableRun) -> None:
        """Take out the tables that have to leave."""
        try:
            self._turn(run)
        except Exception as fault:
            if not is_fault(fault) or run.ledger.is_incomplete:
                raise
            self.polled_at = time.monotonic() + LONGEST_PAUSE
            run.reporter.warn(FAULT, f"tables could not be released at the source: {place_of(fault)}")
        else:
            if time.monotonic() >= self.polled_at:
                run.reporter.clear(FAULT)

    def _turn(self, run: TableRun) -> None:
        source = run.ledger.source
        assert source is not None
        captures = run.mirror.captures
        if captures is None or not source.facts.owns_capture:
            return
        now = time.monotonic()
        if now < self.polled_at:
            return  # after a fault
        arrivals = run.commands.captures
        stopped = _stopped_tables(run)
        arriving = frozenset(r.number for r in run.ledger.tables.values() if r.name in arrivals)
        self.out &= stopped - arriving  # a table that is being put in may still be refused
        flawed: frozenset[int] = frozenset()
        if now - self.polled_at >= POLL_SECONDS:
            self.polled_at = now
            flawed = frozenset() if captures.unwritable is None else captures.unwritable()
            self._forget(run, frozenset(self.pauses) - stopped - flawed)
        leaving = (stopped - arriving - self.out) | flawed
        due = [n for n in sorted(leaving) if n not in self.pauses or self.pauses[n].again_at <= now]
        if due:
            self._withdraw(run, captures, due, flawed)
        _stop(run, flawed)

    def _withdraw(
        self, run: TableRun, captures: Captures, due: Collection[int], flawed: Collection[int]
    ) -> None:
        """Take tables out: all at once if nobody has locked one of them, else each by itself."""
        if len(due) > 1 and not self.pauses and self._release(run, captures, due) is None:
            return
        failed = 0
        for number in sorted(due, key=lambda number: number not in flawed):
            if self._release(run, captures, (number,)) is not None:
                last = self.pauses.get(number)
                seconds = POLL_SECONDS if last is None else min(2 * last.seconds, LONGEST_PAUSE)
                seconds = min(seconds, LONGEST_HURTING) if number in flawed else seconds
                self.pauses[number] = _Pause(seconds, time.monotonic() + seconds)
                failed += 1
            if failed == _MOST_WAITS:
                break  # the others are due in the next turn

    def _release(self, run: TableRun, captures: Captures, numbers: Collection[int]) -> HeadraceError | None:
        try:
            captures.release_now(frozenset(numbers))
        except HeadraceError as error:
            if run.mirror.connection.is_closed:
                raise
            run.reporter.warn(WAITS, f"a table could not be released at the source: {_reason(error)}")
            return error
        self.out |= frozenset(numbers)
        self._forget(run, frozenset(numbers))
        return None

    def _forget(self, run: TableRun, numbers: Collection[int]) -> None:
        """Forget the pauses of these tables: nothing more is tried for them."""
        for number in numbers:
            self.pauses.pop(number, None)
        if not self.pauses:
            run.reporter.clear(WAITS)


def _reason(error: HeadraceError) -> str:
    said = f"{error.code}: {error.primary}"
    return said if error.detail is None else f"{said}: {error.detail}"


def _stopped_tables(run: TableRun) -> frozenset[int]:
    """Return the numbers of tables that stopped and have no new copy, and that no other table has."""
    ledger = run.ledger
    tables = ledger.tables.items()
    stopped = {r.number for n, r in tables if not r.state.is_published and n not in ledger.staged}
    others = {record.number for _, record in tables if record.state.is_published}
    return frozenset(stopped - others - {r.number for r in ledger.staged.values()})


def _stop(run: TableRun, numbers: frozenset[int]) -> None:
    """Stop the tables that have these numbers now, without waiting until a mark is due."""
    ledger = run.ledger
    tables = [] if ledger.recovering else list(ledger.tables.values())
    for known, stop in ((tables, stop_tables), (list(ledger.staged.values()), stop_copies)):
        concerned = [r for r in known if r.number in numbers and r.state.is_published]
        if concerned and (changed := run.check_schema(concerned).changed_tables(concerned)):
            run.publish(stop(ledger, changed))
