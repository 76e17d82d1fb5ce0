"""A foreign transaction is errant if one that the lake holds stands behind it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from headrace.sources.mysql.mariadb_position import MariadbGtid
from headrace.sources.mysql.successor import HeldTransactions, errant_gtids

OWN, OTHER = MariadbGtid(2, 2, 1), MariadbGtid(3, 3, 1)
HELD = [MariadbGtid(1, 1, number) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("log", "errant"),
    [
        ([*HELD], []),
        ([*HELD, OWN], []),
        ([HELD[0], OWN, *HELD[1:]], [OWN]),
        ([OWN, OTHER, *HELD], [OWN]),  # a replica may apply its source's in another order
        ([HELD[0], OWN, HELD[1], OWN, HELD[2], OWN], [OWN, OWN]),
    ],
)
def test_only_what_stands_before_a_held_one_is_errant(
    log: Sequence[MariadbGtid], errant: Sequence[MariadbGtid]
) -> None:
    held = HeldTransactions(
        "f", len(HELD), lambda name: name in HELD, lambda _: True, lambda name: name == OWN
    )
    assert errant_gtids(held, iter(log)) == list(errant)


def test_the_log_is_read_no_further_than_to_the_last_held_one() -> None:
    held = HeldTransactions("f", len(HELD), lambda name: name in HELD, lambda _: True, lambda _: True)
    log = itertools.chain(HELD, itertools.repeat(OWN))
    assert errant_gtids(held, log) == []
    assert next(log) == OWN
