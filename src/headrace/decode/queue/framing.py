"""Frames of a queue's stream: the tuples of a binary COPY, with one of our own before those of each tick.

    HEAD    fields 3 │ 8 time │ 8 commit_ts │ 8 tick
    EVENT   fields 6 │ 8 lsn │ 8 tx │ 4 relation │ 4 layout │ 2 diff │ n row, or NULL   as the server sends it

Each field is its length and its bytes. All numbers are big endian, so both frames are read in the same way.
All events after a head belong to its tick. `layout` is the table whose columns the row has: the relation, or
a partition of it. `diff` is 1 if a row came and -1 if one went. Without a row it is 0 if a TRUNCATE has
emptied the table, 2 if one is about to, 3 if one has and rows were written meanwhile.

An event's number is made here, from two parts: 47 bits of the place in the server's log (`lsn`) at which the
event was written, which is a multiple of 8; and the last 16 bits of its transaction's id, since several may
read the same place. The numbers of a transaction's events follow the order in which it wrote them.

Nothing here looks into a row. Another number of fields, or a field of another length, is a definite error:
nothing after it can be trusted.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numba import types

from headrace.core.errors import Definite
from headrace.decode.kernel import (
    Bytes,
    Flags,
    Ints,
    input_array,
    int16_at,
    int32_at,
    int64_at,
    kernel,
    output_array,
    several,
)

CAME, WENT, EMPTIED, BEGUN, UNCLEAR = 1, -1, 0, 2, 3
COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # no flags, no extension
COPY_END = b"\xff\xff"
_PLACES = (1 << 47) - 1

_HEAD = struct.Struct(">hiqiqiq")
_FIXED = 52  # bytes of an event before its row
_FINE, _BAD_FIELDS, _BAD_LENGTH, _BAD_DIFF = range(4)
_WORDS = {
    _BAD_FIELDS: "it has another number of fields than were asked for",
    _BAD_LENGTH: "a field has an impossible length",
    _BAD_DIFF: "it says neither that a row came nor that one went",
}


def head(time: int, commit_ts: int, tick: int) -> bytes:
    """The frame that stands before the events of a tick."""
    return _HEAD.pack(3, 8, time, 8, commit_ts, 8, tick)


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of a buffer."""

    start: Ints
    time: Ints
    commit_ts: Ints
    tick: Ints

    @property
    def stop(self) -> Ints:
        return np.asarray(self.start + _HEAD.size)


@dataclass(frozen=True, slots=True)
class QueueEvents:
    """The whole events of a buffer, in its order; positions are offsets into it."""

    start: Ints
    head: Ints  # the number of the head before each; -1 if there is none
    id: Ints
    tx: Ints
    relation: Ints
    layout: Ints  # the table whose columns its row has, in their order: the relation, or a partition of it
    diff: Ints
    row: Ints  # where its row's text begins
    length: Ints  # of the text; -1 if there is none
    heads: Heads
    tail: int  # where the first incomplete frame begins, or COPY's end

    def __len__(self) -> int:
        return len(self.id)

    @property
    def stop(self) -> Ints:
        return np.asarray(self.row + np.maximum(self.length, 0))

    @property
    def changes(self) -> Flags:
        """Tell which events say that a row came or went, or that a table was emptied."""
        return np.asarray(self.diff != BEGUN, np.bool_)


def scan(data: Bytes) -> QueueEvents:
    """Find the whole frames."""
    events, heads, tail, trouble = _count(data)
    if trouble != _FINE:
        raise _error(trouble, tail)
    of_event, of_head = np.empty((9, events), np.int64), np.empty((4, heads), np.int64)
    _fill(data, of_event, of_head)
    start, number, lsn, tx, relation, layout, diff, row, length = of_event
    return QueueEvents(
        start, number, numbers(lsn, tx), tx, relation, layout, diff, row, length, Heads(*of_head), tail
    )


def numbers(lsn: Ints, tx: Ints) -> Ints:
    """The numbers of events."""
    return np.asarray((((lsn >> 3) & _PLACES) << 16) | (tx & 0xFFFF))


def _error(trouble: int, at: int) -> Definite:
    return Definite(
        "QUEUE_BAD_FRAME",
        "an event of the queue can't be read",
        detail=f"at byte {at} of the buffer: {_WORDS[trouble]}",
        hint="report it with the server's version; nothing is acknowledged until it can be read",
    )


@kernel(several(types.int64, types.int64), input_array(types.uint8), types.int64)
def _head_at(data: Bytes, at: int) -> tuple[int, int]:
    """The size of the head that begins here; 0 if it is incomplete; else what is wrong with it."""
    if at + 38 > len(data):
        return 0, _FINE
    for field in range(3):
        if int32_at(data, at + 2 + 12 * field) != 8:
            return 0, _BAD_LENGTH
    return 38, _FINE


@kernel(several(types.int64, types.int64), input_array(types.uint8), types.int64)
def _event_at(data: Bytes, at: int) -> tuple[int, int]:
    """Read the head of an event."""
    if at + _FIXED > len(data):
        return 0, _FINE
    fixed = int32_at(data, at + 2) == 8 and int32_at(data, at + 14) == 8
    fixed = fixed and int32_at(data, at + 26) == 4 and int32_at(data, at + 34) == 4
    if not fixed or int32_at(data, at + 42) != 2:
        return 0, _BAD_LENGTH
    diff, length = int16_at(data, at + 46), int32_at(data, at + 48)
    has_row, is_null = diff == 1 or diff == 65535, length == 4294967295
    if not has_row and diff != 0 and diff != 2 and diff != 3:
        return 0, _BAD_DIFF
    if has_row == is_null or (length > 2147483647 and not is_null):
        return 0, _BAD_LENGTH
    size = _FIXED if is_null else _FIXED + length
    return (size if at + size <= len(data) else 0), _FINE


@kernel(several(types.int64, types.int64, types.int64, types.int64), input_array(types.uint8))
def _count(data: Bytes) -> tuple[int, int, int, int]:
    """Count events and heads. Also returns where the first frame begins that is incomplete or malformed."""
    at, events, heads = 0, 0, 0
    while at + 2 <= len(data):
        fields = int16_at(data, at)
        if fields == 65535 and at + 2 == len(data):
            break
        if fields != 3 and fields != 6:
            return events, heads, at, _BAD_FIELDS
        size, trouble = _head_at(data, at) if fields == 3 else _event_at(data, at)
        if trouble != _FINE:
            return events, heads, at, trouble
        if size == 0:
            break
        events += fields == 6
        heads += fields == 3
        at += size
    return events, heads, at, _FINE


@kernel(types.void, input_array(types.uint8), output_array(types.int64, 2), output_array(types.int64, 2))
def _fill(data: Bytes, of_event: Ints, of_head: Ints) -> None:
    at, event, head = 0, 0, 0
    while event < of_event.shape[1] or head < of_head.shape[1]:
        if int16_at(data, at) == 3:
            of_head[0, head] = at
            for field in range(3):
                of_head[field + 1, head] = int64_at(data, at + 6 + 12 * field)
            head += 1
            at += 38
            continue
        length = int32_at(data, at + 48)
        if length == 4294967295:
            length = -1
        diff = int16_at(data, at + 46)
        of_event[0, event] = at
        of_event[1, event] = head - 1
        of_event[2, event] = int64_at(data, at + 6)
        of_event[3, event] = int64_at(data, at + 18)
        of_event[4, event] = int32_at(data, at + 30)
        of_event[5, event] = int32_at(data, at + 38)
        of_event[6, event] = -1 if diff == 65535 else diff
        of_event[7, event] = at + _FIXED
        of_event[8, event] = length
        event += 1
        at += _FIXED + max(length, 0)
