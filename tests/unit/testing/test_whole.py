"""`whole` says nothing of true lakes, and finds each part of a transaction that is shown alone."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from headrace_testing.validators import whole
from headrace_testing.wholeness import balances, transfers
from tests.unit.testing.paper import PaperLake, PaperTable

ACCOUNTS, TELLERS, BRANCHES, HISTORY = (
    f"public.pgbench_{name}" for name in ("accounts", "tellers", "branches", "history")
)
OUT, IN = "public.transfer_out", "public.transfer_in"
TIMES = range(100, 1100, 10)
MARKS = list(range(195, 1200, 50))


def bank() -> PaperLake:
    dice = random.Random(3)
    tables = {
        name: PaperTable(pa.schema([("id", pa.int32()), (column, pa.int32())]), [(i, 0) for i in range(3)])
        for name, column in ((ACCOUNTS, "abalance"), (TELLERS, "tbalance"), (BRANCHES, "bbalance"))
    }
    tables[HISTORY] = PaperTable(pa.schema([("tid", pa.int32()), ("delta", pa.int32())]))
    held = {(name, i): 0 for name in tables for i in range(3)}
    for time in TIMES:
        delta = dice.randint(-5000, 5000)
        for name in (ACCOUNTS, TELLERS, BRANCHES):
            key = dice.randrange(3)
            before = held[name, key]
            held[name, key] += delta
            tables[name].updates += [(time, 0, (key, before), -1), (time, 0, (key, before + delta), 1)]
        tables[HISTORY].updates.append((time, 0, (1, delta), 1))
    return PaperLake(tables, MARKS)


def ledger() -> PaperLake:
    schema = pa.schema([(name, pa.int64()) for name in ("transfer", "part", "parts", "revision", "amount")])
    tables = {OUT: PaperTable(schema), IN: PaperTable(schema)}
    dice = random.Random(4)
    held: dict[int, tuple[int, int]] = {}
    for time in TIMES:
        transfer = time if dice.random() < 0.6 or not held else dice.choice(list(held))
        parts, revision = held.pop(transfer, (dice.randint(1, 4), -1))
        keep = dice.random() < 0.8
        for table in tables.values():
            for part in range(parts):
                row = (transfer, part, parts, revision, 1)
                if revision >= 0:
                    table.updates.append((time, part, row, -1))
                if keep:
                    table.updates.append((time, part, (*row[:3], revision + 1, 1), 1))
        if keep:
            held[transfer] = (parts, revision + 1)
    return PaperLake(tables, MARKS)


def test_true_lakes_have_no_violations() -> None:
    for lake in (bank(), ledger()):
        assert whole(lake, every=True) == []
        assert whole(lake, since=100) == []


def test_a_verdict_says_how_much_was_judged() -> None:
    verdict = balances(bank(), sample=None)
    assert (verdict.marks, verdict.violations) == (len(MARKS), [])
    assert verdict.times == sum(time > MARKS[0] for time in TIMES)
    assert balances(bank(), since=100).times == len(TIMES)
    assert transfers(ledger(), sample=3).marks == 5


def test_a_lake_without_such_tables_cannot_be_judged() -> None:
    lake = PaperLake({"public.t": PaperTable(pa.schema([("id", pa.int32())]))}, [10])
    with pytest.raises(ValueError, match="nothing to judge by"):
        whole(lake)


@pytest.mark.parametrize("name", [ACCOUNTS, TELLERS, BRANCHES, HISTORY])
def test_a_table_that_is_one_transaction_behind_is_found(name: str) -> None:
    lake = bank()
    mark = lake.written[8]
    lake.rows[mark.epoch, name] = lake.tables[name].at(mark.time - 10)
    (violation,) = whole(lake, every=True)
    assert (violation.guarantee, violation.epoch) == ("G2", mark.epoch)


@pytest.mark.parametrize("name", [ACCOUNTS, HISTORY])
def test_a_change_told_at_another_time_is_found(name: str) -> None:
    lake = bank()
    updates = lake.updates[name]
    at = next(i for i, update in enumerate(updates) if update[0] == 700)
    updates[at] = (703, *updates[at][1:])
    (violation,) = whole(lake)
    assert violation.time == 700
    assert "at 1 of" in violation.what


def test_times_before_the_first_mark_are_judged_if_since_says_so() -> None:
    lake = bank()
    at = next(i for i, update in enumerate(lake.updates[HISTORY]) if update[0] == 150)
    lake.updates[HISTORY][at] = (153, *lake.updates[HISTORY][at][1:])
    assert whole(lake) == []
    assert [violation.time for violation in whole(lake, since=100)] == [150]


@pytest.mark.parametrize("name", [OUT, IN])
def test_a_part_that_a_mark_lacks_is_found(name: str) -> None:
    lake = ledger()
    lake.rows[9, name].pop()
    (violation,) = whole(lake, every=True)
    assert violation.epoch == 9
    assert "parts only of 1 of" in violation.what


def test_a_part_of_another_revision_is_found() -> None:
    lake = ledger()
    transfer, part, parts, revision, amount = lake.rows[9, OUT].pop()
    lake.rows[9, OUT].append((transfer, part, parts, revision + 1, amount))
    assert [violation.epoch for violation in whole(lake, every=True)] == [9]


def test_a_part_told_at_another_time_is_found() -> None:
    lake = ledger()
    at = next(i for i, update in enumerate(lake.updates[IN]) if update[0] == 600)
    lake.updates[IN][at] = (605, *lake.updates[IN][at][1:])
    assert [violation.time for violation in whole(lake)] == [600]
