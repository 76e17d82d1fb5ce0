"""Twin of the value kernels of `mysql`: a value as a row event holds it, written from the manual.

The inverse of what the kernels do, so that a value that comes back was read as it was written.
"""

from __future__ import annotations

import datetime

_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def integer(value: int, width: int) -> bytes:
    """An integer, or the bits of an enum or a set."""
    return (value % (1 << (8 * width))).to_bytes(width, "little")


def bits(value: int, width: int) -> bytes:
    """A BIT of so many bytes."""
    return value.to_bytes(width, "big")


def decimal(number: int, precision: int, scale: int) -> bytes:
    """A DECIMAL of these digits."""
    digits = str(abs(number)).zfill(precision)
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    short = len(whole) % 9
    groups = [whole[:short], *_nines(whole[short:]), *_nines(fraction)]
    plain = b"".join(int(group or 0).to_bytes(_BYTES[len(group)], "big") for group in groups)
    mask = 0xFF if number < 0 else 0
    turned = bytes(byte ^ mask for byte in plain)
    return bytes([turned[0] ^ 0x80]) + turned[1:]


def _nines(digits: str) -> list[str]:
    return [digits[at : at + 9] for at in range(0, len(digits), 9)]


def date(year: int, month: int, day: int) -> bytes:
    """A DATE, whether it exists or not."""
    return (year << 9 | month << 5 | day).to_bytes(3, "little")


def datetime2(year: int, month: int, day: int, clock: tuple[int, int, int, int], digits: int) -> bytes:
    """A DATETIME, whether it exists or not."""
    hour, minute, second, micros = clock
    packed = (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second
    return (packed | 1 << 39).to_bytes(5, "big") + _fraction(micros, digits)


def timestamp2(moment: datetime.datetime, digits: int) -> bytes:
    """A TIMESTAMP."""
    seconds = int(moment.replace(microsecond=0).timestamp())
    return seconds.to_bytes(4, "big") + _fraction(moment.microsecond, digits)


def _fraction(micros: int, digits: int) -> bytes:
    size = (digits + 1) // 2
    return _units(micros, size).to_bytes(size, "big")


def _units(micros: int, size: int) -> int:
    """A fraction of a second in the units of so many bytes."""
    return micros // (1, 10_000, 100, 1)[size] if size else 0


def time2(negative: bool, hours: int, minutes: int, seconds: int, micros: int, digits: int) -> bytes:
    """A TIME."""
    size = (digits + 1) // 2
    clock = hours << 12 | minutes << 6 | seconds
    value = clock << (8 * size) | _units(micros, size)
    middle = 1 << (23 + 8 * size)
    return (middle - value if negative else middle + value).to_bytes(3 + size, "big")
