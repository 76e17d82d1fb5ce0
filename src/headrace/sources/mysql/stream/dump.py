"""A binlog dump: a connection on which the server sends its log as it grows, from a set of GTIDs on.

    connect ─► is it the server? does it have all that was received, and what follows? ────────► dump
               do the last received transactions still stand in its log? (`history`)             │
                                                                                                 │
               Received ◄── transactions ◄── events ◄── packets ◄────────────────────────────────┘

The server does not remember us: each time we tell it where to begin, and it purges its log as it likes. So
these checks come before anything is read, and a later refusal by the server means the same. A server ends an
older dump with the same server id (MariaDB) or uuid (MySQL). Ours are new and unique for each connection, so
that no replica and no other mirror is ever disconnected.

A read returns at most about a megabyte, and may continue within a compressed transaction where the last one
ended. An error within a read is raised after everything that came before it was returned.
"""

from __future__ import annotations

import secrets
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass

from headrace.core.errors import HeadraceError, Transient
from headrace.core.position import Position
from headrace.sources.contract.stream import StreamRead
from headrace.sources.contract.values import Json
from headrace.sources.mysql.gtid_set import GtidSet
from headrace.sources.mysql.mariadb_position import MariadbPosition
from headrace.sources.mysql.position import (
    BinlogProgress,
    MariadbProgress,
    MysqlProgress,
    MysqlTimeline,
    parse_of,
)
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity, identify, prove, verify
from headrace.sources.mysql.session.log_end import count, with_forgotten
from headrace.sources.mysql.session.packets import ERR, PacketBatch, ServerError, server_error
from headrace.sources.mysql.session.statements import MysqlConnection, execute, query
from headrace.sources.mysql.stream import errors, events, history
from headrace.sources.mysql.stream.events import BinlogEvent, EventReader
from headrace.sources.mysql.stream.gathering import Table
from headrace.sources.mysql.stream.ordinary import LARGEST, ReadPackets
from headrace.sources.mysql.stream.transactions import MysqlTransactionFinder, WantedTables
from headrace.sources.shared.refusals import PrivilegeMissing

READ = 1 << 20  # bytes after which a read ends
LOW_WATER = 1 << 18  # after a backlog wait for so many bytes, for `PATIENCE` seconds
PATIENCE = 0.005
HEARTBEAT = 1.0  # seconds after which an idle server sends a heartbeat
MANY = 8  # fewer packets are not worth the kernel
LONGEST_PAUSE = 64  # the most packets until the kernel is tried again, if it finds little
SILENCE = 30.0
ANSWER_WITHIN = 30.0

_COM_BINLOG_DUMP, _COM_REGISTER, _COM_BINLOG_DUMP_GTID = 0x12, 0x15, 0x1E
_OK, _END = 0x00, 0xFE
_NEVER_INNER = frozenset({events.PAYLOAD, events.FORMAT, events.ROTATE, events.HEARTBEAT, events.HEARTBEAT_2})
_THROUGH_GTID = 4
_FIRST_PLACE = 4  # after the magic number of a file


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """The order for a dump: its tables, its start, and its server."""

    tables: tuple[Table, ...]
    frontier: Position  # what the lake holds
    received_until: Position  # what was ever received: the frontier, or past it
    log: MysqlTimeline
    identity: Json | None = None  # None: any server
    silence: float | None = None


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings of the server."""

    clock: int  # microseconds since 1970
    folds: bool  # names mean the same in any case
    checksums: bool  # events that it writes now have checksums


class BinlogDump:
    """An open dump, made by `open`. It belongs to one thread."""

    pause = 1.0  # the server gets no feedback

    def __init__(
        self, session: MysqlConnection, wanted: DumpRequest, settings: _Settings, *, server: str
    ) -> None:
        progress = _progress(session, wanted.frontier)
        self.server_id = 0
        self._session = session
        self._silence = wanted.silence or SILENCE
        self._silent = 0.0
        self._came = 0  # bytes received at the last check
        self._clock = settings.clock * 1000 - time.monotonic_ns()  # the server's clock minus ours
        self._reader = EventReader(is_checked=settings.checksums)
        tables = WantedTables(wanted.tables, settings.folds)
        self._finder = MysqlTransactionFinder(tables, progress, wanted.log, server)
        self.start = Position(self._finder.time, wanted.frontier.text)
        self._events: Iterator[BinlogEvent | None] | None = None
        self._pause = 1  # packets until the kernel is tried again
        self._backlog = False  # the last read brought much data
        self._failure: HeadraceError | None = None

    @classmethod
    def open(cls, address: MysqlAddress, request: DumpRequest) -> BinlogDump:
        """Connect, prove the server, check that nothing is missing, and begin."""
        session = connect(address, role="receiver")
        try:
            identity = identify(session)
            if request.identity is not None:
                prove(identity, request.identity)
            _check_holds(session, request)
            history.check(session, address, identity, _progress(session, request.received_until), request.log)
            dump = cls(session, request, _settings(session), server=history.mark(identity))
            dump.server_id = _begin(session, _progress(session, request.frontier))
        except BaseException:
            session.close()
            raise
        return dump

    @property
    def is_mariadb(self) -> bool:
        """Tell which of the two servers sends the log."""
        return self._session.release.is_mariadb

    @property
    def position(self) -> str:
        """The text of the position behind the last transaction that was returned."""
        return self._finder.frontier.text

    def read(self, timeout: float) -> StreamRead | None:
        """Return the events that have come; None if none came in time. Valid until the next call."""
        if self._failure is not None:
            raise self._failure
        size, heard = 0, None
        if self._events is None:
            size = self._receive(timeout)
        if self._events is None:
            return None
        while self._events is not None:
            heard = self._take(self._events) or heard
            if self._finder.gathering.size >= READ or self._failure is not None:
                break
            if size < READ:
                size += self._more()  # TLS brings 16 kB at a time: join what is ready
        self._backlog = size >= LOW_WATER // 4
        return self._finder.as_arrival(size, heard)

    def _receive(self, timeout: float) -> int:
        """Receive the next packets' events; return the number of bytes, 0 if none came in time."""
        begun = time.monotonic()
        batch = _packets(self._session, 0.0)
        if not len(batch) and timeout:
            batch = self._await_batch(timeout)
        if not len(batch):
            self._wait(time.monotonic() - begun)
            return 0
        self._silent = 0.0
        self._events = self._taken_apart(batch)
        return int(batch.stops[-1] - batch.starts[0])

    def _more(self) -> int:
        """Receive further events that are ready; return the number of bytes."""
        try:
            return self._receive(0.0)
        except HeadraceError as error:
            self._failure = error  # the next read raises it
            return 0

    def _await_batch(self, timeout: float) -> PacketBatch:
        """Wait for the next packets; after a backlog for many at once: the server sends each by itself."""
        packets = self._session.packets
        if self._backlog:
            packets.wake_at(LOW_WATER)
            batch = _packets(self._session, min(timeout, PATIENCE))
            packets.wake_at(1)
            if len(batch):
                return batch
        return _packets(self._session, timeout)

    def close(self) -> None:
        self._session.close()

    def _wait(self, seconds: float) -> None:
        came = self._session.packets.received
        self._silent = self._silent + seconds if came == self._came else 0.0
        self._came = came
        if self._silent > self._silence:
            raise Transient(
                "MY_SILENT",
                "the server does not answer any more",
                detail=f"nothing came for {self._silence:.0f} s, though an idle server says so every second",
                hint="nothing to do: the connection is made anew; check the network if it comes back",
            )

    def _take(self, found: Iterator[BinlogEvent | None]) -> tuple[int, int] | None:
        """Take events until there are enough; return the server's end and clock if it sent a heartbeat."""
        heard = None
        try:
            for event in found:
                if event is None:
                    return heard
                if event.kind in (events.HEARTBEAT, events.HEARTBEAT_2):
                    heard = self._source_end()
                    continue
                self._finder.take(event)
                if self._finder.gathering.size >= READ:
                    return heard
        except HeadraceError as error:
            self._failure = error  # the next read raises it
        self._events = None
        return heard

    def _source_end(self) -> tuple[int, int] | None:
        if self._finder.group is not None:
            return None
        return self._finder.time, (self._clock + time.monotonic_ns()) // 1000

    def _taken_apart(self, batch: PacketBatch) -> Iterator[BinlogEvent | None]:
        """Yield the events in packets, unpacked one by one; None means that the kernel took enough."""
        whole = memoryview(batch.data)  # type: ignore[arg-type]
        starts, stops = batch.starts.tolist(), batch.stops.tolist()
        at = alone = 0
        while at < len(starts):
            if at >= alone and len(starts) - at >= MANY and stops[at] - starts[at] <= LARGEST:
                at, alone = self._many(batch, at)
                if at == len(starts):
                    break
                if self._finder.gathering.size >= READ:
                    yield None
                    continue
            packet = whole[starts[at] : stops[at]]
            at += 1
            if not len(packet) or packet[0] != _OK:
                raise _ended_error(bytes(packet))
            event = self._reader.read(packet[1:])
            if event is None:
                continue
            if event.kind == events.PAYLOAD:
                yield from self._inner(event)
            else:
                yield event

    def _many(self, batch: PacketBatch, at: int) -> tuple[int, int]:
        """Take ordinary events at once; return the packet behind them, and the next one to try this way."""
        trailer, group = self._reader.trailer, self._finder.group
        named_alone = group is not None and not group.is_open
        if trailer is None or self._finder.gathering.size >= READ or named_alone:
            return at, at + 1
        packets = ReadPackets(batch.data, batch.starts, batch.stops, at, trailer)
        behind, alone = self._finder.take_many(packets, READ)
        worth_it = behind - at >= MANY // 2 or packets.is_end(behind)
        self._pause = 1 if worth_it else min(2 * self._pause, LONGEST_PAUSE)
        return behind, alone + self._pause

    def _inner(self, payload: BinlogEvent) -> Iterator[BinlogEvent]:
        for data in events.inner_events(payload):
            event = self._reader.read_inner(data)
            if event is None:
                continue
            if event.kind in _NEVER_INNER:
                raise errors.disorder(f"an event of kind {event.kind} in a compressed transaction")
            yield event


def refused_error(address: MysqlAddress, identity: MysqlIdentity, place: Position) -> HeadraceError | None:
    """The reason why the server does not send what follows a place; None if it begins to."""
    with closing(connect(address, role="receiver")) as session:
        verify(identify(session), identity)
        _begin(session, _progress(session, place))
        packet = _answer(session)
        return None if packet[:1] == bytes([_OK]) else _ended_error(packet)


def _answer(session: MysqlConnection) -> bytes:
    """The first packet of an answer."""
    deadline = time.monotonic() + ANSWER_WITHIN
    while not len(batch := _packets(session, 1.0)):
        if time.monotonic() > deadline:
            raise errors.lost_error("the server did not answer")
    return batch.packet(0)


def _packets(session: MysqlConnection, seconds: float) -> PacketBatch:
    """The packets that come within so many seconds; a server may announce its shutdown out of turn."""
    try:
        return session.packets.receive(seconds)
    except ServerError as error:
        raise errors.refusal(error) from None


def _ended_error(packet: bytes) -> HeadraceError:
    """The error of a packet that is no event."""
    if packet[:1] == bytes([ERR]):
        return errors.refusal(server_error(packet))
    return errors.lost_error("the server ended the dump")


def _progress(session: MysqlConnection, place: Position) -> BinlogProgress:
    return parse_of(place.text, mariadb=session.release.is_mariadb)


def _check_holds(session: MysqlConnection, wanted: DumpRequest) -> None:
    """Refuse a server that lacks received transactions, or has purged what follows them."""
    reached, frontier = (_progress(session, place) for place in (wanted.received_until, wanted.frontier))
    if session.release.is_mariadb:
        at = with_forgotten(
            MariadbPosition.parse(_text(session, "SELECT @@global.gtid_binlog_pos")), wanted.log
        )
        if isinstance(reached, MariadbProgress) and not reached.read <= at:
            raise errors.server_behind(f"the server is at {at}, received up to {reached.read}")
        return
    mode = _text(session, "SELECT @@global.gtid_mode")
    if mode != "ON":
        raise errors.gtids_off(mode)
    executed = GtidSet.parse(_text(session, "SELECT @@global.gtid_executed"))
    if isinstance(reached, MysqlProgress) and not reached.brought_gtids <= executed:
        raise errors.server_behind(
            f"the server has executed {executed}, received were {reached.brought_gtids}"
        )
    purged = GtidSet.parse(_text(session, "SELECT @@global.gtid_purged"))
    if isinstance(frontier, MysqlProgress) and not purged <= frontier.ended_gtids:
        count(session, wanted.log, str(executed))  # some purged ones were never in the log
        if purged <= frontier.brought_gtids:
            raise errors.prepared_purged(str(frontier.prepared_gtids))
        raise errors.purged_error(f"purged are {purged}, the lake holds {frontier.ended_gtids}")


def _text(session: MysqlConnection, statement: str) -> str:
    [(value,)] = query(session, statement)
    return value.decode() if isinstance(value, bytes) else str(value)


def _settings(session: MysqlConnection) -> _Settings:
    [(clock, folds, checksums)] = query(
        session,
        "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED), @@global.lower_case_table_names <> 0, "
        "@@global.binlog_checksum = 'CRC32'",
    )
    assert isinstance(clock, int)
    return _Settings(clock, bool(folds), bool(checksums))


def _begin(session: MysqlConnection, progress: BinlogProgress) -> int:
    """Start the dump at its place; return the server id that was chosen."""
    server_id = _server_id(session)
    period = int(HEARTBEAT * 1e9)
    execute(
        session,
        "SET @source_binlog_checksum = @@global.binlog_checksum, @source_heartbeat_period = %s, "
        "@master_binlog_checksum = @@global.binlog_checksum, @master_heartbeat_period = %s",
        [period, period],
    )
    name = str(uuid.uuid4())
    if session.release.is_mariadb:
        execute(
            session,
            "SET @mariadb_slave_capability = 4, @slave_gtid_strict_mode = 1, "
            "@slave_gtid_ignore_duplicates = 0, @slave_connect_state = %s",
            [progress.resume],
        )
        command, argument = _COM_BINLOG_DUMP, struct.pack("<IHI", _FIRST_PLACE, 0, server_id)
    else:
        execute(session, "SET @replica_uuid = %s, @slave_uuid = %s", [name, name])
        encoded = encode(GtidSet.parse(progress.resume))
        head = struct.pack("<HIIQI", _THROUGH_GTID, server_id, 0, _FIRST_PLACE, len(encoded))
        command, argument = _COM_BINLOG_DUMP_GTID, head + encoded
    _register(session, server_id)
    session.packets.send(command, argument)
    return server_id


def _server_id(session: MysqlConnection) -> int:
    """A server id that no visible replica has, from the half that people rarely use."""
    [(own,)] = query(session, "SELECT @@global.server_id")
    seen = {own}
    with suppress(PrivilegeMissing):  # MariaDB shows its replicas to few users; a random number is enough
        seen.update(row[0] for row in query(session, session.release.words.replicas))
    while (chosen := 1 << 31 | secrets.randbits(31)) in seen:
        pass
    return chosen


def _register(session: MysqlConnection, server_id: int) -> None:
    """Appear in the server's list of replicas."""
    name = b"headrace"
    argument = struct.pack("<I", server_id) + bytes([len(name)]) + name + b"\0\0" + bytes(10)
    session.packets.send(_COM_REGISTER, argument)
    packet = _answer(session)
    if packet[:1] == bytes([ERR]):
        raise errors.refusal(server_error(packet))


def encode(gtids: GtidSet) -> bytes:
    """Encode a set of GTIDs for the command of a dump; with tags, in a form that only newer servers know."""
    tagged = any(origin.tag for origin, _ in gtids.parts)
    number = len(gtids.parts)
    found = struct.pack("<Q", 1 << 56 | number << 8 | 1 if tagged else number)
    for origin, spans in gtids.parts:
        found += uuid.UUID(origin.server).bytes
        if tagged:
            found += bytes([len(origin.tag) << 1]) + origin.tag.encode("ascii")
        found += struct.pack("<Q", len(spans))
        found += b"".join(struct.pack("<QQ", *span) for span in spans)
    return found
