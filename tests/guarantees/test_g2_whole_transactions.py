"""G2: a mark contains each source transaction wholly or not at all, across all tables that it names."""

from __future__ import annotations

from headrace_testing.wholeness import balances, transfers
from tests.guarantees.conftest import Stormy


def test_g2_pgbench_balances_agree_at_every_mark_and_at_every_time(stormy: Stormy) -> None:
    verdict = balances(stormy.lake, sample=None)
    assert verdict.violations == []
    assert verdict.marks > 15
    assert verdict.times > 200


def test_g2_no_mark_and_no_time_holds_a_part_of_a_transfer(stormy: Stormy) -> None:
    verdict = transfers(stormy.lake, sample=None)
    assert verdict.violations == []
    assert verdict.marks > 15
    assert verdict.times > 50
