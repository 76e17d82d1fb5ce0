"""A domain that a MariaDB log has no more: the places of other domains' transactions prove that it was."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from headrace.sources.mysql.mariadb_position import MariadbGtid, MariadbPosition
from headrace.sources.mysql.position import LoggedTransaction, MariadbProgress
from headrace.sources.mysql.successor import HeldTransactions, errant_gtids, forgotten_gtids

AT = MariadbPosition.parse("7-1-9")
READ = MariadbPosition.parse("7-1-6,9-1-1")
FILES = {"binlog.000002"}


def place(gtid: str, at: int, *, file: str = "binlog.000002", server: str = "aa") -> LoggedTransaction:
    return LoggedTransaction(gtid, 1, at, server, file)


@pytest.mark.parametrize(
    ("behind", "proves"),
    [
        (place("7-1-6", 500), True),
        (place("7-1-6", 4, file="binlog.000003"), True),
        (place("7-1-6", 300), False),  # the lake's newest transaction may be one that a set-back server lacks
        (place("7-1-6", 500, file="binlog.000001"), False),
        (place("7-1-6", 500, file="other.000003"), False),
        (place("7-1-6", 500, server="bb"), False),
        (place("", 500), False),
    ],
)
def test_a_domain_is_forgotten_only_behind_one_that_stands_behind_it(
    behind: LoggedTransaction, proves: bool
) -> None:
    gone = place("9-1-1", 400)
    found = forgotten_gtids(MariadbProgress(READ, READ, last=(behind, gone)), AT, READ, set())
    assert (found is not None) is proves
    assert found is None or list(map(str, found)) == ["9-1-1"]


def test_a_domain_whose_place_nobody_knows_is_not_forgotten() -> None:
    assert forgotten_gtids(MariadbProgress(READ, READ, last=(place("7-1-6", 500),)), AT, READ, FILES) is None
    assert forgotten_gtids(MariadbProgress(AT, AT, last=(place("7-1-9", 500),)), AT, READ, FILES) == []


@pytest.mark.parametrize(
    ("begin", "files", "proves"),
    [
        ("7-1-6,9-1-1", set(), True),
        ("7-1-6,9-1-2", set(), False),  # one more of it was purged
        ("7-1-6", set(), False),
        ("7-1-6", FILES, True),
    ],
)
def test_a_domain_is_forgotten_only_where_nothing_of_it_came_later(
    begin: str, files: set[str], proves: bool
) -> None:
    last = (place("7-1-6", 500), place("9-1-1", 400))
    found = forgotten_gtids(MariadbProgress(READ, READ, last=last), AT, MariadbPosition.parse(begin), files)
    assert (found is not None) is proves


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
