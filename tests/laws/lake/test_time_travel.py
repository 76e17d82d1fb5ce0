"""Contents at any time, at a mark or between two, are the sum of all updates up to it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.core.errors import Definite
from tests.laws.lake.chronicle import START, VALUES, Chronicle, Row, Transaction, counted
from tests.places import place_at

TABLES = ("public.a", '"S x"."B"')
ROWS = st.tuples(*map(st.sampled_from, VALUES.values()))


@st.composite
def chronicles(draw: st.DrawFn) -> tuple[dict[str, list[Row]], list[list[Transaction]]]:
    """Draw copied rows, and epochs of transactions that remove no row that is not there."""
    copied = {name: draw(st.lists(ROWS, max_size=4)) for name in TABLES}
    held = {name: list(values) for name, values in copied.items()}
    epochs: list[list[Transaction]] = []
    lsn = 1000
    for size in draw(st.lists(st.integers(0, 3), min_size=1, max_size=3)):
        epochs.append([])
        for _ in range(size):
            lsn += draw(st.integers(1, 300))
            updates = {name: _updates(draw, held[name]) for name in draw(st.sets(st.sampled_from(TABLES)))}
            epochs[-1].append(Transaction(lsn, draw(st.integers(0, 60)), updates))
    return copied, epochs


def _updates(draw: st.DrawFn, held: list[Row]) -> Sequence[tuple[Row, int]]:
    found: list[tuple[Row, int]] = []
    draws: Any = draw
    for _ in range(draws(st.integers(1, 3))):
        if held and draws(st.booleans()):
            found.append((held.pop(draws(st.integers(0, len(held) - 1))), -1))
        else:
            row: Row = draws(ROWS)
            held.append(row)
            found.append((row, 1))
    return found


def _made(copied: dict[str, list[Row]], epochs: list[list[Transaction]], path: str) -> Chronicle:
    chronicle = Chronicle(path)
    chronicle.copy(copied, 1000)
    for epoch in epochs:
        chronicle.publish(epoch)
    return chronicle


few = settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@few
@given(chronicles())
def test_every_position_holds_what_was_committed_before_it(
    made: tuple[dict[str, list[Row]], list[list[Transaction]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        chronicle = _made(*made, folder)
        times = [each.lsn for epoch in made[1] for each in epoch]
        for time in sorted({999, *times, *(time - 1 for time in times)})[:9]:
            cut = chronicle.lake.at(position=place_at(time + 1))
            for name in TABLES:
                assert counted(cut.arrow(name)) == chronicle.state(time)[name], (time, name)


@few
@given(chronicles(), st.integers(-1, 61))
def test_a_timestamp_is_the_longest_prefix_that_is_not_later(
    made: tuple[dict[str, list[Row]], list[list[Transaction]]], second: int
) -> None:
    """Timestamps are drawn at random: they go backwards as often as not."""
    with tempfile.TemporaryDirectory() as folder:
        chronicle = _made(*made, folder)
        chronicle.publish([], until=START + timedelta(seconds=61))
        cut = chronicle.lake.at(timestamp=START + timedelta(seconds=second))
        time = 999
        for each in (each for epoch in made[1] for each in epoch):
            if each.updates and each.second > second:
                break
            time = each.lsn
        for name in TABLES:
            assert counted(cut.arrow(name)) == chronicle.state(time)[name]


def test_before_a_tables_beginning_it_is_refused_with_where_that_is(tmp_path: Any) -> None:
    chronicle = Chronicle(str(tmp_path))
    chronicle.copy({"public.a": []}, 1000)
    chronicle.lake.at(position="0/64").arrow("public.a")
    with pytest.raises(Definite) as raised:
        chronicle.lake.at(position="0/63").arrow("public.a")
    assert raised.value.code == "LAKE_TABLE_NOT_EXACT"
    assert '"0/64"' in str(raised.value.detail)
