"""Many requests to a store at once: a bucket takes tens of milliseconds for each, however small it is.

Called where the number of files grows with time or traffic. What fails is raised in the order of the
requests, as if they had been made one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

AT_ONCE = 32

T = TypeVar("T")
U = TypeVar("U")


def at_once(ask: Callable[[T], U], of: Iterable[T]) -> Iterator[U]:
    """Each answer, in order."""
    with ThreadPoolExecutor(AT_ONCE, "headrace-store") as pool:
        yield from pool.map(ask, of)
