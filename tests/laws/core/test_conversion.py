"""Laws of conversions: they compose, they work row by row, and changes convert as the rows do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.change_batch import Image, Op
from headrace.core.conversion import Conversion, Part, Take, Value
from headrace.core.records import from_record, to_record
from headrace.core.schema import Column, TableSchema
from headrace.decode import pgoutput
from headrace.decode.pgoutput import batch
from tests.laws.decode.wire import array, oid, plugin, tuple_data

INT = Column("i", pa.int64(), "int", "bigint")
TEXT = Column("t", pa.string(), "text", "text")
rows = st.lists(st.tuples(*[st.none() | st.integers(-9, 9).map(str)] * 3), max_size=8)


def _schema(count: int, kinds: list[Column]) -> TableSchema:
    columns = (Column(f"c{i}", k.type, k.form, k.source_type) for i, k in enumerate(kinds[:count]))
    return TableSchema(tuple(columns), (), full=True)


@st.composite
def steps(draw: st.DrawFn, old: TableSchema) -> tuple[Conversion, TableSchema]:
    """A conversion of these columns, of which one at least stays, and what comes out."""
    parts: list[Part] = []
    kinds: list[Column] = []
    for place in draw(st.permutations(range(len(old.columns)))):
        if not parts or draw(st.booleans()):
            parts.append(Take(place))
            kinds.append(old.columns[place])
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from([INT, TEXT]))
        given_value = draw(st.none() | (st.integers(0, 9) if kind is INT else st.text(max_size=3)))
        parts.append(Value.of(pa.scalar(given_value, kind.type)))
        kinds.append(kind)
    return Conversion(old.names, tuple(parts)), _schema(len(kinds), kinds)


OLD = _schema(3, [INT, TEXT, INT])


def _table(values: list[tuple[Any, ...]]) -> pa.Table:
    columns = [pa.array([row[place] for row in values], pa.string()) for place in range(len(OLD.columns))]
    arrays = [column.cast(known.type) for column, known in zip(columns, OLD.columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=OLD.arrow())


@given(st.data(), rows)
def test_one_after_the_other_is_both_in_one_step(data: st.DataObject, values: list[tuple[Any, ...]]) -> None:
    first, between = data.draw(steps(OLD))
    second, new = data.draw(steps(between))
    table = _table(values)
    one_by_one = second.apply(first.apply(table, between.arrow()), new.arrow())
    assert first.then(second).apply(table, new.arrow()) == one_by_one
    assert from_record(Conversion, to_record(first)) == first


@given(st.data(), rows, rows)
def test_rows_convert_each_by_itself(
    data: st.DataObject, some: list[tuple[Any, ...]], others: list[tuple[Any, ...]]
) -> None:
    step, new = data.draw(steps(OLD))
    together = step.apply(pa.concat_tables([_table(some), _table(others)]), new.arrow())
    apart = [step.apply(_table(each), new.arrow()) for each in (some, others)]
    assert together.combine_chunks() == pa.concat_tables(apart).combine_chunks()


@given(st.data(), rows)
def test_changes_under_the_old_columns_are_those_of_the_converted_rows(
    data: st.DataObject, values: list[tuple[Any, ...]]
) -> None:
    """Each row as an insert, an update of the whole old row, and a delete."""
    step, new = data.draw(steps(OLD))
    found = _decoded(values, step, new)
    want = step.apply(_table([row for row in values for _ in range(3)]), new.arrow()).to_pydict()
    ops = found.batch.column("_op").to_pylist()
    images = found.batch.column("_image").to_pylist()
    for place, name in enumerate(new.names):
        for side, there in (("n", [op != Op.DELETE for op in ops]), ("o", [i == Image.FULL for i in images])):
            have = found.batch.column(f"{side}{place}").to_pylist()
            assert have == [
                value if is_there else None for value, is_there in zip(want[name], there, strict=True)
            ]


def _decoded(values: list[tuple[Any, ...]], step: Conversion, new: TableSchema) -> batch.PgoutputChanges:
    messages: list[bytes] = []
    for row in values:
        sent = tuple_data([None if value is None else value.encode() for value in row])
        messages += [
            b"I" + oid() + b"N" + sent,
            b"U" + oid() + b"O" + sent + b"N" + sent,
            b"D" + oid() + b"O" + sent,
        ]
    data = array(b"".join(map(plugin, messages)))
    count = len(messages)
    meta = batch.PgoutputChangeMeta(
        np.arange(count), np.arange(count), np.full(count, 900), np.full(count, 5)
    )
    taken = np.array(step.places, np.int64)
    return batch.changes(data, pgoutput.scan(data), taken, new, meta, step.values)
