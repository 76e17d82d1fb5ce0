"""Twin of `pgoutput.tuples` and of `copyrows`: one row at a time."""

from __future__ import annotations

import re
import struct
from enum import Enum


class UnchangedToast(Enum):
    """The value of a TOAST column that was not sent."""

    UNCHANGED = "unchanged"


UNCHANGED = UnchangedToast.UNCHANGED
Row = list[bytes | UnchangedToast | None]


class MalformedRow(Exception):
    """The bytes are no row."""


def change(message: bytes, ncols: int) -> tuple[bytes, Row | None, Row | None]:
    """An I, U or D (`message` begins with its letter): the old row's letter or b"", old, new."""
    kind, at = message[:1], 5
    letter, old, new = b"", None, None
    if kind in b"UD" and message[at : at + 1] in (b"K", b"O"):
        letter = message[at : at + 1]
        old, at = _tuple(message, at + 1, ncols, new=False)
    if kind in b"IU":
        if message[at : at + 1] != b"N":
            raise MalformedRow
        new, at = _tuple(message, at + 1, ncols, new=True)
    if at != len(message) or (old is None and new is None):
        raise MalformedRow
    return letter, old, new


def _tuple(message: bytes, at: int, ncols: int, *, new: bool) -> tuple[Row, int]:
    row: Row = []
    if message[at : at + 2] != struct.pack(">H", ncols):
        raise MalformedRow
    at += 2
    for _ in range(ncols):
        kind = message[at : at + 1]
        at += 1
        if kind == b"t":
            if at + 4 > len(message):
                raise MalformedRow
            length = struct.unpack_from(">I", message, at)[0]
            if at + 4 + length > len(message):
                raise MalformedRow
            row.append(message[at + 4 : at + 4 + length])
            at += 4 + length
        elif kind == b"n":
            row.append(None)
        elif kind == b"u" and new:
            row.append(UNCHANGED)
        else:
            raise MalformedRow
    return row, at


_ESCAPE = re.compile(rb"\\(.?)", re.DOTALL)
_MEANINGS = {
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
}


def copy_rows(data: bytes, ncols: int) -> list[list[bytes | None]]:
    """The rows of COPY text."""
    lines = data.split(b"\n")
    if lines.pop():
        raise MalformedRow
    rows = [[_unescape(field) for field in line.split(b"\t")] for line in lines]
    if any(len(row) != ncols for row in rows):
        raise MalformedRow
    return rows


def _unescape(field: bytes) -> bytes | None:
    if field == b"\\N":
        return None
    try:
        return _ESCAPE.sub(lambda match: _MEANINGS[match[1]], field)
    except KeyError:
        raise MalformedRow from None


def encode(value: bytes | None) -> bytes:
    """A value as COPY text writes it."""
    if value is None:
        return b"\\N"
    value = value.replace(b"\\", b"\\\\")
    for letter, meaning in _MEANINGS.items():
        if letter != b"\\":
            value = value.replace(meaning, b"\\" + letter)
    return value
