"""Fold, the slow and obvious way: one change after the other, on a dict.

The twin of `headrace.core.fold`, also for what does not fit: changes that meet no row, or one too many,
and values that are nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.laws.core.worlds import Change, Row, Side


@dataclass
class Outcome:
    """The plain values of a `FoldResult`."""

    state: dict[int, Row | None]  # None: a row with a value that is nowhere
    history: list[Side] = field(default_factory=list)
    missing: set[int] = field(default_factory=set)
    conflict: set[int] = field(default_factory=set)
    holes: set[int] = field(default_factory=set)


def fold(start: dict[int, Row], transactions: Sequence[Sequence[Change]]) -> Outcome:
    outcome = Outcome(dict(start))
    for number, changes in enumerate(transactions):
        for ordinal, change in enumerate(changes):
            _apply(outcome, (number, ordinal), change)
    return outcome


def _apply(outcome: Outcome, at: tuple[int, int], change: Change) -> None:
    old, new = change.old, change.new
    if change.op is None:
        for key in sorted(outcome.state):
            _leave(outcome, at, key)
    before: Row | None = None
    if old is not None and (new is None or old[0] != new[0]):
        before = _leave(outcome, at, old[0])
        if new is not None:
            _arrive(outcome, at, new, change.sent, before)
    elif old is not None and new is not None:
        before = _leave(outcome, at, new[0])
        _appear(outcome, at, new, change.sent, before)
    elif new is not None:
        _arrive(outcome, at, new, change.sent, None)


def _leave(outcome: Outcome, at: tuple[int, int], key: int) -> Row | None:
    """Take the row away that has to be there."""
    if key not in outcome.state:
        outcome.missing.add(key)
        return None
    row = outcome.state.pop(key)
    if row is not None:
        outcome.history.append((*at, -1, row))
    return row


def _arrive(outcome: Outcome, at: tuple[int, int], new: Row, sent: bool, before: Row | None) -> None:
    """Put a row where none may be."""
    if new[0] in outcome.state:
        outcome.conflict.add(new[0])
        _leave(outcome, at, new[0])
    _appear(outcome, at, new, sent, before)


def _appear(outcome: Outcome, at: tuple[int, int], new: Row, sent: bool, before: Row | None) -> None:
    if not sent and before is None:
        outcome.state[new[0]] = None
        outcome.holes.add(new[0])
        return
    row = new if sent or before is None else (new[0], new[1], before[2])
    outcome.state[new[0]] = row
    outcome.history.append((*at, 1, row))
