"""The transactions in the events of a binlog: found, filtered by tables, and returned as `StreamRead`.

    events     GTID BEGIN map(t) rows map(u) rows XID   GTID DDL   GTID BEGIN map(u) rows XID
    data       [BEGIN map(t) rows]                      [BEGIN ALTERED]
    ended      (time, ...)                              (time, ...)         progress only: nobody mirrors u

This module looks at no row: the newest map of its number within the transaction tells a row event's table. A
transaction without a change of a wanted table only counts by its name.

The rows of an XA transaction are returned apart, like those of a running one. A BEGIN with the name of its
end stands at the place of the end in the order of commits. The effect of a statement on a wanted table is a
frame at its exact place; the statement itself goes no further.

    IDLE ── name ──► GROUP ── BEGIN, XA START ──► OPEN ── XID, COMMIT, ROLLBACK ──► IDLE
                       └───── a statement alone ─────────── PREPARE ───────────────► IDLE, prepared
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.core.errors import HeadraceError
from headrace.core.position import Position
from headrace.sources.contract.stream import StreamRead
from headrace.sources.mysql.ddl import statements
from headrace.sources.mysql.ddl.alterations import Effect
from headrace.sources.mysql.ddl.statements import BinlogServer, QueryEvent
from headrace.sources.mysql.ddl.steps import Reason
from headrace.sources.mysql.ddl.tokens import means
from headrace.sources.mysql.gtid_set import Gtid
from headrace.sources.mysql.mariadb_position import MariadbGtid
from headrace.sources.mysql.position import (
    BinlogProgress,
    LoggedTransaction,
    MariadbProgress,
    MysqlProgress,
    MysqlTimeline,
)
from headrace.sources.mysql.stream import errors, events, ordinary
from headrace.sources.mysql.stream.events import BinlogEvent, GroupStart
from headrace.sources.mysql.stream.frames import HEADER
from headrace.sources.mysql.stream.frontier import frontier
from headrace.sources.mysql.stream.gathering import EventGroup, Gathering, Table, map_frame
from headrace.sources.mysql.stream.ordinary import OrdinaryReader, ReadPackets, TransactionRun

_STATEMENTS = frozenset({events.QUERY, events.QUERY_COMPRESSED, events.EXECUTE_LOAD})
_END_OF_STATEMENT = b"\xff\xff\xff\0\0\0"  # the table's number in an empty row event
_THREAD_SPECIFIC = 0x04
_SAVEPOINT, _BACK_TO = b"SAVEPOINT ", b"ROLLBACK TO "
_XA = re.compile(rb"XA (COMMIT|ROLLBACK) X'([0-9A-Fa-f]*)',X'([0-9A-Fa-f]*)',(-?\d+)\s*\Z")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_UNKNOWN: Table = ("", "")
_SHORTEST_NAMES = {events.GTID: 49, events.MARIADB_GTID: 13}  # bytes of an ordinary one's body
_NAMES: Mapping[type[BinlogProgress], frozenset[int]] = {
    MysqlProgress: frozenset({events.GTID, events.GTID_TAGGED}),
    MariadbProgress: frozenset({events.MARIADB_GTID}),
}


@dataclass(frozen=True, slots=True)
class WantedTables:
    """The mirrored tables; `case_insensitive` if names mean the same in any case."""

    tables: Collection[Table]
    case_insensitive: bool = False

    def by_key(self) -> dict[bytes, Table]:
        """The tables by their names in the form of `table_key`."""
        return {events.as_key(*table): table for table in self.tables}

    def concerned_tables(self, effect: Effect) -> Iterator[tuple[Reason | None, Table]]:
        """The wanted tables that an effect concerns, each with the reason."""
        for each in sorted(self.tables):
            meant = (self._means(each[0], effect.database), self._means(each[1], effect.table))
            if False in meant:
                continue
            sure = None not in meant or effect.reason is not None
            yield effect.reason if sure else Reason.UNCLEAR, each

    def _means(self, kept: str, typed: str | None) -> bool | None:
        if typed is None:
            return True
        return means(kept, typed) if self.case_insensitive else kept == typed


class MysqlTransactionFinder:
    """Finds the transactions of one connection in its events."""

    def __init__(
        self, wanted: WantedTables, progress: BinlogProgress, log: MysqlTimeline, server: str = ""
    ) -> None:
        self._wanted = wanted
        self._keys = wanted.by_key()
        self._tables = tuple(self._keys.values())
        self._numbers = {table: at for at, table in enumerate(self._tables)}
        self._ordinary = OrdinaryReader(self._tables)
        self._log = log
        self.frontier = frontier(progress)
        self._names = _NAMES[type(progress)]
        self._server = BinlogServer(mariadb=False, version=0)
        self._mark, self._file = server, ""  # the server's digest, and the current file of its log
        self._group: EventGroup | None = None
        self._prepared: dict[bytes, EventGroup] = {}  # by their XA names
        self.gathering = Gathering()

    @property
    def time(self) -> int:
        """The time of the position behind the last ended transaction."""
        return self._log.time(self.frontier.count)

    @property
    def group(self) -> EventGroup | None:
        """The transaction that is being sent; None between two transactions."""
        return self._group

    def take(self, event: BinlogEvent) -> None:
        """Take the next event; the caller has unpacked payloads."""
        try:
            self._take(event)
        except (struct.error, IndexError, ValueError) as error:
            # Without checksums nothing else would notice it.
            raise errors.damaged_error(f"an event of kind {event.kind} is shorter than it says") from error

    def take_many(self, packets: ReadPackets, most: int) -> tuple[int, int]:
        """Take the ordinary transactions at the start of these packets, until so many bytes are collected.

        Returns the packet after them, and the next one that must be taken singly.
        """
        group = self._group
        if group is None:
            return self._take_whole(packets, most)
        if not group.is_open:
            return packets.first, packets.first
        rows = self._ordinary.rows(packets)
        self.gathering.add_many(group, rows, self._tables)
        return rows.behind, rows.behind

    def _take_whole(self, packets: ReadPackets, most: int) -> tuple[int, int]:
        event = _first(packets, self._names) if self._file else None  # without a file there are no places
        named = None if event is None else events.group_start(event)
        if event is None or named is None or not self.frontier.follows(named.gtid):
            return packets.first, packets.first
        first = _origin(named.gtid, event, self._log.next_time(self.frontier.count))
        run = self._ordinary.whole(packets, first, most - self.gathering.size)
        self.gathering.add_whole(run, first)
        brought = 0
        for count, (commit_ts, place) in _places(run):
            at = first.number + count - 1
            logged = LoggedTransaction(
                f"{first.prefix.decode()}{at}", commit_ts, place, self._mark, self._file
            )
            gtid = replace(named.gtid, number=first.number + brought)
            self.frontier.bring_many(gtid, count - brought, logged)
            if not brought and len(run.written_at):
                self.frontier.remember()
            brought = count
        # If a transaction does not end in these packets, its rows can be taken once it is open.
        return run.behind, run.behind if run.stopped_at == len(packets.starts) else run.stopped_at

    def _take(self, event: BinlogEvent) -> None:
        kind = event.kind
        if kind in events.ROWS or kind in events.ROWS_COMPRESSED:
            self._take_rows(event)
        elif kind == events.TABLE_MAP:
            self._take_map(event)
        elif kind in events.NAMES:
            self._begin(event)
        elif kind == events.XID:
            self._commit(_open_group(self._group))
        elif kind in _STATEMENTS:
            self._take_statement(event)
        elif kind == events.XA_PREPARE:
            self._prepare(event)
        elif kind == events.FORMAT:
            if self._group is not None:
                # The server died within it, and MariaDB leaves it there. A new dump begins in the next file.
                raise errors.damaged_error("a file ends within a transaction")
            self._server = _server(event)
        elif kind == events.ROTATE:
            self._file = events.file_name(event)
        elif kind in (events.ANONYMOUS, events.INCIDENT):
            raise _refusal(event)

    def as_arrival(self, size: int, source_end: tuple[int, int] | None = None) -> StreamRead:
        """Return the collected result of a read of so many bytes."""
        gathered, group = self.gathering, self._group
        self.gathering = gathered.held_back(group)
        last, here = gathered.last_end, Position(self.time, self.frontier.text)
        positions = [] if last in (None, here.time) else [Position(last, self.frontier.remembered_text)]
        self.frontier.remember()
        handed_on = None if self.gathering.size else group
        return gathered.as_arrival(handed_on, size, [*positions, here], source_end)

    def _begin(self, event: BinlogEvent) -> None:
        if self._group is not None:
            raise errors.disorder("a transaction begins within another one")
        if event.kind not in self._names:
            raise errors.unknown_error(event.kind)  # the name of a transaction of the other kind of server
        self._ordinary.begin()
        named = events.group_start(event)
        self._group = EventGroup(
            gtid=named.gtid,
            time=self._log.next_time(self.frontier.count),
            commit_ts=named.commit_ts,
            event=event._replace(body=memoryview(b"")),
            alone=named.alone,
            is_open=named.is_open,
            xa=named.xa,
            place=_place(event, named, self._mark, self._file),
        )

    def _take_map(self, event: BinlogEvent) -> None:
        group = _open_group(self._group)
        number, key = events.table_key(event.body)
        table = self._keys.get(key)
        group.maps[number] = table
        self._ordinary.learn(number, key, None if table is None else self._numbers[table])
        if table is not None:
            group.await_rows(map_frame(event))

    def _take_rows(self, event: BinlogEvent) -> None:
        group = _open_group(self._group)
        number = bytes(event.body[:6])
        table = group.maps.get(number, _UNKNOWN)
        if table is _UNKNOWN and number != _END_OF_STATEMENT:
            raise errors.disorder("rows of a table that was not described")
        if table is None or table is _UNKNOWN:
            return
        if event.kind in events.ROWS_COMPRESSED:
            event = events.unpacked_rows(event)
        self.gathering.add_rows(group, event, table)

    def _take_statement(self, event: BinlogEvent) -> None:
        group = self._group
        if group is None:
            raise errors.disorder("a statement outside of a transaction")
        compressed = event.kind == events.QUERY_COMPRESSED
        query = events.unpacked_query(event) if compressed else events.query(event)
        head = bytes(query.text[:12]).upper()
        if not group.is_open and (head == b"BEGIN" or head.startswith(b"XA START ")):
            group.is_open, group.xa = True, head != b"BEGIN"
        elif head.startswith((b"XA COMMIT ", b"XA ROLLBACK ")):
            self._end_prepared(group, bytes(query.text))
        elif group.is_open and head in (b"COMMIT", b"ROLLBACK"):
            if head == b"ROLLBACK":
                self.gathering.roll_back(group, event)
            self._commit(group)
        elif group.is_open and head.startswith(_BACK_TO):
            self.gathering.roll_back(group, event, bytes(query.text[len(_BACK_TO) :]))
        elif group.is_open and head.startswith(_SAVEPOINT):
            self.gathering.set_savepoint(group, bytes(query.text[len(_SAVEPOINT) :]))
        elif not (group.is_open and head.startswith(b"XA END ")):
            self._alter(group, event, query)

    def _alter(self, group: EventGroup, event: BinlogEvent, query: QueryEvent) -> None:
        temporary = bool(event.flags & _THREAD_SPECIFIC)
        marks: dict[tuple[Reason | None, Table], bytes] = {}
        for effect in statements.effects(query, self._server, temporary=temporary):
            for reason, table in self._wanted.concerned_tables(effect):
                marks.setdefault((reason, table), effect.steps if reason is effect.reason else b"")
        for (reason, table), steps in marks.items():
            self.gathering.mark(group, event, reason, table, steps)
        if group.alone or not group.is_open:
            self._commit(group)

    def _commit(self, group: EventGroup) -> None:
        """Record that the transaction has ended."""
        self._group = None
        if group.has_rows and group.xa:
            raise errors.disorder("an XA transaction that ends without its PREPARE")
        self.frontier.bring(group.gtid, group.place)
        if group.has_rows:
            self.gathering.end(group, self.time)
            self.frontier.remember()

    def _prepare(self, event: BinlogEvent) -> None:
        group, prepared = _open_group(self._group), events.xa_prepare(event)
        self._group = None
        group.maps.clear()
        if not group.has_rows or prepared.one_phase:
            self.frontier.bring(group.gtid, group.place)
            if group.has_rows:
                self.gathering.end_running(group, group, self.time)
                self.frontier.remember()
            return
        self.frontier.prepare(group.gtid, group.place)
        self._prepared[prepared.xid] = group

    def _end_prepared(self, group: EventGroup, text: bytes) -> None:
        """Handle XA COMMIT or XA ROLLBACK of an earlier prepared transaction; it has a name of its own."""
        said = _XA.match(text)
        if said is None:
            raise errors.disorder("an end of an XA transaction that cannot be read")
        verb, first, second, form = said.groups()
        xid = events.xid(int(form), *(bytes.fromhex(part.decode()) for part in (first, second)))
        prepared = self._prepared.pop(xid, None)
        self._group = None
        self.frontier.bring(group.gtid, group.place)
        if prepared is None:
            return  # it changed no wanted table
        self.frontier.end(prepared.gtid)
        if verb == b"COMMIT":
            self.gathering.end_running(group, prepared, self.time)
            self.frontier.remember()
        else:
            self.gathering.drop_running(prepared)


def _open_group(group: EventGroup | None) -> EventGroup:
    if group is None or not group.is_open:
        raise errors.disorder("a change or an end outside of a transaction")
    return group


def _first(packets: ReadPackets, kinds: Collection[int]) -> BinlogEvent | None:
    """The event with an ordinary name at the start, if there is one; its checksum is not verified."""
    start, stop = int(packets.starts[packets.first]) + 1, int(packets.stops[packets.first])
    data = memoryview(packets.data)[start:stop]  # type: ignore[arg-type]
    if len(data) < HEADER.size:
        return None
    timestamp, kind, server, size, position, flags = HEADER.unpack_from(data)
    if kind not in kinds or len(data) - HEADER.size < _SHORTEST_NAMES.get(kind, len(data)):
        return None
    return BinlogEvent(kind, timestamp, server, position, flags, data[HEADER.size :], size)


def _origin(gtid: Gtid | MariadbGtid, event: BinlogEvent, time: int) -> ordinary.FirstTransaction:
    """The first transaction of a run, for the kernel."""
    name, number = str(gtid), gtid.number
    prefix = name[: len(name) - len(str(number))].encode()
    if isinstance(gtid, MariadbGtid):
        return ordinary.FirstTransaction(struct.pack("<II", gtid.domain, gtid.server), prefix, number, time)
    return ordinary.FirstTransaction(bytes(event.body[1:17]), prefix, number, time)


def _places(run: TransactionRun) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the count up to the last transaction with rows, with its time and place; then that of all."""
    if len(run.written_at):
        last = run.written_at[-1].tolist()
        yield last[ordinary.AT] + 1, (last[ordinary.COMMIT_TS], last[ordinary.PLACE])
        if last[ordinary.AT] + 1 == run.count:
            return
    if run.count:
        yield run.count, run.newest


def _place(event: BinlogEvent, named: GroupStart, server: str, file: str) -> LoggedTransaction | None:
    """The place of a transaction's name in the log; None if no file was named yet."""
    if not file or event.at <= 0:
        return None
    return LoggedTransaction(str(named.gtid), named.commit_ts, event.at, server, file)


def _server(event: BinlogEvent) -> BinlogServer:
    """The server that a format description names."""
    text = bytes(event.body[2:52]).rstrip(b"\0").decode("utf-8", "replace")
    number = _VERSION.search(text)
    if number is None:
        raise errors.damaged_error("the description of the binlog's format names no version")
    major, minor, patch = map(int, number.groups())
    return BinlogServer("mariadb" in text.lower(), major * 10_000 + minor * 100 + patch)


def _refusal(event: BinlogEvent) -> HeadraceError:
    if event.kind == events.ANONYMOUS:
        return errors.anonymous("a transaction has no GTID")
    return errors.incident()
