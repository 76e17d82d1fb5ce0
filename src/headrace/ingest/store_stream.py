"""The way of a read of the stream: its bytes go to the spool, its transactions into the spool's index.

Nothing here knows a message: the source has found where transactions begin and end, and counted their
changes.

    data       k  B R I I C  k  B I U C  B I I I I I I
    spool         └────────────────────────────────────   first begin to the last end; to the data's end
    index         (1: BRIIC)    (2: BIUC)                 where a transaction stays open

Transactions that came while they ran are kept apart, each in files of its own (`spool.running_files`); what
stands in the spool at their place in the order of commits is the message of their end.

After a restart the source sends again what was not acknowledged. Transactions that are complete in the
lake or in the spool (`time < floor`) are not stored a second time, but they are compared with what
the spool has of them (`replay_check`). Descriptions of tables are kept from them all the same, since they
hold for what follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headrace.decode.kernel import Ints
from headrace.ingest.replay_check import RecentTransactions
from headrace.sources.contract.stream import StreamRead
from headrace.spool.layout import RECORD, Kind, Records
from headrace.spool.running_files import TransactionName
from headrace.spool.writer import SpoolWriter


@dataclass(frozen=True, slots=True)
class _Open:
    """The whole transaction whose end has not come yet."""

    start: int  # its address in the spool
    time: int


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a read in the spool: its byte `start` at address `base`."""

    start: int
    base: int

    def address(self, offset: int) -> int:
        """The address of a byte; of one that was not stored, the first one after it."""
        return self.base + max(0, offset - self.start)

    def addresses(self, offsets: Ints) -> Ints:
        """The addresses of bytes, each as `address` has it."""
        return np.asarray(self.base + np.maximum(0, offsets - self.start))


class Intake:
    """The way of one session's bytes into the spool."""

    def __init__(self, writer: SpoolWriter, known: RecentTransactions) -> None:
        self._writer = writer
        self._known = known
        self._floor = writer.frontier
        self._open: _Open | None = None
        self._amid = False
        self._running: dict[int, TransactionName] = {}
        self._reached = writer.frontier

    @property
    def running(self) -> Mapping[int, TransactionName]:
        """The transactions that came in part and have not ended, by number."""
        return self._running

    @property
    def running_bytes(self) -> int:
        """The bytes that have come of them."""
        return sum(map(self._writer.streamed.size, self._running.values()))

    @property
    def needed_from(self) -> int | None:
        """The address where the open transaction begins, if one is open and stored."""
        return None if self._open is None or self._is_known(self._open.time) else self._open.start

    @property
    def is_ahead(self) -> bool:
        """Tell whether the source has read further than the spool's index says."""
        return self._open is None and not self._amid and self._reached > self._writer.frontier

    def settle(self) -> None:
        """Write down how far the source has read without a transaction for us."""
        if self.is_ahead:
            self._writer.progress(self._reached)

    def take(self, arrival: StreamRead) -> None:
        """Store what was read."""
        self._amid = arrival.amid
        self._keep_running(arrival)
        if arrival.source_end is not None:
            self._writer.note_source_end(*arrival.source_end)
        records = self._records(arrival)
        self._known.compare(records)
        self._known.pass_frontier(arrival.complete)
        self._reached = max(self._reached, arrival.complete)
        place = self._store(arrival)
        for layout in arrival.layouts:
            self._writer.layout(layout.table, place.address(layout.at), layout.frame)
        for position in arrival.positions:
            self._writer.places.say(position)
        self._index(records, arrival, place)

    def _is_known(self, time: int) -> bool:
        return time < self._floor

    def _keep_running(self, received: StreamRead) -> None:
        """Add to the files of transactions that run; those of one that was rolled back go."""
        for number, data in received.running.items():
            own = self._running.setdefault(number, TransactionName(self._writer.segment, number))
            if len(data):
                self._writer.streamed.append(own, data)
        for number in received.rolled_back:
            gone = self._running.pop(number, None)
            if gone is not None:
                self._writer.streamed.drop(gone)

    def _records(self, received: StreamRead) -> Records:
        """The transactions that ended as records of the index, but for their addresses."""
        ended = received.transactions
        records = np.zeros(len(ended), dtype=RECORD)
        for name in ("time", "end", "commit_ts", "changes", "truncates"):
            records[name] = ended[name]
        records["transaction"] = ended["number"]
        records["kind"] = np.where(ended["ran"], Kind.STREAMED, Kind.TRANSACTION)
        for at in np.flatnonzero(ended["ran"]).tolist():
            own = self._running[int(ended["number"][at])]
            records["own"][at], records["length"][at] = own.segment, self._writer.streamed.size(own)
        return records

    def _store(self, received: StreamRead) -> _Place:
        """Append what belongs to new transactions; where in the spool the bytes stand."""
        ended, opened = received.transactions, received.open
        starts = ended["start"][ended["time"] >= self._floor].tolist()
        if opened is not None and not self._is_known(opened.time):
            starts.append(opened.start)
        if not starts:
            return _Place(len(received.data), self._writer.address)  # all of it lies before
        start = max(0, min(starts))
        stop = len(received.data) if opened is not None else int(ended["stop"][-1])
        return _Place(start, self._writer.append(received.data[start:stop]))

    def _index(self, records: Records, received: StreamRead, place: _Place) -> None:
        """Record the transactions that ended, and remember the one that did not."""
        ended = received.transactions
        records["start"] = place.addresses(ended["start"])
        records["stop"] = place.addresses(ended["stop"])
        if self._open is not None:
            records["start"][ended["start"] < 0] = self._open.start
        for record in records[records["kind"] == Kind.STREAMED]:
            self._end(record, received)
        self._writer.commit(records[records["time"] >= self._floor])
        self._open = self._open_transaction(received, place)

    def _open_transaction(self, received: StreamRead, place: _Place) -> _Open | None:
        opened = received.open
        if opened is None:
            return None
        if opened.start < 0:
            return self._open
        return _Open(place.address(opened.start), opened.time)

    def _end(self, record: np.void, received: StreamRead) -> None:
        """The files of a transaction that ran and committed: they stay, unless it is known."""
        number = int(record["transaction"])
        own = self._running.pop(number)
        if self._is_known(int(record["time"])):
            self._writer.streamed.drop(own)
        elif record["length"]:
            self._writer.streamed.end(own, int(record["start"]), received.aborted_parts[number])
