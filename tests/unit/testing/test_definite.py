"""`definite` says nothing of a true lake, and finds each lie that is planted into one."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from headrace_testing.validators import Show, definite
from tests.unit.testing.paper import PaperLake, PaperMark, PaperTable, Update

ORDERS = "public.orders"
SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string()), ("price", pa.float64())])


def orders(seed: int = 1, times: int = 57) -> PaperTable:
    """A table with updates of every kind; each row is (id, note, price)."""
    dice = random.Random(seed)
    held: dict[int, tuple[Any, ...]] = {i: (i, None, 0.5) for i in range(10)}
    table = PaperTable(SCHEMA, list(held.values()))
    for time in range(100, 100 + 10 * times, 10):
        for ordinal in range(dice.randint(1, 3)):
            key = dice.randrange(20)
            row = (key, dice.choice([None, "", "x"]), dice.choice([-0.0, float(time)]))
            if key in held:
                table.updates.append((time, ordinal, held.pop(key), -1))
            if dice.random() < 0.8:
                table.updates.append((time, ordinal, row, 1))
                held[key] = row
    return table


def true_lake(marks: int = 20) -> PaperLake:
    quiet = PaperTable(SCHEMA, [(1, "never changes", 1.0)])
    times = [200 + 25 * i for i in range(marks)]
    return PaperLake({ORDERS: orders(), "public.quiet": quiet}, times)


def found(lake: PaperLake, **options: Any) -> str:
    return "\n".join(map(str, definite(lake, **options)))


@pytest.mark.parametrize("every", [False, True])
def test_a_true_lake_has_no_violations(every: bool) -> None:
    assert found(true_lake(), every=every) == ""


def test_a_row_that_a_mark_has_too_much_is_found() -> None:
    lake = true_lake()
    lake.rows[10, ORDERS].append((99, "planted", 1.0))
    report = found(lake, every=True, show=Show({ORDERS: ["id"]}))
    assert "G3 public.orders at epoch 10" in report
    assert "1 rows too many, 0 too few: +1 x id=99" in report
    assert "planted" not in report
    assert "note=planted" in found(lake, every=True, show=Show(values=True))


def test_a_row_that_is_lost_on_the_way_is_found_by_the_sample_too() -> None:
    lake = true_lake()
    survivor = lake.rows[20, ORDERS][0]
    for epoch in range(7, 21):
        if survivor in lake.rows[epoch, ORDERS]:
            lake.rows[epoch, ORDERS].remove(survivor)
    assert "too few" in found(lake, sample=2)


def test_a_change_that_history_tells_twice_is_found() -> None:
    lake = true_lake()
    lake.updates[ORDERS].append(lake.updates[ORDERS][5])
    report = found(lake)
    assert "G4 public.orders" in report
    assert "told twice" in report


def test_a_change_that_history_forgets_is_found() -> None:
    lake = true_lake()
    last = max(i for i, update in enumerate(lake.updates[ORDERS]) if update[0] <= lake.written[-1].time)
    del lake.updates[ORDERS][last]
    assert "rows too" in found(lake)


def test_a_retraction_of_a_row_that_was_not_there_is_found() -> None:
    lake = true_lake()
    ghost = (77, "ghost", 7.0)
    lake.updates[ORDERS] += [(205, 90, ghost, -1), (206, 91, ghost, 1)]
    report = found(lake, show=Show({ORDERS: ["id"]}))
    assert "there less than no times" in report
    assert "-1 x id=77" in report


def test_a_retraction_before_the_first_mark_is_found() -> None:
    lake = true_lake()
    ghost = (77, "ghost", 7.0)
    lake.updates[ORDERS] += [(105, 90, ghost, -1), (106, 91, ghost, 1)]
    assert "there less than no times" in found(lake)


def test_history_of_a_table_that_stands_still_is_found() -> None:
    lake = true_lake()
    born: Update = (301, 0, (5, "born", 1.0), 1)
    gone: Update = (401, 0, (5, "born", 1.0), -1)
    lake.updates["public.quiet"] = [born, gone]
    report = found(lake, sample=0)
    assert "G3 public.quiet at epoch 6: history changes it and its version stays" in report
    assert "at epoch 10: history changes it and its version stays" in report


def test_history_beyond_the_newest_mark_is_found() -> None:
    lake = true_lake()
    lake.updates[ORDERS].append((10**6, 0, (5, "early", 1.0), 1))
    assert "later than the newest mark" in found(lake)


def test_two_transactions_at_one_time_are_found() -> None:
    lake = true_lake()
    table = lake.tables[ORDERS]
    history = table.history

    def two_xids(updates: list[Update]) -> pa.Table:
        made = history(updates)
        xids = list(range(made.num_rows))
        return made.set_column(made.schema.get_field_index("_xid"), "_xid", pa.array(xids, pa.int64()))

    table.history = two_xids  # type: ignore[method-assign]
    assert "more than one transaction" in found(lake)


def test_marks_that_go_back_are_found() -> None:
    lake = true_lake()
    lake.written[4] = PaperMark(5, 150, lake.written[4].versions)
    assert "G3 marks at epoch 5" in found(lake, tables=[])


def test_a_gap_in_a_tables_marks_begins_a_new_run() -> None:
    """A table's contents before it stopped say nothing of its contents after it was copied again."""
    lake = true_lake()
    for epoch in (9, 10):
        mark = lake.written[epoch - 1]
        lake.written[epoch - 1] = PaperMark(mark.epoch, mark.time, {"public.quiet": 0})
    lake.updates[ORDERS] = [
        u for u in lake.updates[ORDERS] if not lake.written[7].time < u[0] <= lake.written[10].time
    ]
    assert found(lake, every=True) == ""
    lake.rows[14, ORDERS].append((99, "planted", 1.0))
    assert "epoch 14" in found(lake, every=True)


def test_minus_zero_is_not_zero() -> None:
    lake = true_lake()
    lake.rows[10, ORDERS] = [
        (i, note, 0.0 if price == 0 else price) for i, note, price in lake.rows[10, ORDERS]
    ]
    assert "epoch 10" in found(lake, every=True)
