"""Neighbours taken together, as many as a bound allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def portions(items: Iterable[T], *bounds: tuple[int, Callable[[T], int]]) -> Iterator[list[T]]:
    """Cut the items into portions of which no sum exceeds its bound, unless one item alone does."""
    portion: list[T] = []
    sums = [0] * len(bounds)
    for item in items:
        sizes = [size(item) for _, size in bounds]
        after = [sum + size for sum, size in zip(sums, sizes, strict=True)]
        if portion and any(sum > most for sum, (most, _) in zip(after, bounds, strict=True)):
            yield portion
            portion, after = [], sizes
        portion.append(item)
        sums = after
    if portion:
        yield portion
