"""Change batches: the shape of `core.change_batch`, holes, images and bad values."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.change_batch import BAD, Image, Op, change_schema
from headrace.core.errors import Definite
from headrace.core.schema import Column, TableSchema
from headrace.decode import pgoutput
from headrace.decode.pgoutput import batch
from tests.laws.decode.wire import array, oid, plugin, tuple_data

UTC = pa.timestamp("us", tz="UTC")
SCHEMA = TableSchema(
    (
        Column("id", pa.int64(), "int", "bigint", nullable=False),
        Column("body", pa.string(), "text", "text"),
        Column("at", UTC, "timestamptz", "timestamptz"),
    ),
    ("id",),
    full=False,
)
AT = b"2026-11-20 00:00:00+00"
ROW = [b"1", b"one", AT]
Row = list[bytes | str | None]


def insert(new: Row) -> bytes:
    return b"I" + oid() + b"N" + tuple_data(new)


def update(new: Row, old: Row | None = None, letter: bytes = b"O") -> bytes:
    return b"U" + oid() + (letter + tuple_data(old) if old else b"") + b"N" + tuple_data(new)


def delete(old: Row, letter: bytes = b"O") -> bytes:
    return b"D" + oid() + letter + tuple_data(old)


def changes(*messages: bytes, positions: tuple[int, ...] = (0, 1, 2)) -> batch.PgoutputChanges:
    data = array(b"".join(map(plugin, messages)))
    count = len(messages)
    meta = batch.PgoutputChangeMeta(
        np.arange(100, 100 + count), np.arange(count), np.full(count, 900), np.full(count, 5)
    )
    return batch.changes(data, pgoutput.scan(data), np.array(positions), SCHEMA, meta)


def column(found: batch.PgoutputChanges, name: str) -> list[Any]:
    return list(found.batch.column(name).to_pylist())


def test_each_kind_of_change_fills_its_sides() -> None:
    found = changes(insert([*ROW]), update([b"1", b"uno", AT], [*ROW]), delete([b"1", b"uno", AT]))
    assert column(found, "_op") == [Op.INSERT, Op.UPDATE, Op.DELETE]
    assert column(found, "_image") == [Image.NONE, Image.FULL, Image.FULL]
    assert column(found, "n1") == ["one", "uno", None]
    assert column(found, "o1") == [None, "one", "uno"]
    assert column(found, "n0") == [1, 1, None]


def test_a_batch_has_the_shape_of_the_contract() -> None:
    found = changes(insert([*ROW]))
    assert found.batch.schema == change_schema(SCHEMA)
    assert found.bad.schema == BAD
    assert [column(found, name)[0] for name in ("_time", "_ordinal", "_transaction")] == [100, 0, 900]
    found.batch.validate(full=True)


def test_no_changes_are_an_empty_batch() -> None:
    found = changes()
    assert found.batch.num_rows == 0
    assert found.batch.schema == change_schema(SCHEMA)


def test_a_key_image_holds_the_key_and_means_nothing_else() -> None:
    found = changes(update([b"2", b"one", AT], [b"1", None, None], b"K"), delete([b"2", None, None], b"K"))
    assert column(found, "_image") == [Image.KEY, Image.KEY]
    assert column(found, "o0") == [1, 2]
    assert column(found, "o1") == [None, None]


def test_an_update_without_an_old_row_has_no_image() -> None:
    assert column(changes(update([*ROW])), "_image") == [Image.NONE]


def test_an_unchanged_value_is_a_hole_and_not_a_null() -> None:
    found = changes(update([b"1", "u", AT]), update([b"1", None, AT]), insert([*ROW]))
    assert found.batch.schema == change_schema(SCHEMA, (1,))
    assert column(found, "n1") == [None, None, "one"]
    assert column(found, "u1") == [True, False, False]


def test_a_bad_value_is_null_and_listed_with_its_text() -> None:
    found = changes(insert([*ROW]), update([b"1", b"one", b"infinity"], [b"1", b"one", b"-infinity"]))
    assert column(found, "n2")[1] is None
    assert column(found, "o2")[1] is None
    assert found.bad.to_pylist() == [
        {"_time": 101, "_ordinal": 1, "side": "n", "column": 2, "raw": "infinity"},
        {"_time": 101, "_ordinal": 1, "side": "o", "column": 2, "raw": "-infinity"},
    ]


def test_columns_are_put_where_the_schema_has_them() -> None:
    found = changes(insert([AT, b"not mirrored", b"7"]), positions=(2, -1, 0))
    assert column(found, "n0") == [7]
    assert column(found, "n1") == [None]
    assert column(found, "n2")[0].isoformat() == "2026-11-20T00:00:00+00:00"


def _text(value: bytes, length: int) -> bytes:
    return b"t" + struct.pack(">I", length) + value


THREE = b"\0\3"
BROKEN = {
    "too few values": insert([b"1", b"secret"]),
    "too many values": insert([*ROW, b"secret"]),
    "a text past the end": b"I" + oid() + b"N" + THREE + b"nn" + _text(b"secret", 7),
    "a negative length": b"I" + oid() + b"N" + THREE + b"nn" + _text(b"secret", 2**32 - 1),
    "a length that is cut off": b"I" + oid() + b"N" + THREE + b"nnt\0\0",
    "a value that is missing": b"I" + oid() + b"N" + THREE + b"nn",
    "bytes behind the last value": insert([*ROW]) + b"secret",
    "an unknown kind of value": b"I" + oid() + b"N" + THREE + b"nnx",
    "a binary value": b"I" + oid() + b"N" + THREE + b"nnb\0\0\0\0",
    "an unchanged value in an old row": delete([b"1", "u", None]),
    "a delete without an old row": b"D" + insert([*ROW])[1:],
    "an insert with an old row": b"I" + delete([*ROW])[1:],
    "an update without a new row": b"U" + delete([*ROW])[1:],
    "an unknown row": b"U" + oid() + b"X" + tuple_data([*ROW]),
}


@pytest.mark.parametrize("message", BROKEN.values(), ids=BROKEN.keys())
def test_a_tuple_that_does_not_fit_is_a_definite_error_without_its_values(message: bytes) -> None:
    with pytest.raises(Definite) as caught:
        changes(insert([*ROW]), message)
    assert caught.value.code == "PG_BAD_TUPLE"
    assert "secret" not in str(caught.value)


def test_a_message_that_is_no_change_is_not_read_as_one() -> None:
    with pytest.raises(Definite) as caught:
        changes(b"B" + bytes(20))
    assert caught.value.code == "PG_BAD_TUPLE"
