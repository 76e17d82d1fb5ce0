"""Twin of `json_tree` of `mysql`: a value as the server prints it, by slices of its bytes.

Its time grows with the square of a document's size.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping

from headrace.decode.mysql.json_tree import opaque
from headrace.decode.mysql.table_map import DATE, DECIMAL, TIME2, TIMESTAMP2, decimal_width

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_DOUBLE, _STRING, _OPAQUE = 0x0B, 0x0C, 0x0F
_INTEGERS: Mapping[int, tuple[int, bool]] = {
    5: (2, True),
    6: (2, False),
    7: (4, True),
    8: (4, False),
    9: (8, True),
    10: (8, False),
}
_LITERALS = {0: "null", 1: "true", 2: "false"}
_ESCAPES = {
    **{i: f"\\u{i:04x}" for i in range(32)},
    8: "\\b",
    9: "\\t",
    10: "\\n",
    12: "\\f",
    13: "\\r",
    34: '\\"',
    92: "\\\\",
}
# The powers of ten between which a double has no exponent; nor has one with a digit behind its point.
_LEAST_POWER, _MOST_POWER = -14, 15
_DEEPEST = 100  # the server's own limit
_LONGEST = 16  # characters of the text for a byte of the tree, at most
_MOMENTS = (7, 11, 12, TIMESTAMP2, TIME2, DATE)


class MalformedTree(Exception):
    """The bytes are no tree."""


def text(tree: bytes) -> str:
    """A value as the server prints it; no bytes at all are `null`."""
    if not tree:
        return "null"
    try:
        return "".join(_at_most(_value(tree[0], tree[1:], 0), _LONGEST * (len(tree) + _LONGEST)))
    except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise MalformedTree from error


def _at_most(parts: Iterator[str], most: int) -> Iterator[str]:
    """The parts of a text that is no longer than one of its tree: offsets may lead to a value many times."""
    for part in parts:
        most -= len(part)
        if most < 0:
            raise MalformedTree
        yield part


def _value(kind: int, data: bytes, depth: int) -> Iterator[str]:
    """The parts of a value's text; `data` begins with it."""
    if depth > _DEEPEST:
        raise MalformedTree
    if kind <= _LARGE_ARRAY:
        yield from _container(kind, data, depth)
    elif kind == _LITERAL:
        yield _LITERALS[data[0]]
    elif kind in _INTEGERS:
        width, signed = _INTEGERS[kind]
        yield str(int.from_bytes(_exactly(data, 0, width), "little", signed=signed))
    elif kind == _DOUBLE:
        [number] = struct.unpack_from("<d", data)
        if not math.isfinite(number):
            raise MalformedTree
        yield _with_point(double_text(number))
    elif kind == _STRING:
        length, at = _length(data, 0)
        yield quote(_exactly(data, at, length).decode())
    elif kind == _OPAQUE:
        length, at = _length(data, 1)
        yield _opaque(data[0], _exactly(data, at, length))
    else:
        raise MalformedTree


def _container(kind: int, data: bytes, depth: int) -> Iterator[str]:
    is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    width = 4 if kind in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
    count, size = (int.from_bytes(_exactly(data, i * width, width), "little") for i in range(2))
    if size < 2 * width:
        raise MalformedTree
    data = _exactly(data, 0, size)
    at = 2 * width
    keys = []
    if is_object:
        for i in range(count):
            entry = at + i * (width + 2)
            start = int.from_bytes(_exactly(data, entry, width), "little")
            length = int.from_bytes(_exactly(data, entry + width, 2), "little")
            keys.append(_exactly(data, start, length).decode())
        at += count * (width + 2)
    yield "{" if is_object else "["
    for i in range(count):
        entry = at + i * (1 + width)
        if i:
            yield ", "
        if is_object:
            yield quote(keys[i]) + ": "
        kind, inside = data[entry], _exactly(data, entry + 1, width)
        if not (kind == _LITERAL or (kind in _INTEGERS and _INTEGERS[kind][0] <= width)):
            inside = data[int.from_bytes(inside, "little") :]
        yield from _value(kind, inside, depth + 1)
    yield "}" if is_object else "]"


def _exactly(data: bytes, start: int, size: int) -> bytes:
    part = data[start : start + size]
    if start > len(data) or len(part) != size:
        raise MalformedTree
    return part


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length of seven bits a byte, and where what it is of begins."""
    length = 0
    for i in range(5):
        byte = data[at + i]
        length |= (byte & 127) << (7 * i)
        if byte < 128:
            return length, at + i + 1
    raise MalformedTree


def quote(value: str) -> str:
    """A text as JSON of the server's."""
    return '"' + value.translate(_ESCAPES) + '"'


def double_text(value: float) -> str:
    """A double as the server prints it: the shortest digits that mean it."""
    shortest = repr(abs(value))
    mantissa, _, exponent = shortest.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    sign = "-" if struct.pack(">d", value)[0] & 128 else ""
    if not digits:
        return sign + "0"
    if _LEAST_POWER <= point <= _MOST_POWER or len(digits) > point > _MOST_POWER:
        return sign + _fixed_point(digits, point)
    rest = "." + digits[1:] if digits[1:] else ""
    return f"{sign}{digits[0]}{rest}e{point - 1}"


def _fixed_point(digits: str, point: int) -> str:
    if point <= 0:
        return "0." + "0" * -point + digits
    whole = digits[:point].ljust(point, "0")
    return whole + ("." + digits[point:] if digits[point:] else "")


def _with_point(shown: str) -> str:
    """A double is told from an integer by its point."""
    return shown if "." in shown or "e" in shown else shown + ".0"


def _opaque(kind: int, value: bytes) -> str:
    """An opaque value, if its bytes are enough for one."""
    if kind == DECIMAL:
        precision, scale = value[0], value[1]
        if not 1 <= precision <= 65 or scale > precision:
            raise MalformedTree
        _exactly(value, 2, decimal_width(precision, scale))
    elif kind in _MOMENTS:
        _exactly(value, 0, 8)
    return opaque(kind, value)
