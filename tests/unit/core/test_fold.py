"""Folding: values that were not sent, rows that move, and changes that fit nowhere."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.core.change_batch import Image
from headrace.core.columns import wide, wide_schema
from headrace.core.errors import Definite
from headrace.core.fold import FoldResult, fold
from headrace.core.key_events import events
from headrace.core.keycode import keycode
from headrace.core.schema import Column, TableSchema
from tests.unit.core.batches import Change, Row, batch, delete, insert, rows_of, table_of, text_table, update

KEYED = text_table()
HISTORY = ("_time", "_ordinal", "_diff", "id", "small", "big")


def _fold(base: list[Row], *changes: Change) -> FoldResult:
    return fold(KEYED, events(KEYED, batch(KEYED, *changes)), table_of(KEYED, *base))


def _move(time: int, old: str, new: Row) -> Change:
    return update(time, new, (old, None, None), Image.KEY, holes={2} if new[2] is None else set())


def _keys(*keys: str) -> pa.Array:
    return keycode([pa.array(keys, pa.string())])


def test_a_value_that_was_not_sent_is_the_one_of_the_row_before() -> None:
    folded = _fold(
        [("a", "0", "BIG")],
        update(1, ("a", "1", None), holes={2}),
        update(2, ("a", "2", "NEW")),
        update(3, ("a", "3", None), holes={2}),
    )
    assert rows_of(folded.final) == [("a", "3", "NEW")]
    assert rows_of(folded.history(), *HISTORY) == [
        (1, 0, -1, "a", "0", "BIG"),
        (1, 0, 1, "a", "1", "BIG"),
        (2, 0, -1, "a", "1", "BIG"),
        (2, 0, 1, "a", "2", "NEW"),
        (3, 0, -1, "a", "2", "NEW"),
        (3, 0, 1, "a", "3", "NEW"),
    ]


def test_a_null_that_was_sent_is_a_null() -> None:
    folded = _fold([("a", "0", "BIG")], update(1, ("a", None, None)), update(2, ("a", "1", None), holes={2}))
    assert rows_of(folded.final) == [("a", "1", None)]
    assert len(folded.holes) == 0


def test_a_deleted_row_leaves_nothing_to_the_next_one_of_its_key() -> None:
    folded = _fold(
        [("a", "0", "OLD")],
        delete(1, ("a", None, None)),
        insert(2, ("a", "1", "NEW")),
        update(3, ("a", "2", None), holes={2}),
    )
    assert rows_of(folded.final) == [("a", "2", "NEW")]
    assert rows_of(folded.history(), *HISTORY)[0] == (1, 0, -1, "a", "0", "OLD")


def test_a_chain_of_key_changes_carries_a_long_value_along() -> None:
    chain = [_move(1, old, (new, new, None)) for old, new in ("ab", "bc", "cd", "de", "ef")]
    folded = _fold([("a", "0", "BIG")], *chain)
    assert rows_of(folded.final) == [("f", "f", "BIG")]
    assert rows_of(folded.history(), "_ordinal", "_diff", "id", "big")[-2:] == [
        (4, -1, "e", "BIG"),
        (4, 1, "f", "BIG"),
    ]


def test_a_swap_through_a_third_key_keeps_each_row_its_long_value() -> None:
    folded = _fold(
        [("a", "0", "OF A"), ("b", "0", "OF B")],
        _move(1, "a", ("x", "1", None)),
        _move(1, "b", ("a", "2", None)),
        _move(1, "x", ("b", "3", None)),
    )
    assert rows_of(folded.final) == [("a", "2", "OF B"), ("b", "3", "OF A")]
    assert len(folded.holes) == len(folded.conflict) == len(folded.missing) == 0


def test_a_hole_is_read_under_the_old_key_as_it_was_at_that_moment() -> None:
    folded = _fold(
        [("a", "0", "FIRST")],
        _move(1, "a", ("b", "1", None)),
        insert(2, ("a", "2", "SECOND")),
        update(3, ("b", "3", None), holes={2}),
    )
    assert rows_of(folded.final) == [("a", "2", "SECOND"), ("b", "3", "FIRST")]


def test_a_value_that_is_nowhere_is_reported_and_not_made_null() -> None:
    """The old key's row is not among the base rows."""
    folded = _fold([], _move(1, "a", ("b", "1", None)), update(2, ("b", "2", None), holes={2}))
    assert folded.holes.equals(_keys("b"))
    assert folded.final.num_rows == folded.history().num_rows == 0


def test_a_lost_row_that_is_sent_whole_later_is_whole_again() -> None:
    folded = _fold([], insert(1, ("b", "1", None), frozenset({2})), update(2, ("b", "2", "BIG")))
    assert folded.holes.equals(_keys("b"))
    assert rows_of(folded.final) == [("b", "2", "BIG")]
    assert rows_of(folded.history(), *HISTORY) == [(2, 0, 1, "b", "2", "BIG")]


def test_changes_of_rows_that_are_not_there_are_missing() -> None:
    folded = _fold(
        [("a", "0", "")],
        update(1, ("b", "1", "")),
        delete(2, ("c", None, None)),
        delete(3, ("a", None, None)),
        update(4, ("a", "4", "")),
    )
    assert folded.missing.equals(_keys("a", "b", "c"))


def test_an_insert_onto_a_row_is_a_conflict_and_history_still_adds_up() -> None:
    folded = _fold([("a", "0", "")], insert(1, ("a", "1", "")))
    assert folded.conflict.equals(_keys("a"))
    assert rows_of(folded.final) == [("a", "1", "")]
    assert rows_of(folded.history(), "_diff", "small") == [(-1, "0"), (1, "1")]


def test_rows_of_other_keys_stay_and_all_are_in_the_order_of_the_key() -> None:
    folded = _fold([("c", "0", ""), ("a", "0", "")], insert(1, ("b", "1", "")))
    assert rows_of(folded.final, "id") == [("a",), ("b",), ("c",)]
    assert folded.keys.equals(_keys("a", "b", "c"))


def test_a_row_that_came_and_went_leaves_only_history() -> None:
    folded = _fold([], insert(1, ("a", "1", "")), delete(1, ("a", None, None)))
    assert folded.final.num_rows == 0
    assert rows_of(folded.history(), "_ordinal", "_diff") == [(0, 1), (1, -1)]


def test_no_events_change_nothing() -> None:
    folded = _fold([("a", "0", "")])
    assert rows_of(folded.final) == [("a", "0", "")]
    assert folded.history().num_rows == 0
    assert _fold([]).final.schema == wide_schema(KEYED.arrow())


def test_two_base_rows_of_one_key_are_an_error() -> None:
    with pytest.raises(Definite) as caught:
        _fold([("a", "0", ""), ("a", "1", "")])
    assert caught.value.code == "FOLD_KEY_NOT_UNIQUE"


def test_events_of_several_batches_are_folded_as_one() -> None:
    pieces = [
        batch(KEYED, update(2, ("a", "2", None), holes={2})),
        batch(KEYED, update(1, ("a", "1", "BIG"))),
    ]
    happened = pa.concat_tables([events(KEYED, piece) for piece in pieces], promote_options="default")
    folded = fold(KEYED, happened, table_of(KEYED, ("a", "0", "OLD")))
    assert rows_of(folded.final) == [("a", "2", "BIG")]


def test_the_two_events_of_a_move_may_come_in_either_order() -> None:
    happened = events(KEYED, batch(KEYED, _move(1, "a", ("b", "1", None))))
    folded = fold(KEYED, happened.take(pa.array([1, 0])), table_of(KEYED, ("a", "0", "BIG")))
    assert rows_of(folded.final) == [("b", "1", "BIG")]
    assert rows_of(folded.history(), "_diff", "id") == [(-1, "a"), (1, "b")]


def test_every_type_of_the_lake_passes_through_unharmed() -> None:
    values = {
        pa.decimal128(38, 4): Decimal("-1.5000"),
        pa.list_(pa.string()): ["x", None],
        pa.binary(): b"\x00\xff",
        pa.timestamp("us", tz="UTC"): None,
        pa.float64(): -0.0,
        pa.bool_(): True,
    }
    key = Column("k", pa.date32(), "date", "date", nullable=False)
    columns = (key, *(Column(f"v{i}", kind, "x", "x") for i, kind in enumerate(values)))
    schema = TableSchema(columns, ("k",), full=False)
    row = (1, *values.values())
    happened = events(schema, batch(schema, update(1, row)))
    folded = fold(schema, happened, table_of(schema, row, (2, *values.values())))
    assert folded.final.equals(wide(table_of(schema, row, (2, *values.values()))))
    assert folded.history().num_rows == 2
