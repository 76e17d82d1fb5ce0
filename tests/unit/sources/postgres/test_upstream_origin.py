"""A stream that begins anew begins behind what its lake has reached, in whichever life of the server."""

from __future__ import annotations

import pytest

from headrace.core.position import Position
from headrace.sources.postgres.objects import PostgresStart, origin_of
from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.session.identity import PostgresIdentity
from headrace.sources.postgres.upstream import PostgresUpstream
from tests.places import place_at

SAME = PostgresIdentity("71", 1, 180004, "shop")
BEFORE = PostgresUpstream("s", "p", publication_oid=6)
REACHED = place_at(0x9000)
MORE = 1 << 32


def _begun(
    before: PostgresUpstream, start: int, reached: Position, end: int, now: PostgresIdentity = SAME
) -> PostgresStart:
    return PostgresStart(before, Lsn(start), now, reached, SAME.lasting_part(), Lsn(end))


@pytest.mark.parametrize(
    ("start", "end", "shift", "begins"),
    [
        (0xA000, 0xB000, 0, 0xA000),  # a new slot on the same log
        (0x8000, 0xB000, 0, 0x9000),  # a slot of the user's that stands behind what the lake has
        (0x1000, 0x2000, MORE, 0x1000 + MORE),  # a server that was set back
        (0x1000, 0x9000, 0, 0x9000),  # one that has come as far again: its positions are not told apart
    ],
)
def test_positions_go_on_behind_what_was_reached(start: int, end: int, shift: int, begins: int) -> None:
    origin = origin_of(_begun(BEFORE, start, REACHED, end), fresh=True, begun_at=None)
    again = PostgresUpstream.of(origin.upstream)
    assert (again.base, origin.start) == (shift, place_at(begins))
    assert (again.publication_oid, origin.another_life) == (6, bool(shift))


def test_a_server_that_was_set_back_twice_is_shifted_twice() -> None:
    first = PostgresUpstream.of(
        origin_of(_begun(BEFORE, 0x1000, REACHED, 0x2000), fresh=True, begun_at=None).upstream
    )
    reached = first.position(Lsn(0x3000))
    again = origin_of(_begun(first, 0x800, reached, 0x900), fresh=True, begun_at=None)
    assert PostgresUpstream.of(again.upstream).base == 2 * MORE
    assert (again.start, again.another_life) == (place_at(2 * MORE + 0x800), True)
    assert again.start > reached
    assert (str(reached), str(again.start)) == ("0/3000", "0/800"), "as the server itself says"


@pytest.mark.parametrize(
    "now", [PostgresIdentity("72", 1, 180004, "shop"), PostgresIdentity("71", 2, 180004, "shop")]
)
def test_another_server_or_timeline_is_another_life(now: PostgresIdentity) -> None:
    origin = origin_of(_begun(BEFORE, REACHED.time, REACHED, REACHED.time, now), fresh=True, begun_at=None)
    assert (origin.identity["system_id"], origin.identity["timeline"]) == (now.system_id, now.timeline)
    assert origin.another_life
