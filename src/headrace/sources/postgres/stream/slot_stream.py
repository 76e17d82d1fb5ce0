"""The stream of a slot: checked, started, read in whole frames, and answered.

    SlotStream.open(address, ...)    connect, prove the server, check the slot, START_REPLICATION
    stream.receive(timeout)          the transactions in what came; None if nothing came in time
    stream.read(timeout)             the whole CopyData frames in what came
    stream.feedback(flush)           a status update: `flush` is what the lake holds, and moves the slot;
                                     an error once the server is being shut down

The stream begins at the slot's own position. So what comes again can be compared with what is known, and a
slot that has moved too far is an error instead of a gap:

    slot's confirmed position  <=  frontier of the lake  <=  received  <=  what the server has flushed
         else PG_SLOT_AHEAD                                  else PG_SERVER_BEHIND

The first condition is checked again once the slot is ours: from then on nobody else can move it.

The server ends a connection that is silent for wal_sender_timeout, and a network may end one without notice.
So the receiver gives feedback every `pause` seconds and asks for a reply each time, and a stream that stays
silent for `silence` seconds counts as lost.

A server that shuts down waits for its walsenders, and those wait until their clients have flushed everything:
here, until the lake holds it. A shutdown must not wait for our lake. Its only sign is that the server goes on
asking for replies though it has just had one. Then we disconnect.

This module never interprets a message, and `flush` is never past what is durable.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType

import numpy as np
from psycopg import pq

from headrace.core.errors import HeadraceError, Transient
from headrace.core.hashing import HashKey
from headrace.decode.copydata import COPY_DATA, CopyFrames, frames
from headrace.decode.kernel import Bytes
from headrace.sources.contract.column_rules import NO_RULES, ColumnRules
from headrace.sources.contract.stream import StreamRead
from headrace.sources.postgres.position import Forks, Lsn
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import application_name, connect, replication
from headrace.sources.postgres.session.identity import PostgresIdentity, identify, timeline_parted, verify
from headrace.sources.postgres.session.statements import ask, query
from headrace.sources.postgres.session.stream_errors import (
    history_changed,
    publication_missing,
    refusal,
    server_behind,
    slot_active,
    slot_ahead,
    slot_lost,
    slot_missing,
    slot_taken,
    slot_unfit,
    warning,
)
from headrace.sources.postgres.session.timeline import forks_of
from headrace.sources.postgres.session.wire import (
    Options,
    Wire,
    fields,
    lost_error,
    start_replication,
    status_update,
    wire,
)
from headrace.sources.postgres.stream import synchronous
from headrace.sources.postgres.stream.hashing import ColumnHasher
from headrace.sources.postgres.stream.transactions import PostgresTransactionFinder

BUFFER = 16 * 1024 * 1024
ANSWER_WITHIN = 30.0  # START_REPLICATION is answered before any decoding
LEAST_SILENCE = 10.0
SILENCE_UNLIMITED = 120.0  # where the server itself has no wal_sender_timeout
STOPPING_ROUNDS = 3  # replies in a row that the server was not content with

_EMPTY: Bytes = np.empty(0, np.uint8)
_HEADER = 5


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """An order to stream: what, from where on, and from whom."""

    slot: str
    publications: tuple[str, ...]
    frontier: Lsn  # what the lake holds, exclusively
    received_until: Lsn  # what has ever been received, exclusively; the frontier or past it
    identity: PostgresIdentity | None = None  # None: whoever answers
    streaming: bool = False  # large transactions while they run, where the server can
    silence: float | None = None  # seconds; None: by the server's own timeout
    base: int = 0  # what is added to the server's positions in what is received
    xid: int | None = None  # a transaction that has committed there, by its 64 bits
    forks: Forks | None = None  # of the server's timeline; None: whatever they are
    rules: ColumnRules = NO_RULES  # of columns
    hash_key: HashKey | None = None  # if a rule hashes values


class SlotStream:
    """An open stream. Made by `open`; use it as a context manager."""

    def __init__(self, wire: Wire, wanted: SlotRequest, identity: PostgresIdentity, timeout: float) -> None:
        self._wire = wire
        self._slot = wanted.slot
        self.identity = identity
        self.start = Lsn(0)  # the slot's position: everything from here on comes again
        self.streaming = False  # whether large transactions come while they run
        # The server asks for a reply by itself at half of its timeout: be earlier.
        self.pause = min(1.0, timeout / 3) if timeout else 1.0
        self._silence = wanted.silence or max(LEAST_SILENCE, timeout or SILENCE_UNLIMITED)
        self._silent = 0.0
        self._asked = False  # whether the server has asked for a reply since the last one
        self._unanswerable = 0  # replies after which it asked again
        self._finder = PostgresTransactionFinder(base=wanted.base)
        self._hasher = None if wanted.hash_key is None else ColumnHasher(wanted.rules, wanted.hash_key)
        self._buffer: Bytes = np.empty(BUFFER, np.uint8)
        self._used = 0  # bytes in the buffer
        self._given = 0  # of those, given to the caller
        self._ahead = False  # bytes came along with the server's yes, and nobody has looked at them

    @classmethod
    def open(cls, address: PostgresAddress, request: SlotRequest) -> SlotStream:
        """Connect, check and start."""
        pgconn = replication(address, role=f"receiver {request.slot}")
        try:
            identity = identify(pgconn)
            if request.identity is not None:
                verify(identity, request.identity)
            _check_timeline(pgconn, request, identity)
            _check_server(pgconn, request)
            _check_life(pgconn, request)
            _check_slot(pgconn, request)
            timeout = _timeout(pgconn)
            options = Options.of(pgconn.server_version, streaming=request.streaming)
            stream = cls(wire(pgconn), request, identity, timeout)
            stream.streaming = options.streaming is not None
            stream._finder = PostgresTransactionFinder(streaming=stream.streaming, base=request.base)
            stream._begin(start_replication(request.slot, request.publications, options))
            stream.start = _check_again(address, request)
        except BaseException:
            pgconn.finish()
            raise
        return stream

    def __enter__(self) -> SlotStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._wire.close()

    def receive(self, timeout: float) -> StreamRead | None:
        """Read the transactions in what came; None if nothing came in time. Valid until the next call."""
        data = self.read(timeout)
        if not len(data):
            return None
        received = self._finder.take(data if self._hasher is None else self._hasher.apply(data))
        self._asked = self._asked or self._finder.asked
        return received

    def read(self, timeout: float) -> Bytes:
        """Read whole CopyData frames; empty if none came in time. Valid until the next call."""
        begun, ahead = time.monotonic(), self._ahead
        self._ahead = False
        # An error may be among them, and then nothing comes after it.
        if not self._fill(0.0 if ahead else timeout) and not ahead:
            self._silent += time.monotonic() - begun
            if self._silent > self._silence:
                raise Transient(
                    "PG_SILENT",
                    "the server does not answer any more",
                    detail=f"nothing came for {self._silence:.0f} s though a reply was asked for",
                    hint="nothing to do: the connection is made anew; check the network if it comes back",
                )
            return _EMPTY
        self._silent = 0.0
        found = self._whole()
        data = self._buffer[: found.tail]
        if len(found.kinds) and np.any(found.kinds != COPY_DATA):
            return self._without_others(data, found)
        return data

    def feedback(self, flush: Lsn, write: Lsn | None = None, *, reply: bool = True) -> None:
        """Tell the server what the lake holds (`flush`) and what has arrived (`write`)."""
        now = time.time_ns() // 1000
        flush = max(flush, self.start)  # never back: not every release ignores that
        self._wire.send(status_update(max(write or flush, flush), flush, now, reply=reply))
        self._see_whether_it_stops()

    def _see_whether_it_stops(self) -> None:
        self._unanswerable = self._unanswerable + 1 if self._asked else 0
        self._asked = False
        if self._unanswerable >= STOPPING_ROUNDS:
            raise Transient(
                "PG_SERVER_STOPPING",
                "the server is being shut down and waits for this connection to end",
                hint="nothing to do: it is tried again once the server is back",
            )

    def _begin(self, statement: str) -> None:
        """Send START_REPLICATION and wait for the server's yes."""
        self._wire.begin(statement)
        deadline = time.monotonic() + ANSWER_WITHIN
        while time.monotonic() < deadline:
            if not self._fill(0.25):
                continue
            found = self._whole()
            for i, kind in enumerate(found.kinds.tolist()):
                start, stop = int(found.starts[i]), int(found.stops[i])
                if kind == ord("W"):
                    self._given, self._ahead = stop, self._used > stop
                    return
                self._other(kind, self._buffer[start + _HEADER : stop].tobytes(), begun=False)
        raise lost_error("START_REPLICATION was not answered")

    def _fill(self, timeout: float) -> int:
        """Drop what was given, make room, and read."""
        left = self._buffer[self._given : self._used]
        size = _fitting(len(self._buffer), len(left))
        if size != len(self._buffer):
            moved: Bytes = np.empty(size, np.uint8)
            moved[: len(left)] = left
            self._buffer = moved
        elif self._given:
            self._buffer[: len(left)] = left.copy()
        self._used, self._given = len(left), 0
        count = self._wire.receive(self._buffer[self._used :].data, timeout)
        self._used += count
        return count

    def _whole(self) -> CopyFrames:
        found = frames(self._buffer, 0, self._used)
        if found.is_malformed:
            raise Transient(
                "PG_BAD_FRAME",
                "the replication stream is garbled",
                detail=f"byte {found.tail} of the buffer begins no frame",
                hint="nothing to do: the stream is read again from the last acknowledged position",
            )
        self._given = found.tail
        return found

    def _without_others(self, data: Bytes, found: CopyFrames) -> Bytes:
        """Return the CopyData frames; frames before an error are dropped: they come again."""
        kept = []
        for kind, start, stop in zip(
            found.kinds.tolist(), found.starts.tolist(), found.stops.tolist(), strict=True
        ):
            if kind == COPY_DATA:
                kept.append(data[start:stop])
            else:
                self._other(kind, data[start + _HEADER : stop].tobytes())
        return np.concatenate(kept) if kept else _EMPTY

    def _other(self, kind: int, payload: bytes, *, begun: bool = True) -> None:
        """A frame that is not CopyData: an error, a warning, the end, or nothing of importance."""
        if kind == ord("E"):
            raise refusal(fields(payload), self._slot, has_begun=begun)
        if kind == ord("N"):
            error = warning(fields(payload))
            if error is not None:
                raise error
        if kind in (ord("c"), ord("C"), ord("Z")):
            raise lost_error("the server ended the stream")


def _fitting(size: int, left: int) -> int:
    """The buffer's next size: one message may be as large as a gigabyte, most are small."""
    if 2 * left > size:
        return 2 * size
    return BUFFER if 4 * left < BUFFER else size


_KNOWS = """
SELECT pg_catalog.pg_is_in_recovery() OR CASE
       WHEN {xid} < pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint
       THEN pg_catalog.pg_xact_status('{xid}'::pg_catalog.xid8) IS DISTINCT FROM 'aborted'
       ELSE EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype = 'transactionid'
                       AND transactionid = '{low}'::pg_catalog.xid AND granted) END
"""


def _check_timeline(pgconn: pq.abc.PGconn, wanted: SlotRequest, identity: PostgresIdentity) -> None:
    """Refuse a server whose timeline has the followed one's number and is another branch."""
    if wanted.forks is not None and forks_of(pgconn, identity.timeline) != wanted.forks:
        raise timeline_parted(f"timeline {identity.timeline} has another history than the one followed")


def _check_server(pgconn: pq.abc.PGconn, wanted: SlotRequest) -> None:
    ((_, _, position, _),) = ask(pgconn, "IDENTIFY_SYSTEM")
    flushed = Lsn.parse(position or "0/0")
    if flushed < wanted.received_until:
        raise server_behind(flushed, wanted.received_until)
    ((setting, standbys),) = ask(pgconn, synchronous.ASK)
    waiting = synchronous.refusal(setting or "", standbys)
    if waiting is not None:
        raise waiting
    names = ", ".join(_literal(pgconn, name) for name in wanted.publications)
    found = ask(pgconn, f"SELECT pubname FROM pg_catalog.pg_publication WHERE pubname IN ({names})")
    missing = set(wanted.publications) - {name for (name,) in found if name is not None}
    if missing:
        raise publication_missing(", ".join(f'"{name}"' for name in sorted(missing)))


def _check_life(pgconn: pq.abc.PGconn, wanted: SlotRequest) -> None:
    """Refuse a server that does not know a commit that it has sent: it was set back.

    A commit that waits for a synchronous standby is in the stream, and only its lock shows it. It may end
    between the two looks of the statement, so the statement asks twice. A standby's snapshots may lag behind
    what it sent.
    """
    if wanted.xid is None:
        return
    statement = _KNOWS.format(xid=wanted.xid, low=wanted.xid & 0xFFFF_FFFF)
    if all(ask(pgconn, statement) == [("f",)] for _ in range(2)):
        raise history_changed(f"transaction {wanted.xid} has not committed there")


def _check_slot(pgconn: pq.abc.PGconn, wanted: SlotRequest) -> None:
    """Refuse a slot that can't or must not be read."""
    rows = ask(
        pgconn,
        "SELECT plugin, database = pg_catalog.current_database(), two_phase, active_pid, wal_status, "
        "confirmed_flush_lsn FROM pg_catalog.pg_replication_slots WHERE slot_name = "
        + _literal(pgconn, wanted.slot),
    )
    if not rows:
        raise slot_missing(wanted.slot)
    plugin, here, two_phase, pid, wal_status, confirmed = rows[0]
    if plugin != "pgoutput" or here != "t":
        raise slot_unfit(
            wanted.slot, f"it is of plugin {plugin or 'none'}, in another database: {here != 't'}"
        )
    if two_phase == "t":
        raise slot_unfit(wanted.slot, "it was made with two_phase, which splits prepared transactions")
    if wal_status == "lost" or confirmed is None:
        raise slot_lost(wanted.slot, f"its wal_status is {wal_status}")
    if pid is not None:
        raise _in_use(pgconn, wanted.slot, int(pid))
    position = Lsn.parse(confirmed)
    if position > wanted.frontier:
        raise slot_ahead(wanted.slot, position, wanted.frontier)


def _in_use(pgconn: pq.abc.PGconn, slot: str, pid: int) -> HeadraceError:
    """Say who reads the slot: a receiver of ours whose end the server has not noticed, or somebody else."""
    rows = ask(
        pgconn,
        "SELECT application_name, client_addr, backend_start FROM pg_catalog.pg_stat_activity "
        f"WHERE pid = {pid}",
    )
    if not rows:
        return slot_active(slot, pid, "it has just ended")
    application, client, since = rows[0]
    began = f", since {since}" if since else ""  # hidden from users who may not read all statistics
    whose = f'application "{application}" from {client or "a place that is not shown"}{began}'
    ours = application == application_name(f"receiver {slot}")
    return slot_active(slot, pid, whose) if ours else slot_taken(slot, pid, whose)


def _check_again(address: PostgresAddress, wanted: SlotRequest) -> Lsn:
    """Ask again where the slot stands, now that it is ours and nobody else can move it."""
    with connect(address, role=f"receiver {wanted.slot} check") as connection:
        rows = query(
            connection,
            "SELECT confirmed_flush_lsn FROM pg_catalog.pg_replication_slots WHERE slot_name = %s",
            [wanted.slot],
        )
    if not rows:
        raise slot_missing(wanted.slot)
    position = Lsn.parse(rows[0][0])
    if position > wanted.frontier:
        raise slot_ahead(wanted.slot, position, wanted.frontier)
    return position


def _timeout(pgconn: pq.abc.PGconn) -> float:
    """The server's wal_sender_timeout in seconds; 0 means none."""
    (row,) = ask(pgconn, "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'")
    return int(row[0] or 0) / 1000


def _literal(pgconn: pq.abc.PGconn, text: str) -> str:
    return pq.Escaping(pgconn).escape_literal(text.encode()).decode()
