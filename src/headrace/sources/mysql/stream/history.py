"""The check of a server's history: the last received transactions must stand where they stood in its log.

    uuid:5@1763856000123456@1234@6f2c01aa@binlog.000002       the place of one (`mysql.position`)

    the file exists        The log from that place on is requested. It must begin with the same name and
                           commit time, and have no transaction without a name before the next one that we
                           lack. If the place can't be read, that is damage, unless another event covers it
    the file is purged     Only later files may be left. On MariaDB each of them must begin behind the
                           transaction. In them, too, each transaction up to the next one must have a name
    another server         The file's name means nothing. Executed and purged transactions are compared, as
                           always

A server that was reset, or whose volume was set back, assigns the same names again to other transactions.
Once it has as many as before, its sets do not show that. But the times of the commits differ: by microseconds
on MySQL, by seconds on MariaDB.

A MySQL server whose `gtid_mode` was off for a while has transactions without names. If a client asks for the
transactions after a set, the server sends nothing of a file that has only such ones: they would be missed
silently.

`dump` calls `check` before it begins, over a connection of its own. `start` makes the first position of a
stream: there is no transaction yet, so it holds the end of the log, and another history would hardly end at
the same place. In a file of more than 4 GB a place can't be requested, so nothing is compared.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import chain

from headrace.core.position import Position
from headrace.sources.mysql.gtid_set import Gtid, GtidSet
from headrace.sources.mysql.mariadb_position import MariadbGtid
from headrace.sources.mysql.position import (
    BinlogProgress,
    LoggedTransaction,
    MariadbProgress,
    MysqlProgress,
    MysqlTimeline,
    parse_of,
)
from headrace.sources.mysql.session import log_end
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity, identify, verify
from headrace.sources.mysql.session.packets import ERR, ServerError, server_error
from headrace.sources.mysql.session.statements import MysqlConnection, execute, query
from headrace.sources.mysql.stream import errors, events
from headrace.sources.mysql.stream.errors import EventDamaged, EventUnknown
from headrace.sources.mysql.stream.events import BinlogEvent, EventReader, GroupStart

_COM_BINLOG_DUMP = 0x12
_TO_THE_END = 1  # the dump ends at the log's end, and does not wait for more
_END = 0xFE
_FIRST_PLACE = 4  # in a file, after its magic number
_LARGEST_PLACE = (1 << 32) - 1
_ANSWER_WITHIN = 30.0
_NUMBER = re.compile(r"(.*\.)(\d+)\Z", re.DOTALL)


def mark(identity: MysqlIdentity) -> str:
    """A digest that identifies the server of a log file."""
    return hashlib.sha256(identity.server.encode()).hexdigest()[:8]


def end_of_log(session: MysqlConnection, identity: MysqlIdentity) -> LoggedTransaction:
    """The present end of the log; read it before the executed transactions."""
    [(file, at, *_)] = query(session, session.release.words.log_status)
    return LoggedTransaction("", 0, int(str(at)), mark(identity), str(file))


def start(session: MysqlConnection, here: Position, end: LoggedTransaction) -> Position:
    """The position of a stream that begins here and has brought nothing; it holds the log's end."""
    progress = parse_of(here.text, mariadb=session.release.is_mariadb)
    return Position(here.time, str(replace(progress, last=(end,))))


def check(
    session: MysqlConnection,
    address: MysqlAddress,
    identity: MysqlIdentity,
    progress: BinlogProgress,
    log: MysqlTimeline,
) -> None:
    """Refuse a server that has other transactions in the places of the last received ones."""
    forgotten = set() if isinstance(progress, MysqlProgress) else set(log.unlogged_gtids.split(","))
    places = [p for p in progress.last if p.server == mark(identity) and p.gtid not in forgotten - {""}]
    if not places:
        return
    files = {str(row[0]): int(str(row[1])) for row in query(session, "SHOW BINARY LOGS")}
    for place in places:
        size = files.get(place.file)
        if size is None:
            if not _begins_anew(progress, log):
                _check_purged(session, list(files), place, progress)
            if isinstance(progress, MysqlProgress):
                oldest = LoggedTransaction("", 0, _FIRST_PLACE, place.server, next(iter(files)))
                _check_same(address, identity, oldest, progress)
        elif size <= _LARGEST_PLACE:
            _check_same(address, identity, place, progress)


def _begins_anew(reached: BinlogProgress, log: MysqlTimeline) -> bool:
    """Tell whether no received transaction is in this log: `successor` has accepted that before."""
    return isinstance(reached, MysqlProgress) and reached.brought_gtids == GtidSet.parse(log.unlogged_gtids)


def _check_purged(
    session: MysqlConnection, files: list[str], place: LoggedTransaction, reached: BinlogProgress
) -> None:
    """Raise unless all files are later than the place's file, and begin behind its transaction."""
    first, gone = _NUMBER.match(files[0]), _NUMBER.match(place.file)
    later = first is not None and gone is not None and first[1] == gone[1] and int(first[2]) > int(gone[2])
    if not later:
        raise errors.replaced_error(f"{place.file} is not there, and {files[0]} is")
    if not isinstance(reached, MariadbProgress) or not place.gtid:
        return
    gtid = MariadbGtid.parse(place.gtid)
    for file in files:
        before = log_end.begin_of_file(session, file)
        # If a domain was forgotten and came back, its numbers belong to other transactions.
        if gtid not in before:
            raise errors.replaced_error(f"{gtid} is purged, and {file} begins behind {before}")


def _check_same(
    address: MysqlAddress, identity: MysqlIdentity, place: LoggedTransaction, reached: BinlogProgress
) -> None:
    with closing(connect(address, role="receiver")) as session:
        verify(identify(session), identity)
        log = _log_from(session, place)
        try:
            event = next(log, None)
        except (EventDamaged, EventUnknown) as error:
            if _stands(address, identity, place):
                raise
            raise errors.replaced_error(f"nothing begins at {place.at} in {place.file}") from error
        if place.gtid:
            _check_name(event, place)
        if event is not None and isinstance(reached, MysqlProgress):
            _check_named(chain([event], log), reached)


def _stands(address: MysqlAddress, identity: MysqlIdentity, place: LoggedTransaction) -> bool:
    """Tell whether an event may begin at a place that can't be read, by reading the file from its start."""
    with closing(connect(address, role="receiver")) as session:
        verify(identify(session), identity)
        try:
            for event in _log_from(session, place._replace(at=_FIRST_PLACE)):
                if event.position > place.at:
                    return event.position - event.size == place.at  # now it can be read
        except (EventDamaged, EventUnknown):
            return True  # no readable event covers the place
    return False


def _check_name(event: BinlogEvent | None, place: LoggedTransaction) -> None:
    name = None if event is None else _group_start(event)
    if name is None or (str(name.gtid), name.commit_ts) != (place.gtid, place.commit_ts):
        raise errors.replaced_error(f"{place.gtid} does not stand where it stood in {place.file}")


def _check_named(log: Iterator[BinlogEvent], reached: MysqlProgress) -> None:
    """Refuse a log that has a transaction without a name before the next one that we lack."""
    brought = reached.brought_gtids
    for event in log:
        if event.kind == events.ANONYMOUS:
            raise errors.anonymous("it lies behind the last one that was received")
        name = _group_start(event)
        if name is not None and isinstance(name.gtid, Gtid) and name.gtid not in brought:
            return


def _group_start(event: BinlogEvent) -> GroupStart | None:
    """The transaction's name in an event; None if it has none (without checksums it may be malformed)."""
    with suppress(struct.error, IndexError, ValueError):
        return events.group_start(event) if event.kind in events.NAMES else None
    return None


def names_from(address: MysqlAddress, identity: MysqlIdentity, file: str) -> Iterator[Gtid | MariadbGtid]:
    """The names of the transactions in the log from a file's start on, in their order, to its present end."""
    with closing(connect(address, role="receiver")) as session:
        verify(identify(session), identity)
        for event in _log_from(session, LoggedTransaction("", 0, _FIRST_PLACE, mark(identity), file)):
            if (name := _group_start(event)) is not None and name.gtid is not None:
                yield name.gtid


def _log_from(session: MysqlConnection, place: LoggedTransaction) -> Iterator[BinlogEvent]:
    """The events from a place on, up to the present end of the log."""
    execute(
        session,
        "SET @source_binlog_checksum = @@global.binlog_checksum, @replica_uuid = %s, @slave_uuid = %s, "
        "@master_binlog_checksum = @@global.binlog_checksum, @mariadb_slave_capability = 4",
        [str(uuid.uuid4())] * 2,
    )
    server_id = 1 << 31 | secrets.randbits(31)
    file = place.file.encode("utf-8", "surrogateescape")
    head = struct.pack("<IHI", place.at, _TO_THE_END, server_id)
    session.packets.send(_COM_BINLOG_DUMP, head + file)
    return _events(session)


def _events(session: MysqlConnection) -> Iterator[BinlogEvent]:
    """Yield the events in the files of a dump, without those that the dump adds."""
    reader, deadline, came = EventReader(), time.monotonic() + _ANSWER_WITHIN, 0
    while time.monotonic() < deadline:
        try:
            batch = session.packets.receive(1.0)
        except ServerError as error:
            raise errors.refusal(error) from None
        if session.packets.received != came:
            deadline, came = time.monotonic() + _ANSWER_WITHIN, session.packets.received
        for start, stop in zip(batch.starts.tolist(), batch.stops.tolist(), strict=True):
            packet = memoryview(batch.data)[start:stop]  # type: ignore[arg-type]
            if packet[:1] == bytes([ERR]):
                raise errors.refusal(server_error(bytes(packet)))
            if packet[:1] == bytes([_END]):
                return
            event = reader.read(packet[1:])
            if event is not None and event.kind not in (events.ROTATE, events.FORMAT):
                yield event
    raise errors.lost_error("the server did not answer")
