"""The messages of a pgoutput stream: the kind and place of each, without looking at a row.

`scan` reads a buffer of whole CopyData frames, as a walsender sends them and as the spool holds them. The
receiver uses it to find transactions; the decoder uses it again to find tuples.

    frame_start                            start      body                        stop
    ▼                                      ▼          ▼                           ▼
    ┌───┬────────┬───┬──────────────────┬──────┬─────────┬────────────────────────┐
    │'d'│ length │'w'│ 3 × int64 header │ kind │ [xid]   │ the message's content  │
    └───┴────────┴───┴──────────────────┴──────┴─────────┴────────────────────────┘

Between STREAM START and STREAM STOP (protocol 2 and later) changes begin with the xid of their
subtransaction. The bytes of a buffer don't show if it begins inside such a block: the caller passes
`in_stream` on from one buffer to the next, and False for a new connection.

Kinds are the plugin's own letters. `KEEPALIVE` is the walsender's own message, for which the plugin has no
letter. `OTHER` stands for frames that are not CopyData (errors, notices, the end): the session reads them.

The two positions in the header of 'w' are not kept: they are zero for some messages and do not grow with the
stream, so nothing may depend on them.

An unknown message is an error, never skipped: it may be a change that the result needs. `scan` checks that
each message is long enough for its fixed part, so later readers need not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import types

from headrace.core.errors import Definite, Transient
from headrace.decode.copydata import LONGEST
from headrace.decode.kernel import Bytes, Ints, Oids, input_array, int32_at, kernel, output_array, several

OTHER = 0
KEEPALIVE = ord("k")
BEGIN, COMMIT = ord("B"), ord("C")
INSERT, UPDATE, DELETE, TRUNCATE = ord("I"), ord("U"), ord("D"), ord("T")
RELATION, TYPE, ORIGIN, MESSAGE = ord("R"), ord("Y"), ord("O"), ord("M")
STREAM_START, STREAM_STOP = ord("S"), ord("E")
STREAM_COMMIT, STREAM_ABORT = ord("c"), ord("A")
BEGIN_PREPARE, PREPARE, STREAM_PREPARE = ord("b"), ord("P"), ord("p")
COMMIT_PREPARED, ROLLBACK_PREPARED = ord("K"), ord("r")

_FRAME = 5
_COPY_DATA, _XLOG_DATA = ord("d"), ord("w")
_XLOG_HEADER = 25
_KEEPALIVE_SIZE = 18
_UNKNOWN = -1

# The least bytes that a message has after its letter (and xid).
_LEAST = np.full(256, _UNKNOWN, np.int64)
for _kind, _size in {
    BEGIN: 20,
    COMMIT: 25,
    ORIGIN: 9,
    RELATION: 9,
    TYPE: 6,
    INSERT: 7,
    UPDATE: 7,
    DELETE: 7,
    TRUNCATE: 5,
    MESSAGE: 14,
    STREAM_START: 5,
    STREAM_STOP: 0,
    STREAM_COMMIT: 29,
    STREAM_ABORT: 8,
    BEGIN_PREPARE: 29,
    PREPARE: 30,
    STREAM_PREPARE: 30,
    COMMIT_PREPARED: 30,
    ROLLBACK_PREPARED: 38,
}.items():
    _LEAST[_kind] = _size

# The first field of a message: an xid; or, after the xid that a streamed block adds, the table's oid or
# another field. A streamed block adds no xid to messages in none of these groups.
_XID_FIRST, _OID_FIRST, _ELSE_FIRST = 1, 2, 3
_FIRST = np.zeros(256, np.uint8)
_FIRST[[STREAM_START, STREAM_COMMIT, STREAM_ABORT]] = _XID_FIRST
_FIRST[[INSERT, UPDATE, DELETE, RELATION]] = _OID_FIRST
_FIRST[[TYPE, TRUNCATE, MESSAGE]] = _ELSE_FIRST

# The letters that begin or end a transaction: they come only outside of streamed blocks.
_OUTSIDE = np.zeros(256, np.uint8)
_OUTSIDE[list(b"BCSAcbPpKr")] = 1

_FINE, _BAD_FRAME, _UNKNOWN_KIND, _TOO_SHORT, _OUT_OF_PLACE = range(5)


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of a buffer, in its order; all positions are offsets into it."""

    frame_start: Ints
    start: Ints  # the message's letter
    body: Ints  # the first byte after the letter and, inside a streamed block, the xid
    stop: Ints  # one past the message and its frame
    kind: Bytes
    relation: Oids  # the table's oid for I, U, D and R; else 0
    xid: Oids  # the first field of streamed messages (and of S, c, A); else 0
    tail: int  # where the first incomplete frame begins
    in_stream: bool  # the buffer ends inside a streamed block

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> Messages:
        """Some of the messages."""
        return Messages(
            self.frame_start[rows],
            self.start[rows],
            self.body[rows],
            self.stop[rows],
            self.kind[rows],
            self.relation[rows],
            self.xid[rows],
            self.tail,
            self.in_stream,
        )


def scan(data: Bytes, start: int = 0, stop: int | None = None, *, in_stream: bool = False) -> Messages:
    """Find the messages in the whole frames of `data[start:stop]`."""
    stop = len(data) if stop is None else stop
    count, tail = _count(data, start, stop)
    places = np.empty((4, count), np.int64)
    kind = np.empty(count, np.uint8)
    relation, xid = np.zeros(count, np.uint32), np.zeros(count, np.uint32)
    done, trouble, in_stream = _fill(data, start, in_stream, places, kind, relation, xid)
    if trouble != _FINE:
        raise _error(trouble, data, int(places[0, done]), int(places[1, done]))
    return Messages(places[0], places[1], places[2], places[3], kind, relation, xid, tail, in_stream)


def alone(kind: int, body: bytes) -> bytes:
    """A message as one frame, as outside of a streamed block; the positions in its header are zero."""
    payload = b"w" + bytes(_XLOG_HEADER - 1) + bytes([kind]) + body
    return b"d" + (len(payload) + 4).to_bytes(4, "big") + payload


def _error(trouble: int, data: Bytes, frame: int, start: int) -> Definite | Transient:
    where = f"frame at byte {frame} of the buffer"
    if trouble == _BAD_FRAME:
        return Transient(
            "PG_BAD_FRAME",
            "the replication stream is garbled",
            detail=f"{where}: its length is impossible",
            hint="nothing to do: the stream is read again from the last acknowledged position",
        )
    letter = f"kind {bytes(data[start : start + 1])!r}, {where}"
    if trouble == _UNKNOWN_KIND:
        return Definite(
            "PG_UNKNOWN_MESSAGE",
            "the server sent a message that this version does not know",
            detail=letter,
            hint="upgrade headrace; nothing is acknowledged until it can read the message",
        )
    what = "is too short" if trouble == _TOO_SHORT else "does not belong where it stands"
    return Definite(
        "PG_BAD_MESSAGE",
        f"a message of the replication stream {what}",
        detail=letter,
        hint="report it with the server's version; nothing is acknowledged until it can be read",
    )


_HOP = several(types.int64, types.int64)
_LETTER = several(types.int64, types.int64, types.int64)
_BODY = several(types.int64, types.int64, types.int64, types.int64)


@kernel(_HOP, input_array(types.uint8), types.int64, types.int64)
def _count(data: Bytes, start: int, stop: int) -> tuple[int, int]:
    # A malformed frame counts too, so that the second pass has a place to report it.
    at, count = start, 0
    while at + _FRAME <= stop:
        length = int32_at(data, at + 1)
        if length < 4 or length > LONGEST:
            return count + 1, at
        if at + 1 + length > stop:
            break
        at += 1 + length
        count += 1
    return count, at


@kernel(_LETTER, input_array(types.uint8), types.int64, types.int64)
def _letter(data: Bytes, frame: int, stop: int) -> tuple[int, int, int]:
    """Read the head of a frame: the message's kind, its start, and the trouble with it."""
    at = frame + _FRAME
    if data[frame] != _COPY_DATA:
        return OTHER, at, _FINE
    if at < stop and data[at] == _XLOG_DATA:
        if stop - at <= _XLOG_HEADER:
            return OTHER, at, _TOO_SHORT
        at += _XLOG_HEADER
        return int(data[at]), at, _UNKNOWN_KIND if _LEAST[data[at]] == _UNKNOWN else _FINE
    if at < stop and data[at] == KEEPALIVE:
        return KEEPALIVE, at, _TOO_SHORT if stop - at < _KEEPALIVE_SIZE else _FINE
    return OTHER, at, _UNKNOWN_KIND


@kernel(_BODY, input_array(types.uint8), types.int64, types.int64, types.int64, types.boolean)
def _body(data: Bytes, letter: int, start: int, stop: int, in_stream: bool) -> tuple[int, int, int, int]:
    """Read the head of a plugin message: the start of its body, its relation, its xid, its trouble."""
    at = start + 1
    relation = xid = 0
    if _OUTSIDE[letter] == 1 if in_stream else letter == STREAM_STOP:
        return at, relation, xid, _OUT_OF_PLACE
    first = _FIRST[letter]
    if in_stream and first >= _OID_FIRST:
        if stop - at < 4:
            return at, relation, xid, _TOO_SHORT
        xid = int32_at(data, at)
        at += 4
    if stop - at < _LEAST[letter]:
        return at, relation, xid, _TOO_SHORT
    if first == _XID_FIRST:
        xid = int32_at(data, at)
    elif first == _OID_FIRST:
        relation = int32_at(data, at)
    return at, relation, xid, _FINE


@kernel(
    several(types.int64, types.int64, types.boolean),
    input_array(types.uint8),
    types.int64,
    types.boolean,
    output_array(types.int64, 2),
    output_array(types.uint8),
    output_array(types.uint32),
    output_array(types.uint32),
)
def _fill(
    data: Bytes, at: int, in_stream: bool, places: Ints, kind: Bytes, relation: Oids, xid: Oids
) -> tuple[int, int, bool]:
    """Fill one column of `places` for each message; trouble ends it early, with the message's number."""
    for i in range(len(kind)):
        places[0, i] = places[1, i] = at
        length = int32_at(data, at + 1)
        if length < 4 or length > LONGEST:
            return i, _BAD_FRAME, in_stream
        stop = at + 1 + length
        letter, start, trouble = _letter(data, at, stop)
        body, kind[i] = start, letter
        places[1, i] = start
        if trouble == _FINE and letter not in (OTHER, KEEPALIVE):
            body, relation[i], xid[i], trouble = _body(data, letter, start, stop, in_stream)
        if trouble != _FINE:
            return i, trouble, in_stream
        places[2, i], places[3, i] = body, stop
        if letter in (STREAM_START, STREAM_STOP):
            in_stream = letter == STREAM_START
        at = stop
    return len(kind), _FINE, in_stream
