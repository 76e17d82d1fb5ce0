"""The forms of MySQL and MariaDB: how a value becomes one of the lake, by name and in both ways.

A form is part of a table's record in the lake (`core.schema.Column.form`), so a name, once given, keeps its
meaning. `sources.mysql.catalog.types` chooses form and Arrow type together.

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
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from headrace.core.errors import Misconfigured
from headrace.decode.mysql import charsets, vectors
from headrace.decode.text import TextColumn
from headrace.decode.values import decimals, floats, integers, moments, strings
from headrace.decode.values.outcome import Decoded

TextDecoder = Callable[[TextColumn, pa.DataType], Decoded]

# What a form may have in parentheses.
_WITH_CHARSET = frozenset(("text", "enum", "set"))
NO_ROWS = np.empty(0, np.int64)


def charset_of(form: str) -> tuple[str, str | None]:
    """A form's name, and the charset of its texts if that is not UTF-8."""
    name, _, rest = form.partition("(")
    return (name, rest[:-1]) if rest.endswith(")") and name in _WITH_CHARSET else (form, None)


def decode_text(column: TextColumn, form: str, type: pa.DataType) -> Decoded:
    """Decode a column of a result set."""
    name, charset = charset_of(form)
    if charset is not None:
        return charsets.decode_text(column, charset)
    if name not in _TEXT:
        raise unknown(form)
    return _TEXT[name](column, type)


def unknown(form: str) -> Misconfigured:
    """The error of a form that this version does not know."""
    return Misconfigured(
        "FORM_UNKNOWN",
        f'a column of the lake has the form "{form}", which this version does not know',
        hint="use the version of headrace that wrote the lake, or a newer one",
    )


def _bytes(column: TextColumn, type: pa.DataType) -> Decoded:
    return Decoded(column.binary(type), NO_ROWS)


def _bits(column: TextColumn, type: pa.DataType) -> Decoded:
    if pa.types.is_decimal(type):
        return decimals.decode(column, type)
    if not pa.types.is_boolean(type):
        return integers.decode(column, type)
    number = integers.decode(column, pa.int16())
    return Decoded(number.array.cast(type), number.bad)


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
    "vector": vectors.decode,
    "uuid": strings.decode,
    "inet4": strings.decode,
    "inet6": strings.decode,
}
