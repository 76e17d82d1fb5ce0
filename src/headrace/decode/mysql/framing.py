"""Frames of the spool: where each event stands, of which transaction it is, and which table map it is read
by.

    header 19: timestamp 4 │ kind 1 │ server 4 │ size 4 │ position 4 │ flags 2 ││ body
                                                 ↑ of all of it: no checksum is stored

    BEGIN ─ MAP 7 (t) ─ ROWS 7 ─ MAP 8 (u) ─ ROWS 8 ─ MAP 7 (v) ─ ROWS 7   BEGIN ─ MAP 7 ...
       0        0          0         0          0         0          0        1        1      transaction
                t          t         u          u         v          v                        layout

A server may give a table a new id at any time, so an id means the newest map with that id in its transaction.
The server writes a table map for every statement. Here equal maps get the number of the first of them, so
that each distinct one is read once. The caller passes the frames of the table maps that hold where its bytes
begin.

Nothing here looks into a row. A kind that is never stored, an impossible size, and rows without their map are
definite errors: nothing after them can be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import types

from headrace.core.errors import Definite
from headrace.decode.kernel import Bytes, Flags, Ints, input_array, kernel, output_array, several
from headrace.decode.text import TEXT, TextColumn

HEADER = 19
TABLE_MAP = 19
BEGIN, TRUNCATE, ALTERED = 250, 251, 252
PARTIAL_UPDATE = 39
INSERTS, UPDATES, DELETES = (23, 30), (24, 31), (25, 32)
ROWS = (*INSERTS, *UPDATES, *DELETES, PARTIAL_UPDATE)
_KIND, _SIZE, _TABLE_ID = 4, 9, 6

# The least number of bytes of a body.
_UNKNOWN = -1
_LEAST = np.full(256, _UNKNOWN, np.int64)
_LEAST[[TABLE_MAP, *ROWS]] = 8
_LEAST[[BEGIN, TRUNCATE, ALTERED]] = 18, 4, 5
_IS_ROWS = np.zeros(256, np.uint8)
_IS_ROWS[list(ROWS)] = 1

_FINE, _BAD_SIZE, _UNKNOWN_KIND, _TOO_SHORT = range(4)
_WORDS = {
    _BAD_SIZE: "its size is impossible",
    _UNKNOWN_KIND: "its kind is none that is stored",
    _TOO_SHORT: "it is too short for its kind",
}
_NO_MAP = -1
_PRIME, _OFFSET = np.uint64(1099511628211), np.uint64(14695981039346656037)


@dataclass(frozen=True, slots=True)
class EventFrames:
    """The whole frames of a buffer, in its order; positions are offsets into it."""

    start: Ints
    stop: Ints
    kind: Bytes
    transaction: Ints  # 0: the first that begins in the buffer; -1: the one that was open before it
    map: Ints  # of maps and rows: the index of the layout in `maps`; else -1
    maps: tuple[bytes, ...]  # the distinct table maps, whole frames
    tail: int  # where the first incomplete frame begins

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def body(self) -> Ints:
        return self.start + HEADER

    @property
    def is_rows(self) -> Flags:
        return _IS_ROWS[self.kind].astype(np.bool_)


def scan(data: Bytes, table_maps: Sequence[bytes] = ()) -> EventFrames:
    """Find the events in a buffer, before which these table maps came."""
    count, tail = _count(data)
    places, kinds = np.empty((2, count), np.int64), np.empty(count, np.uint8)
    trouble, row = _fill(data, places, kinds)
    if trouble != _FINE:
        raise _damaged_error(f"frame at byte {places[0, row]} of the buffer: {_WORDS[trouble]}")
    start, stop = places
    begun = np.cumsum(kinds == BEGIN) - 1
    told, numbers, maps = _distinct(data, start, stop, kinds, table_maps)
    found = np.full(count, _NO_MAP, np.int64)
    ids = np.array([_table_id(frame) for frame in table_maps], np.int64)
    lost = _resolve(data, start, kinds, numbers, ids, told, found)
    if lost >= 0:
        raise _damaged_error(f"frame at byte {start[lost]} of the buffer: rows without their table map")
    return EventFrames(start, stop, kinds, begun, found, maps, tail)


def newest(
    events: EventFrames, data: Bytes, table_maps: Sequence[bytes], transaction: int
) -> tuple[bytes, ...]:
    """The table maps that hold at the end of the buffer. `transaction` is its last one."""
    latest = {_table_id(frame): frame for frame in (table_maps if transaction < 0 else ())}
    for row in np.flatnonzero((events.kind == TABLE_MAP) & (events.transaction == transaction)):
        frame = data[events.start[row] : events.stop[row]].tobytes()
        latest[_table_id(frame)] = frame
    return tuple(latest.values())


def _table_id(frame: bytes) -> int:
    return int.from_bytes(frame[HEADER : HEADER + _TABLE_ID], "little")


def _damaged_error(detail: str) -> Definite:
    return Definite(
        "MY_BAD_FRAME",
        "an event of the spool can't be read",
        detail=detail,
        hint="report it with the server's version; no mark is made until it can be read",
    )


def _distinct(
    data: Bytes, start: Ints, stop: Ints, kinds: Bytes, known: Sequence[bytes]
) -> tuple[Ints, Ints, tuple[bytes, ...]]:
    """The numbers of the known maps and of those in the buffer, and each distinct map."""
    rows = np.flatnonzero(kinds == TABLE_MAP)
    digests = np.empty(len(rows), np.uint64)
    _digest(data, start[rows], stop[rows], digests)
    _, first, same = np.unique(digests, return_index=True, return_inverse=True)
    if not _agree(data, start[rows], stop[rows], first[same]):
        # Two different maps happen to have the same digest. Then every map is compared by its bytes.
        first = same = np.arange(len(rows))
    numbers: dict[bytes, int] = {}
    maps: list[bytes] = []

    def number_of(frame: bytes) -> int:
        text = frame[HEADER + _TABLE_ID :]
        if text not in numbers:
            numbers[text] = len(maps)
            maps.append(frame)
        return numbers[text]

    told = [number_of(frame) for frame in known]
    of_first = [number_of(data[start[row] : stop[row]].tobytes()) for row in rows[first]]
    found = np.full(len(kinds), _NO_MAP, np.int64)
    found[rows] = np.array(of_first, np.int64)[same]
    return np.array(told, np.int64), found, tuple(maps)


@kernel(types.int64, input_array(types.uint8), types.int64)
def _size(data: Bytes, at: int) -> int:
    return (
        int(np.int64(data[at + _SIZE]))
        | (int(np.int64(data[at + _SIZE + 1])) << 8)
        | (int(np.int64(data[at + _SIZE + 2])) << 16)
        | (int(np.int64(data[at + _SIZE + 3])) << 24)
    )


@kernel(several(types.int64, types.int64), input_array(types.uint8))
def _count(data: Bytes) -> tuple[int, int]:
    # A malformed frame counts as well, so that the second pass has a place to report it.
    at, count = 0, 0
    while at + HEADER <= len(data):
        size = _size(data, at)
        if size < HEADER:
            return count + 1, at
        if at + size > len(data):
            break
        at += size
        count += 1
    return count, at


@kernel(
    several(types.int64, types.int64),
    input_array(types.uint8),
    output_array(types.int64, 2),
    output_array(types.uint8),
)
def _fill(data: Bytes, places: Ints, kinds: Bytes) -> tuple[int, int]:
    at = 0
    for row in range(len(kinds)):
        size, kind = _size(data, at), data[at + _KIND]
        places[0, row], places[1, row], kinds[row] = at, at + size, kind
        if size < HEADER:
            return _BAD_SIZE, row
        if _LEAST[kind] == _UNKNOWN:
            return _UNKNOWN_KIND, row
        if size - HEADER < _LEAST[kind]:
            return _TOO_SHORT, row
        at += size
    return _FINE, 0


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int64),
    output_array(types.uint64),
)
def _digest(data: Bytes, starts: Ints, stops: Ints, digests: npt.NDArray[np.uint64]) -> None:
    for i in range(len(starts)):
        value = _OFFSET
        for at in range(starts[i] + HEADER + _TABLE_ID, stops[i]):
            value = (value ^ np.uint64(data[at])) * _PRIME
        digests[i] = value


@kernel(
    types.boolean,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int64),
    input_array(types.int64),
)
def _agree(data: Bytes, starts: Ints, stops: Ints, first: Ints) -> bool:
    """Tell whether each of these maps equals the one that stands for it."""
    for i in range(len(starts)):
        j = first[i]
        if i == j:
            continue
        length = stops[i] - starts[i]
        if length != stops[j] - starts[j]:
            return False
        for k in range(HEADER + _TABLE_ID, length):
            if data[starts[i] + k] != data[starts[j] + k]:
                return False
    return True


@kernel(types.int64, input_array(types.uint8), types.int64)
def _id_at(data: Bytes, at: int) -> int:
    value = 0
    for i in range(_TABLE_ID):
        value |= int(np.int64(data[at + HEADER + i])) << (8 * i)
    return value


@kernel(
    types.int64,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int64),
    input_array(types.int64),
    output_array(types.int64),
)
def _resolve(
    data: Bytes, starts: Ints, kinds: Bytes, numbers: Ints, known: Ints, told: Ints, found: Ints
) -> int:
    """Fill in the map of each row event. Returns the first event that has none, or -1."""
    ids, maps = np.empty(len(known) + len(kinds), np.int64), np.empty(len(known) + len(kinds), np.int64)
    count = len(known)
    for i in range(count):
        ids[i], maps[i] = known[i], told[i]
    for row in range(len(kinds)):
        kind = kinds[row]
        if kind == BEGIN:
            count = 0
        elif kind == TABLE_MAP or _IS_ROWS[kind] == 1:
            table = _id_at(data, starts[row])
            # The newest first: rows stand right after their map.
            at = count - 1
            while at >= 0 and ids[at] != table:
                at -= 1
            if kind == TABLE_MAP:
                if at < 0:
                    at = count
                    count += 1
                ids[at], maps[at] = table, numbers[row]
            elif at < 0:
                return row
            found[row] = maps[at]
    return -1


# ── our own kinds ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TransactionHeads:
    """The heads of transactions: `row` is the number of the event."""

    row: Ints
    time: Ints
    commit_ts: Ints
    name: TextColumn


def begins(data: Bytes, events: EventFrames) -> TransactionHeads:
    """All BEGINs of the buffer."""
    rows = np.flatnonzero(events.kind == BEGIN)
    at = events.body[rows]
    numbers = (
        data[at[:, None] + np.arange(16)].view("<i8").reshape(-1, 2) if len(rows) else np.empty((0, 2), "<i8")
    )
    first = at + 18
    lengths = (events.stop[rows] - first).astype(np.int32)
    names = TextColumn(np.full(len(rows), TEXT, np.uint8), first, lengths, data)
    return TransactionHeads(rows, numbers[:, 0].astype(np.int64), numbers[:, 1].astype(np.int64), names)


def table_named(data: Bytes, at: int, stop: int) -> tuple[str, str]:
    """The database and the table in a TRUNCATE, or those after the reason of an ALTERED."""
    first, second, _ = _names(data, at, stop)
    return first, second


def behind_names(data: Bytes, at: int, stop: int) -> bytes:
    """The bytes of a frame after those two names."""
    return data[_names(data, at, stop)[2] : stop].tobytes()


def _names(data: Bytes, at: int, stop: int) -> tuple[str, str, int]:
    """Two names, and where they end."""
    found = []
    for _ in range(2):
        length = int.from_bytes(data[at : at + 2].tobytes(), "little")
        if at + 2 + length > stop:
            raise _damaged_error("a name runs past its frame")
        found.append(data[at + 2 : at + 2 + length].tobytes().decode("utf-8", "surrogateescape"))
        at += 2 + length
    return found[0], found[1], at
