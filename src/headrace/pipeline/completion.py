"""The end of a run that only catches up (`--once`).

    done       the newest mark is where the source was at the start, every table exact in it, or stopped
    stranded   all else is done, and the tables that are left wait for a privilege that only a person can
               grant, for a session that has locked them for a while, or for any commit at the source
    stalled    nothing has moved for minutes, and nothing is under way (`Standstill`)

The first is a success. The others are errors: `policy` tries a few times more, and then the run ends with
the error's code. A run without `--once` waits as long as it takes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.core.errors import HeadraceError, RightWithheld, Transient
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.ingest.supervisor import Receiver
from headrace.pipeline.copy.scheduler import CopyScheduler
from headrace.pipeline.following import FollowingRun, NewTables, TableFollower
from headrace.pipeline.resync.new_copy import Renewal
from headrace.pipeline.state.epoch import with_room
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.table_state import State
from headrace.pipeline.status_report import Reporter
from headrace.sources.contract.errors import TableBusy

HELD_SECONDS = 5.0  # a session may lock a table for so long before the attempt ends
STALLED_SECONDS = 300.0  # without any movement, before the attempt ends


class CatchingUp(FollowingRun, Protocol):
    """The part of a run that its end needs."""

    @property
    def copies(self) -> CopyScheduler: ...
    @property
    def following(self) -> TableFollower: ...
    @property
    def new_tables(self) -> NewTables: ...
    @property
    def receiver(self) -> Receiver: ...
    @property
    def reporter(self) -> Reporter: ...
    @property
    def renewal(self) -> Renewal: ...
    @property
    def target(self) -> Position: ...


@dataclass(slots=True)
class Standstill:
    """The watch over a run that has to end: a new attempt helps one that waits for nothing."""

    _last: object = None
    _since: float = field(default_factory=time.monotonic)

    def check(self, run: CatchingUp) -> None:
        """Raise if nothing has moved for `STALLED_SECONDS`; call it in each turn."""
        ledger, progress = run.ledger, run.receiver.progress
        states = {each.key: each.state for each in ledger.present}
        stream = None if ledger.frontier >= run.target else (progress.address, progress.heard_at)
        now = time.monotonic()
        if not run.copies.over or run.commands.is_busy or (states, stream) != self._last:
            self._last, self._since = (states, stream), now
        elif now - self._since >= STALLED_SECONDS:
            raise _stalled_error(run)


def caught_up(run: CatchingUp) -> bool:
    """Tell whether nothing is left to do; raise if all that is left waits for a privilege or a lock."""
    if run.following.busy(run) or run.new_tables.busy(run):
        return False
    ledger = run.ledger
    left = _remaining(ledger)
    arrived = ledger.recovering or ledger.frontier >= run.target
    # On an idle source the stream gets no further while there is a new copy.
    near = arrived or (bool(ledger.staged) and ledger.frontier.time >= with_room(run.target.time))
    if left:
        rights = _withheld(run)
        withheld = _held_tables(run) | _without_commit(run) | rights
        if near and left <= withheld.keys():
            raise _stranded_error({name: withheld[name] for name in left}, rights)
        return False
    return arrived and not ledger.staged and not ledger.recovering


def _remaining(ledger: Ledger) -> set[TableName]:
    """Find the tables that have still to become exact, to stop, or to get their new copy."""
    left = {record.name for record in ledger.staged.values() if record.state is not State.READY}
    if ledger.recovering:
        return left  # until then the tables stay what they are
    for name, record in ledger.tables.items():
        named = not record.state.is_named or str(name) in ledger.mark.versions
        if not (record.state.is_settled and named):
            left.add(name)
    return left


def _held_tables(run: CatchingUp) -> dict[TableName, HeadraceError]:
    """Find the tables that somebody has locked, or altered again and again, for longer than a moment."""
    before = time.monotonic() - HELD_SECONDS
    unseen = {n: each for n, each in run.reporter.facts.unseen_tables.items() if each.clock <= before}
    return {**{n: each.busy or _altering(n) for n, each in unseen.items()}, **run.copies.busy(HELD_SECONDS)}


def _without_commit(run: CatchingUp) -> dict[TableName, HeadraceError]:
    """Find the new copies that join at a later position of a source where nothing happens."""
    if not run.renewal.awaits_commit:
        return {}
    return {
        name: TableBusy(
            "RESYNC_WAITS",
            f"{name} was copied anew and waits for the source's next commit",
            hint="commit anything at the source, and run again",
        )
        for name in run.ledger.staged
    }


def _altering(name: TableName) -> HeadraceError:
    return TableBusy(
        "TABLE_LOCKED",
        f"{name} is in no mark: somebody may be altering it",
        hint="nothing to do: it is tried again; end the transaction that alters it if it lasts too long",
    )


def _stalled_error(run: CatchingUp) -> HeadraceError:
    ledger, progress = run.ledger, run.receiver.progress
    missing = _remaining(ledger)
    records = [record for record in ledger.present if record.name in missing]
    tables = ", ".join(f"{record.name} ({record.state.value})" for record in records[:5])
    return Transient(
        "RUN_STALLED",
        f"nothing has moved for {STALLED_SECONDS:.0f} s, and the run is not at its end",
        detail=f'tables left: {tables or "none"}; the newest mark is at "{ledger.frontier}", the run ends at '
        f'"{run.target}", the receiver has {progress.frontier} of {run.target.time}',
        hint="nothing to do: the run begins anew at the newest mark; if this comes back, report it",
    )


def _withheld(run: CatchingUp) -> dict[TableName, HeadraceError]:
    return {**run.reporter.facts.denials, **run.copies.withheld}


def _stranded_error(left: Mapping[TableName, HeadraceError], rights: Collection[TableName]) -> HeadraceError:
    """Make the error of the first of the tables, with the others' names; a privilege goes before a lock."""
    first, *others = sorted(left, key=lambda name: (name not in rights, name))
    error = left[first]
    said = [error.detail, *(f"and {name}: {left[name].code}" for name in others)]
    kind = RightWithheld if first in rights else TableBusy
    detail = "; ".join(each for each in said if each)
    return kind(error.code, error.primary, detail=detail or None, hint=error.hint)
