"""The end of a run that only catches up (`--once`).

    done       the newest mark is where the source was at the start, every table exact in it, or stopped
    stranded   all else is done, and the tables that are left wait for a right that only a person can give

The first is a success. The second is raised: `policy` tries a few times more, and then the run ends with the
table's code. A run that goes by itself waits as long as it takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headrace.core.errors import HeadraceError, RightWithheld
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.pipeline.copy.scheduler import CopyScheduler
from headrace.pipeline.following import Following, FollowingRun
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.table_state import State
from headrace.pipeline.status_report import Reporter


class CatchingUp(FollowingRun, Protocol):
    """A run, as far as its end needs it."""

    @property
    def copies(self) -> CopyScheduler: ...
    @property
    def following(self) -> Following: ...
    @property
    def reporter(self) -> Reporter: ...
    @property
    def target(self) -> Position: ...


def caught_up(run: CatchingUp) -> bool:
    """Tell whether nothing is left to do; raises if what is left waits for a right."""
    if run.following.busy(run):
        return False
    ledger = run.ledger
    left = _left(ledger)
    arrived = ledger.recovering or ledger.frontier >= run.target
    if left:
        withheld = _withheld(run)
        if arrived and left <= withheld.keys():
            raise _stranded({name: withheld[name] for name in sorted(left)})
        return False
    return arrived and not ledger.staged and not ledger.recovering


def _left(ledger: Ledger) -> set[TableName]:
    """The tables that have still to become exact, to stop, or to get their new copy."""
    left = {record.name for record in ledger.staged.values() if record.state is not State.READY}
    if ledger.recovering:
        return left  # until then the tables stay what they are
    for name, record in ledger.tables.items():
        named = not record.state.is_named or str(name) in ledger.mark.versions
        if not (record.state.is_settled and named):
            left.add(name)
    return left


def _withheld(run: CatchingUp) -> Mapping[TableName, HeadraceError]:
    return {**run.reporter.facts.denied, **run.copies.withheld}


def _stranded(withheld: Mapping[TableName, HeadraceError]) -> RightWithheld:
    """The error of the first of the tables, with the names of the others."""
    (_, error), *others = withheld.items()
    said = [error.detail, *(f"and {name}: {other.code}" for name, other in others)]
    detail = "; ".join(each for each in said if each)
    return RightWithheld(error.code, error.primary, detail=detail or None, hint=error.hint)
