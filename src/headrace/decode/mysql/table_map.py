"""TABLE_MAP events: which table a row event belongs to, and how its rows are laid out.

    table id 6 │ flags 2 │ database │ table │ n │ n types │ metadata │ null bits │ fields: type, length, ...

The server writes one before the rows of every statement, so a decoder reads each distinct one once. With
`binlog_row_metadata = FULL` the fields at the end hold signedness, charsets, names, labels and the primary
key. An event without names is of no use: `TableMapLayout.is_full` tells. A length that runs past the end of
its event is a definite error: a misread layout would put values into the wrong columns.

MySQL and MariaDB count the columns that have a charset differently: to MariaDB a geometry has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.core.errors import Definite
from headrace.core.hashing import DIGITS
from headrace.decode.mysql.collations import BINARY

# The numbers of types in a binlog.
TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24 = 1, 2, 3, 4, 5, 8, 9
DATE, YEAR, NEWDATE, VARCHAR, BIT = 10, 13, 14, 15, 16
TIMESTAMP2, DATETIME2, TIME2 = 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141  # MariaDB's
VECTOR, JSON, DECIMAL, ENUM, SET = 242, 245, 246, 247, 248
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, VAR_STRING, STRING, GEOMETRY = 249, 250, 251, 252, 253, 254, 255

_NUMERIC = frozenset((TINY, SHORT, INT24, LONG, LONGLONG, FLOAT, DOUBLE, DECIMAL, YEAR))
_CHARACTER = frozenset(
    (
        *(STRING, VAR_STRING, VARCHAR, VARCHAR_COMPRESSED, VECTOR),
        *(BLOB, TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB_COMPRESSED),
    )
)
_ONE_BYTE = frozenset(
    (
        *(FLOAT, DOUBLE, TIMESTAMP2, DATETIME2, TIME2, BLOB_COMPRESSED, VECTOR, JSON),
        *(TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, GEOMETRY),
    )
)
_TWO_BYTES = frozenset((VARCHAR, BIT, VARCHAR_COMPRESSED, DECIMAL, ENUM, SET, VAR_STRING, STRING))
_PLAIN_WIDTHS = {
    TINY: 1,
    SHORT: 2,
    INT24: 3,
    LONG: 4,
    LONGLONG: 8,
    FLOAT: 4,
    DOUBLE: 8,
    DATE: 3,
    NEWDATE: 3,
    YEAR: 1,
}
_FRACTION_BASE = {TIMESTAMP2: 4, DATETIME2: 5, TIME2: 3}
# Types whose values have their length before them.
_WITH_LENGTH = frozenset((TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, BLOB_COMPRESSED, VECTOR, JSON, GEOMETRY))
_MOST_DIGITS, _MOST_DECIMALS, _MOST_OF_SECOND, _MOST_BITS = 65, 38, 6, 64
# How many bytes hold the digits of a decimal that do not fill a group of nine.
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)

_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _NAMES = 1, 2, 3, 4
_SET_LABELS, _ENUM_LABELS, _GEOMETRY, _KEY, _PREFIX_KEY = 5, 6, 7, 8, 9
_DEFAULT_LABEL_CHARSET, _LABEL_CHARSET, _VISIBILITY, _DIMENSIONS = 10, 11, 12, 13
_HASHED = 0xFB  # our own field: the columns that hold hashes in the spool


@dataclass(frozen=True, slots=True)
class LayoutColumn:
    """A column as a table map describes it. `first` and `second` are its metadata, by its type:

    decimal: all digits, and those after the point; bit: its bits; datetime2 and the like: the digits of a
    second's fraction; string, varchar: the most bytes; enum, set: its bytes; blob and the like: how many
    bytes hold the length.
    """

    type: int
    first: int = 0
    second: int = 0
    name: str | None = None
    is_unsigned: bool = False
    collation: int = BINARY
    labels: tuple[bytes, ...] = ()
    clear: LayoutColumn | None = None  # of a column with hashes: as the server describes it

    @property
    def width(self) -> int:
        """The number of bytes of a value. If its length stands before it: minus the length's bytes."""
        kind = self.type
        if kind in _PLAIN_WIDTHS:
            return _PLAIN_WIDTHS[kind]
        if kind in _FRACTION_BASE:
            return _FRACTION_BASE[kind] + (self.first + 1) // 2
        if kind == DECIMAL:
            return decimal_width(self.first, self.second)
        if kind == BIT:
            return (self.first + 7) // 8
        if kind in (ENUM, SET):
            return self.first
        if kind in (STRING, VAR_STRING, VARCHAR, VARCHAR_COMPRESSED):
            return -1 if self.first < 256 else -2
        return -self.first


@dataclass(frozen=True, slots=True)
class TableMapLayout:
    """The layout of a table's rows, from its table map."""

    database: str
    table: str
    columns: tuple[LayoutColumn, ...]
    key: tuple[int, ...] = ()  # the primary key, by column
    is_full: bool = False  # whether the map names its columns


def decimal_width(precision: int, scale: int) -> int:
    """The number of bytes of a decimal."""
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


class _Reader:
    """A cursor over one event."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise _malformed_error()
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def length(self) -> int:
        first = self.number(1)
        if first == 0xFB or first == 0xFF:
            raise _malformed_error()
        return first if first < 0xFB else self.number({0xFC: 2, 0xFD: 3, 0xFE: 8}[first])

    def text(self) -> bytes:
        return self.take(self.length())

    def lengths(self) -> Iterator[int]:
        while self:
            yield self.length()


def _malformed_error() -> Definite:
    return Definite(
        "MY_BAD_TABLE_MAP",
        "a table map of the binlog can't be read",
        hint="report it with the server's version; headrace tables resync copies the table anew",
    )


def names(body: bytes) -> tuple[str, str]:
    """The names of the database and of the table in the body of a table map."""
    reader = _Reader(body)
    reader.take(8)
    return _names(reader)


def layout(body: bytes, *, mariadb: bool) -> TableMapLayout:
    """Read the body of a table map."""
    reader = _Reader(body)
    reader.take(8)
    database, table = _names(reader)
    kinds = reader.take(reader.length())
    metadata = _Reader(reader.text())
    columns = [_column(kind, metadata) for kind in kinds]
    if not columns or not all(map(_is_possible, columns)):
        raise _malformed_error()
    reader.take((len(columns) + 7) // 8)
    fields: dict[int, bytes] = {}
    while reader:
        kind = reader.number(1)
        fields[kind] = reader.text()
    return TableMapLayout(
        database,
        table,
        tuple(_describe(columns, fields, mariadb)),
        _key(fields),
        _NAMES in fields,
    )


def _names(reader: _Reader) -> tuple[str, str]:
    found = []
    for _ in range(2):
        found.append(reader.text().decode("utf-8", "surrogateescape"))
        reader.take(1)
    return found[0], found[1]


def _column(kind: int, metadata: _Reader) -> LayoutColumn:
    if kind in _ONE_BYTE:
        return LayoutColumn(kind, metadata.number(1))
    if kind not in _TWO_BYTES:
        if kind not in _PLAIN_WIDTHS:
            raise _unknown_error(kind)
        return LayoutColumn(kind)
    low, high = metadata.take(2)
    if kind == DECIMAL:
        return LayoutColumn(kind, low, high)
    if kind == BIT:
        return LayoutColumn(kind, low + 8 * high)
    if kind != STRING:
        return LayoutColumn(kind, low + 256 * high)
    # The type of a string stands before its length. It also holds two bits of the length, reversed.
    if low & 0x30 == 0x30:
        return LayoutColumn(low, high)
    return LayoutColumn(low | 0x30, high | (((low & 0x30) ^ 0x30) << 4))


def _is_possible(column: LayoutColumn) -> bool:
    """Tell whether a column may have this metadata, from which its width follows."""
    kind, first, second = column.type, column.first, column.second
    if kind in _WITH_LENGTH:
        return 1 <= first <= 4
    if kind in _FRACTION_BASE:
        return first <= _MOST_OF_SECOND
    if kind == DECIMAL:
        return 1 <= first <= _MOST_DIGITS and second <= min(first, _MOST_DECIMALS)
    if kind == BIT:
        return 1 <= first <= _MOST_BITS
    if kind in (ENUM, SET):
        return first in (1, 2, 3, 4, 8)
    return True


def _unknown_error(kind: int) -> Definite:
    return Definite(
        "MY_UNKNOWN_COLUMN_TYPE",
        "a table map of the binlog has a column of a type that this version does not know",
        detail=f"type {kind}; on MariaDB 7, 11 and 12 are times in the format from before MySQL 5.6",
        hint="ALTER TABLE ... FORCE converts such old times; else upgrade headrace",
    )


def _describe(
    columns: Sequence[LayoutColumn], fields: dict[int, bytes], mariadb: bool
) -> Iterator[LayoutColumn]:
    """The columns, with what the fields at the end say of them."""
    described = list(columns)
    numeric = [i for i, column in enumerate(columns) if column.type in _NUMERIC]
    for i, unsigned in zip(numeric, _bits(fields.get(_SIGNEDNESS, b"")), strict=False):
        described[i] = replace(described[i], is_unsigned=unsigned)
    character = [i for i, c in enumerate(columns) if c.type in _CHARACTER or (mariadb and c.type == GEOMETRY)]
    labelled = [i for i, column in enumerate(columns) if column.type in (ENUM, SET)]
    for among, default, each in (
        (character, _DEFAULT_CHARSET, _COLUMN_CHARSET),
        (labelled, _DEFAULT_LABEL_CHARSET, _LABEL_CHARSET),
    ):
        for i, collation in zip(among, _collations(len(among), fields, default, each), strict=False):
            described[i] = replace(described[i], collation=collation)
    for kind, field in ((ENUM, _ENUM_LABELS), (SET, _SET_LABELS)):
        reader = _Reader(fields.get(field, b""))
        for i in (i for i, column in enumerate(columns) if column.type == kind and reader):
            labels = tuple(reader.text() for _ in range(reader.length()))
            described[i] = replace(described[i], labels=labels)
    reader = _Reader(fields.get(_NAMES, b""))
    hashed = {*_Reader(fields.get(_HASHED, b"")).lengths()}
    for number, column in enumerate(described):
        if reader:
            column = replace(column, name=reader.text().decode("utf-8", "surrogateescape"))
        if number in hashed:
            column = LayoutColumn(VARCHAR, DIGITS, name=column.name, clear=column)
        yield column


def hashed_field(columns: Sequence[int]) -> bytes:
    """The field at the end of a table map that says which columns hold hashes in the place of values."""
    numbers = b"".join(map(_pack_number, columns))
    return bytes([_HASHED]) + _pack_number(len(numbers)) + numbers


def _pack_number(number: int) -> bytes:
    return bytes([number]) if number < 0xFB else b"\xfc" + number.to_bytes(2, "little")


def _bits(data: bytes) -> Iterator[bool]:
    for byte in data:
        for bit in range(7, -1, -1):
            yield bool(byte >> bit & 1)


def _collations(count: int, fields: dict[int, bytes], default: int, each: int) -> list[int]:
    if each in fields:
        return list(_Reader(fields[each]).lengths())
    if default not in fields:
        return []
    if not fields[default]:
        raise _malformed_error()
    first, *pairs = _Reader(fields[default]).lengths()
    found = [first] * count
    for i, collation in zip(pairs[::2], pairs[1::2], strict=False):
        if i >= count:
            raise _malformed_error()
        found[i] = collation
    return found


def _key(fields: dict[int, bytes]) -> tuple[int, ...]:
    if _KEY in fields:
        return tuple(_Reader(fields[_KEY]).lengths())
    return tuple(_Reader(fields.get(_PREFIX_KEY, b"")).lengths())[::2]
