"""Room behind a mark: a place in time for the next one, before anything else happens.

A mark in which a new copy replaces an old one stands between two transactions of the stream. So while there
is a new copy the frontier stops `ROOM` short of what the stream has shown.
"""

from __future__ import annotations

from headrace.core.position import STEP

ROOM = 2


def with_room(time: int) -> int:
    """A time with the same transactions before it, behind which `ROOM` is left.

    Transactions have multiples of `STEP` for their times, so that none lies between the two.
    """
    return time // STEP * STEP - ROOM
