"""Until which moment of the source's clock a mark is complete."""

from __future__ import annotations

from headrace.pipeline.stream.source_clock import MOST_BACK, MOST_READINGS, SourceClock
from headrace.sources.contract.mirror import ClockReading
from tests.places import place_at


def _after(*readings: tuple[int, int]) -> SourceClock:
    made = SourceClock()
    for at, position in readings:
        made.add(ClockReading(at, place_at(position)))
    return made


def test_a_mark_is_complete_until_the_latest_reading_whose_position_it_has_reached() -> None:
    clock = _after((100, 8), (200, 16), (300, 24))
    assert clock.until(place_at(7), None) is None
    assert not clock.began
    assert clock.until(place_at(16), None) == 200
    assert clock.began
    assert clock.until(place_at(23), None) == 200
    assert clock.until(place_at(24), None) == 300


def test_a_reading_that_is_less_sure_takes_nothing_back() -> None:
    clock = _after((500, 8), (100, 16))
    assert clock.until(place_at(8), None) == 500
    assert clock.until(place_at(16), None) == 500


def test_where_transactions_are_dated_back_readings_are_taken_to_be_earlier() -> None:
    clock = _after((1000, 8), (2000, 16), (3000, 24))
    assert clock.until(place_at(8), None) == 1000
    assert clock.until(place_at(16), 700) == 1700
    assert clock.until(place_at(24), 2500) == 2700
    clock.add(ClockReading(10 * MOST_BACK, place_at(32)))
    clock.until(place_at(32), None)
    assert clock.until(place_at(40), 5) == 9 * MOST_BACK


def test_readings_do_not_pile_up_while_the_stream_is_far_behind() -> None:
    clock = _after(*((number, 8 * number) for number in range(1, 10 * MOST_READINGS)))
    assert len(clock.readings) <= MOST_READINGS
    assert clock.readings[0].position == place_at(8)
    assert clock.until(place_at(8 * 10 * MOST_READINGS), None) == clock._latest
