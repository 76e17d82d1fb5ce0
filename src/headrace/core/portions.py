"""Neighbours taken together, as many as a bound allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def portions(items: Iterable[T], *bounds: tuple[int, Callable[[T], int]]) -> Iterator[list[T]]:
    """Cut the items into portions whose sums stay within the bounds; an item above one is a portion alone."""
    portion: list[T] = []
    totals = [0] * len(bounds)
    for item in items:
        sizes = [size(item) for _, size in bounds]
        after = [total + size for total, size in zip(totals, sizes, strict=True)]
        if portion and any(total > most for total, (most, _) in zip(after, bounds, strict=True)):
            yield portion
            portion, after = [], sizes
        portion.append(item)
        totals = after
    if portion:
        yield portion
