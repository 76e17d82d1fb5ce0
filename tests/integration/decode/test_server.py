"""The server is the oracle: what it says a value means is what we decode its text to.

One test asks the server for the meaning of random values in numbers (microseconds, days, bits, digits)
beside their text. The other sends the same rows through a COPY and through pgoutput, and expects twins.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any, LiteralString

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from headrace.core.change_batch import Image
from headrace.core.schema import Column, TableSchema
from headrace.decode import copyrows, pgoutput
from headrace.decode.pgoutput import batch
from headrace.decode.values import decode_column
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace_testing.postgres import Database
from tests.laws.decode.test_values import plain
from tests.laws.decode.wire import array, plugin

pytestmark = pytest.mark.server

UTC = pa.timestamp("us", tz="UTC")
Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with connect(PostgresAddress.parse(database.url()), role="test") as opened:
        yield opened


def _copied(connection: Connection, query: LiteralString, ncols: int) -> list[Any]:
    with connection.cursor().copy(f"COPY ({query}) TO STDOUT") as rows:
        data = b"".join(bytes(part) for part in rows)
    return copyrows.text_columns(array(data), ncols)


# Form, type, the values of 2000 rows, and the number that each stands for, as the server sees it.
MEANINGS: list[tuple[str, pa.DataType, LiteralString, LiteralString]] = [
    (
        "timestamp",
        pa.timestamp("us"),
        "timestamp '4714-11-24 00:00:00 BC' + random() * interval '298000 years'",
        "(extract(epoch FROM v) * 1000000)::bigint",
    ),
    (
        "timestamptz",
        UTC,
        "timestamptz '0100-01-01 00:00:00+00 BC' + random() * interval '4000 years'",
        "(extract(epoch FROM v) * 1000000)::bigint",
    ),
    ("date", pa.date32(), "date '4714-11-24 BC' + (random() * 2147000000)::int", "v - date '1970-01-01'"),
    ("int", pa.int64(), "(random() * 18e18 - 9e18)::bigint", "v"),
    (
        "decimal",
        pa.decimal128(38, 10),
        "((random() - 0.5) * 10 ^ (random() * 27))::numeric(38, 10)",
        "trim_scale(v * 10000000000)",
    ),
]


@pytest.mark.parametrize(("form", "type", "value", "meaning"), MEANINGS, ids=[m[0] for m in MEANINGS])
def test_a_value_means_what_the_server_says(
    connection: Connection, form: str, type: pa.DataType, value: LiteralString, meaning: LiteralString
) -> None:
    connection.execute(f"CREATE TEMP TABLE vs AS SELECT {value} AS v FROM generate_series(1, 2000)")
    texts, meanings = _copied(connection, f"SELECT v, {meaning} FROM pg_temp.vs", 2)
    decoded = decode_column(texts, form, type)
    assert decoded.bad.tolist() == []
    numbers = decode_column(meanings, "text", pa.string()).array.to_pylist()
    assert plain(decoded.array) == [int(number) for number in numbers]


@pytest.mark.parametrize(
    ("type", "sql", "layout"), [(pa.float64(), "float8", ">d"), (pa.float32(), "float4", ">f")]
)
def test_a_float_has_the_bits_that_the_server_has(
    connection: Connection, seed: int, type: pa.DataType, sql: LiteralString, layout: str
) -> None:
    dice = random.Random(seed)
    size = struct.calcsize(layout)
    values = [struct.unpack(layout, dice.randbytes(size))[0] for _ in range(5000)]
    values += [float("inf"), float("-inf"), -0.0, 0.0, 5e-324 if size == 8 else 1e-45]
    finite = [value for value in values if value == value]
    connection.execute(f"CREATE TEMP TABLE vs (v {sql})")
    connection.cursor().executemany(
        f"INSERT INTO pg_temp.vs VALUES (%s::{sql})", [(repr(v),) for v in finite]
    )
    query = f"SELECT v, pg_catalog.encode({sql}send(v), 'hex') FROM pg_temp.vs"
    texts, bits = _copied(connection, query, 2)
    decoded = decode_column(texts, "float", type)
    expected = decode_column(bits, "text", pa.string()).array.to_pylist()
    assert [struct.pack(layout, value).hex() for value in decoded.array.to_pylist()] == expected


SCHEMA = TableSchema(
    (
        Column("id", pa.int64(), "int", "bigint", nullable=False),
        Column("b", pa.bool_(), "bool", "boolean"),
        Column("s", pa.int16(), "int", "smallint"),
        Column("f", pa.float32(), "float", "real"),
        Column("d", pa.float64(), "float", "double precision"),
        Column("n", pa.decimal128(38, 5), "decimal", "numeric(38,5)"),
        Column("t", pa.string(), "text", "text"),
        Column("x", pa.binary(), "bytea", "bytea"),
        Column("day", pa.date32(), "date", "date"),
        Column("ts", pa.timestamp("us"), "timestamp", "timestamp"),
        Column("tz", UTC, "timestamptz", "timestamptz"),
        Column("ns", pa.list_(pa.int32()), "array(int)", "integer[]"),
        Column("ss", pa.list_(pa.string()), "array(text)", "text[]"),
        Column("ms", pa.list_(UTC), "array(timestamptz)", "timestamptz[]"),
        Column("j", pa.string(), "text", "jsonb"),
    ),
    ("id",),
    full=True,
)
VALUES: list[LiteralString] = [
    r"""1, true, -32768, 1e-45, 5e-324, 1.5, E'tab\there\nnew \\ line', '\x00ff', '4714-11-24 BC',
        '0044-03-15 12:00:00 BC', '1883-11-18 12:03:57.000001-04:56:02', '{1,NULL,-3}',
        ARRAY['NULL', NULL, '', 'a,b', E'q"\\\t{}'], ARRAY[timestamptz '2020-01-01 00:00:00+02'],
        '{"a": [1]}'""",
    "2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
    """3, false, 32767, 'NaN', '-Infinity', 'NaN', '', '', 'infinity', '294276-12-31 23:59:59.999999',
        '-infinity', '{{1},{2}}', '[0:0]={x}', '{infinity}', 'null'""",
    """4, false, 0, '-0', '-0', -99999999999999999999999999999.99999, repeat('long ', 5000), '\\xdeadbeef',
        '5874897-12-31', '294247-01-10 04:00:54.775807', '9999-12-31 23:59:59.999999+00', '{}', '{}',
        '{}', '1'""",
]


def _fill(connection: Connection) -> None:
    columns = ", ".join(f"{column.name} {column.source_type}" for column in SCHEMA.columns)
    connection.execute(f"CREATE TABLE public.t ({columns})")
    connection.execute("ALTER TABLE public.t REPLICA IDENTITY FULL")
    connection.execute("CREATE PUBLICATION p FOR TABLE public.t")
    connection.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    for row in VALUES:
        connection.execute(f"INSERT INTO public.t VALUES ({row})")


def _streamed(connection: Connection) -> tuple[Any, pgoutput.Messages]:
    """Read the contents of the slot, framed as a walsender frames them."""
    rows = connection.execute(
        "SELECT data FROM pg_logical_slot_get_binary_changes('s', NULL, NULL,"
        " 'proto_version', '1', 'publication_names', 'p')"
    ).fetchall()
    data = array(b"".join(plugin(row[0]) for row in rows))
    return data, pgoutput.scan(data)


def _changes(connection: Connection) -> batch.PgoutputChanges:
    data, messages = _streamed(connection)
    layouts = np.flatnonzero(messages.kind == ord("R"))
    layout = pgoutput.relation(data, int(messages.body[layouts[0]]), int(messages.stop[layouts[0]]))
    assert [column.name for column in layout.columns] == list(SCHEMA.names)
    mine = messages.take(np.isin(messages.kind, [ord("I"), ord("U"), ord("D")]))
    numbers = np.arange(len(mine))
    meta = batch.PgoutputChangeMeta(numbers, numbers, numbers, numbers)
    return batch.changes(data, mine, np.arange(len(SCHEMA.columns)), SCHEMA, meta)


def test_the_same_row_is_the_same_by_copy_and_by_stream(connection: Connection) -> None:
    _fill(connection)
    texts = _copied(connection, "SELECT * FROM public.t ORDER BY id", len(SCHEMA.columns))
    connection.execute("UPDATE public.t SET s = s")
    connection.execute("DELETE FROM public.t")

    found = _changes(connection)

    inserts, updates, deletes = (
        found.batch.slice(at, len(VALUES)) for at in (0, len(VALUES), 2 * len(VALUES))
    )
    assert found.batch.column("_image").to_pylist() == [Image.NONE] * 4 + [Image.FULL] * 8
    for position, (text, column) in enumerate(zip(texts, SCHEMA.columns, strict=True)):
        copied = decode_column(text, column.form, column.type)
        for side in (
            inserts.column(f"n{position}"),
            deletes.column(f"o{position}"),
            updates.column(f"o{position}"),
        ):
            assert plain(side) == plain(copied.array), column.name
        listed = [
            row for row in found.bad.to_pylist() if row["column"] == position and row["_time"] < len(VALUES)
        ]
        assert [row["_time"] for row in listed] == copied.bad.tolist(), column.name


def test_bad_values_are_those_that_the_lake_cannot_hold(connection: Connection) -> None:
    _fill(connection)
    texts = _copied(connection, "SELECT * FROM public.t WHERE id = 3", len(SCHEMA.columns))
    bad = [
        column.name
        for text, column in zip(texts, SCHEMA.columns, strict=True)
        if len(decode_column(text, column.form, column.type).bad)
    ]
    assert bad == ["n", "day", "ts", "tz", "ns", "ss", "ms"]
