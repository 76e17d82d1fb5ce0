"""The bytes and records of one read of the stream, put together frame by frame.

    data       [BEGIN map rows rows] [BEGIN ALTERED] [BEGIN map rows ...    whole transactions, one open
    running    7: [map rows]                                                XA, until its end

A BEGIN is written with the first frame behind it, and maps of tables with the first rows: of a transaction
that has nothing of a wanted table there are no bytes.

MariaDB logs a transaction that was rolled back, or a part of it, where it made a temporary table or changed
one of an engine without transactions. Wanted tables keep nothing of it: its bytes are taken back. So a small
transaction is held back while it is open; of a large one the tables that it touched are marked. Which of the
two never hangs on where a read ends: what comes again after a restart has to be the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.core.position import STEP, Position
from headrace.decode.kernel import Bytes
from headrace.sources.contract.stream import TRANSACTION, Open, StreamRead, Transactions
from headrace.sources.mysql.ddl.steps import Reason
from headrace.sources.mysql.gtid_set import Gtid
from headrace.sources.mysql.mariadb_position import MariadbGtid
from headrace.sources.mysql.position import LoggedTransaction
from headrace.sources.mysql.stream import frames
from headrace.sources.mysql.stream.events import BinlogEvent
from headrace.sources.mysql.stream.ordinary import FirstTransaction, Rows, TransactionRun

Table = tuple[str, str]
MOST_HELD = 1 << 19  # bytes of a transaction that is held back; less than a read
MOST_SAVEPOINTS = 1 << 12  # of a transaction that are remembered
MOST_WAITING = 1 << 12  # maps without rows so far, of which most say the same again


@dataclass(slots=True)
class EventGroup:
    """A transaction whose end has not come yet, or one that is prepared."""

    gtid: Gtid | MariadbGtid
    time: int
    commit_ts: int
    event: BinlogEvent  # that named it
    alone: bool
    is_open: bool
    xa: bool
    place: LoggedTransaction | None = None  # of its name in the log
    number: int = 0
    has_rows: bool = False
    start: int = -1  # of its bytes in this read
    changes: int = 0
    truncates: int = 0
    maps: dict[bytes, Table | None] = field(default_factory=dict)
    waiting: list[bytes] = field(default_factory=list)  # maps, until rows follow
    touched_tables: set[Table] = field(default_factory=set)
    is_marked: bool = False  # something is said of it that no rollback takes back
    savepoints: dict[bytes, tuple[int, int] | None] = field(default_factory=dict)  # None: set twice

    def await_rows(self, frame: bytes) -> None:
        """Keep a map until rows follow.

        A statement maps each table that it may write, so a transaction may have millions of maps of a wanted
        table and no row of it. Of many the newest of each number are kept: no others mean anything.
        """
        self.waiting.append(frame)
        if len(self.waiting) > MOST_WAITING:
            number = slice(frames.HEADER.size, frames.HEADER.size + 6)
            self.waiting = list({each[number]: each for each in self.waiting}.values())


class Gathering:
    """All that one read brings."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ended: list[tuple[bool, int, int, int, int, int, int, int, int]] = []
        self._ended_before: list[Transactions] = []
        self._running: dict[int, bytearray] = {}
        self._gone: list[int] = []
        self._aborted: dict[int, tuple[int, ...]] = {}

    @property
    def size(self) -> int:
        """The bytes that wait to be handed on."""
        return len(self._data) + sum(map(len, self._running.values()))

    def add_rows(self, group: EventGroup, event: BinlogEvent, table: Table) -> None:
        """Rows of a wanted table."""
        out, size = self._out(group), frames.HEADER.size + len(event.body)
        out += frames.HEADER.pack(
            event.timestamp, event.kind, event.server, size, event.position, event.flags
        )
        out += event.body
        group.changes += 1
        group.touched_tables.add(table)

    def add_many(self, group: EventGroup, rows: Rows, tables: Sequence[Table]) -> None:
        """Maps and rows of an open transaction that were taken at once."""
        group.maps.update((number, tables[at] if at >= 0 else None) for number, at in rows.map_tables)
        if rows.changes:
            out = self._out(group)
            out += memoryview(rows.data)  # type: ignore[arg-type]
            group.changes += rows.changes
            group.touched_tables.update(tables[at] for at in rows.touched_tables)

    def add_whole(self, run: TransactionRun, first: FirstTransaction) -> None:
        """Transactions that were taken at once, from the first on."""
        if not len(run.written_at):
            return
        ended = np.zeros(len(run.written_at), TRANSACTION)
        at, commit_ts, changes, start, stop, _ = run.written_at.T
        prefix = first.prefix.decode()
        ended["number"] = [_number(f"{prefix}{first.number + each}") for each in at.tolist()]
        ended["time"] = first.time + STEP * at
        ended["end"] = ended["time"] + 1
        ended["commit_ts"], ended["changes"] = commit_ts, changes
        ended["start"], ended["stop"] = start + len(self._data), stop + len(self._data)
        self._ended_before += [np.array(self._ended, TRANSACTION), ended]
        self._ended = []
        self._data += memoryview(run.data)  # type: ignore[arg-type]

    def mark(
        self, group: EventGroup, event: BinlogEvent, reason: Reason | None, table: Table, steps: bytes = b""
    ) -> None:
        """Write down that a table was emptied, or what else happened to it, and by which steps."""
        if reason is None:
            kind, body = frames.TRUNCATE, frames.truncate(*table)
        else:
            kind, body = frames.ALTERED, frames.altered_frame(reason, *table, steps)
        group.truncates += 1
        out = self._out(group)
        out += frames.frame(kind, event.timestamp, event.server, body, flags=event.flags)
        group.changes += 1
        group.is_marked = True

    def set_savepoint(self, group: EventGroup, name: bytes) -> None:
        """Remember the place that a transaction may be rolled back to.

        Of very many the first are: a rollback to a later one marks the tables that were touched. None is
        forgotten, since within a function the same name is another savepoint.
        """
        if name in group.savepoints:
            group.savepoints[name] = None
        elif len(group.savepoints) < MOST_SAVEPOINTS:
            group.savepoints[name] = (
                (len(self._data) - group.start, group.changes) if group.has_rows else (0, 0)
            )

    def roll_back(self, group: EventGroup, event: BinlogEvent, name: bytes | None = None) -> None:
        """Roll back all that was logged, or what follows a savepoint."""
        place = (0, 0) if name is None else group.savepoints.get(name)
        if not group.has_rows:
            group.waiting.clear()
        elif place is None or group.is_marked or not _holds(self._data, group):
            for table in sorted(group.touched_tables):
                self.mark(group, event, Reason.ROLLED_BACK, table)
        else:
            size, group.changes = place
            del self._data[group.start + size :]
            if not size:
                group.has_rows, group.start = False, -1
            group.waiting.clear()

    def held_back(self, group: EventGroup | None) -> Gathering:
        """The gathering of the next read: it has what is held back of this one."""
        following = Gathering()
        if group is not None and group.has_rows and _holds(self._data, group):
            following._data = self._data[group.start :]
            del self._data[group.start :]
            group.start = 0
        return following

    def end(self, group: EventGroup, frontier: int) -> None:
        """The transaction has ended."""
        self._record(group, group, frontier, group.start)

    def end_running(self, end: EventGroup, own: EventGroup, frontier: int) -> None:
        """A transaction that came while it ran has ended: its name stands at the place of the end."""
        start = len(self._data)
        self._data += _begin_frame(end)
        self._aborted[own.number] = ()
        self._record(end, own, frontier, start, ran=True)

    def drop_running(self, own: EventGroup) -> None:
        """A transaction that came while it ran was rolled back."""
        self._gone.append(own.number)

    @property
    def last_end(self) -> int | None:
        """The frontier behind the last transaction that ended; None where none did."""
        if self._ended:
            return self._ended[-1][2]
        return int(self._ended_before[-1]["end"][-1]) if self._ended_before else None

    def as_arrival(
        self,
        group: EventGroup | None,
        size: int,
        positions: Sequence[Position],
        source_end: tuple[int, int] | None,
    ) -> StreamRead:
        """All of it, of so many bytes; `group` goes on in the next read. The last place is complete."""
        opened, amid = None, False
        if group is not None and group.has_rows:
            opened, amid = (None, True) if group.xa else (Open(group.start, group.time), False)
            group.start = -1
        return StreamRead(
            size=size,
            data=_bytes(self._data),
            transactions=np.concatenate([*self._ended_before, np.array(self._ended, TRANSACTION)]),
            open=opened,
            running={number: _bytes(data) for number, data in self._running.items()},
            rolled_back=tuple(self._gone),
            aborted_parts=self._aborted,
            layouts=(),
            complete=positions[-1].time,
            source_end=source_end,
            amid=amid,
            positions=positions,
        )

    def _out(self, group: EventGroup) -> bytearray:
        """The list that a frame of the transaction goes to; what stands before it is there."""
        if not group.has_rows:
            group.has_rows, group.number = True, _number(str(group.gtid))
            if not group.xa:
                group.start = len(self._data)
                self._data += _begin_frame(group)
        out = self._running.setdefault(group.number, bytearray()) if group.xa else self._data
        for each in group.waiting:
            out += each
        group.waiting.clear()
        return out

    def _record(
        self, end: EventGroup, own: EventGroup, frontier: int, start: int, *, ran: bool = False
    ) -> None:
        counts = (own.number, own.changes, own.truncates)
        self._ended.append((ran, end.time, frontier, end.commit_ts, *counts, start, len(self._data)))


def _holds(data: bytearray, group: EventGroup) -> bool:
    """Tell whether a transaction with rows is small enough to be held back."""
    return group.start >= 0 and len(data) - group.start <= MOST_HELD


def map_frame(event: BinlogEvent) -> bytes:
    """The map of a table, to be written with its rows."""
    return frames.frame(
        event.kind, event.timestamp, event.server, bytes(event.body), event.position, event.flags
    )


def _begin_frame(group: EventGroup) -> bytes:
    event = group.event
    body = frames.begin(group.time, group.commit_ts, str(group.gtid))
    return frames.frame(frames.BEGIN, event.timestamp, event.server, body, flags=event.flags)


def _number(gtid: str) -> int:
    """A number that stands for a name: it only tells one from the other."""
    return int.from_bytes(hashlib.sha256(gtid.encode()).digest()[:8], "big") >> 1


def _bytes(data: bytearray) -> Bytes:
    return np.frombuffer(data, np.uint8)
