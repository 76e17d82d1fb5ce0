"""Twin of `values`: one text to one number, by regular expressions and the standard library.

The outcome is what Arrow stores: unscaled numbers for decimals, days for dates, microseconds for
timestamps, bits for floats. `Bad` says that the text has no faithful value.
"""

from __future__ import annotations

import datetime
import re
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

_DATE = rb"([0-9]{4,7})-([0-9]{2})-([0-9]{2})"
_CLOCK = rb"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?"
_OFFSET = rb"([+-])([0-9]{2})(?::([0-9]{2})(?::([0-9]{2}))?)?"
_DATE_ONLY = re.compile(_DATE + rb"( BC)?")
_PLAIN = re.compile(_DATE + b" " + _CLOCK + rb"( BC)?")
_ZONED = re.compile(_DATE + b" " + _CLOCK + _OFFSET + rb"( BC)?")
_FLOAT = re.compile(rb"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
_DECIMAL = re.compile(rb"(-?)([0-9]+)(?:\.([0-9]+))?")
_ELEMENT = re.compile(rb'"((?:[^"\\]|\\.)*)"|([^{}",\\ \t\n\r\v\f]+)', re.DOTALL)
_SPECIAL = (b"NaN", b"Infinity", b"-Infinity")


class Bad(Exception):
    """This text has no faithful value."""


def parse(text: bytes, form: str, type: pa.DataType) -> Any:
    """The value of a text, or `Bad`."""
    if form.startswith("array("):
        return _array(text, form[len("array(") : -1], type.value_type)
    return {
        "bool": _bool,
        "int": _int,
        "float": _float,
        "decimal": _decimal,
        "text": _text,
        "bytea": _bytea,
        "date": _date,
        "timestamp": _timestamp,
        "timestamptz": _timestamptz,
    }[form](text, type)


def _bool(text: bytes, type: pa.DataType) -> bool:
    if text not in (b"t", b"f"):
        raise Bad
    return text == b"t"


def _int(text: bytes, type: pa.DataType) -> int:
    if not re.fullmatch(rb"-?[0-9]+", text):
        raise Bad
    # int() refuses thousands of digits; leading zeros are not among them.
    digits = text.lstrip(b"-").lstrip(b"0") or b"0"
    if len(digits) > 19:
        raise Bad
    value = -int(digits) if text[:1] == b"-" else int(digits)
    if not -(2 ** (type.bit_width - 1)) <= value < 2 ** (type.bit_width - 1):
        raise Bad
    return value


def _float(text: bytes, type: pa.DataType) -> bytes:
    """The bits, with one NaN for all."""
    if text not in _SPECIAL and not _FLOAT.fullmatch(text):
        raise Bad
    layout = "<f" if type == pa.float32() else "<d"
    if text == b"NaN":
        return struct.pack(layout, float("nan"))
    value = float(text)
    if layout == "<f" and text not in _SPECIAL:
        value = _round32(text, value)
    if abs(value) == float("inf") and text not in _SPECIAL:
        raise Bad
    return struct.pack(layout, value)


def _round32(text: bytes, value: float) -> float:
    """The float32 nearest to the exact decimal number, even bits on a tie: not by way of float64."""
    exact = abs(Fraction(text.decode()))
    if exact >= 2**128 - 2**103:
        return float(np.copysign(np.inf, value))
    start = np.float32(min(abs(value), float(np.finfo(np.float32).max)))
    near = [start, np.nextafter(start, np.float32(0)), np.nextafter(start, np.float32(np.inf))]
    finite = [candidate for candidate in near if np.isfinite(candidate)]
    best = min(finite, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.uint32)) & 1))
    return float(np.copysign(best, value))


def _decimal(text: bytes, type: pa.DataType) -> int:
    match = _DECIMAL.fullmatch(text)
    if not match:
        raise Bad
    sign, whole, fraction = match[1], match[2].lstrip(b"0"), match[3] or b""
    if len(fraction) > type.scale or len(whole) > type.precision - type.scale:
        raise Bad
    unscaled = int(whole + fraction.ljust(type.scale, b"0") or b"0")
    return -unscaled if sign else unscaled


def _text(text: bytes, type: pa.DataType) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        raise Bad from None


def _bytea(text: bytes, type: pa.DataType) -> bytes:
    if not re.fullmatch(rb"\\x([0-9a-f]{2})*", text):
        raise Bad
    return bytes.fromhex(text[2:].decode())


def _date(text: bytes, type: pa.DataType) -> int:
    match = _DATE_ONLY.fullmatch(text)
    if not match:
        raise Bad
    days = _days(match)
    if not -(2**31) <= days < 2**31:
        raise Bad
    return days


def _timestamp(text: bytes, type: pa.DataType) -> int:
    match = _PLAIN.fullmatch(text)
    if not match:
        raise Bad
    return _within(_days(match) * 86_400_000_000 + _since_midnight(match))


def _timestamptz(text: bytes, type: pa.DataType) -> int:
    match = _ZONED.fullmatch(text)
    if not match:
        raise Bad
    hours, minutes, seconds = (int(match[i] or 0) for i in (9, 10, 11))
    if hours > 15 or minutes > 59 or seconds > 59:
        raise Bad
    offset = (hours * 3600 + minutes * 60 + seconds) * (-1 if match[8] == b"-" else 1)
    return _within(_days(match) * 86_400_000_000 + _since_midnight(match) - offset * 1_000_000)


def _within(micros: int) -> int:
    if not -9_223_372_036_854_000_000 <= micros < 2**63:
        raise Bad
    return micros


def _days(match: re.Match[bytes]) -> int:
    """Days since 1970; Python's calendar is moved by multiples of its 400 years, which are 146097 days."""
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if year == 0:
        raise Bad
    if match[match.re.groups]:
        year = 1 - year
    cycles = year // 400
    try:
        date = datetime.date(year - cycles * 400 + 400, month, day)
    except ValueError:
        raise Bad from None
    return date.toordinal() + (cycles - 1) * 146_097 - datetime.date(1970, 1, 1).toordinal()


def _since_midnight(match: re.Match[bytes]) -> int:
    hours, minutes, seconds = int(match[4]), int(match[5]), int(match[6])
    if hours > 23 or minutes > 59 or seconds > 59:
        raise Bad
    return (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + int((match[7] or b"0").ljust(6, b"0"))


def _array(text: bytes, form: str, type: pa.DataType) -> list[Any]:
    if not (text.startswith(b"{") and text.endswith(b"}") and len(text) >= 2):
        raise Bad
    inner = text[1:-1]
    values: list[Any] = []
    at = 0
    while inner:
        match = _ELEMENT.match(inner, at)
        if not match:
            raise Bad
        if match[2] == b"NULL":
            values.append(None)
        else:
            element = (
                match[2] if match[2] is not None else re.sub(rb"\\(.)", rb"\1", match[1], flags=re.DOTALL)
            )
            values.append(parse(element, form, type))
        at = match.end()
        if at == len(inner):
            break
        if inner[at : at + 1] != b",":
            raise Bad
        at += 1
    return values
