"""Repeat an action beside a test's own steps, in a thread, for as long as a block runs.

with repeat(beat, every=0.3):
    ...                             a failure in the thread fails the test, when the block ends
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def repeat(act: Callable[[], object], *, every: float) -> Iterator[None]:
    """Do it at once, and so many seconds after each time that it was done."""
    over = threading.Event()

    def go() -> None:
        act()
        while not over.wait(every):
            act()

    with ThreadPoolExecutor(1, "background") as pool:
        going = pool.submit(go)
        try:
            yield
        finally:
            over.set()
        going.result()
