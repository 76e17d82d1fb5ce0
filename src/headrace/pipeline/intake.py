"""What happens to a buffer of the stream: its transactions are found, and it goes to the spool.

Called by the receiver process with each buffer of whole CopyData frames. Nothing here looks at a row; of
each message only its kind and its length count, of a begin and a commit the positions as well:

    buffer     k  B R I I C  k  B I U C  B I I I I I I          k keepalive   R relation
    spool         └──────────────────────────────────           first begin to the last commit,
    index         (1: BRIIC)    (2: BIUC)                       or to the end where one stays open

After a restart the server sends again what was not acknowledged. Transactions that are complete in the
lake or in the spool (`commit LSN < floor`) are not stored a second time, but they are compared with what
the spool has of them: a server that now tells another history is a definite error. Descriptions of
tables are kept from them all the same, since they hold for what follows.

A keepalive says how far the server has read. That is a frontier only where no transaction is open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.core.errors import Definite
from headrace.core.position import Lsn
from headrace.decode import pgoutput
from headrace.decode.kernel import Bytes, Ints
from headrace.spool.layout import RECORD
from headrace.spool.reader import SpoolReader
from headrace.spool.writer import SpoolWriter

_CHANGES = np.zeros(256, np.int64)
_CHANGES[list(b"IUDT")] = 1
# Protocol 1 knows no streamed and no two-phase transactions. 'A' comes all the same (PostgreSQL 18).
_UNASKED = np.zeros(256, np.bool_)
_UNASKED[list(b"SEcbPpKr")] = True
_RELATION = ord("R")

MOST_KNOWN = 1_000_000  # transactions of which the position is remembered for comparison


@dataclass(slots=True)
class _Open:
    """The transaction whose commit has not come yet."""

    start: int  # its address in the spool
    commit_lsn: int
    commit_ts: int
    xid: int
    changes: int


class Intake:
    """The way of one session's bytes into the spool."""

    def __init__(self, writer: SpoolWriter, known: Known) -> None:
        self._writer = writer
        self._known = known
        self._floor = writer.frontier
        self._open: _Open | None = None
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
        return self._open is None and self._reached > self._writer.frontier

    def settle(self) -> None:
        """Write down how far the server has read without a transaction for us."""
        if self.unsettled:
            self._writer.progress(self._reached)

    def take(self, data: Bytes) -> None:
        """Store a buffer of whole frames."""
        messages = pgoutput.scan(data)
        if np.any(_UNASKED[messages.kind]):
            raise _disorder("a kind of message that was not asked for")
        found = _match(data, messages, self._open)
        self._hear(data, messages, found)
        self._in_order(found)
        address = self._store(data, messages, found)
        self._describe(data, messages, address)
        self._index(found, messages, address)

    def _is_known(self, commit_lsn: int) -> bool:
        return commit_lsn < self._floor

    def _hear(self, data: Bytes, messages: pgoutput.Messages, found: _Found) -> None:
        """Learn from the last keepalive how far the server is."""
        alive = pgoutput.keepalives(data, messages)
        if not len(alive.row):
            return
        self._writer.heard(int(alive.wal_end[-1]), int(alive.time[-1]))
        self.asked = self.asked or bool(alive.reply_requested.any())
        if found.last_is_open:
            return
        last_commit = int(found.row[-1]) if len(found.row) else -1
        if alive.row[-1] > last_commit:
            self._reached = max(self._reached, int(alive.wal_end[-1]))

    def _in_order(self, found: _Found) -> None:
        """Commits come in the order of the log, and what comes again is what came before."""
        times = found.commit_lsn[: len(found.row)]
        if len(times):
            if np.any(np.diff(times) <= 0) or times[0] <= self._newest:
                raise _disorder("commits out of order")
            self._newest = int(times[-1])
            self._known.compare(times, found.xid[: len(times)])

    def _store(self, data: Bytes, messages: pgoutput.Messages, found: _Found) -> int:
        """Append what belongs to new transactions; the address that the buffer's byte 0 has."""
        new = np.flatnonzero(found.commit_lsn >= self._floor)
        if not len(new):
            return self._writer.address - len(data)  # nothing of it is stored; all lies before
        first = found.begin_row[new[0]]
        start = 0 if first < 0 else int(messages.frame_start[first])
        stop = len(data) if found.last_is_open else int(messages.stop[found.row[-1]])
        return self._writer.append(data[start:stop]) - start

    def _describe(self, data: Bytes, messages: pgoutput.Messages, address: int) -> None:
        """Keep the descriptions of tables, as whole frames."""
        for row in np.flatnonzero(messages.kind == _RELATION).tolist():
            start, stop = int(messages.frame_start[row]), int(messages.stop[row])
            frame = data[start:stop].tobytes()
            self._writer.relation(int(messages.relation[row]), address + start, frame)

    def _index(self, found: _Found, messages: pgoutput.Messages, address: int) -> None:
        """Record the transactions that ended, and remember the one that did not."""
        complete = len(found.row)
        starts = address + np.where(found.begin_row < 0, 0, messages.frame_start[found.begin_row])
        if self._open is not None:
            starts[0] = self._open.start
        records = np.zeros(complete, dtype=RECORD)
        for name in ("commit_lsn", "commit_ts", "xid", "changes"):
            records["time" if name == "commit_lsn" else name] = getattr(found, name)[:complete]
        records["end"] = found.end
        records["start"] = starts[:complete]
        records["stop"] = address + messages.stop[found.row]
        self._writer.commit(records[records["time"] >= self._floor])
        self._open = None
        if found.last_is_open:
            self._open = _Open(
                int(starts[-1]),
                int(found.commit_lsn[-1]),
                int(found.commit_ts[-1]),
                int(found.xid[-1]),
                int(found.changes[-1]),
            )


@dataclass(frozen=True, slots=True)
class _Found:
    """The transactions of a buffer in order; the last one may still be open.

    `begin_row` is -1 for one that was open before the buffer. `row` (of the commit) and `end` have one
    entry fewer if the last is open.
    """

    begin_row: Ints
    commit_lsn: Ints
    commit_ts: Ints
    xid: Ints
    changes: Ints
    row: Ints
    end: Ints

    @property
    def last_is_open(self) -> bool:
        return len(self.begin_row) > len(self.row)


def _match(data: Bytes, messages: pgoutput.Messages, before: _Open | None) -> _Found:
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
    ):
        raise _disorder("begins and commits that do not fit")
    totals = np.concatenate([[0], np.cumsum(_CHANGES[messages.kind])])
    upto = np.append(commits.row, len(messages)) if len(begin_row) > complete else commits.row
    changes = totals[upto] - totals[np.maximum(begin_row, 0)]
    if changes.sum() != totals[-1]:
        raise _disorder("a change outside of a transaction")
    if before is not None:
        changes[0] += before.changes
    return _Found(begin_row, lsn, ts, xid, changes, commits.row, commits.end_lsn)


def _led(value: int, values: Ints) -> Ints:
    return np.concatenate([np.array([value], np.int64), values])


class Known:
    """The newest transactions that the spool held when the session began, to compare with."""

    def __init__(self, times: Ints, xids: Ints) -> None:
        self._times = times
        self._xids = xids
        self._next = -1 if len(times) else 0  # which must come next; -1 while none has come

    @classmethod
    def of(cls, reader: SpoolReader) -> Known:
        times: Ints = np.empty(0, np.int64)
        xids: Ints = np.empty(0, np.int64)
        after = 0
        while len(found := reader.transactions(after)):
            times = np.concatenate([times, found["time"]])[-MOST_KNOWN:]
            xids = np.concatenate([xids, found["xid"]])[-MOST_KNOWN:]
            after = int(found["stop"][-1])
        return cls(times, xids)

    def compare(self, times: Ints, xids: Ints) -> None:
        """Refuse a server that sends other transactions than it did before."""
        if self._next == len(self._times):
            return
        again = (times >= self._times[0]) & (times <= self._times[-1])
        mine = times[again]
        if not len(mine) and self._next < 0:
            return
        begin = int(np.searchsorted(self._times, mine[0])) if self._next < 0 else self._next
        self._next = begin + len(mine)
        if (
            not np.array_equal(mine, self._times[begin : self._next])
            or not np.array_equal(xids[again], self._xids[begin : self._next])
            or (times[-1] > self._times[-1] and self._next < len(self._times))
        ):
            raise Definite(
                "PG_HISTORY_CHANGED",
                "the server sends other transactions than it did before at the same positions",
                detail=f"between {Lsn(int(times[0]))} and {Lsn(int(times[-1]))}",
                hint="it was restored or replaced; mirror it into a new lake to see the difference",
            )


def _disorder(what: str) -> Definite:
    return Definite(
        "PG_STREAM_DISORDERED",
        "the replication stream breaks the rules of its protocol",
        detail=what,
        hint="report it with the server's version; nothing is acknowledged until it can be read",
    )
