"""The positions and times in begins, commits and keepalives, for a whole buffer at once.

PostgreSQL has three positions for a transaction (`headrace.core.position`); here they are bare numbers in
arrays, as on the wire and in the lake. Times are microseconds since 1970, UTC. Xids have the 32 bits of the
wire: callers that need 64 widen them.

`scan` has checked that each message is long enough for the fields that are read here.

`whole` turns a transaction that was streamed while it ran into an ordinary one:

    S I(7) I(8) E  S I(7) E  ... c(7)      ─►      B(7) I I I         the same bytes, without the xids

A great number of small streamed transactions would cost far more to read one by one than their changes cost.
As ordinary transactions, one after the other, they are read at once. The caller has left out what was rolled
back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import types

from headrace.decode.kernel import Bytes, Flags, Ints, input_array, int32_at, int64_at, kernel, output_array
from headrace.decode.pgoutput.framing import (
    BEGIN,
    COMMIT,
    DELETE,
    INSERT,
    KEEPALIVE,
    RELATION,
    STREAM_COMMIT,
    TRUNCATE,
    UPDATE,
    Messages,
    alone,
)

# PostgreSQL counts from 2000-01-01.
_EPOCH = 946_684_800_000_000


@dataclass(frozen=True, slots=True)
class BeginMessages:
    """The B messages: `row` is the message's number."""

    row: Ints
    commit_lsn: Ints
    commit_ts: Ints
    xid: Ints


@dataclass(frozen=True, slots=True)
class Commits:
    """The C (or c) messages: `row` is the message's number, `xid` is 0 for C."""

    row: Ints
    commit_lsn: Ints
    end_lsn: Ints
    commit_ts: Ints
    xid: Ints


@dataclass(frozen=True, slots=True)
class Keepalives:
    """The keepalives: `wal_end` is an exclusive frontier at which no transaction is open."""

    row: Ints
    wal_end: Ints
    time: Ints
    reply_requested: Flags


def begins(data: Bytes, messages: Messages) -> BeginMessages:
    """All BEGINs of the buffer."""
    row, body = _of(messages, BEGIN)
    return BeginMessages(
        row,
        _int64s(data, body),
        _int64s(data, body + 8) + _EPOCH,
        _int32s(data, body + 16),
    )


def begin_body(commit_lsn: int, commit_ts: int, xid: int) -> bytes:
    """A BEGIN with these values, without its letter."""
    numbers = ((commit_lsn, 8), (commit_ts - _EPOCH, 8), (xid & 0xFFFFFFFF, 4))
    return b"".join(number.to_bytes(size, "big", signed=number < 0) for number, size in numbers)


def commits(data: Bytes, messages: Messages) -> Commits:
    """All COMMITs of the buffer."""
    row, body = _of(messages, COMMIT)
    return _commits(data, row, body, np.zeros(len(row), np.int64))


def stream_commits(data: Bytes, messages: Messages) -> Commits:
    """All STREAM COMMITs of the buffer."""
    row, body = _of(messages, STREAM_COMMIT)
    return _commits(data, row, body + 4, _int32s(data, body))


def keepalives(data: Bytes, messages: Messages) -> Keepalives:
    """All keepalives of the buffer."""
    row = np.flatnonzero(messages.kind == KEEPALIVE)
    start = messages.start[row]
    return Keepalives(
        row,
        _int64s(data, start + 1),
        _int64s(data, start + 9) + _EPOCH,
        data[start + 17] != 0,
    )


def shift(data: Bytes, messages: Messages, by: int) -> Bytes:
    """Copy the bytes, with all positions of these messages shifted."""
    _, begun = _of(messages, BEGIN)
    _, committed = _of(messages, COMMIT)
    _, streamed = _of(messages, STREAM_COMMIT)
    alive = messages.start[messages.kind == KEEPALIVE]
    at = np.concatenate([begun, committed + 1, committed + 9, streamed + 5, streamed + 13, alive + 1])
    moved = data.copy()
    moved[at[:, None] + np.arange(8)] = (_int64s(data, at) + by).astype(">i8").view(np.uint8).reshape(-1, 8)
    return moved


def _of(messages: Messages, kind: int) -> tuple[Ints, Ints]:
    row = np.flatnonzero(messages.kind == kind)
    return row, messages.body[row]


def _commits(data: Bytes, row: Ints, flags: Ints, xid: Ints) -> Commits:
    return Commits(
        row,
        _int64s(data, flags + 1),
        _int64s(data, flags + 9),
        _int64s(data, flags + 17) + _EPOCH,
        xid,
    )


def _int64s(data: Bytes, at: Ints) -> Ints:
    values = np.empty(len(at), np.int64)
    _read_int64s(data, at, values)
    return values


def _int32s(data: Bytes, at: Ints) -> Ints:
    values = np.empty(len(at), np.int64)
    _read_int32s(data, at, values)
    return values


@kernel(types.void, input_array(types.uint8), input_array(types.int64), output_array(types.int64))
def _read_int64s(data: Bytes, at: Ints, values: Ints) -> None:
    for i in range(len(at)):
        values[i] = int64_at(data, at[i])


@kernel(types.void, input_array(types.uint8), input_array(types.int64), output_array(types.int64))
def _read_int32s(data: Bytes, at: Ints, values: Ints) -> None:
    for i in range(len(at)):
        values[i] = int32_at(data, at[i])


_KEPT = (INSERT, UPDATE, DELETE, TRUNCATE, RELATION)
_XID = 4
_LENGTH = 4


def whole(data: Bytes, messages: Messages, *, commit_lsn: int, commit_ts: int, xid: int) -> Bytes:
    """These messages of a streamed transaction after a BEGIN, without the xids of their subtransactions."""
    kept = messages.take(np.isin(messages.kind, _KEPT))
    lengths = (kept.stop - kept.frame_start - 1 - _XID).astype(">i4")
    shorter = data.copy()
    shorter[kept.frame_start[:, None] + 1 + np.arange(_LENGTH)] = lengths.view(np.uint8).reshape(-1, _LENGTH)
    edges = np.zeros(len(data) + 1, np.int8)
    np.add.at(edges, kept.frame_start, 1)
    np.add.at(edges, kept.body - _XID, -1)
    np.add.at(edges, kept.body, 1)
    np.add.at(edges, kept.stop, -1)
    changes = shorter[np.cumsum(edges[:-1], dtype=np.int8).astype(np.bool_)]
    begin = alone(BEGIN, begin_body(commit_lsn, commit_ts, xid))
    return np.concatenate([np.frombuffer(begin, np.uint8), changes])
