"""Bytes that COPY cannot have written are refused, wherever a buffer has them; no event is guessed."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from headrace.core.errors import Definite
from headrace.decode.queue import framing


def event(diff: int = 1, row: bytes | None = b"(1)", *, lengths: tuple[int, ...] = (8, 8, 4, 4, 2)) -> bytes:
    """An event as COPY writes it, its fields said to be so long."""
    values = (b"\0" * 8, b"\0" * 8, b"\0" * 4, b"\0" * 4, struct.pack(">h", diff))
    fields = b"".join(
        struct.pack(">i", length) + value for length, value in zip(lengths, values, strict=True)
    )
    text = struct.pack(">i", -1) if row is None else struct.pack(">i", len(row)) + row
    return struct.pack(">h", 6) + fields + text


HEAD = framing.head(8, 0, 1)
BAD = {
    "seven fields": (struct.pack(">h", 7) + event()[2:], "another number of fields"),
    "a short place": (event(lengths=(4, 8, 4, 4, 2)), "impossible length"),
    "a short transaction": (event(lengths=(8, 4, 4, 4, 2)), "impossible length"),
    "a long relation": (event(lengths=(8, 8, 8, 4, 2)), "impossible length"),
    "a NULL leaf": (event(lengths=(8, 8, 4, -1, 2)), "impossible length"),
    "a long diff": (event(lengths=(8, 8, 4, 4, 4)), "impossible length"),
    "neither came nor went": (event(7), "neither that a row came nor that one went"),
    "a row that came and is NULL": (event(1, None), "impossible length"),
    "a TRUNCATE with a row": (event(0), "impossible length"),
    "a row of less than nothing": (event()[:48] + struct.pack(">i", -2) + b"(1)", "impossible length"),
    "a head of other lengths": (HEAD[:2] + struct.pack(">i", 4) + HEAD[6:], "impossible length"),
}


@pytest.mark.parametrize("name", BAD)
def test_bytes_that_copy_cannot_have_written_are_refused_where_they_begin(name: str) -> None:
    bad, word = BAD[name]
    before = HEAD + event() + event(-1) + event(0, None)
    assert framing.scan(np.frombuffer(before, np.uint8)).diff.tolist() == [1, -1, 0]
    with pytest.raises(Definite) as refused:
        framing.scan(np.frombuffer(before + bad + event(), np.uint8))
    assert refused.value.code == "QUEUE_BAD_FRAME"
    assert f"at byte {len(before)} of the buffer" in (refused.value.detail or "")
    assert word in (refused.value.detail or "")
