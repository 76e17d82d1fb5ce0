"""Laws of the difference: it leads from the old contents to the new ones, and says no more than it must."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.core import difference
from headrace.core.collection import DIFF, consolidate, of_rows
from headrace.core.columns import narrow
from headrace.core.difference import DifferenceMoment
from headrace.core.fold import fold
from headrace.core.schema import Column, TableSchema

COLUMNS = (
    Column("id", pa.int64(), "int", "bigint", nullable=False),
    Column("x", pa.float64(), "float", "double precision"),
    Column("s", pa.string(), "text", "text"),
)
KEYED = TableSchema(COLUMNS, ("id",), full=False)
BAG = TableSchema(COLUMNS, (), full=True)
AT = DifferenceMoment(time=41, commit_ts=7, first=1000)

values = st.tuples(
    st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")]), st.sampled_from([None, "", "a", "b\0"])
)
keyed = st.dictionaries(st.integers(0, 9), values).map(lambda rows: [(k, *v) for k, v in rows.items()])
bags = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, -0.0]), st.sampled_from([None, ""])))


def table(rows: list[tuple[object, ...]]) -> pa.Table:
    named = zip(KEYED.names, zip(*rows, strict=True) if rows else [[], [], []], strict=True)
    return pa.table({name: list(column) for name, column in named}, schema=KEYED.arrow())


def contents(rows: pa.Table) -> list[str]:
    """Exactly the rows: NaN is itself, and the zeros are two."""
    return sorted(repr(row) for row in rows.to_pylist())


@given(keyed, keyed)
def test_events_make_the_new_rows_of_the_old(
    old: list[tuple[object, ...]], new: list[tuple[object, ...]]
) -> None:
    found = difference.events(KEYED, table(old), table(new), AT)
    folded = fold(KEYED, found, table(old))
    assert contents(folded.final) == contents(table(new))
    assert not any(len(each) for each in (folded.missing, folded.conflict, folded.holes))
    both = {row[0] for row in old} & {row[0] for row in new}
    same = {k for k in both if repr(dict(_by_key(old))[k]) == repr(dict(_by_key(new))[k])}
    assert found.num_rows == len({row[0] for row in old + new} - same)


@given(bags, bags)
def test_history_adds_up_to_the_difference(
    old: list[tuple[object, ...]], new: list[tuple[object, ...]]
) -> None:
    told = difference.history(BAG, table(old), table(new), AT)
    assert set(told["_time"].to_pylist()) <= {AT.time}
    updates = narrow(told).select(list(BAG.names)).append_column(DIFF, told["_diff"])
    summed = consolidate(pa.concat_tables([of_rows(table(old)), updates]))
    assert contents(summed) == contents(consolidate(of_rows(table(new))))
    assert told.num_rows <= len(old) + len(new)


def test_what_differs_may_pass_2_gib_in_a_column() -> None:
    """Offsets of 64 bits, in what comes out and in what it is taken from."""
    old, new = table([(1, 0.0, "a")]), table([(1, 0.0, "b"), (2, 0.0, None)])
    told = difference.events(KEYED, old, new, AT)
    assert told.schema.field("c2").type == pa.large_string()
    assert difference.history(BAG, old, new, AT).schema.field("s").type == pa.large_string()


@given(bags)
def test_nothing_differs_from_itself(rows: list[tuple[object, ...]]) -> None:
    assert difference.history(BAG, table(rows), table(rows[::-1]), AT).num_rows == 0


def test_a_key_that_is_there_twice_is_noticed() -> None:
    assert difference.repeats_key(KEYED, table([(1, 0.0, "a"), (1, 1.5, "b")]))
    assert not difference.repeats_key(KEYED, table([(1, 0.0, "a"), (2, 0.0, "a")]))


def _by_key(rows: list[tuple[object, ...]]) -> list[tuple[object, object]]:
    return [(row[0], row) for row in rows]
