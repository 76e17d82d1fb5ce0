"""Room behind a mark: a place in time for the next one, before anything else happens.

A mark in which a new copy replaces an old one stands between two transactions of the stream. So while there
is a new copy the frontier stops `ROOM` short of what the stream has shown.
"""

from __future__ import annotations

from headrace.core.position import STEP

ROOM = 2


def with_room(time: int) -> int:
    """A time with the same transactions before it, behind which `ROOM` is left."""
    return min(time, last_with_room(time))


def last_with_room(time: int) -> int:
    """The last such time, where the stream has come up to this one and no further.

    Transactions have multiples of `STEP` for their times: the next one has this, or the next multiple.
    """
    return -(-time // STEP) * STEP - ROOM
