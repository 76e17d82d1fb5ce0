"""What happens to a buffer of the stream: its transactions are found, and it goes to the spool.

Called by the receiver process with each buffer of whole CopyData frames. Nothing here looks at a row; of
each message only its kind and its length count, of a begin and a commit the positions as well:

    buffer     k  B R I I C  k  B I U C  S I I E  B I I I I I I          k keepalive   R relation
    spool         └────────────────────           └─────────────         first begin to the last commit,
    index         (1: BRIIC)    (2: BIUC)                                or to the end where one stays open

Blocks of transactions that are streamed while they run (S ... E) never stand inside of a whole one. They
are cut out and kept apart (`open_transactions`); what stands in the spool at their place in the order of
commits is the message of their commit.

After a restart the server sends again what was not acknowledged. Transactions that are complete in the
lake or in the spool (`commit LSN < floor`) are not stored a second time, but they are compared with what
the spool has of them (`replay_check`). Descriptions of tables are kept from them all the same, since they
hold for what follows.

The positions of a server that was set back are shifted here (`recovery`), before anybody reads one.

A keepalive says how far the server has read. That is a frontier only where no transaction is being sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.decode import pgoutput
from headrace.decode.kernel import Bytes, Flags, Ints
from headrace.pipeline.ingest.open_transactions import (
    CHANGES,
    RELATION,
    START,
    STOP,
    TRUNCATE,
    Ended,
    InProgress,
    disorder,
)
from headrace.pipeline.ingest.replay_check import Known
from headrace.spool.layout import RECORD, Kind, Records
from headrace.spool.writer import SpoolWriter

# Never asked for: two-phase transactions, since our slots have none. A server that was not asked to stream
# transactions sends no S, E, c; 'A' comes all the same (PostgreSQL 18).
_NEVER, _ONLY_STREAMING = b"bPpKr", b"SEc"


@dataclass(slots=True)
class _Open:
    """The whole transaction whose commit has not come yet."""

    start: int  # its address in the spool
    commit_lsn: int
    commit_ts: int
    xid: int
    changes: int
    truncates: int


class Intake:
    """The way of one session's bytes into the spool."""

    def __init__(self, writer: SpoolWriter, known: Known, *, streaming: bool = False, shift: int = 0) -> None:
        self._writer = writer
        self._shift = shift
        self._known = known
        self._floor = writer.frontier
        self._unasked = np.zeros(256, np.bool_)
        self._unasked[list(_NEVER if streaming else _NEVER + _ONLY_STREAMING)] = True
        self._open: _Open | None = None
        self._in_stream = False
        self.running = InProgress(writer)
        self._newest = -1  # the commit LSN that came last
        self._reached = writer.frontier
        self.asked = False  # whether the server has asked for a reply; the caller takes it back

    @property
    def needed_from(self) -> int | None:
        """The address where the open transaction begins, if one is open and stored."""
        return None if self._open is None or self._is_known(self._open.commit_lsn) else self._open.start

    @property
    def unsettled(self) -> bool:
        """Whether the server has read further than the spool's index says."""
        return self._open is None and not self._in_stream and self._reached > self._writer.frontier

    def settle(self) -> None:
        """Write down how far the server has read without a transaction for us."""
        if self.unsettled:
            self._writer.progress(self._reached)

    def take(self, data: Bytes) -> None:
        """Store a buffer of whole frames."""
        messages = pgoutput.scan(data, in_stream=self._in_stream)
        if np.any(self._unasked[messages.kind]):
            raise disorder("a kind of message that was not asked for")
        if self._shift:
            data = pgoutput.shifted(data, messages, self._shift)
        blocks = _Blocks.of(messages, len(data), self._in_stream)
        self._in_stream = messages.in_stream
        found = _match(data, messages, blocks, self._open)
        ended = self.running.take(data, messages)
        ends = _ends(data, messages, found, ended)
        alive = self._hear(data, messages, ends, found)
        self._in_order(ends)
        self._known.passed(alive)
        self._reached = max(self._reached, alive)
        place = self._store(data, messages, blocks, found, ends)
        self._describe(data, messages, blocks, place, ended)
        self._index(messages, place, found, ends, ended)

    def _is_known(self, commit_lsn: int) -> bool:
        return commit_lsn < self._floor

    def _hear(self, data: Bytes, messages: pgoutput.Messages, ends: Records, found: _Found) -> int:
        """Up to where the server has sent all there is, by the last keepalive; 0 where that says nothing."""
        alive = pgoutput.keepalives(data, messages)
        if not len(alive.row):
            return 0
        self._writer.heard(int(alive.wal_end[-1]), int(alive.time[-1]))
        self.asked = self.asked or bool(alive.reply_requested.any())
        if found.last_is_open or self._in_stream or (len(ends) and alive.row[-1] < ends["row"][-1]):
            return 0
        return int(alive.wal_end[-1])

    def _in_order(self, ends: Records) -> None:
        """Commits come in the order of the log, and what comes again is what came before."""
        times = ends["time"]
        if len(times):
            if np.any(np.diff(times) <= 0) or times[0] <= self._newest:
                raise disorder("commits out of order")
            self._newest = int(times[-1])
            self._known.compare(ends)

    def _store(
        self, data: Bytes, messages: pgoutput.Messages, blocks: _Blocks, found: _Found, ends: Records
    ) -> _Place:
        """Append what belongs to new transactions; where in the spool the bytes of the buffer stand."""
        firsts = [_first_frame(messages, found.begin_row[found.commit_lsn >= self._floor])]
        streamed = ends["row"][(ends["time"] >= self._floor) & (ends["kind"] == Kind.STREAMED)]
        firsts.append(_first_frame(messages, streamed))
        start = min((first for first in firsts if first is not None), default=None)
        if start is None:
            return _Place(blocks, len(data), self._writer.address)  # all of it lies before
        stop = len(data) if found.last_is_open else int(messages.stop[ends["row"][-1]])
        return _Place(blocks, start, self._writer.append(blocks.without(data, start, stop)))

    def _describe(
        self,
        data: Bytes,
        messages: pgoutput.Messages,
        blocks: _Blocks,
        place: _Place,
        ended: Sequence[Ended],
    ) -> None:
        """Keep the descriptions of tables in the order in which they came to hold."""
        said = [
            (row, int(messages.relation[row]), data[messages.body[row] : messages.stop[row]].tobytes())
            for row in np.flatnonzero((messages.kind == RELATION) & blocks.outside).tolist()
        ]
        layouts = [(row, oid, pgoutput.alone(RELATION, body)) for row, oid, body in said]
        layouts += [(each.row, oid, frame) for each in ended for oid, frame in each.layouts.items()]
        layouts.sort(key=lambda layout: layout[0])
        addresses = place.addresses(messages.frame_start[[row for row, _, _ in layouts]]).tolist()
        for (_, oid, frame), address in zip(layouts, addresses, strict=True):
            self._writer.relation(oid, address, frame)

    def _index(
        self,
        messages: pgoutput.Messages,
        place: _Place,
        found: _Found,
        ends: Records,
        ended: Sequence[Ended],
    ) -> None:
        """Record the transactions that ended, and remember the one that did not."""
        starts = place.addresses(np.where(found.begin_row < 0, 0, messages.frame_start[found.begin_row]))
        if self._open is not None:
            starts[0] = self._open.start
        records = np.zeros(len(ends), dtype=RECORD)
        for name in ("kind", "time", "end", "commit_ts", "xid", "changes", "truncates", "own", "length"):
            records[name] = ends[name]
        whole = ends["kind"] == Kind.TRANSACTION
        records["start"][whole] = starts[: len(found.row)]
        records["start"][~whole] = place.addresses(messages.frame_start[ends["row"][~whole]])
        records["stop"] = place.addresses(messages.stop[ends["row"]])
        self._keep(records[~whole], ended)
        self._writer.commit(records[records["time"] >= self._floor])
        self._open = None
        if found.last_is_open:
            self._open = _Open(
                int(starts[-1]),
                int(found.commit_lsn[-1]),
                int(found.commit_ts[-1]),
                int(found.xid[-1]),
                int(found.changes[-1]),
                int(found.truncates[-1]),
            )

    def _keep(self, records: Records, ended: Sequence[Ended]) -> None:
        """The files of streamed transactions that committed: theirs for good, unless they are known."""
        for record, each in zip(records, ended, strict=True):
            if self._is_known(int(record["time"])):
                self._writer.streamed.drop(each.which)
            elif each.length:
                self._writer.streamed.end(each.which, int(record["start"]), each.struck)


def _first_frame(messages: pgoutput.Messages, rows: Ints) -> int | None:
    """Where the first of these messages begins; a row of -1 began before the buffer."""
    if not len(rows):
        return None
    return 0 if rows[0] < 0 else int(messages.frame_start[rows[0]])


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The streamed blocks of a buffer: whose bytes they are, and which messages stand outside."""

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

    def without(self, data: Bytes, start: int, stop: int) -> Bytes:
        """`data[start:stop]` without the blocks; both ends stand outside of them, or at an edge."""
        inner = (self.starts >= start) & (self.stops <= stop)
        if not inner.any():
            return data[start:stop]
        edges = np.stack([self.starts[inner], self.stops[inner]], axis=1).ravel().tolist()
        pieces = zip([start, *edges[1::2]], [*edges[::2], stop], strict=True)
        return np.concatenate([data[low:high] for low, high in pieces])

    def bytes_before(self, offsets: Ints) -> Ints:
        """How many bytes of blocks stand before each of these places outside of them."""
        lengths = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.stops - self.starts)])
        return np.asarray(lengths[np.searchsorted(self.stops, offsets, side="right")])


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a buffer stands in the spool: its byte `start` at address `base`, without the blocks."""

    blocks: _Blocks
    start: int
    base: int

    def addresses(self, offsets: Ints) -> Ints:
        """The addresses of bytes; of one that was not stored, the first one after it."""
        left_out = self.start + self.blocks.bytes_before(offsets)
        left_out = left_out - self.blocks.bytes_before(np.array([self.start]))
        return np.asarray(self.base + np.maximum(0, offsets - left_out))


@dataclass(frozen=True, slots=True)
class _Found:
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


def _match(data: Bytes, messages: pgoutput.Messages, blocks: _Blocks, before: _Open | None) -> _Found:
    """Join each begin to its commit, and count the changes between."""
    begins, commits = pgoutput.begins(data, messages), pgoutput.commits(data, messages)
    begin_row, lsn, ts, xid = begins.row, begins.commit_lsn, begins.commit_ts, begins.xid
    if before is not None:
        begin_row, lsn = _led(-1, begin_row), _led(before.commit_lsn, lsn)
        ts, xid = _led(before.commit_ts, ts), _led(before.xid, xid)
    complete = len(commits.row)
    if (
        len(begin_row) - complete not in (0, 1)
        or np.any(begin_row[:complete] >= commits.row)
        or np.any(begin_row[1:] <= commits.row[: len(begin_row) - 1])
        or not np.array_equal(lsn[:complete], commits.commit_lsn)
        or _torn(messages, begin_row, commits.row)
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
    return _Found(begin_row, lsn, ts, xid, changes, truncates, commits.row, commits.end_lsn)


def _between(counted: Ints, begins: Ints, ends: Ints) -> Ints:
    """How many are counted from each begin to its end; a begin of -1 was before the buffer."""
    totals = np.concatenate([np.zeros(1, np.int64), np.cumsum(counted)])
    return np.asarray(totals[ends] - totals[np.maximum(begins, 0)])


def _torn(messages: pgoutput.Messages, begins: Ints, commits: Ints) -> bool:
    """Whether a streamed block begins inside of a whole transaction."""
    blocks = np.flatnonzero(messages.kind == START)
    open_then = np.searchsorted(begins, blocks) - np.searchsorted(commits, blocks)
    return bool(open_then.any())


def _led(value: int, values: Ints) -> Ints:
    return np.concatenate([np.array([value], np.int64), values])


_END = np.dtype([("row", "<i8"), *[(name, RECORD[name]) for name in RECORD.names or ()]])


def _ends(data: Bytes, messages: pgoutput.Messages, found: _Found, ended: Sequence[Ended]) -> Records:
    """All commits of a buffer in order, whole transactions and streamed ones, as far as they are known."""
    complete = len(found.row)
    ends = np.zeros(complete + len(ended), dtype=_END)
    whole, streamed = ends[:complete], ends[complete:]
    whole["kind"], whole["row"], whole["end"] = Kind.TRANSACTION, found.row, found.end
    whole["time"], whole["commit_ts"] = found.commit_lsn[:complete], found.commit_ts[:complete]
    whole["xid"], whole["changes"] = found.xid[:complete], found.changes[:complete]
    whole["truncates"] = found.truncates[:complete]
    commits = pgoutput.stream_commits(data, messages)
    streamed["kind"], streamed["row"], streamed["end"] = Kind.STREAMED, commits.row, commits.end_lsn
    streamed["time"], streamed["commit_ts"] = commits.commit_lsn, commits.commit_ts
    streamed["xid"], streamed["changes"] = commits.xid, [each.changes for each in ended]
    streamed["truncates"] = [each.truncates for each in ended]
    streamed["own"] = [each.which.segment for each in ended]
    streamed["length"] = [each.length for each in ended]
    return ends[np.argsort(ends["row"], kind="stable")]
