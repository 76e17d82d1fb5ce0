"""JSON of row events is printed as its slow twin prints it, whatever the bytes are."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.decode.mysql import doubles, json_tree
from headrace.decode.mysql.table_map import DATE, DECIMAL, TIME2
from headrace.decode.text import TextColumn
from headrace_testing.reference.mysql import images
from headrace_testing.reference.mysql import json_tree as twin
from tests.effort import examples

LAWS = examples(60)


def seven_bits(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


class Opaque(bytes):
    """A field's type, and its bytes."""


def value(held: Any, large: bool) -> tuple[int, bytes]:
    """A value's type and bytes; integers take as many as their size wants."""
    if held is None or isinstance(held, bool):
        return 4, bytes([0 if held is None else 2 - held])
    if isinstance(held, int):
        kind = next(k for k, (w, s) in twin._INTEGERS.items() if fits(held, 8 * w, s))
        width, _ = twin._INTEGERS[kind]
        return kind, (held % (1 << 8 * width)).to_bytes(width, "little")
    if isinstance(held, float):
        return 11, struct.pack("<d", held)
    if isinstance(held, Opaque):
        return 15, held[:1] + seven_bits(len(held) - 1) + held[1:]
    if isinstance(held, str):
        return 12, seven_bits(len(held.encode())) + held.encode()
    return container(held, large)


def fits(number: int, bits: int, signed: bool) -> bool:
    return -(1 << bits - 1) <= number < 1 << bits - 1 if signed else 0 <= number < 1 << bits


def container(held: Any, large: bool) -> tuple[int, bytes]:
    width, is_object = 4 if large else 2, isinstance(held, dict)
    keys = [key.encode() for key in held] if is_object else []
    members = [value(each, large) for each in (held.values() if is_object else held)]
    at = 2 * width + len(keys) * (width + 2) + len(members) * (1 + width)
    entries, rest = b"", b""
    for key in keys:
        entries += (at + len(rest)).to_bytes(width, "little") + len(key).to_bytes(2, "little")
        rest += key
    parts, size = [], at + len(rest)
    heads = []
    for kind, data in members:
        if kind == 4 or (kind in twin._INTEGERS and len(data) <= width):
            heads.append(bytes([kind]) + data.ljust(width, b"\0"))
        else:
            heads.append(bytes([kind]) + size.to_bytes(width, "little"))
            parts.append(data)
            size += len(data)
    head = len(members).to_bytes(width, "little") + size.to_bytes(width, "little")
    return 2 * (not is_object) + large, head + entries + b"".join(heads) + rest + b"".join(parts)


def tree(held: Any, *, large: bool = False) -> bytes:
    kind, data = value(held, large)
    return bytes([kind]) + data


opaques = st.one_of(
    st.tuples(st.sampled_from([7, 11, 12, TIME2, DATE]), st.binary(min_size=8, max_size=9)),
    st.integers(0, 10**20 - 1).map(lambda n: (DECIMAL, b"\x14\x05" + images.decimal(n, 20, 5))),
    st.tuples(st.sampled_from([DECIMAL, DATE, 252]), st.binary(max_size=12)),
).map(lambda pair: Opaque(bytes([pair[0]]) + pair[1]))
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=200), opaques
)
held = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5),
)


def slowly(data: bytes) -> str | None:
    try:
        return twin.text(data)
    except twin.MalformedTree:
        return None


def assert_alike(values: list[bytes | None]) -> None:
    column = TextColumn.of(values)
    decoded = json_tree.decode(column, pa.string())
    decoded.array.validate(full=True)
    expected = [None if each is None else slowly(each) for each in values]
    assert decoded.array.to_pylist() == expected
    missing = [i for i, each in enumerate(values) if each is not None and expected[i] is None]
    assert decoded.bad.tolist() == missing


@LAWS
@given(st.lists(st.none() | st.tuples(held, st.booleans()), min_size=1, max_size=4))
def test_a_tree_is_printed_as_its_twin_prints_it(documents: list[tuple[Any, bool] | None]) -> None:
    assert_alike([None if each is None else tree(each[0], large=each[1]) for each in documents])


@LAWS
@given(held, st.booleans(), st.data())
def test_broken_bytes_are_bad_or_another_value(document: Any, large: bool, data: st.DataObject) -> None:
    whole = bytearray(tree(document, large=large))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    assert_alike([bytes(whole), b"", bytes(whole[:cut]), tree([1.5])])


@LAWS
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_doubles_are_printed_as_their_twin_prints_them(numbers: list[float]) -> None:
    powers = [sign * 10.0**power for power in range(-25, 25) for sign in (1, -1.5)]
    every = [*numbers, *powers, 5e-324, 1.7976931348623157e308, 123456789012345680.0, -0.0]
    assert doubles.texts(np.array(every)).to_pylist() == [twin.double_text(each) for each in every]
