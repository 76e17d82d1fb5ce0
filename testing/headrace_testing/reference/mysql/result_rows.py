"""Twin of `mysql.result_rows`: one row at a time."""

from __future__ import annotations

_SIZES = {0xFC: 2, 0xFD: 3, 0xFE: 8}


class MalformedResultRow(Exception):
    """The bytes are no row."""


def row(payload: bytes, ncols: int) -> list[bytes | None]:
    """The values of a row of so many columns."""
    found: list[bytes | None] = []
    rest = payload
    for _ in range(ncols):
        value, rest = _value(rest)
        found.append(value)
    if rest:
        raise MalformedResultRow
    return found


def _value(rest: bytes) -> tuple[bytes | None, bytes]:
    first, rest = rest[:1], rest[1:]
    if not first or first == b"\xff":
        raise MalformedResultRow
    if first == b"\xfb":
        return None, rest
    size = _SIZES.get(first[0], 0)
    length = int.from_bytes(rest[:size], "little") if size else first[0]
    if len(rest) < size + length:
        raise MalformedResultRow
    return rest[size : size + length], rest[size + length :]


def encode(values: list[bytes | None]) -> bytes:
    """A row as the server sends it."""
    return b"".join(b"\xfb" if value is None else _length(len(value)) + value for value in values)


def _length(length: int) -> bytes:
    if length < 0xFB:
        return bytes([length])
    first = next(first for first, size in _SIZES.items() if length < 1 << (8 * size))
    return bytes([first]) + length.to_bytes(_SIZES[first], "little")
