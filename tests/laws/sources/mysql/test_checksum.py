"""The law of the checksum: the kernel's is zlib's, wherever an event lies and however long it is."""

from __future__ import annotations

import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.mysql.stream.ordinary import crc32
from tests.effort import examples

NOISE = np.random.default_rng(32).integers(0, 256, 1 << 17, dtype=np.uint8)


@examples(100)
@given(st.integers(0, 1 << 16), st.one_of(st.integers(0, 200), st.integers(0, 1 << 16)))
def test_the_checksum_of_any_stretch_is_that_of_zlib(begin: int, size: int) -> None:
    assert crc32(NOISE, begin, begin + size) == zlib.crc32(NOISE[begin : begin + size].tobytes())


@examples(60)
@given(st.binary(max_size=120), st.integers(0, 120))
def test_the_checksum_of_any_bytes_is_that_of_zlib(data: bytes, begin: int) -> None:
    part = data[begin:]
    assert crc32(np.frombuffer(data, np.uint8), min(begin, len(data)), len(data)) == zlib.crc32(part)
