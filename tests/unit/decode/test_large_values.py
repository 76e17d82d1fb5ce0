"""Decoders by size: whatever a value of many megabytes holds, the time for it grows as its size does.

Two seconds for twenty megabytes leave a slow machine ten times what a decoder takes; one whose time grew with
the square of the size would take minutes.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.schema import Column
from headrace.decode import copydata, copyrows, digest, pgoutput, printing
from headrace.decode.mysql import charsets, forms, framing, result_rows, rows
from headrace.decode.mysql import table_map as maps
from headrace.decode.mysql.collations import CHARSETS
from headrace.decode.mysql.table_map import LayoutColumn, TableMapLayout
from headrace.decode.pgoutput import tuples
from headrace.decode.queue import composite
from headrace.decode.text import TextColumn
from headrace.decode.values import decode_column
from headrace.decode.values.forms import FORMS
from headrace.decode.values.outcome import DecodedColumn
from headrace.sources.mysql.stream.events import BinlogEvent, inner_events
from headrace.sources.mysql.types import printing as mysql_values
from tests.laws.decode import wire
from tests.laws.decode.mysql import events
from tests.laws.decode.mysql.test_json import Opaque, value

SIZE, SECONDS = 20_000_000, 2.0
Work = Callable[[], Any]


def filled(piece: bytes, last: bytes = b"") -> bytes:
    return piece * (SIZE // len(piece)) + last


# ── JSON of MySQL ───────────────────────────────────────────────────────────────────────────────────


def array(held: Any, count: int) -> bytes:
    """A tree of so many elements, all the same; a small integer lies in its entry."""
    kind, data = value(held, large=False)
    if kind in (4, 5, 6):
        entries, data = (bytes([kind]) + data.ljust(4, b"\0")) * count, b""
    else:
        heads = np.empty(count, np.dtype([("kind", "u1"), ("offset", "<u4")]))
        heads["kind"], heads["offset"] = kind, 8 + 5 * count + len(data) * np.arange(count)
        entries = heads.tobytes()
    size = 8 + 5 * count + len(data) * count
    return b"\x03" + count.to_bytes(4, "little") + size.to_bytes(4, "little") + entries + data * count


# Elements, and how many make twenty megabytes of text.
ELEMENTS: dict[str, tuple[Any, int]] = {
    "integers": (1, 6_600_000),
    "short texts": ("abc", 2_850_000),
    "doubles": (1.5e300, 2_500_000),
    "moments": (Opaque(bytes([12]) + (1 << 60).to_bytes(8, "little")), 660_000),
    "objects": ({"id": 70_000, "name": "é", "tags": [None, True, []]}, 380_000),
    "one text": ("\n" * 10_000_000, 1),
}
JSON = LayoutColumn(maps.JSON, 4)


@pytest.mark.parametrize("kind", ELEMENTS)
def test_a_document_of_mysqls_json_takes_two_seconds_at_most(kind: str) -> None:
    column = TextColumn.of([array(*ELEMENTS[kind])])
    begun = time.process_time()
    decoded = forms.decode_image(column, "json", pa.string(), JSON)
    seconds = time.process_time() - begun
    assert (len(decoded.bad), len(decoded.array[0].as_buffer()) > 19_000_000) == (0, True)
    assert seconds < SECONDS


# ── every other decoder ─────────────────────────────────────────────────────────────────────────────

LISTS = {
    "int": (b"1,", pa.int32()),
    "float": (b"0.5,", pa.float64()),
    "decimal": (b"12.50,", pa.decimal128(9, 2)),
    "bool": (b"t,", pa.bool_()),
    "text": (b'"a \\" b",NULL,', pa.string()),
    "bytea": (b'"\\\\x00ff",', pa.binary()),
    "date": (b"2016-11-04,", pa.date32()),
    "timestamp": (b'"2016-11-04 13:51:30.1",', pa.timestamp("us")),
    "timestamptz": (b'"2016-11-04 13:51:30.1+00",', pa.timestamp("us", "UTC")),
}
BLOB, PACKED = LayoutColumn(maps.BLOB, 4), LayoutColumn(maps.BLOB_COMPRESSED, 4)
VECTOR = pa.list_(pa.float32())
WIDE = {"ucs2": b"\0a", "utf16": b"\0a", "utf16le": b"a\0", "utf32": b"\0\0\0a"}
TEXT, ESCAPED = filled(b"abc \xc3\xa9"), filled(b"abc \\\\")


def _image(data: bytes, form: str, type: Any, layout: LayoutColumn = BLOB) -> Any:
    return forms.decode_image(TextColumn.of([data]), form, type, layout)


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(1, wbits=-zlib.MAX_WBITS)
    return bytes([8 << 4 | 4]) + len(data).to_bytes(4, "big") + packer.compress(data) + packer.flush()


def _of_postgresql() -> dict[str, Work]:
    found: dict[str, Work] = {
        "text": partial(decode_column, TextColumn.of([TEXT]), "text", pa.string()),
        "text that is none": partial(decode_column, TextColumn.of([TEXT + b"\xff"]), "text", pa.string()),
        "bytea": partial(decode_column, TextColumn.of([b"\\x" + filled(b"00ff")]), "bytea", pa.binary()),
    }
    for form, (piece, type) in LISTS.items():
        column = TextColumn.of([b"{" + filled(piece, piece.rstrip(b",")) + b"}"])
        found[f"array({form})"] = partial(decode_column, column, f"array({form})", pa.list_(type))
    return found


def _of_mysql() -> dict[str, Work]:
    found: dict[str, Work] = {
        "text, mysql": partial(_image, TEXT, "text", pa.string()),
        "bytes": partial(_image, TEXT, "bytes", pa.binary()),
        "vector": partial(_image, filled(bytes(4)), "vector", VECTOR),
        "compressed": partial(_image, _deflated(TEXT), "text", pa.string(), PACKED),
    }
    for form, type in (("json", pa.string()), ("bytes", pa.binary()), ("vector", VECTOR)):
        column = TextColumn.of([filled(b"abcd")])
        found[f"{form} of a result set"] = partial(forms.decode_text, column, form, type)
    for charset in charsets.NAMES:
        data = filled(WIDE.get(charset, b"abcd"))
        found[f"text({charset})"] = partial(_image, data, f"text({charset})", pa.string())
    return found


def _rows_of_mysql(row: bytes) -> None:
    data = np.frombuffer(events.begin(1) + events.told(7) + events.frame(23, row), np.uint8)
    found = framing.scan(data)
    layout = TableMapLayout("d", "t", (LayoutColumn(maps.LONG), LayoutColumn(maps.VARCHAR, 20), BLOB))
    assert rows.counts(data, found, np.flatnonzero(found.is_rows), layout).tolist() == [1]


def _compressed_transaction(packed: bytes) -> None:
    event = BinlogEvent(40, 0, 0, 0, 0, memoryview(b"\x00" + packed))
    assert sum(1 for _ in inner_events(event)) == 2


def _tuples(insert: bytes) -> None:
    data = wire.array(insert)
    messages = pgoutput.scan(data)
    assert tuples.tuples(data, messages, np.array([0]), 1).new.lengths.tolist() == [[len(TEXT)]]


def _walks() -> dict[str, Work]:
    """Large values: found among others, printed, summed."""
    quoted = TextColumn.of([b'("' + filled(b'a ""b"" \\\\') + b'")'])
    line = np.frombuffer(ESCAPED + b"\n", np.uint8)
    block = result_rows.RowBlock(
        np.frombuffer(b"\xfe" + struct.pack("<Q", len(TEXT)) + TEXT, np.uint8), np.array([0, len(TEXT) + 9])
    )
    lists = pa.array([["a b", None] * 2_000_000])
    row = bytes(6) + b"\x00\x00\x03\x07\x03" + len(TEXT).to_bytes(4, "little") + TEXT
    inserted = wire.plugin(b"I" + wire.oid() + b"N" + wire.tuple_data([TEXT]))
    transaction = pa.compress(events.frame(23, TEXT) * 2, codec="zstd", asbytes=True)
    return {
        "copied text": partial(copyrows.text_columns, line, 1),
        "copied rows": partial(copyrows.decode, line, [Column("a", pa.string(), "text", "text")]),
        "copied frames": partial(copydata.frames, np.frombuffer(wire.copy_data(TEXT), np.uint8)),
        "a composite of the queue": partial(composite.columns, quoted, 1),
        "a result set of MySQL": partial(result_rows.columns_of, block, 1),
        "an event of rows": partial(_rows_of_mysql, (7).to_bytes(6, "little") + row[6:]),
        "a compressed transaction": partial(_compressed_transaction, transaction),
        "a tuple": partial(_tuples, inserted),
        "a digest": partial(digest.digests, pa.array([TEXT])),
        "a printed list": partial(printing.print_values, lists),
        "printed bytes": partial(printing.print_values, pa.array([TEXT])),
        "printed bytes of MySQL": partial(mysql_values.print_values, pa.array([TEXT])),
        "a printed vector": partial(mysql_values.print_values, pa.array([[0.5] * 4_000_000], VECTOR)),
    }


@pytest.mark.parametrize("kind", [_of_postgresql, _of_mysql, _walks])
def test_a_value_of_twenty_megabytes_takes_two_seconds_at_most(kind: Callable[[], dict[str, Work]]) -> None:
    taken: dict[str, float] = {}
    for name, work in kind().items():
        begun = time.process_time()
        decoded = work()
        taken[name] = time.process_time() - begun
        if isinstance(decoded, DecodedColumn):
            assert (name, decoded.bad.tolist()) == (name, [0] if name == "text that is none" else [])
    assert {name: seconds for name, seconds in taken.items() if seconds > SECONDS} == {}


def test_every_form_is_among_them() -> None:
    assert set(LISTS) == set(FORMS)
    assert {*charsets.NAMES, "ascii"} == {
        each for each in CHARSETS.values() if not each.startswith(("utf8", "binary"))
    }
