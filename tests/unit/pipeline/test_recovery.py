"""Where a source goes on after its position was lost: never before what its lake has reached."""

from __future__ import annotations

import pytest

from headrace.pipeline.first_run import Footing
from headrace.pipeline.recovery import Remedy, renewed
from headrace.pipeline.state.records import SourceRecord
from headrace.sources.postgres.lsn import Lsn
from headrace.sources.postgres.protocol.stream_errors import publication_missing, server_behind
from headrace.sources.postgres.session.identity import Identity
from tests.places import place_at

SOURCE = SourceRecord(
    "postgres", "host=h", "71", 1, "shop", "s", "p", True, True, place_at(0), ("public.*",), publication_oid=5
)
SAME = Identity("71", 1, 180004, "shop")
REACHED = place_at(0x9000)
MORE = 1 << 32


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
    again = renewed(SOURCE, Footing(Lsn(start), 6), SAME, REACHED, Lsn(end))
    assert (again.base, again.start, again.healing) == (shift, place_at(begins), place_at(begins))
    assert (again.publication_oid, again.incarnation) == (6, 2 if shift else 1)


def test_a_server_that_was_set_back_twice_is_shifted_twice() -> None:
    first = renewed(SOURCE, Footing(Lsn(0x1000), 6), SAME, REACHED, Lsn(0x2000))
    reached = first.log.position(Lsn(0x3000))
    again = renewed(first, Footing(Lsn(0x800), 7), SAME, reached, Lsn(0x900))
    assert (again.base, again.start, again.incarnation) == (2 * MORE, place_at(2 * MORE + 0x800), 3)
    assert again.start > reached
    assert (str(reached), str(again.start)) == ("0/3000", "0/800"), "as the server itself says"


@pytest.mark.parametrize("identity", [Identity("72", 1, 180004, "shop"), Identity("71", 2, 180004, "shop")])
def test_another_server_or_timeline_is_another_incarnation(identity: Identity) -> None:
    again = renewed(SOURCE, Footing(Lsn(REACHED.time), 6), identity, REACHED, Lsn(REACHED.time))
    assert (again.system_id, again.timeline) == (identity.system_id, identity.timeline)
    assert again.incarnation == 2


def test_a_remedy_is_tried_once_for_each_time_that_it_is_asked_for() -> None:
    asked = Remedy(asked=True, auto=False)
    assert asked.fits(publication_missing("p"))
    assert not asked.fits(publication_missing("p"))
    asked.taken()
    assert not asked.fits(server_behind(Lsn(1), Lsn(2)))
    always = Remedy(asked=False, auto=True)
    assert always.fits(server_behind(Lsn(1), Lsn(2)))
    always.taken()
    assert always.fits(server_behind(Lsn(1), Lsn(2)))
