"""The transactions in each buffer of the stream: found, counted, and returned as `StreamRead`.

This module looks at no row. It reads the kind and length of each message, and the positions of a begin and a
commit:

    buffer      k  B R I I C  k  B I U C  S I I E  B I I I I I I        k keepalive   R relation
    data        k  B R I I C  k  B I U C           B I I I I I I        without the blocks
    ended          (BRIIC)       (BIUC)            open: the last one
    running                               (I I)

Blocks of running transactions (S ... E) never stand inside a whole transaction. They are cut out and returned
apart (`running_transactions`). In the order of commits, such a transaction stands at its commit message.

Here positions become times: the base of a server that was set back is added before any code reads a position.

A keepalive says how far the server has read. That is a frontier only while no transaction is being sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.decode import pgoutput
from headrace.decode.kernel import Bytes, Flags, Ints
from headrace.sources.contract.stream import TRANSACTION, Layout, Open, StreamRead, Transactions
from headrace.sources.postgres.stream.running_transactions import (
    CHANGES,
    RELATION,
    START,
    STOP,
    TRUNCATE,
    Running,
    StreamedCommit,
    disorder,
)

# We never ask for two-phase transactions: our slots have none. Unless we ask it to stream transactions, the
# server sends no S, E, c; 'A' comes all the same (PostgreSQL 18).
_NEVER, _ONLY_STREAMING = b"bPpKr", b"SEc"


@dataclass(slots=True)
class _OpenTransaction:
    """The whole transaction whose commit has not come yet."""

    commit_lsn: int
    commit_ts: int
    xid: int
    changes: int
    truncates: int


class PostgresTransactionFinder:
    """Finds the transactions of one session in its buffers."""

    def __init__(self, *, streaming: bool = False, base: int = 0) -> None:
        self._base = base
        self._unasked = np.zeros(256, np.bool_)
        self._unasked[list(_NEVER if streaming else _NEVER + _ONLY_STREAMING)] = True
        self._open: _OpenTransaction | None = None
        self._in_stream = False
        self._running = Running()
        self._newest = -1  # the last commit LSN
        self.asked = False  # the server asked for a reply in the last buffer

    def take(self, data: Bytes) -> StreamRead:
        """Read a buffer of whole frames."""
        size = len(data)
        messages = pgoutput.scan(data, in_stream=self._in_stream)
        if np.any(self._unasked[messages.kind]):
            raise disorder("a kind of message that was not asked for")
        if self._base:
            data = pgoutput.shift(data, messages, self._base)
        blocks = _Blocks.of(messages, size, self._in_stream)
        self._in_stream = messages.in_stream
        found = _match(data, messages, blocks, self._open)
        running = self._running.take(data, messages)
        ends = _ends(data, messages, found, running.commits)
        self._in_order(ends)
        _place(ends, messages, blocks, found)
        alive = pgoutput.keepalives(data, messages)
        self.asked = bool(alive.reply_requested.any())
        self._open = found.last()
        return StreamRead(
            size=size,
            data=blocks.without(data),
            transactions=ends[_NAMES],
            open=_open_transaction(messages, blocks, found),
            running=running.bytes(),
            rolled_back=tuple(running.rolled_back),
            aborted_parts={each.xid: each.aborted_parts for each in running.commits},
            layouts=tuple(_layouts(data, messages, blocks, running.commits)),
            complete=self._complete(alive, ends, found),
            source_end=(int(alive.wal_end[-1]), int(alive.time[-1])) if len(alive.row) else None,
            amid=self._in_stream,
        )

    def _complete(self, alive: pgoutput.Keepalives, ends: Transactions, found: _TransactionSpans) -> int:
        """The position up to which the server has sent everything, by the last keepalive; 0 if unknown."""
        if not len(alive.row) or found.last_is_open or self._in_stream:
            return 0
        if len(ends) and alive.row[-1] < ends["row"][-1]:
            return 0
        return int(alive.wal_end[-1])

    def _in_order(self, ends: Transactions) -> None:
        """Raise unless commits come in the order of the log."""
        times = ends["time"]
        if len(times):
            if np.any(np.diff(times) <= 0) or times[0] <= self._newest:
                raise disorder("commits out of order")
            self._newest = int(times[-1])


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The streamed blocks of a buffer: the places of their bytes, and the messages outside of them."""

    starts: Ints
    stops: Ints
    outside: Flags

    @classmethod
    def of(cls, messages: pgoutput.Messages, size: int, in_stream: bool) -> _Blocks:
        begins, ends = messages.kind == START, messages.kind == STOP
        starts, stops = messages.frame_start[begins], messages.stop[ends]
        if in_stream:
            starts = np.concatenate([np.zeros(1, np.int64), starts])
        if messages.in_stream:
            stops = np.append(stops, size)
        depth = int(in_stream) + np.cumsum(begins) - np.cumsum(ends)
        return cls(starts, stops, (depth == 0) | begins)

    def without(self, data: Bytes) -> Bytes:
        """The bytes without the blocks."""
        if not len(self.starts):
            return data
        edges = np.stack([self.starts, self.stops], axis=1).ravel().tolist()
        pieces = zip([0, *edges[1::2]], [*edges[::2], len(data)], strict=True)
        return np.concatenate([data[low:high] for low, high in pieces])

    def places(self, offsets: Ints) -> Ints:
        """Convert places outside of the blocks, or at an edge, to places in the bytes without the blocks."""
        if not len(self.starts):
            return offsets
        lengths = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.stops - self.starts)])
        return np.asarray(offsets - lengths[np.searchsorted(self.stops, offsets, side="right")])


@dataclass(frozen=True, slots=True)
class _TransactionSpans:
    """The whole transactions of a buffer in order; the last one may still be open.

    `begin_row` is -1 for one that was open before the buffer. `row` (of the commit) and `end` have one
    entry fewer if the last is open.
    """

    begin_row: Ints
    commit_lsn: Ints
    commit_ts: Ints
    xid: Ints
    changes: Ints
    truncates: Ints
    row: Ints
    end: Ints

    @property
    def last_is_open(self) -> bool:
        return len(self.begin_row) > len(self.row)

    def last(self) -> _OpenTransaction | None:
        """The transaction that is open at the buffer's end."""
        if not self.last_is_open:
            return None
        last = (self.commit_lsn, self.commit_ts, self.xid, self.changes, self.truncates)
        return _OpenTransaction(*(int(values[-1]) for values in last))


def _match(
    data: Bytes, messages: pgoutput.Messages, blocks: _Blocks, before: _OpenTransaction | None
) -> _TransactionSpans:
    """Match each begin with its commit, and count the changes in between."""
    begins, commits = pgoutput.begins(data, messages), pgoutput.commits(data, messages)
    begin_row, lsn, ts, xid = begins.row, begins.commit_lsn, begins.commit_ts, begins.xid
    if before is not None:
        begin_row, lsn = _with_first(-1, begin_row), _with_first(before.commit_lsn, lsn)
        ts, xid = _with_first(before.commit_ts, ts), _with_first(before.xid, xid)
    complete = len(commits.row)
    if (
        len(begin_row) - complete not in (0, 1)
        or np.any(begin_row[:complete] >= commits.row)
        or np.any(begin_row[1:] <= commits.row[: len(begin_row) - 1])
        or not np.array_equal(lsn[:complete], commits.commit_lsn)
        or _is_torn(messages, begin_row, commits.row)
    ):
        raise disorder("begins and commits that do not fit")
    upto = np.append(commits.row, len(messages)) if len(begin_row) > complete else commits.row
    changed = CHANGES[messages.kind] * blocks.outside
    changes = _between(changed, begin_row, upto)
    if changes.sum() != changed.sum():
        raise disorder("a change outside of a transaction")
    truncates = _between(changed * (messages.kind == TRUNCATE), begin_row, upto)
    if before is not None:
        changes[0] += before.changes
        truncates[0] += before.truncates
    return _TransactionSpans(begin_row, lsn, ts, xid, changes, truncates, commits.row, commits.end_lsn)


def _between(counted: Ints, begins: Ints, ends: Ints) -> Ints:
    """Sum the counts from each begin to its end; a begin of -1 was before the buffer."""
    totals = np.concatenate([np.zeros(1, np.int64), np.cumsum(counted)])
    return np.asarray(totals[ends] - totals[np.maximum(begins, 0)])


def _is_torn(messages: pgoutput.Messages, begins: Ints, commits: Ints) -> bool:
    """Tell whether a streamed block begins inside of a whole transaction."""
    blocks = np.flatnonzero(messages.kind == START)
    open_then = np.searchsorted(begins, blocks) - np.searchsorted(commits, blocks)
    return bool(open_then.any())


def _with_first(value: int, values: Ints) -> Ints:
    return np.concatenate([np.array([value], np.int64), values])


_NAMES = list(TRANSACTION.names or ())
_END = np.dtype([("row", "<i8"), *[(name, TRANSACTION[name]) for name in _NAMES]])


def _ends(
    data: Bytes, messages: pgoutput.Messages, found: _TransactionSpans, ended: Sequence[StreamedCommit]
) -> Transactions:
    """All commits of a buffer in order, of whole transactions and of streamed ones."""
    complete = len(found.row)
    ends = np.zeros(complete + len(ended), dtype=_END)
    whole, streamed = ends[:complete], ends[complete:]
    whole["row"], whole["end"] = found.row, found.end
    whole["time"], whole["commit_ts"] = found.commit_lsn[:complete], found.commit_ts[:complete]
    whole["number"], whole["changes"] = found.xid[:complete], found.changes[:complete]
    whole["truncates"] = found.truncates[:complete]
    if not ended:
        return ends
    commits = pgoutput.stream_commits(data, messages)
    streamed["ran"], streamed["row"], streamed["end"] = True, commits.row, commits.end_lsn
    streamed["time"], streamed["commit_ts"] = commits.commit_lsn, commits.commit_ts
    streamed["number"], streamed["changes"] = commits.xid, [each.changes for each in ended]
    streamed["truncates"] = [each.truncates for each in ended]
    return ends[np.argsort(ends["row"], kind="stable")]


def _place(
    ends: Transactions, messages: pgoutput.Messages, blocks: _Blocks, found: _TransactionSpans
) -> None:
    """Fill in the place of each transaction's bytes."""
    ran = ends["ran"]
    begins = found.begin_row[: len(found.row)]
    first = blocks.places(messages.frame_start[np.maximum(begins, 0)])
    ends["start"][~ran] = np.where(begins < 0, -1, first)
    if ran.any():
        ends["start"][ran] = blocks.places(messages.frame_start[ends["row"][ran]])
    ends["stop"] = blocks.places(messages.stop[ends["row"]])


def _open_transaction(messages: pgoutput.Messages, blocks: _Blocks, found: _TransactionSpans) -> Open | None:
    if not found.last_is_open:
        return None
    row = int(found.begin_row[-1])
    start = -1 if row < 0 else int(blocks.places(messages.frame_start[row : row + 1])[0])
    return Open(start, int(found.commit_lsn[-1]))


def _layouts(
    data: Bytes, messages: pgoutput.Messages, blocks: _Blocks, ended: Sequence[StreamedCommit]
) -> list[Layout]:
    """The layouts of tables, in the order in which they take effect."""
    layouts = [
        (
            row,
            int(messages.relation[row]),
            pgoutput.alone(RELATION, data[messages.body[row] : messages.stop[row]].tobytes()),
        )
        for row in np.flatnonzero((messages.kind == RELATION) & blocks.outside).tolist()
    ]
    layouts += [(each.row, oid, frame) for each in ended for oid, frame in each.layouts.items()]
    if not layouts:
        return []
    layouts.sort(key=lambda layout: layout[0])
    places = blocks.places(messages.frame_start[[row for row, _, _ in layouts]]).tolist()
    return [Layout(oid, place, frame) for (_, oid, frame), place in zip(layouts, places, strict=True)]
