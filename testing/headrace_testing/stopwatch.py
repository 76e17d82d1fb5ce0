"""Time that something takes, on a machine that has other work to do meanwhile.

A wall clock also counts what other processes took, or another machine on the same hardware. So a bar is
held against the CPU seconds of this process or, where another one does the work, the best of some tries.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def cpu_seconds(act: Callable[[], object]) -> float:
    """CPU seconds that this process took for it, on all its threads."""
    begun = time.process_time()
    act()
    return time.process_time() - begun


def least_seconds(act: Callable[[], object], tries: int = 3) -> float:
    """The shortest of some tries, by the wall clock."""
    return min(_seconds(act) for _ in range(tries))


def _seconds(act: Callable[[], object]) -> float:
    begun = time.monotonic()
    act()
    return time.monotonic() - begun
