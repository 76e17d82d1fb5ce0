"""The texts of values without a lake form, compared part by part."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterator

import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.schema import Column, TableSchema
from headrace.pipeline.tasks.compare.proofs import TEXTS
from headrace.pipeline.verify.drill_down import TextDifferences, text_differences

SCHEMA = TableSchema(
    (Column("id", pa.int64(), "int", "bigint", nullable=False), Column("v", pa.date32(), "date", "date")),
    ("id",),
    full=False,
)
Text = tuple[int, str]

texts = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["infinity", "-infinity"])))


def _source(rows: list[Text]) -> pa.Table:
    keys = [f'{{"id":{number}}}' for number, _ in rows]
    return pa.table([keys, ["v"] * len(rows), [raw for _, raw in rows]], schema=TEXTS)


def _lake(rows: list[Text], keys_at_once: int) -> Iterator[pl.DataFrame]:
    counts = Counter(rows)
    for low in range(0, 10, keys_at_once):
        some = [(number, raw) for number, raw in sorted(counts) if low <= number < low + keys_at_once]
        found = pl.DataFrame(_source(some))
        assert isinstance(found, pl.DataFrame)
        yield found.with_columns(diff=pl.Series([counts[text] for text in some], dtype=pl.Int64))


@given(texts, texts, st.integers(1, 10), st.integers(0, 8))
def test_all_texts_that_differ_are_counted_and_some_are_named(
    source: list[Text], lake: list[Text], keys_at_once: int, most: int
) -> None:
    found = text_differences(SCHEMA, _source(source), _lake(lake, keys_at_once), values=True, most=most)
    missing, extra = Counter(source) - Counter(lake), Counter(lake) - Counter(source)
    assert found.count == len(missing) + len(extra)
    assert len(found.differences) == min(most, found.count)
    for each in found.differences:
        side, told = (missing, each.source) if each.kind == "missing" else (extra, each.lake)
        assert told is not None
        assert side[int(str(each.key["id"])), str(told["v"])] == each.copies
    if source == lake:
        assert found == TextDifferences()


def test_g7_texts_are_compared_in_the_memory_of_a_part_and_of_those_that_are_named() -> None:
    """Also where all of them differ, and there are very many."""
    parts, rows = 40, 5_000

    def lake() -> Iterator[pl.DataFrame]:
        for part in range(parts):
            keys = pl.Series(
                "key", [f'{{"id":{number}}}' for number in range(part * rows, (part + 1) * rows)]
            )
            yield pl.DataFrame({"key": keys, "column": "v", "raw": "infinity", "diff": 1})

    tracemalloc.start()
    try:
        found = text_differences(SCHEMA, None, lake(), values=False, most=5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found.count, len(found.differences)) == (parts * rows, 5)
    assert peak < 5_000_000, "a tuple a text is ten times that"
