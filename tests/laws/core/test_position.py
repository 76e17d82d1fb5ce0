"""Laws of positions."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.position import Position
from headrace.core.records import from_record, to_record
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from headrace.sources.postgres.spelling import SPELLING

LAWS = settings(max_examples=100, deadline=None)
TIMES = st.integers(0, 1 << 62)
POSITIONS = st.builds(Position, st.integers(0, 20), st.text(max_size=3))


@LAWS
@given(TIMES, st.text())
def test_a_position_survives_being_written_down(time: int, text: str) -> None:
    written = from_record(Position, json.loads(json.dumps(to_record(Position(time, text)))))
    assert (written.time, written.text) == (time, text)


@LAWS
@given(POSITIONS, st.lists(st.integers(0, 20)))
def test_a_mask_says_of_many_times_what_covers_says_of_one(position: Position, times: list[Any]) -> None:
    column = pa.chunked_array([times[:3], times[3:]], pa.int64())
    assert position.mask(column).to_pylist() == [position.covers(time) for time in times]


@LAWS
@given(POSITIONS, POSITIONS)
def test_positions_are_ordered_by_what_they_cover(one: Position, other: Position) -> None:
    covered = [{time for time in range(20) if each.covers(time)} for each in (one, other)]
    assert (one <= other) == (covered[0] <= covered[1])
    assert (one == other) == (covered[0] == covered[1])
    assert set(range(max(one.last + 1, 0))) == {time for time in range(20) if one.covers(time)}


@LAWS
@given(st.integers(0, 1 << 20), TIMES, TIMES)
def test_times_of_a_log_and_its_own_numbers_are_each_others_inverse(lives: int, lsn: int, other: int) -> None:
    log = PostgresTimeline(lives << 32)
    position = log.position(Lsn(lsn))
    assert (log.lsn(position), log.at(position.time).text) == (Lsn(lsn), position.text)
    assert SPELLING.time(position.text, log.position(Lsn(other))) == position.time
    assert SPELLING.text(position.time, log.position(Lsn(other))) == position.text


@LAWS
@given(st.integers(0, 1 << 20), TIMES, TIMES)
def test_the_next_life_of_a_log_lies_behind_the_last_one(lives: int, reached: int, start: int) -> None:
    log = PostgresTimeline(lives << 32)
    again = log.behind(log.position(Lsn(reached)), Lsn(start))
    assert again.position(Lsn(start)) > log.position(Lsn(reached))
    assert again.base > log.base
