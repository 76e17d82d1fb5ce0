"""Shares: small parts of tables that are read together, since a task of its own would cost more than they do.

Pure.
"""

from __future__ import annotations

SMALL_BYTES = 4 << 20  # of a part that shares its task with others
MOST_SHARED = 32


def parts_per_task(number: int, connections: int) -> int:
    """Count how many of so many small parts make a task: few tasks, but one for each connection."""
    return max(1, min(MOST_SHARED, -(-number // connections)))
