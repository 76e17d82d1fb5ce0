"""Twin of `digest`: MurmurHash3's x64 128-bit variant, one value at a time, in Python's own integers."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def digest(data: bytes) -> tuple[int, int]:
    """The two halves of the digest."""
    one = two = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        one ^= _k1(data[at : at + 8])
        one = (_turn(one, 27) + two) * 5 + 0x52DCE729 & _MASK
        two ^= _k2(data[at + 8 : at + 16])
        two = (_turn(two, 31) + one) * 5 + 0x38495AB5 & _MASK
    tail = data[whole:]
    two ^= _k2(tail[8:]) ^ len(data)
    one ^= _k1(tail[:8]) ^ len(data)
    one = one + two & _MASK
    two = two + one & _MASK
    one, two = _final(one), _final(two)
    one = one + two & _MASK
    return one, two + one & _MASK


def _turn(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


def _k1(part: bytes) -> int:
    return _turn(int.from_bytes(part, "little") * _C1 & _MASK, 31) * _C2 & _MASK


def _k2(part: bytes) -> int:
    return _turn(int.from_bytes(part, "little") * _C2 & _MASK, 33) * _C1 & _MASK


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
