"""Thrift's compact protocol, as far as the footer of a Parquet file needs it: bytes to a tree, and back.

    struct ─► {id: (kind, value), ...}        list ─► (kind, [value, ...])        number ─► int

Nothing is known here of what the fields mean, so that a field which came later is kept as it is. Numbers and
truths are values of Python, floating point and text are bytes. Bytes that are no such tree raise an error of
Python's own (IndexError, ValueError, RecursionError).
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

Struct = dict[int, tuple[int, Any]]


def decode(data: bytes) -> Struct:
    """The struct that these bytes begin with."""
    return _Reader(data).struct()


def encode(struct: Struct) -> bytes:
    """The inverse of `decode`."""
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while head := self._byte():
            kind, step = head & 0x0F, head >> 4
            number = number + step if step else self._zigzag()
            fields[number] = (kind, None if kind in (TRUE, FALSE) else self._value(kind))
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (I16, I32, I64):
            return self._zigzag()
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind == STRUCT:
            return self.struct()
        if kind in (LIST, SET):
            return self._list()
        if kind == DOUBLE:
            return self._bytes(8)
        if kind in (TRUE, FALSE, BYTE):  # a truth within a list takes a byte
            return self._byte()
        raise ValueError(f"no kind of Thrift that a footer has: {kind}")

    def _list(self) -> tuple[int, list[Any]]:
        head = self._byte()
        kind, count = head & 0x0F, head >> 4
        if count == 15:
            count = self._varint()
        return kind, [self._value(kind) for _ in range(count)]

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _bytes(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise ValueError("the bytes end within a value")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


def _put_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for number, (kind, value) in sorted(struct.items()):
        step = number - before
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _put_zigzag(out, number)
        if kind not in (TRUE, FALSE):
            _put_value(out, kind, value)
        before = number
    out.append(0)


def _put_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I16, I32, I64):
        _put_zigzag(out, value)
    elif kind == BINARY:
        _put_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _put_struct(out, value)
    elif kind in (LIST, SET):
        _put_list(out, *value)
    elif kind == DOUBLE:
        out += value
    else:
        out.append(value)


def _put_list(out: bytearray, kind: int, values: list[Any]) -> None:
    if len(values) < 15:
        out.append(len(values) << 4 | kind)
    else:
        out.append(0xF0 | kind)
        _put_varint(out, len(values))
    for value in values:
        _put_value(out, kind, value)


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_zigzag(out: bytearray, value: int) -> None:
    _put_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)
