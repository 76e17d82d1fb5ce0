"""Frames: the place of each message of a PostgreSQL connection in a buffer of raw bytes.

Every message that a server sends after the start-up has one shape:

    ┌──────┬──────────────┬───────────────────┐
    │ kind │ length int32 │ length - 4 bytes  │     'd' CopyData   'c' CopyDone   'E' error
    └──────┴──────────────┴───────────────────┘     'N' notice     'S' parameter  ...

The receiver calls `frames` on the bytes that it read from the socket, keeps the whole frames, and moves the
incomplete tail to the front of its buffer. `payloads` takes the CopyData frames of a COPY and returns their
payloads, end to end. Nothing here looks inside a payload.

A kind that no server sends, or a length that no frame can have, means that bytes were lost or added on the
way: nothing after it can be trusted. It is reported as a value (`is_malformed`) with its place, since the
caller decides what to do; it can't read on after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import types

from headrace.decode.kernel import (
    Bytes,
    Ints,
    copy_bytes,
    input_array,
    int32_at,
    kernel,
    output_array,
    several,
)

HEADER = 5
# A server builds a message in memory of at most 1 GB, so a greater length is garbage.
LONGEST = (1 << 30) + 4
COPY_DATA = ord("d")

_KINDS = np.zeros(256, np.uint8)
_KINDS[list(b"123ACDEGHIKNRSTVWZcdnstv")] = 1


@dataclass(frozen=True, slots=True)
class CopyFrames:
    """The complete frames of a buffer: `data[starts[i]:stops[i]]`, kind byte and length included."""

    starts: Ints
    stops: Ints
    kinds: Bytes
    tail: int  # where the first incomplete or malformed frame begins
    is_malformed: bool  # the bytes at `tail` can never become a frame


def frames(data: Bytes, start: int = 0, stop: int | None = None) -> CopyFrames:
    """Find the complete frames of `data[start:stop]`."""
    stop = len(data) if stop is None else stop
    count, tail, malformed = _count(data, start, stop)
    starts, stops, kinds = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.uint8)
    _fill(data, start, starts, stops, kinds)
    return CopyFrames(starts, stops, kinds, tail, malformed)


def payloads(data: Bytes, frames: CopyFrames) -> Bytes:
    """Join the payloads of the CopyData frames in one buffer; other frames are left out."""
    mine = frames.kinds == COPY_DATA
    starts, stops = frames.starts[mine] + HEADER, frames.stops[mine]
    joined = np.empty(int((stops - starts).sum()), np.uint8)
    _join(data, starts, stops, joined)
    return joined


@kernel(several(types.int64, types.int64, types.boolean), input_array(types.uint8), types.int64, types.int64)
def _count(data: Bytes, start: int, stop: int) -> tuple[int, int, bool]:
    at, count = start, 0
    while at + HEADER <= stop:
        length = int32_at(data, at + 1)
        if _KINDS[data[at]] == 0 or length < 4 or length > LONGEST:
            return count, at, True
        if at + 1 + length > stop:
            break
        at += 1 + length
        count += 1
    return count, at, False


@kernel(
    types.void,
    input_array(types.uint8),
    types.int64,
    output_array(types.int64),
    output_array(types.int64),
    output_array(types.uint8),
)
def _fill(data: Bytes, start: int, starts: Ints, stops: Ints, kinds: Bytes) -> None:
    at = start
    for i in range(len(starts)):
        starts[i] = at
        kinds[i] = data[at]
        at += 1 + int32_at(data, at + 1)
        stops[i] = at


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int64),
    output_array(types.uint8),
)
def _join(data: Bytes, starts: Ints, stops: Ints, joined: Bytes) -> None:
    at = 0
    for i in range(len(starts)):
        length = stops[i] - starts[i]
        copy_bytes(data, starts[i], stops[i], joined, at)
        at += length
