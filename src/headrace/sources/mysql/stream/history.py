"""A server's history held against what was read of it: the last transactions have to stand where they stood.

    uuid:5@1763856000123456@1234@6f2c01aa@binlog.000002       what a position says of them (`mysql.position`)

    the file is there      from that place on it is sent again: the same name, and the same time of commit;
                           behind it no transaction without a name, up to the next one with a name. What
                           can't be read there is damage, unless another event lies over the place
    it is purged           only later files are left, and on MariaDB each of them begins behind it;
                           in these, too, each transaction has a name, up to the next one
    another server's       a file's name says nothing; what was executed and purged is compared, as ever

A server that was reset, or whose volume was set back, gives out the same names again for other transactions;
once it has as many as before its sets tell nothing. Times of commits differ, by the microsecond on MySQL and
the second on MariaDB.

A MySQL server whose `gtid_mode` was turned off for a while has transactions without names. Who asks for what
follows a set is sent nothing of a file that has no others: they would be missed without a word.

`dump` calls `check` before it begins, over a connection of its own. Who begins a stream makes its `start`:
there is no transaction yet, and only the end of the log is known, where other transactions would hardly end
as well. In a file of more than 4 GB nothing can be asked for by its place, so that nothing is compared.
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
_TO_THE_END = 1  # a dump that ends with the file, and does not wait for more
_END = 0xFE
_FIRST_PLACE = 4  # of a file, behind its magic number
_LARGEST_PLACE = (1 << 32) - 1
_ANSWER_WITHIN = 30.0
_NUMBER = re.compile(r"(.*\.)(\d+)\Z", re.DOTALL)


def mark(identity: MysqlIdentity) -> str:
    """A digest that tells whose log a file belongs to."""
    return hashlib.sha256(identity.server.encode()).hexdigest()[:8]


def end_of_log(session: MysqlConnection, identity: MysqlIdentity) -> LoggedTransaction:
    """The end of the log by now, to be asked before what was executed."""
    [(file, at, *_)] = query(session, session.release.words.log_status)
    return LoggedTransaction("", 0, int(str(at)), mark(identity), str(file))


def start(session: MysqlConnection, here: Position, end: LoggedTransaction) -> Position:
    """The position of a stream that begins here and has brought nothing: it knows where the log ended."""
    progress = parse_of(here.text, mariadb=session.release.is_mariadb)
    return Position(here.time, str(replace(progress, last=(end,))))


def check(
    session: MysqlConnection,
    address: MysqlAddress,
    identity: MysqlIdentity,
    progress: BinlogProgress,
    log: MysqlTimeline,
) -> None:
    """Refuse a server that has other transactions where those stood that were read last."""
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
    """Tell whether nothing of what was read is in this log: an attempt found so before (`successor`)."""
    return isinstance(reached, MysqlProgress) and reached.brought_gtids == GtidSet.parse(log.unlogged_gtids)


def _check_purged(
    session: MysqlConnection, files: list[str], place: LoggedTransaction, reached: BinlogProgress
) -> None:
    """Only files behind that of the place are there, and they say that they come behind it."""
    first, gone = _NUMBER.match(files[0]), _NUMBER.match(place.file)
    later = first is not None and gone is not None and first[1] == gone[1] and int(first[2]) > int(gone[2])
    if not later:
        raise errors.replaced_error(f"{place.file} is not there, and {files[0]} is")
    if not isinstance(reached, MariadbProgress) or not place.gtid:
        return
    gtid = MariadbGtid.parse(place.gtid)
    for file in files:
        before = log_end.begin_of_file(session, file)
        # The numbers of a domain that was forgotten, and that is there again, are of other transactions.
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
    """Tell whether an event begins where none can be read: the file is followed from its beginning."""
    with closing(connect(address, role="receiver")) as session:
        verify(identify(session), identity)
        try:
            for event in _log_from(session, place._replace(at=_FIRST_PLACE)):
                if event.position > place.at:
                    return event.position - event.size == place.at  # by now it can be read
        except (EventDamaged, EventUnknown):
            return True  # nothing that could be read lies over the place
    return False


def _check_name(event: BinlogEvent | None, place: LoggedTransaction) -> None:
    name = None if event is None else _group_start(event)
    if name is None or (str(name.gtid), name.commit_ts) != (place.gtid, place.commit_ts):
        raise errors.replaced_error(f"{place.gtid} does not stand where it stood in {place.file}")


def _check_named(log: Iterator[BinlogEvent], reached: MysqlProgress) -> None:
    """Refuse a log that has a transaction without a name before the next one that is sent."""
    brought = reached.brought_gtids
    for event in log:
        if event.kind == events.ANONYMOUS:
            raise errors.anonymous("it lies behind the last one that was received")
        name = _group_start(event)
        if name is not None and isinstance(name.gtid, Gtid) and name.gtid not in brought:
            return


def _group_start(event: BinlogEvent) -> GroupStart | None:
    """The name of a transaction that an event is; without checksums anything may stand there."""
    with suppress(struct.error, IndexError, ValueError):
        return events.group_start(event) if event.kind in events.NAMES else None
    return None


def _log_from(session: MysqlConnection, place: LoggedTransaction) -> Iterator[BinlogEvent]:
    """The events from a place on, up to the end of the log as it is by now."""
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
    """The events that a dump sends of the files themselves."""
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
