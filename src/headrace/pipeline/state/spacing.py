"""Room behind a mark: a place in time for the next one, before anything else happens.

A mark in which a new copy replaces an old one stands between two transactions of the stream. So while there
is a new copy the frontier stops `ROOM` short of what the stream has shown.
"""

from __future__ import annotations

from headrace.core.position import Lsn

ROOM = 2


def with_room(frontier: Lsn) -> Lsn:
    """A frontier with the same transactions before it, behind which `ROOM` is left.

    Records of the log begin at multiples of eight, so that no commit lies between the two.
    """
    return Lsn(int(frontier) // 8 * 8 - ROOM)
