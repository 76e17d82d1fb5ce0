"""The bytes and records of one read of the stream, collected frame by frame.

    data       [BEGIN map rows rows] [BEGIN ALTERED] [BEGIN map rows ...    whole transactions, one open
    running    7: [map rows]                                                XA, until its end

A BEGIN is written with the first frame after it, and table maps with the first rows. So a transaction that
has nothing of a wanted table has no bytes.

MariaDB logs a rolled-back transaction, or the rolled-back part of one, if it made a temporary table or
changed a table of an engine without transactions. Wanted tables keep nothing of it: its bytes are removed
again. So a small transaction is held back while it is open. For a large one the tables that it touched are
marked. The choice never depends on where a read ends, because the same bytes must come again after a restart.
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
MOST_HELD = 1 << 19  # the most bytes of a transaction to hold back; less than a read
MOST_SAVEPOINTS = 1 << 12  # to remember of a transaction
MOST_WAITING = 1 << 12  # maps that wait for rows; with more, repeated ones are dropped


@dataclass(slots=True)
class EventGroup:
    """A transaction whose end has not come yet, or one that is prepared."""

    gtid: Gtid | MariadbGtid
    time: int
    commit_ts: int
    event: BinlogEvent  # the event with its name
    alone: bool
    is_open: bool
    xa: bool
    place: LoggedTransaction | None = None  # the place of its name in the log
    number: int = 0
    has_rows: bool = False
    start: int = -1  # of its bytes in this read
    changes: int = 0
    truncates: int = 0
    maps: dict[bytes, Table | None] = field(default_factory=dict)
    waiting: list[bytes] = field(default_factory=list)  # maps, until rows follow
    touched_tables: set[Table] = field(default_factory=set)
    is_marked: bool = False  # it has a mark, which no rollback removes
    savepoints: dict[bytes, tuple[int, int] | None] = field(default_factory=dict)  # None: set twice

    def await_rows(self, frame: bytes) -> None:
        """Keep a map until rows follow.

        A statement maps each table that it may write, so a transaction may have millions of maps of a wanted
        table and no row of it. If there are many, only the newest of each number is kept: the others mean
        nothing.
        """
        self.waiting.append(frame)
        if len(self.waiting) > MOST_WAITING:
            number = slice(frames.HEADER.size, frames.HEADER.size + 6)
            self.waiting = list({each[number]: each for each in self.waiting}.values())


class Gathering:
    """The result of one read, while it is collected."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ended: list[tuple[bool, int, int, int, int, int, int, int, int]] = []
        self._ended_before: list[Transactions] = []
        self._running: dict[int, bytearray] = {}
        self._gone: list[int] = []
        self._aborted: dict[int, tuple[int, ...]] = {}

    @property
    def size(self) -> int:
        """The bytes that were collected."""
        return len(self._data) + sum(map(len, self._running.values()))

    def add_rows(self, group: EventGroup, event: BinlogEvent, table: Table) -> None:
        """Add rows of a wanted table."""
        out, size = self._out(group), frames.HEADER.size + len(event.body)
        out += frames.HEADER.pack(
            event.timestamp, event.kind, event.server, size, event.position, event.flags
        )
        out += event.body
        group.changes += 1
        group.touched_tables.add(table)

    def add_many(self, group: EventGroup, rows: Rows, tables: Sequence[Table]) -> None:
        """Add maps and rows of an open transaction that the kernel took at once."""
        group.maps.update((number, tables[at] if at >= 0 else None) for number, at in rows.map_tables)
        if rows.changes:
            out = self._out(group)
            out += memoryview(rows.data)  # type: ignore[arg-type]
            group.changes += rows.changes
            group.touched_tables.update(tables[at] for at in rows.touched_tables)

    def add_whole(self, run: TransactionRun, first: FirstTransaction) -> None:
        """Add whole transactions that the kernel took at once, from the first on."""
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
        """Write a frame for a truncation of a table, or for another effect on it, with its steps."""
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
        """Remember the place to which a transaction may be rolled back.

        If there are very many, only the first are remembered: a rollback to a later one marks the touched
        tables. None is forgotten, since inside a function the same name is another savepoint.
        """
        if name in group.savepoints:
            group.savepoints[name] = None
        elif len(group.savepoints) < MOST_SAVEPOINTS:
            group.savepoints[name] = (
                (len(self._data) - group.start, group.changes) if group.has_rows else (0, 0)
            )

    def roll_back(self, group: EventGroup, event: BinlogEvent, name: bytes | None = None) -> None:
        """Roll back the whole transaction, or the part after a savepoint."""
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
        """The gathering of the next read, with the transaction that is held back from this one."""
        following = Gathering()
        if group is not None and group.has_rows and _holds(self._data, group):
            following._data = self._data[group.start :]
            del self._data[group.start :]
            group.start = 0
        return following

    def end(self, group: EventGroup, frontier: int) -> None:
        """Record that a transaction has ended."""
        self._record(group, group, frontier, group.start)

    def end_running(self, end: EventGroup, own: EventGroup, frontier: int) -> None:
        """Record that a running transaction has ended: write a BEGIN with the name of its end."""
        start = len(self._data)
        self._data += _begin_frame(end)
        self._aborted[own.number] = ()
        self._record(end, own, frontier, start, ran=True)

    def drop_running(self, own: EventGroup) -> None:
        """Record that a running transaction was rolled back."""
        self._gone.append(own.number)

    @property
    def last_end(self) -> int | None:
        """The frontier behind the last ended transaction; None if there is none."""
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
        """The result of a read of `size` bytes, up to the last position; `group` goes on in the next one."""
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
        """The buffer for a frame of the transaction; first write its BEGIN and waiting maps to it."""
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
    """The frame of a table map, to be written with its rows."""
    return frames.frame(
        event.kind, event.timestamp, event.server, bytes(event.body), event.position, event.flags
    )


def _begin_frame(group: EventGroup) -> bytes:
    event = group.event
    body = frames.begin(group.time, group.commit_ts, str(group.gtid))
    return frames.frame(frames.BEGIN, event.timestamp, event.server, body, flags=event.flags)


def _number(gtid: str) -> int:
    """A number for a name: it only distinguishes transactions."""
    return int.from_bytes(hashlib.sha256(gtid.encode()).digest()[:8], "big") >> 1


def _bytes(data: bytearray) -> Bytes:
    return np.frombuffer(data, np.uint8)
