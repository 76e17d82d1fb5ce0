"""Neighbours in portions: none is lost, none is split, and the bounds hold."""

from __future__ import annotations

from headrace.core.portions import portions


def _of(*sizes: int, most: int = 10) -> list[list[int]]:
    return list(portions(sizes, (most, lambda size: size)))


def test_a_portion_is_as_large_as_the_bound_allows() -> None:
    assert _of(4, 6, 1, 9, 1) == [[4, 6], [1, 9], [1]]


def test_an_item_above_the_bound_is_a_portion_by_itself() -> None:
    assert _of(1, 30, 2, 40) == [[1], [30], [2], [40]]


def test_nothing_is_no_portion() -> None:
    assert _of() == []


def test_the_first_bound_that_is_reached_ends_a_portion() -> None:
    words = ["a", "bb", "cc", "d", "e", "f"]
    assert list(portions(words, (4, len), (3, lambda word: 1))) == [["a", "bb"], ["cc", "d", "e"], ["f"]]
