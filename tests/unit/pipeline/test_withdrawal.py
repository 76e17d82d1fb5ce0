"""Tables leave our publication; for one that is held, the request is repeated after a pause."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.core.errors import Transient
from headrace.core.names import TableName
from headrace.pipeline import withdrawal
from headrace.pipeline.state.table_state import State
from headrace.pipeline.withdrawal import FAULT, WAITS, Withdrawal
from tests.records import source_record

NAMES = [TableName("public", name) for name in "tuv"]


class Reporter:
    """The warnings of a run."""

    def __init__(self) -> None:
        self.warnings: dict[str, str] = {}

    def warn(self, code: str, primary: str) -> None:
        self.warnings[code] = primary

    def clear(self, code: str) -> None:
        self.warnings.pop(code, None)


def run_of(release: Any, names: list[TableName] = NAMES) -> Any:
    """A run whose tables, numbered from 7 on, have all stopped."""
    captures = SimpleNamespace(unwritable=lambda: frozenset(), release_now=release)
    records = {
        name: SimpleNamespace(name=name, number=7 + n, state=State.STOPPED) for n, name in enumerate(names)
    }
    ledger = SimpleNamespace(
        source=source_record(), tables=records, staged={}, recovering=False, is_incomplete=False
    )
    return SimpleNamespace(
        ledger=ledger,
        commands=SimpleNamespace(captures=frozenset()),
        reporter=Reporter(),
        mirror=SimpleNamespace(captures=captures, connection=SimpleNamespace(is_closed=False)),
    )


def test_a_table_that_a_request_put_back_in_vain_leaves_again() -> None:
    """A resync publishes the table before it finds that its columns are others than those of its history."""
    taken: list[list[int]] = []
    run = run_of(lambda numbers: taken.append(sorted(numbers)), NAMES[:1])
    tended = Withdrawal()
    for captures in (frozenset(), frozenset(), frozenset(NAMES[:1]), frozenset(), frozenset()):
        run.commands.captures = captures
        tended.turn(run)
    assert taken == [[7], [7]]


def test_each_table_that_is_held_has_a_pause_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    held, tried = {7}, list[list[int]]()

    def release(numbers: frozenset[int]) -> None:
        tried.append(sorted(numbers))
        if held & numbers:
            raise Transient("PG_TABLE_LOCKED", "it is locked", hint="wait")

    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    run, tended = run_of(release), Withdrawal()
    tended.turn(run)
    assert tried == [[7, 8, 9], [7], [8], [9]]
    assert WAITS in run.reporter.warnings
    for _ in range(200):
        clock[0] += 0.5
        tended.turn(run)
    assert [numbers for numbers in tried[4:] if numbers != [7]] == []
    assert len(tried) - 4 == 7, "after 1, 2, 4, 8, 16, 30 and 30 seconds"
    held.clear()
    clock[0] += withdrawal.LONGEST_PAUSE
    tended.turn(run)
    assert tended.out == frozenset({7, 8, 9})
    assert run.reporter.warnings == {}


def test_a_fault_of_ours_is_warned_of_and_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def release(numbers: frozenset[int]) -> None:
        tried.append(numbers)
        raise KeyError("ours")

    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    run, tended = run_of(release), Withdrawal()
    for _ in range(2):
        tended.turn(run)
    assert FAULT in run.reporter.warnings
    assert len(tried) == 1
    clock[0] += withdrawal.LONGEST_PAUSE + withdrawal.POLL_SECONDS
    tended.turn(run)
    assert len(tried) == 2
    run.ledger.is_incomplete = True
    clock[0] += withdrawal.LONGEST_PAUSE + withdrawal.POLL_SECONDS
    with pytest.raises(KeyError):
        tended.turn(run)
