"""Files of another file's column chunks: the same file as one that is written out of the converted rows."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.conversion import Conversion, Part, Take, Value
from headrace.core.errors import Definite
from headrace.lake.format import column_chunks, datafile, thrift
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store

# Of each type that the lake has a value or two, and what the type may be widened to.
KINDS: list[tuple[pa.DataType, tuple[Any, ...], pa.DataType | None]] = [
    (pa.int16(), (-(2**15), 7), pa.int64()),
    (pa.int32(), (3,), pa.decimal128(12, 0)),
    (pa.bool_(), (True, False), None),
    (pa.float32(), (-0.0, float("nan")), pa.float64()),
    (pa.string(), ("", "\U0010ffff" * 40), None),
    (pa.binary(), (b"\x00",), None),
    (pa.date32(), (date(1, 1, 1),), None),
    (pa.timestamp("us", tz="UTC"), (datetime(1582, 10, 4, tzinfo=UTC),), None),
    (pa.decimal128(10, 2), (Decimal("-1.25"),), pa.decimal128(14, 4)),
    (pa.list_(pa.string()), ([], ["a", None]), None),
    (pa.list_(pa.list_(pa.int32())), ([[1], [], None],), None),
]
RANGE = (b"\x01\x80", b"\x01\xff")
FOLDER = "tables/main/public/t"
values = st.lists(st.integers(0, 2), max_size=12)


def _old(numbers: list[int]) -> pa.Table:
    """A row a number: NULL, or one of the values of each column's type."""
    columns = {
        f"old {place}": pa.array([given[n % len(given)] if n else None for n in numbers], kind)
        for place, (kind, given, _) in enumerate(KINDS)
    }
    return pa.table(columns)


@st.composite
def conversions(draw: st.DrawFn) -> tuple[Conversion, pa.Schema]:
    """Some of the columns in another order, under the old names or new ones, widened or not; and new ones."""
    parts: list[Part] = []
    fields: list[pa.Field] = []
    for place in draw(st.permutations(range(len(KINDS))).map(lambda order: order[:6])):
        kind, _, wider = KINDS[place]
        name = draw(st.sampled_from([f"old {place}", f"new {place}"]))
        parts.append(Take(place))
        fields.append(pa.field(name, wider if wider is not None and draw(st.booleans()) else kind))
    for number in range(draw(st.integers(0, 2))):
        kind, given_values, _ = draw(st.sampled_from(KINDS))
        parts.append(Value.of(pa.scalar(draw(st.sampled_from([None, *given_values])), kind)))
        fields.append(pa.field(f"more{number}", kind))
    return Conversion(tuple(f"old {place}" for place in range(len(KINDS))), tuple(parts)), pa.schema(fields)


@contextmanager
def _store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        yield open_store(folder)


def _told(store: Store, name: str) -> list[Any]:
    """Read a footer's facts on columns and groups of rows; not where they are."""
    with store.open_input(f"{FOLDER}/{name}") as source:
        footer = pq.read_metadata(source)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    chunks = [(group.num_rows, group.column(at)) for group in groups for at in range(group.num_columns)]
    told = [
        (rows, chunk.path_in_schema, chunk.num_values, chunk.statistics.to_dict()) for rows, chunk in chunks
    ]
    columns = [str(footer.schema.column(at)) for at in range(footer.num_columns)]
    return [columns, str(footer.schema.to_arrow_schema().remove_metadata()), footer.num_rows, str(told)]


def _converted(store: Store, shape: column_chunks.Shape, at_most: int = 1 << 30) -> Any:
    return column_chunks.convert(store, FOLDER, "old.parquet", "new.parquet", shape, at_most=at_most)


@settings(max_examples=40)
@given(values, conversions(), st.integers(1, 7))
def test_it_is_the_file_that_the_converted_rows_would_be(
    numbers: list[int], conversion: tuple[Conversion, pa.Schema], group: int
) -> None:
    """Values, schema, statistics in the log and in the footer, key range, and the groups of rows."""
    rows = _old([*numbers, 1])
    step, schema = conversion
    with _store() as store:
        old_ids, ids = range(1, len(rows.schema) + 1), tuple(range(50, 50 + len(schema)))
        datafile.write(store, FOLDER, "old.parquet", rows, sort_range=RANGE, row_group=group, ids=old_ids)
        new = step.apply(rows, schema)
        known = datafile.write(
            store, FOLDER, "known.parquet", new, sort_range=RANGE, row_group=group, ids=ids
        )
        file, between = _converted(store, column_chunks.Shape(rows.schema, schema, step, ids))
        assert datafile.read_ids(store, FOLDER, file.path) == dict(zip(schema.names, ids, strict=True))
        assert between == datafile.read_range(store, FOLDER, file.path) == RANGE
        assert (file.rows, file.stats) == (known.rows, known.stats)
        assert file.size == len(store.get(f"{FOLDER}/new.parquet") or b"")
        assert str(datafile.read(store, FOLDER, file).to_pylist()) == str(new.to_pylist())
        assert _told(store, "new.parquet") == _told(store, "known.parquet")


def test_a_column_that_the_file_lacks_is_null() -> None:
    rows = _old([0, 1, 2])
    later = pa.schema([*rows.schema, pa.field("later", pa.int32())])
    parts = (Take(len(rows.schema)), Take(0), Value.of(pa.scalar(7, pa.int32())))
    schema = pa.schema([later.field("later"), rows.schema.field(0), pa.field("seven", pa.int32())])
    with _store() as store:
        datafile.write(store, FOLDER, "old.parquet", rows, sort_range=RANGE)
        file, _ = _converted(store, column_chunks.Shape(later, schema, Conversion(tuple(later.names), parts)))
        read = datafile.read(store, FOLDER, file)
    assert read.to_pydict() == {"later": [None] * len(rows), "old 0": rows["old 0"].to_pylist(),
                                "seven": [7] * len(rows)}  # fmt: skip


def test_a_column_called_as_a_part_of_another_has_its_own_statistics() -> None:
    rows = pa.table({"a": [[1], [2]], "a.list": [5, None], "a.list.element": pa.nulls(2, pa.string())})
    step = Conversion(tuple(rows.column_names), tuple(map(Take, range(3))))
    with _store() as store:
        known = datafile.write(store, FOLDER, "old.parquet", rows, sort_range=RANGE)
        file, _ = _converted(store, column_chunks.Shape(rows.schema, rows.schema, step))
    assert (file.stats, json.loads(file.stats)["nullCount"]["a.list"]) == (known.stats, 1)


SAME = column_chunks.Shape(
    _old([]).schema,
    _old([]).schema,
    Conversion(tuple(_old([]).column_names), tuple(map(Take, range(len(KINDS))))),
)


@pytest.mark.parametrize(
    ("numbers", "between", "at_most"), [([1], None, 1 << 30), ([], RANGE, 1 << 30), ([1, 1], RANGE, 8)]
)
def test_what_another_program_wrote_has_no_rows_or_too_much_is_left(
    numbers: list[int], between: tuple[bytes, bytes] | None, at_most: int
) -> None:
    with _store() as store:
        datafile.write(store, FOLDER, "old.parquet", _old(numbers), sort_range=between)
        assert _converted(store, SAME, at_most) is None
        assert list(store.list(FOLDER)) == [f"{FOLDER}/old.parquet"]


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.999])
def test_a_damaged_file_is_the_tables_misfortune(cut: float) -> None:
    with _store() as store:
        datafile.write(store, FOLDER, "old.parquet", _old([1, 2, 0]), sort_range=RANGE)
        data = store.get(f"{FOLDER}/old.parquet") or b""
        store.put(f"{FOLDER}/old.parquet", data[: int(len(data) * cut)])
        with pytest.raises(Definite, match="LAKE_FILE_UNREADABLE"):
            _converted(store, SAME)


fields = st.recursive(
    st.tuples(st.sampled_from([thrift.I16, thrift.I32, thrift.I64]), st.integers(-(2**63), 2**63 - 1))
    | st.tuples(st.just(thrift.BINARY), st.binary(max_size=300))
    | st.tuples(st.just(thrift.DOUBLE), st.binary(min_size=8, max_size=8))
    | st.tuples(st.just(thrift.BYTE), st.integers(0, 255))
    | st.tuples(st.sampled_from([thrift.TRUE, thrift.FALSE]), st.none()),
    lambda inner: (
        st.tuples(st.just(thrift.STRUCT), st.dictionaries(st.integers(1, 300), inner, max_size=4))
        | st.tuples(
            st.sampled_from([thrift.LIST, thrift.SET]),
            st.tuples(st.just(thrift.I64), st.lists(st.integers(-9, 9), max_size=40)),
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.integers(-5, 300).filter(bool), fields, max_size=6))
def test_thrift_reads_what_it_writes(struct: thrift.Struct) -> None:
    assert thrift.decode(thrift.encode(struct)) == struct


def test_thrift_writes_a_footer_as_it_read_it() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(_old([0, 1, 2]), sink, row_group_size=2)
    data = sink.getvalue().to_pybytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    assert thrift.encode(thrift.decode(footer)) == footer
