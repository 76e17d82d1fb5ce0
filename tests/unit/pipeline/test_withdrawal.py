"""Which tables leave our publication, and when that is asked again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.core.names import TableName
from headrace.pipeline.state.table_state import State
from headrace.pipeline.withdrawal import Withdrawal
from tests.records import source_record


def test_a_table_that_a_request_put_back_in_vain_leaves_again() -> None:
    """A resync publishes the table before it finds that its columns are others than those of its history."""
    taken: list[list[int]] = []
    tables = SimpleNamespace(
        unwritable=lambda: frozenset(), release_now=lambda numbers: taken.append(sorted(numbers))
    )
    name = TableName("public", "t")
    stopped = SimpleNamespace(name=name, number=7, state=State.STOPPED)
    source = source_record()
    ledger = SimpleNamespace(source=source, tables={name: stopped}, staged={}, recovering=False)
    commands = SimpleNamespace(in_hand=None)
    run: Any = SimpleNamespace(
        ledger=ledger, commands=commands, session=SimpleNamespace(tables=lambda _: tables)
    )
    withdrawal = Withdrawal()
    for in_hand in (None, None, object(), None, None):
        commands.in_hand = in_hand
        withdrawal.turn(run)
    assert taken == [[7], [7]]
