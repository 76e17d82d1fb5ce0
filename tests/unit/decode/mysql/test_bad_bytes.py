"""Bytes of a spool or of a copy that cannot be read: each has its code, and says what to do."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.errors import Definite
from headrace.core.names import TableName
from headrace.decode.mysql import forms, framing
from headrace.decode.mysql.framing import HEADER
from headrace.decode.mysql.result_rows import columns_of
from headrace.decode.mysql.table_map import BLOB_COMPRESSED
from headrace.decode.text import TextColumn
from headrace.sources.contract.decoder import TableChanges, TableFailure, TableFilter
from headrace.sources.mysql.catalog.table_def import table_number
from headrace.sources.mysql.stream import frames
from tests.laws.decode.mysql.events import SCHEMA, begin, frame, image, told
from tests.laws.decode.mysql.test_result_rows import block
from tests.laws.sources.mysql.test_decoder import BETWEEN, DECODER

ROWS = (7).to_bytes(6, "little") + bytes(2)
ROW = image((None, b"x", None))


def refused(data: bytes) -> Definite:
    with pytest.raises(Definite) as caught:
        framing.scan(np.frombuffer(data, np.uint8))
    return caught.value


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (struct.pack("<IBIIIH", 0, 23, 1, HEADER - 1, 0, 0), "its size is impossible"),
        (frame(16, bytes(8)), "its kind is none that is stored"),
        (frame(23, bytes(7)), "it is too short for its kind"),
        (frame(framing.BEGIN, bytes(17)), "it is too short for its kind"),
        (frame(23, ROWS + b"\x03\x07" + ROW), "rows without their table map"),
    ],
)
def test_a_frame_that_cannot_be_one_stops_the_source(data: bytes, detail: str) -> None:
    error = refused(begin(1) + data)
    assert (error.code, "no mark is made" in error.hint) == ("MY_BAD_FRAME", True)
    assert detail in (error.detail or "")


def test_a_name_that_runs_past_its_frame_stops_the_source() -> None:
    whole = frames.truncate("d", "t")
    data = np.frombuffer(begin(1) + frame(framing.TRUNCATE, whole[:-1]), np.uint8)
    with pytest.raises(Definite) as caught:
        DECODER.select(data, BETWEEN, {1})
    assert caught.value.code == "MY_BAD_FRAME"


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"\x03\x07" + ROW[:-1], "its rows do not end where the event ends"),
        (b"\x03\x07" + ROW + b"\x00", "its rows do not end where the event ends"),
        (b"\x02\x03" + ROW, "its number of columns is not that of its table map"),
    ],
)
def test_rows_that_do_not_fit_their_map_stop_their_table_behind_what_came_before(
    body: bytes, detail: str
) -> None:
    name, other = TableName("d", "t"), TableName("d", "u")
    wanted = {table_number(each): TableFilter(each, SCHEMA, 0) for each in (name, other)}
    sound = frame(23, ROWS + b"\x03\x07" + ROW)
    parts = [begin(1), told(7), sound, begin(2), told(7, b"u"), sound, told(7), frame(23, ROWS + body)]
    first, failure, second = _read(parts[:3], wanted), _read(parts[3:], wanted), _read(parts[3:6], wanted)
    assert [type(each) for each in first] == [TableChanges]
    [broken] = [each for each in failure if isinstance(each, TableFailure)]
    assert broken.table == table_number(name)
    assert broken.failure.code == "MY_BAD_ROW"
    assert f"{name}, in the transaction of _time 16" in (broken.failure.detail or "")
    assert detail in (broken.failure.detail or "")
    assert "resync" in broken.failure.hint
    assert [each.table for each in failure if isinstance(each, TableChanges)] == [second[0].table]


def _read(parts: list[bytes], wanted: dict[int, TableFilter]) -> list[TableChanges | TableFailure]:
    return list(DECODER.decode(np.frombuffer(b"".join(parts), np.uint8), BETWEEN, wanted))


@pytest.mark.parametrize(
    ("payload", "detail"),
    [
        (b"\x01a", "it ends within a value"),
        (b"\x01a\x05b", "it ends within a value"),
        (b"\x01a\x01b\x00", "more values than columns"),
        (b"\x01a\xff", "a length in it is none"),
    ],
)
def test_a_row_of_a_copy_that_has_other_columns_is_refused(payload: bytes, detail: str) -> None:
    assert len(columns_of(block([b"\x01a\x01b"]), 2)) == 2
    with pytest.raises(Definite) as caught:
        columns_of(block([b"\x01a\x01b", payload]), 2)
    assert caught.value.code == "MY_BAD_RESULT_ROW"
    assert detail in (caught.value.detail or "")
    assert "row 1 " in (caught.value.detail or "")
    assert "headrace tables resync" in caught.value.hint


def deflated(value: bytes, said: int) -> bytes:
    """A value as MariaDB stores it, that says a length."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    size = max(1, (said.bit_length() + 7) // 8)
    return bytes([8 << 4 | size]) + said.to_bytes(size, "big") + packer.compress(value) + packer.flush()


@pytest.mark.parametrize(
    "value",
    [
        deflated(b"x" * 500, 499),
        deflated(b"x" * 500, 501),
        deflated(b"x" * 500, (1 << 56) - 1),  # nobody makes room for as much
        deflated(b"x" * 500, 500)[:-3],
        b"\x81\x05nothing of it is deflated",
        b"\x90\x05abc",
    ],
)
def test_a_compressed_value_that_cannot_be_unpacked_is_refused(value: bytes) -> None:
    column = TextColumn.of([b"\x00plain", deflated(b"x" * 500, 500), b""])
    assert [len(each) for each in forms.unpack(column).binary(pa.binary()).to_pylist()] == [5, 500, 0]
    with pytest.raises(Definite) as caught:
        forms.unpack(TextColumn.of([value]))
    assert (caught.value.code, "report it" in caught.value.hint) == ("MY_VALUE_PACKED", True)


def test_a_table_with_such_a_value_stops_and_no_other() -> None:
    name = TableName("d", "t")
    table = told(7).replace(bytes([3, 15, 252]), bytes([3, 15, BLOB_COMPRESSED]))
    sound, broken = (image((None, b"x", value)) for value in (b"\x00plain", b"\x90\x05abc"))
    wanted = {table_number(each): TableFilter(each, SCHEMA, 0) for each in (name, TableName("d", "u"))}
    other = [told(7, b"u"), frame(23, ROWS + b"\x03\x07" + ROW)]
    [good] = _read([begin(1), table, frame(23, ROWS + b"\x03\x07" + sound)], wanted)
    assert isinstance(good, TableChanges)
    found = _read([begin(1), table, frame(23, ROWS + b"\x03\x07" + broken), *other], wanted)
    [failure] = [each for each in found if isinstance(each, TableFailure)]
    assert (failure.table, failure.failure.code) == (table_number(name), "MY_VALUE_PACKED")
    assert f"{name}, in the transaction of _time 8" in (failure.failure.detail or "")
    assert len(found) == 2
