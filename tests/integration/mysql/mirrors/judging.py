"""The judgement of a mirror whose source is at rest, and what tests wait for while it is not.

A mirror takes seconds: each test has one kind of server in every run, and the other in the full one.
"""

from __future__ import annotations

import pytest

from headrace.lake.read.lake import Lake
from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored
from headrace_testing.mysql.fixtures import RELEASES
from headrace_testing.wholeness import transfers


def kinds(ordinary: str, *, releases: bool = False) -> pytest.MarkDecorator:
    """The kind of server of every run; in the full one the other, and other releases if wanted."""
    [other] = {"mysql", "mariadb"} - {ordinary}
    others = (other, *RELEASES) if releases else (other,)
    return pytest.mark.parametrize(
        "database",
        [ordinary, *(pytest.param(each, marks=pytest.mark.full) for each in others)],
        indirect=True,
    )


def assert_exact(lake: Lake, url: str) -> None:
    """Every table of the newest mark equals its source, and marks and history agree."""
    assert validators.exact(lake, url, values=True) == []
    assert validators.definite(lake) == []


def assert_whole(lake: Lake, schema: str, *, times: int) -> None:
    """No mark and no time shows a part of a transfer; at least so many times were judged."""
    verdict = transfers(lake, schema=schema, sample=None)
    assert verdict.violations == []
    assert verdict.times >= times


def onward(mirror: Mirrored, epochs: int = 2, *, transactions: int = 1) -> None:
    """Wait until so many more marks with transactions are published, and so many transactions in them."""
    known = mirror.lake.at().mark.epoch

    def moved() -> bool:
        found = [m.transactions for m in mirror.lake.marks() if m.epoch > known and m.transactions]
        return len(found) >= epochs and sum(found) >= transactions

    mirror.until(moved, "further marks", within=60)
