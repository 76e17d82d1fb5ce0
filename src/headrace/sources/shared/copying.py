"""Shares: small parts of tables that one task reads together; a task for each would cost more than the reads.

Pure.
"""

from __future__ import annotations

SMALL_BYTES = 4 << 20  # of a part that shares its task with others
MOST_SHARED = 32


def parts_per_task(number: int, connections: int) -> int:
    """Choose how many small parts make a task: few tasks, but at least one for each connection."""
    return max(1, min(MOST_SHARED, -(-number // connections)))
