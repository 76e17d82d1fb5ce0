"""Each kind of change becomes events of the keys that it touches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.core.change_batch import Image
from headrace.core.errors import Definite
from headrace.core.key_events import KeyEvent, events
from headrace.core.keycode import keycode
from tests.unit.core.batches import Change, batch, delete, insert, text_table, update

KEYED = text_table()


def _code(*keys: str | None) -> list[Any]:
    """Keycodes of these keys; None stays None."""
    codes = iter(keycode([pa.array([key for key in keys if key] or ["-"])]).to_pylist())
    return [next(codes) if key else None for key in keys]


def _events(*changes: Change, full: bool = False) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = events(text_table(full=full), batch(KEYED, *changes)).to_pydict()
    return found


def test_inserts_and_deletes_happen_at_the_key_of_their_row() -> None:
    found = _events(insert(1, ("a", "s", "b")), delete(1, ("c", None, None)))
    assert found["_key"] == _code("a", "c")
    assert found["_event"] == [KeyEvent.INSERT, KeyEvent.DELETE]
    assert (found["c0"], found["c1"]) == (["a", "c"], ["s", None])
    assert (found["_time"], found["_ordinal"], found["_transaction"]) == ([1, 1], [0, 1], [101, 101])


@pytest.mark.parametrize("image", [Image.NONE, Image.KEY, Image.FULL])
def test_an_update_that_keeps_the_key_puts_the_row_there(image: Image) -> None:
    old = ("a", "s", "b") if image else None
    found = _events(update(1, ("a", "t", "b"), old, image))
    assert (found["_key"], found["_event"], found["c1"]) == (_code("a"), [KeyEvent.PUT], ["t"])


@pytest.mark.parametrize("image", [Image.KEY, Image.FULL])
def test_an_update_of_the_key_deletes_before_it_inserts(image: Image) -> None:
    found = _events(insert(1, ("z", "", "")), update(1, ("n", "t", "b"), ("a", None, None), image))
    assert found["_key"] == _code("z", "a", "n")
    assert found["_event"] == [KeyEvent.INSERT, KeyEvent.DELETE, KeyEvent.INSERT]
    assert found["_ordinal"] == [0, 1, 1]
    assert found["c0"] == ["z", "a", "n"]
    assert found["_from"] == [None, None, None]


def test_a_value_that_was_not_sent_stays_a_hole() -> None:
    found = _events(update(1, ("a", "t", None), holes={2}), update(2, ("a", "u", "new")))
    assert found["u2"] == [True, False]
    assert found["_from"] == [None, None]


def test_a_row_that_moves_with_a_hole_says_where_from() -> None:
    moved = update(1, ("n", "t", None), ("a", None, None), Image.KEY, holes={2})
    found = _events(moved, update(1, ("m", "t", "b"), ("c", None, None), Image.KEY))
    assert found["u2"] == [False, True, False, False]
    assert found["_from"] == _code(None, "a", None, None)


def test_a_whole_old_row_fills_every_hole() -> None:
    found = _events(
        update(1, ("n", "t", None), ("a", "s", "old"), Image.FULL, holes={2}),
        update(2, ("n", None, None), ("n", "t", None), Image.FULL, holes={1, 2}),
    )
    assert "u1" not in found
    assert "u2" not in found
    assert (found["c1"], found["c2"]) == (["s", "t", "t"], ["old", "old", None])


def test_a_key_value_that_was_not_sent_is_that_of_the_old_key() -> None:
    found = _events(update(1, (None, "t", "b"), ("long", None, None), Image.KEY, holes={0}))
    assert (found["_key"], found["_event"], found["c0"]) == (_code("long"), [KeyEvent.PUT], ["long"])
    assert "u0" not in found


@pytest.mark.parametrize(
    "change",
    [update(1, (None, "t", "b"), holes={0}), delete(1, None, Image.NONE)],
)
def test_a_change_without_its_key_is_an_error(change: Change) -> None:
    with pytest.raises(Definite) as caught:
        _events(change)
    assert caught.value.code == "CHANGE_WITHOUT_KEY"


def test_the_order_of_key_columns_is_that_of_the_key() -> None:
    schema = text_table(key=("big", "id"))
    found = events(schema, batch(schema, insert(1, ("i", "s", "b"))))
    assert found["_key"].to_pylist() == keycode([pa.array(["b"]), pa.array(["i"])]).to_pylist()


def test_no_changes_are_no_events() -> None:
    assert events(KEYED, batch(KEYED)).num_rows == 0
