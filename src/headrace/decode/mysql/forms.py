"""The forms of MySQL and MariaDB: how a value becomes one of the lake, from a result set and from a row
event.

A form is part of a table's record in the lake (`core.schema.Column.form`), so a name never changes its
meaning. `sources.mysql.types` chooses the form and the Arrow type together.

    form           Arrow type                   text of a result set        bytes of a row event
    int            int8 … int64                 -42                         little endian, 1 to 8
    decimal        decimal128(p, s)             -12.50                      nine digits in four bytes; bigint
    digits         string                       decimal(65,30) and so on    as decimal
    float          float32, float64             1.5e-7, of a double         IEEE
    bit            bool, int16 …, decimal       5                           big endian
    year           int16                        0000  2018                  years since 1900, or 0
    date           date32                       2016-11-04                  day, month and year in three bytes
    timestamp      timestamp(us), and UTC       2016-11-04 13:51:30.1       packed; of UTC seconds since 1970
    time           string                       -838:59:59.000000           packed
    text(charset)  string                       the column's bytes          the same
    enum(charset)  string                       the label's bytes           its number
    set(charset)   string                       the labels' bytes           their bits
    json           string                       as the server prints it     its tree (`json`)
    bytes          binary                       anything                    the same, a fixed width unpadded
    vector         list<float32>                four bytes each             the same
    uuid, inet4, inet6    string                as the server prints them   16, 4, 16 bytes
    hashed(form)   string                       none: it is read in clear   32 hexadecimal digits

VECTOR: numbers of four bytes, as they lie in the column; any other length is bad.

MariaDB's COMPRESSED columns: a row event holds each value as it is stored.

89 64 4b 4c ...      8 deflate, 9: its length in one byte (the low three bits); then deflate's bytes
00 61 62 63          as it is; no byte at all is the empty value

ENUM and SET of a row event: a number, or bits, and the labels that the table map names.

    ENUM    its label's number from 1, little endian; 0 is the error value, which prints as the empty text
    SET     a bit for each label, little endian

Labels come in the column's charset and are decoded once for each layout. A number that has no label is not a
value of the column, so it is bad.

A row event holds MariaDB's uuid, inet4 and inet6 as a BINARY of a fixed width. The binlog leaves out the
zeros at the end of such a value; they are put back first.

    uuid     16 bytes    01020304-0506-0708-090a-0b0c0d0e0f10
    inet4     4 bytes    1.2.3.0
    inet6    16 bytes    2001:db8::1   ::ffff:1.2.3.4       without the longest run of zeros
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from headrace.core.errors import Definite, Misconfigured
from headrace.core.hashing import is_hashed_form
from headrace.decode.kernel import Bytes, Ints, Lengths, input_array, kernel, output_array
from headrace.decode.mysql import charsets, json_tree, numbers, times
from headrace.decode.mysql.numbers import read_unsigned
from headrace.decode.mysql.table_map import (
    BLOB_COMPRESSED,
    DATE,
    DATETIME2,
    ENUM,
    SET,
    STRING,
    TIMESTAMP2,
    VARCHAR_COMPRESSED,
    LayoutColumn,
)
from headrace.decode.text import TEXT, TextColumn, validity
from headrace.decode.values import decimals, floats, integers, moments, raw, strings
from headrace.decode.values.outcome import DecodedColumn


def enums(column: TextColumn, layout: LayoutColumn, charset: str | None) -> DecodedColumn:
    """Form `enum`."""
    numbers = read_unsigned(column, layout.width)
    labels = pa.array(["", *_labels(layout, charset)], pa.string())
    known = (column.kinds == TEXT) & (numbers < len(labels))
    rows = pa.array(np.where(known, numbers, 0).astype(np.int64), mask=~known)
    return _label_column(labels.take(rows), column)


def sets(column: TextColumn, layout: LayoutColumn, charset: str | None) -> DecodedColumn:
    """Form `set`."""
    bits, numbers = np.unique(read_unsigned(column, layout.width), return_inverse=True)
    labels = _labels(layout, charset)
    texts = pa.array([_set(int(each), labels) for each in bits], pa.string())
    there = column.kinds == TEXT
    return _label_column(texts.take(pa.array(numbers.astype(np.int64), mask=~there)), column)


def number_text(value: bytes, digits: int) -> str:
    """The text of a number that has no label."""
    return str(int.from_bytes(value, "little"))


def _labels(layout: LayoutColumn, charset: str | None) -> list[str | None]:
    return [charsets.decode_one(label, charset) for label in layout.labels]


def _set(bits: int, labels: list[str | None]) -> str | None:
    if bits >> len(labels):
        return None
    chosen = [label for i, label in enumerate(labels) if bits >> i & 1]
    return None if None in chosen else ",".join(map(str, chosen))


def _label_column(array: pa.Array, column: TextColumn) -> DecodedColumn:
    missing: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    bad: Ints = np.flatnonzero(missing & (column.kinds == TEXT))
    return DecodedColumn(array, bad)


_PLAIN, _DEFLATE = 0, 8


def unpack(column: TextColumn) -> TextColumn:
    """The values as they were written."""
    values = column.binary(pa.binary()).to_pylist()
    return TextColumn.of([None if value is None else _one(value) for value in values])


def _one(value: bytes) -> bytes:
    if not value:
        return b""
    method, size = value[0] >> 4, value[0] & 7
    if method == _PLAIN:
        return value[1:]
    if method == _DEFLATE:
        length = int.from_bytes(value[1 : 1 + size], "big")
        try:
            # No more than the stated length: damaged bytes could unpack to any size.
            plain = zlib.decompressobj(-zlib.MAX_WBITS).decompress(value[1 + size :], length + 1)
        except zlib.error:
            plain = None
        if plain is not None and len(plain) == length:
            return plain
    raise Definite(
        "MY_VALUE_PACKED",
        "a value of a COMPRESSED column can't be unpacked",
        hint="report it with the server's version; ALTER TABLE ... MODIFY the column without COMPRESSED",
    )


_WIDTH = 4


def decode_vector(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Form `vector`, from a result set and from a row event."""
    odd = (column.kinds == TEXT) & (column.lengths % _WIDTH != 0)
    bad = np.flatnonzero(odd)
    good = column.without(bad) if len(bad) else column
    joined = good.binary(pa.binary())
    present = good.kinds == TEXT
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(np.where(present, column.lengths // _WIDTH, 0), out=offsets[1:])
    numbers = pa.Array.from_buffers(pa.float32(), int(offsets[-1]), [None, joined.buffers()[2]])
    buffers = [validity(present), pa.py_buffer(offsets)]
    return DecodedColumn(pa.Array.from_buffers(type, len(column), buffers, children=[numbers]), bad)


TextDecoder = Callable[[TextColumn, pa.DataType], DecodedColumn]

# Forms that may have a charset in parentheses.
_WITH_CHARSET = frozenset(("text", "enum", "set"))
NO_ROWS = np.empty(0, np.int64)


def charset_of(form: str) -> tuple[str, str | None]:
    """A form's name, and the charset of its texts if that is not UTF-8."""
    name, _, rest = form.partition("(")
    return (name, rest[:-1]) if rest.endswith(")") and name in _WITH_CHARSET else (form, None)


def decode_text(column: TextColumn, form: str, type: pa.DataType) -> DecodedColumn:
    """Decode a column of a result set."""
    if is_hashed_form(form):
        return strings.decode_hash(column)
    name, charset = charset_of(form)
    if charset is not None:
        return charsets.decode_text(column, charset)
    if name not in _TEXT:
        raise unknown_error(form)
    return _TEXT[name](column, type)


def unknown_error(form: str) -> Misconfigured:
    """The error for a form that this version does not know."""
    return Misconfigured(
        "FORM_UNKNOWN",
        f'a column of the lake has the form "{form}", which this version does not know',
        hint="use the version of headrace that wrote the lake, or a newer one",
    )


def _bytes(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    return DecodedColumn(column.binary(type), NO_ROWS)


def _bits(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    if pa.types.is_decimal(type):
        return decimals.decode(column, type)
    if not pa.types.is_boolean(type):
        return integers.decode(column, type)
    number = integers.decode(column, pa.int16())
    return DecodedColumn(number.array.cast(type), number.bad)


_TEXT: Mapping[str, TextDecoder] = {
    "int": integers.decode,
    "decimal": decimals.decode,
    "digits": strings.decode,
    "float": floats.decode,
    "bit": _bits,
    "year": integers.decode,
    "date": moments.decode_date,
    "timestamp": moments.decode_timestamp,
    "time": strings.decode,
    "text": strings.decode,
    "enum": strings.decode,
    "set": strings.decode,
    "json": strings.decode,
    "bytes": _bytes,
    "vector": decode_vector,
    "uuid": strings.decode,
    "inet4": strings.decode,
    "inet6": strings.decode,
}


# ── the bytes of a row event ────────────────────────────────────────────────────────────────────────

ImageDecoder = Callable[[TextColumn, LayoutColumn, pa.DataType], DecodedColumn]
BadText = Callable[[bytes, int], str]


def decode_image(column: TextColumn, form: str, type: pa.DataType, layout: LayoutColumn) -> DecodedColumn:
    """Decode a column of row images whose layout fits the form."""
    if is_hashed_form(form):
        return strings.decode_hash(column)
    name, charset = charset_of(form)
    if name in ("enum", "set"):
        return (enums if name == "enum" else sets)(column, layout, charset)
    column = plain_bytes(column, layout)
    if charset is not None:
        return charsets.decode_text(column, charset)
    if name in _IMAGES:
        return _IMAGES[name](column, layout, type)
    if name in _ALIKE:
        return _TEXT[name](column, type)
    raise unknown_error(form)


def plain_bytes(column: TextColumn, layout: LayoutColumn) -> TextColumn:
    """The values as they were before the server compressed or shortened them to save space."""
    if layout.type in (BLOB_COMPRESSED, VARCHAR_COMPRESSED):
        return unpack(column)
    return column


def bad_texts(column: TextColumn, layout: LayoutColumn, rows: Ints) -> pa.Array:
    """The texts of values that the lake cannot hold, as the server prints them."""
    show = _BAD_TEXTS.get(layout.type)
    if show is None:
        return raw(plain_bytes(column, layout), rows)
    values = column.take(rows).binary(pa.binary()).to_pylist()
    return pa.array([show(value, layout.first) for value in values], pa.string())


def _binary(column: TextColumn, layout: LayoutColumn, type: pa.DataType) -> DecodedColumn:
    if layout.type == STRING:
        column = pad(column, layout.first)
    return _bytes(column, type)


def _timestamp(column: TextColumn, layout: LayoutColumn, type: pa.DataType) -> DecodedColumn:
    decoder = times.timestamps if layout.type == TIMESTAMP2 else times.datetimes
    return decoder(column, layout, type)


_IMAGES: Mapping[str, ImageDecoder] = {
    "int": numbers.integers,
    "decimal": numbers.decimals,
    "digits": numbers.digits,
    "float": numbers.floats,
    "bit": numbers.bits,
    "year": numbers.years,
    "date": times.dates,
    "timestamp": _timestamp,
    "time": times.times,
    "json": lambda column, layout, type: json_tree.decode(column, type),
    "bytes": _binary,
    "uuid": lambda column, layout, type: uuids(column),
    "inet4": lambda column, layout, type: inet4s(column),
    "inet6": lambda column, layout, type: inet6s(column),
}
# Forms whose values look the same in a row event and in a result set.
_ALIKE = frozenset(("text", "vector"))
_BAD_TEXTS: Mapping[int, BadText] = {
    DATE: times.date_text,
    DATETIME2: times.datetime_text,
    TIMESTAMP2: times.timestamp_text,
    ENUM: number_text,
    SET: number_text,
}


# --- BINARY of a fixed width, uuid, inet4 and inet6 -----------------------------------------------


_UUID_BYTES, _INET4_BYTES, _INET6_BYTES = 16, 4, 16
_DASHES = (8, 13, 18, 23)
_UUID_TEXT = 36
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_MAPPED, _COMPATIBLE = b"\0" * 10 + b"\xff\xff", b"\0" * 12
_NO_ROWS = np.empty(0, np.int64)


def pad(column: TextColumn, width: int) -> TextColumn:
    """The values with the zeros that the binlog left out."""
    block = np.zeros((len(column), width), np.uint8)
    _pad(column.kinds, column.starts, column.lengths, column.data, block)
    starts = np.arange(len(column), dtype=np.int64) * width
    return TextColumn(column.kinds, starts, np.full(len(column), width, np.int32), block.reshape(-1))


def uuids(column: TextColumn) -> DecodedColumn:
    """Form `uuid`."""
    block = pad(column, _UUID_BYTES).data.reshape(-1, _UUID_BYTES)
    letters = np.full((len(column), _UUID_TEXT), ord("-"), np.uint8)
    places = [i for i in range(_UUID_TEXT) if i not in _DASHES]
    letters[:, places[::2]] = _HEX[block >> 4]
    letters[:, places[1::2]] = _HEX[block & 15]
    starts = np.arange(len(column), dtype=np.int64) * _UUID_TEXT
    lengths = np.full(len(column), _UUID_TEXT, np.int32)
    return DecodedColumn(
        TextColumn(column.kinds, starts, lengths, letters.reshape(-1)).binary(pa.string()), _NO_ROWS
    )


def inet4s(column: TextColumn) -> DecodedColumn:
    """Form `inet4`, one value at a time."""
    values = pad(column, _INET4_BYTES).binary(pa.binary()).to_pylist()
    return DecodedColumn(pa.array([None if v is None else inet4(v) for v in values], pa.string()), _NO_ROWS)


def inet6s(column: TextColumn) -> DecodedColumn:
    """Form `inet6`, one value at a time."""
    values = pad(column, _INET6_BYTES).binary(pa.binary()).to_pylist()
    return DecodedColumn(pa.array([None if v is None else inet6(v) for v in values], pa.string()), _NO_ROWS)


def inet4(value: bytes) -> str:
    """The text of an address of four bytes."""
    return ".".join(map(str, value))


def inet6(value: bytes) -> str:
    """The text of an address of sixteen bytes, as MariaDB prints it."""
    if value.startswith(_MAPPED):
        return "::ffff:" + inet4(value[12:])
    if value.startswith(_COMPATIBLE) and value[12:14] != b"\0\0":
        return "::" + inet4(value[12:])
    groups = [f"{value[i] << 8 | value[i + 1]:x}" for i in range(0, _INET6_BYTES, 2)]
    runs = [match.span() for match in re.finditer("0+", "".join("0" if g == "0" else "1" for g in groups))]
    start, stop = max(runs, key=lambda run: (run[1] - run[0], -run[0]), default=(0, 0))
    if stop - start < 2:
        return ":".join(groups)
    return ":".join(groups[:start]) + "::" + ":".join(groups[stop:])


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    output_array(types.uint8, 2),
)
def _pad(kinds: Bytes, starts: Ints, lengths: Lengths, data: Bytes, block: Bytes) -> None:
    width = block.shape[1]
    for i in range(len(kinds)):
        if kinds[i] == TEXT:
            for j in range(min(width, lengths[i])):
                block[i, j] = data[starts[i] + j]
