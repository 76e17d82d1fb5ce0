"""Chunks: what a copy in key ranges holds, key by key."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from headrace.core.chunks import MOST_ROUNDS, Bound, ByChunk, Chunk, KeySpan
from headrace.core.handoff import ByPosition, ByXid
from headrace.core.keycode import keycode
from headrace.core.records import from_record, to_record
from tests.places import place_at


def _codes(*keys: int) -> pa.Array:
    return keycode([pa.array(keys, pa.int32())])


def _bound(key: int | None) -> Bound | None:
    return None if key is None else Bound((str(key),), _codes(key).to_pylist()[0])


def _span(low: int | None, high: int | None) -> KeySpan:
    return KeySpan(_bound(low), _bound(high))


def _one_key(key: int) -> KeySpan:
    low = _bound(key)
    assert low is not None
    return KeySpan(low, low.behind)


def _chunk(low: int | None, high: int | None, snapshot: str = "10:20:", until: int = 1000) -> Chunk:
    return Chunk(_span(low, high), ByXid.parse(snapshot, place_at(until)))


def test_an_unfinished_copy_goes_on_at_its_gaps() -> None:
    assert list(ByChunk().gaps()) == [KeySpan()]
    part = ByChunk().plus([_chunk(20, 30), _chunk(None, 10)])
    assert list(part.gaps()) == [_span(10, 20), _span(30, None)]
    assert not part.complete
    whole = part.plus([_chunk(30, None), _chunk(10, 20)])
    assert whole.complete
    assert [chunk.span.low for chunk in whole.chunks] == [None, _bound(10), _bound(20), _bound(30)]
    assert ByChunk().plus([_chunk(None, None)]).complete


def test_chunks_do_not_overlap() -> None:
    with pytest.raises(ValueError, match="same keys"):
        ByChunk((_chunk(None, 10),)).plus([_chunk(9, 20)])
    with pytest.raises(ValueError, match="same keys"):
        ByChunk((_chunk(None, None),)).plus([_chunk(9, 20)])


def test_a_key_at_a_bound_is_in_the_later_chunk() -> None:
    whole = ByChunk((_chunk(None, 10), _chunk(10, 20), _chunk(20, None)))
    assert whole.numbers(_codes(-(2**31), 9, 10, 19, 20, 2**31 - 1)).tolist() == [0, 0, 1, 1, 2, 2]


def test_texts_that_differ_only_behind_a_nul_or_a_prefix_are_told_apart() -> None:
    codes = keycode([pa.array(["a", "a\0", "aa", "b"])])
    bounds = [Bound((), code) for code in codes.to_pylist()]
    chunks = [KeySpan(None, bounds[1]), KeySpan(bounds[1], bounds[2]), KeySpan(bounds[2], None)]
    whole = ByChunk(tuple(Chunk(span, ByXid(1, 1, ())) for span in chunks))
    assert whole.numbers(codes).tolist() == [0, 1, 2, 2]


def test_each_key_is_decided_by_its_own_chunk() -> None:
    whole = ByChunk((_chunk(None, 10, "10:20:12"), _chunk(10, None, "15:30:25")))
    xids = pa.array([9, 12, 19, 20, 29] * 2, pa.int64())
    keys = _codes(*[5] * 5, *[15] * 5)
    held = whole.holds(keys, pa.array([1] * 10, pa.int64()), xids).to_pylist()
    assert held == [True, False, True, False, False, True, True, True, True, True]


def test_an_xid_that_runs_in_one_chunk_is_no_other_one_of_another() -> None:
    """Chunks whose oldest transactions differ share no numbers."""
    whole = ByChunk((_chunk(None, 10, "10:20:12"), _chunk(10, None, "12:20:14")))
    xids = pa.array([12, 14, 12, 14], pa.int64())
    held = whole.holds(_codes(5, 5, 15, 15), pa.array([1] * 4, pa.int64()), xids).to_pylist()
    assert held == [False, True, True, False]


def test_past_its_own_position_a_chunk_holds_nothing() -> None:
    whole = ByChunk((_chunk(None, 10, until=100), _chunk(10, None, until=200)))
    times = pa.array([99, 100, 199, 200], pa.int64())
    held = whole.holds(_codes(5, 5, 15, 15), times, pa.array([1] * 4, pa.int64())).to_pylist()
    assert held == [True, False, True, False]
    assert whole.until == place_at(200)
    assert ByChunk().until is None


def test_keys_that_lack_a_value_become_gaps_of_one_key() -> None:
    whole = ByChunk((_chunk(None, 10), _chunk(10, 20), _chunk(20, None)))
    keys = [key for key in map(_bound, (10, 12, 25, 12)) if key]
    rest = whole.without(keys)
    assert [(gap.low, gap.one_key) for gap in rest.gaps()] == [(_bound(k), True) for k in (10, 12, 25)]
    assert rest.rounds == 1
    later = [Chunk(gap, ByXid.parse("90:90:", place_at(5000))) for gap in rest.gaps()]
    again = rest.plus(later)
    assert again.complete
    at = _codes(9, 10, 11, 12, 13, 24, 25, 26)
    held = again.holds(at, pa.array([1] * 8, pa.int64()), pa.array([50] * 8, pa.int64())).to_pylist()
    assert held == [False, True, False, True, False, False, True, False]
    twice = again.without(keys)
    assert [gap.low for gap in twice.gaps()] == [_bound(k) for k in (10, 12, 25)]
    assert twice.chunks == rest.chunks


def test_a_chunk_of_one_key_is_no_other_key_of_more_columns() -> None:
    codes = keycode([pa.array(["a", "a", "b"]), pa.array([1, 2, 0])]).to_pylist()
    whole = ByChunk((Chunk(KeySpan(), ByXid(1, 1, ())),))
    rest = whole.without([Bound(("a", "1"), codes[0])])
    again = rest.plus(Chunk(gap, ByXid(9, 9, ())) for gap in rest.gaps())
    assert again.numbers(pa.array(codes, pa.large_binary())).tolist() == [1, 2, 2]


def test_a_copy_that_lacks_values_time_and_again_is_given_up() -> None:
    known = ByChunk((_chunk(None, None),))
    key = _bound(1)
    assert key is not None
    for _ in range(MOST_ROUNDS):
        known = known.without([key])
        assert not known.given_up
        known = known.plus(Chunk(gap, known.chunks[0].handoff) for gap in list(known.gaps()))
    assert known.without([key]).given_up


def test_of_what_concerns_all_keys_chunks_that_do_not_show_it_are_torn() -> None:
    parts = (_chunk(None, 10, "10:20:12"), _chunk(10, 20, "30:30:"), _chunk(20, None, "10:20:"))
    whole = ByChunk(parts)

    def torn(*xids: int) -> tuple[KeySpan, ...]:
        return whole.incomplete(pa.array([1] * len(xids), pa.int64()), pa.array(xids, pa.int64()))

    assert torn(9) == torn(30) == torn(9, 31) == ()
    assert torn(12) == (_span(None, 10),)
    assert torn(12, 25) == torn(25) == (_span(None, 10), _span(20, None))
    assert list(whole.minus(torn(12)).gaps()) == [_span(None, 10)]
    assert whole.minus(torn(12)).rounds == 1


def test_a_handoff_survives_being_written_down() -> None:
    part = ByChunk((_chunk(None, 10), _chunk(20, None, "15:30:25,27")), 2)
    part = part.plus([Chunk(gap, part.chunks[0].handoff) for gap in [_one_key(15)]])
    assert from_record(ByChunk, json.loads(json.dumps(to_record(part)))) == part


def test_chunks_of_a_source_that_counts_its_commits_hold_what_lies_before_them() -> None:
    low = Chunk(_span(None, 10), ByPosition(place_at(100)))
    whole = ByChunk().plus([low, Chunk(_span(10, None), ByPosition(place_at(200)))])
    times = pa.array([99, 100, 199, 200], pa.int64())
    names = pa.array(["u:1", "u:2", "u:3", "u:4"])
    assert whole.holds(_codes(5, 5, 15, 15), times, names).to_pylist() == [True, False, True, False]
    assert whole.incomplete(times.slice(1, 1), names.slice(1, 1)) == (low.span,)
    assert from_record(ByChunk, json.loads(json.dumps(to_record(whole)))) == whole
    mixed = ByChunk((_chunk(None, 10), whole.chunks[1]))
    with pytest.raises(ValueError, match="in two ways"):
        mixed.holds(_codes(5), pa.array([1], pa.int64()), pa.array([1], pa.int64()))
