"""The snapshot: a leader that holds one moment open, and followers that copy ranges of it.

    driver     Leader      BEGIN REPEATABLE READ, by slot or by xid ─► the handoff
                           pg_export_snapshot() ─► id
                           ... stays open, answers alive() ... COMMIT, last of all
    executors  following   BEGIN REPEATABLE READ; SET TRANSACTION SNAPSHOT id; LOCK; COPY a ctid range

`by="slot"`: CREATE_REPLICATION_SLOT tmp ... USE_SNAPSHOT is the first statement of the leader's
transaction and puts it on a point of the log. The snapshot holds exactly the commits with
`commit_lsn < consistent_point`; the stream has all others. The slot itself is of no further use and goes
at once, since it would hold back the log; the transaction keeps its snapshot. Its making waits for every
transaction that has an xid, in all databases of the server.

`by="xid"`: any moment will do, and nobody is waited for; the snapshot holds the transactions that it shows
(`visibility`). Not on a standby.

Either snapshot is accepted only if it shows every transaction of W (`upstream.writers`): such a one changed
the table before its changes were captured.

A follower needs nothing but its arguments and may run anywhere, again and again, as long as the leader is
open; it reads one range after another over one connection, each in a transaction of its own. It yields
COPY's text format in large pieces of whole lines. On a plain connection the socket is read directly (see
`protocol.wire`); with TLS libpq does it. Ranges are cut by the table's size in pages; a table that grows or
has grown since only skews the work, for the last range has no end.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
from psycopg import OperationalError, pq

from headrace.core.errors import HeadraceError, Transient
from headrace.core.handoff import ByPosition, ByXid
from headrace.core.names import TableName, quote_identifier
from headrace.decode.copydata import Frames, frames, payloads
from headrace.sources.postgres.catalog.sizes import Size
from headrace.sources.postgres.catalog.table_def import TableLook
from headrace.sources.postgres.lsn import Log
from headrace.sources.postgres.protocol.messages import fields
from headrace.sources.postgres.protocol.wire import SocketWire, lost
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.connection import connect, plain, replication
from headrace.sources.postgres.session.identity import Identity, identify, verify
from headrace.sources.postgres.session.refusals import refused
from headrace.sources.postgres.session.statements import Session, ask, query
from headrace.sources.postgres.session.timeouts import COPY_SECONDS, silence
from headrace.sources.postgres.snapshot.table_access import confirm, lock, overtaken, prove, reading
from headrace.sources.postgres.snapshot.visibility import SnapshotBarred, accept, refuse_standby, see
from headrace.sources.postgres.upstream import (
    ALONE,
    PLUGIN,
    SlotWaits,
    Waiting,
    bound,
    create_slot,
    release_slot,
)

T = TypeVar("T")
Bytes = npt.NDArray[np.uint8]
Stream = Generator[Bytes, None, None]  # to be closed by who does not read it to its end

BEGIN = "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ"

# --- leader -------------------------------------------------------------------------------------


class Leader:
    """A moment of the source, held open: made by `lead`, to be closed when every follower is done."""

    def __init__(self, pgconn: pq.abc.PGconn, snapshot_id: str, handoff: ByPosition | ByXid) -> None:
        self._pgconn = pgconn
        self.snapshot_id = snapshot_id  # for SET TRANSACTION SNAPSHOT
        self.handoff = handoff  # which transactions the snapshot holds

    def __enter__(self) -> Leader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def alive(self) -> bool:
        """Whether the snapshot is still held; asking also keeps the connection from falling asleep."""
        try:
            ask(self._pgconn, "SELECT 1")
        except Transient:
            return False
        return True

    def close(self) -> None:
        """Commit and let go. Followers that have imported the snapshot go on by themselves."""
        try:
            if self._pgconn.status == pq.ConnStatus.OK:
                ask(self._pgconn, "COMMIT")
        except Transient:
            return  # the connection is gone, and the snapshot with it: that is what was wanted
        finally:
            self._pgconn.finish()


By = Literal["slot", "xid"]
_AGAIN = 0.2  # seconds until a barred snapshot is tried again
ATTEMPT_SECONDS = 3600.0  # for one attempt to make a slot
_INSTEAD = ', or set handoff = "xid", which waits only for writers of the tables that are copied'


def lead(
    address: Address,
    identity: Identity,
    name: str,
    *,
    by: By = "slot",
    barred: Set[int] = frozenset(),
    seconds: float = 600.0,
    waiting: Waiting = ALONE,
) -> Leader:
    """Open a snapshot; a temporary slot, where one is needed, is named after `name`.

    Waits, until `seconds` are over, for the transactions that keep a slot from being made, and for those of
    `barred` (W) that still run.
    """
    deadline = time.monotonic() + seconds
    with closing(connect(address, role="snapshot observer")) as observer:
        verify(identify(observer), identity)

        def take() -> Leader:
            if by == "xid":
                return _by_xid(address, identity, barred)
            left = min(max(deadline - time.monotonic(), 0.1), ATTEMPT_SECONDS)
            return _by_slot(address, identity, observer, name, barred, left, waiting)

        return until_shown(take, waiting, seconds)


def until_shown(take: Callable[[], T], waiting: Waiting, seconds: float = math.inf) -> T:
    """What is taken from a snapshot, as soon as one shows all of W; the last refusal, when time is over."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return take()
        except (SlotWaits, SnapshotBarred) as error:
            if time.monotonic() > deadline:
                raise
            waiting.tell(error)
        waiting.check()
        time.sleep(_AGAIN)


def _by_slot(
    address: Address,
    identity: Identity,
    observer: Session,
    name: str,
    barred: Set[int],
    seconds: float,
    waiting: Waiting,
) -> Leader:
    with _led(replication(address, role="snapshot"), identity) as pgconn:
        # Before BEGIN: USE_SNAPSHOT must come first within the transaction.
        bound(pgconn, seconds)
        ask(pgconn, BEGIN)
        slot = f"{name[:50]}_{secrets.token_hex(5)}"
        description = f"{quote_identifier(slot)} TEMPORARY LOGICAL {PLUGIN} USE_SNAPSHOT"
        point = create_slot(pgconn, observer, description, seconds, waiting, instead=_INSTEAD)
        ((visible,),) = ask(pgconn, "SELECT pg_current_snapshot()::text")
        accept(pgconn, visible or "", barred)
        snapshot_id = _export(pgconn)
        release_slot(pgconn, slot)
        return Leader(pgconn, snapshot_id, ByPosition(Log().position(point)))


def _by_xid(address: Address, identity: Identity, barred: Set[int]) -> Leader:
    refuse_standby(identity)
    with _led(plain(address, role="snapshot"), identity) as pgconn:
        ask(pgconn, BEGIN)
        handoff = see(pgconn, barred)
        return Leader(pgconn, _export(pgconn), handoff)


@contextmanager
def _led(pgconn: pq.abc.PGconn, identity: Identity) -> Iterator[pq.abc.PGconn]:
    """A connection to the source and to no other; it ends with whatever goes wrong in the block."""
    try:
        verify(identify(pgconn), identity)
        yield pgconn
    except BaseException:
        pgconn.finish()
        raise


def _export(pgconn: pq.abc.PGconn) -> str:
    ((snapshot_id,),) = ask(pgconn, "SELECT pg_export_snapshot()")
    return snapshot_id or ""


# --- ranges -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CopyRange:
    """Pages `low_page <= page < high_page` of a table; the last range of a table has no end."""

    table: TableName
    oid: int  # of the table: a name may lead to another one
    low_page: int
    high_page: int | None
    rows: int  # estimates, for progress and for the size of the file
    bytes: int


def ranges(looks: Sequence[TableLook], sizes: Mapping[int, Size], target_bytes: int) -> list[CopyRange]:
    """Cut the tables into ranges of about `target_bytes` each, TOAST included; every page is in one."""
    return [piece for look in looks for piece in _cut(look.name, look.oid, sizes[look.oid], target_bytes)]


def _cut(table: TableName, oid: int, size: Size, target_bytes: int) -> Iterator[CopyRange]:
    count = max(1, min(size.pages, round(size.bytes / target_bytes)))
    edges = [size.pages * k // count for k in range(count)]
    for k, low in enumerate(edges):
        yield CopyRange(
            table=table,
            oid=oid,
            low_page=low,
            high_page=edges[k + 1] if k + 1 < count else None,
            rows=size.rows * (k + 1) // count - size.rows * k // count,
            bytes=size.bytes * (k + 1) // count - size.bytes * k // count,
        )


# --- followers ----------------------------------------------------------------------------------

_PIECE = 1 << 20  # a piece is yielded when it has so many bytes
_BUFFER = 4 << 20
_READY = b"Z\0\0\0\5"  # the server's last frame, but for one byte with the transaction's state
_WAIT = 1.0


class Follower:
    """A connection to the source, and to no other, over which ranges are read one after another."""

    def __init__(self, address: Address, identity: Identity, *, role: str) -> None:
        self._address = address
        self._identity = identity
        self._role = role
        self._connection: Session | None = None

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()

    @property
    def connection(self) -> Session:
        """The connection; another one, if a copy was given up half-way or the server ended it."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._address, role=self._role)
            verify(identify(self._connection), self._identity)
        return self._connection


@contextmanager
def following(connection: Session, snapshot_id: str, piece: CopyRange) -> Iterator[None]:
    """A transaction that sees the table of a range as the leader does."""
    with reading(connection, piece.table, piece.oid):
        _import(connection, snapshot_id)
        hold(connection, piece)
        yield
        confirm(connection, piece.table, piece.oid)


def copy(connection: Session, snapshot_id: str, columns: Sequence[str], piece: CopyRange) -> Stream:
    """The rows of a range as they were at the leader's snapshot: COPY text, in pieces of whole lines."""
    with following(connection, snapshot_id, piece):
        yield from stream_copy(connection.pgconn, copy_statement(columns, piece))


def stream_copy(pgconn: pq.abc.PGconn, statement: str) -> Stream:
    """What COPY answers, in pieces of whole lines."""
    return _through_libpq(pgconn, statement) if pgconn.ssl_in_use else _off_the_socket(pgconn, statement)


_OVERTAKEN = """
SELECT c.relfilenode IS NOT DISTINCT FROM pg_catalog.pg_relation_filenode(c.oid)
  FROM pg_catalog.pg_class c WHERE c.oid = %s
"""


def hold(connection: Session, piece: CopyRange) -> None:
    """Keep the table's rows where the snapshot saw them.

    TRUNCATE and rewriting DDL are not bound by snapshots: who reads the table afterwards finds it empty,
    however old his snapshot is. So it is locked as a reader first, and then the file that the snapshot knows
    (a query's catalog) is compared with the one that is read (the function's).
    """
    lock(connection, piece.table)
    prove(connection, piece.table, piece.oid)
    if query(connection, _OVERTAKEN, [piece.oid]) != [(True,)]:
        raise overtaken(f"{piece.table} was truncated or rewritten after the snapshot that it is copied by")


def copy_statement(columns: Sequence[str], piece: CopyRange) -> str:
    """The COPY of a range. ONLY: the children of an inheritance parent are copied as themselves."""
    listed = ", ".join(quote_identifier(column) for column in columns)
    bounds = [f"ctid >= '({piece.low_page},0)'::tid"] if piece.low_page else []
    if piece.high_page is not None:
        bounds.append(f"ctid < '({piece.high_page},0)'::tid")
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    return f"COPY (SELECT {listed} FROM ONLY {piece.table}{where}) TO STDOUT"


# What SET TRANSACTION SNAPSHOT answers when the exporting transaction has ended.
_GONE = ("22023", "42704", "55000")


def _import(connection: Session, snapshot_id: str) -> None:
    ask(connection.pgconn, BEGIN)
    result = connection.pgconn.exec_(f"SET TRANSACTION SNAPSHOT '{snapshot_id}'".encode())
    if result.status == pq.ExecStatus.COMMAND_OK:
        return
    error = _error_of(result)
    if (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode() in _GONE:
        raise Transient(
            "PG_SNAPSHOT_GONE",
            "the snapshot to be copied is no longer held",
            detail=error.detail,
            hint="nothing to do: what is missing is copied from a new snapshot",
        )
    raise error


def _error_of(result: pq.abc.PGresult) -> HeadraceError:
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    return refused(result.error_field(pq.DiagnosticField.SQLSTATE), (message or b"").decode(errors="replace"))


def _through_libpq(pgconn: pq.abc.PGconn, statement: str) -> Stream:
    with silence(pgconn, COPY_SECONDS) as heard:
        result = pgconn.exec_(statement.encode())
        if result.status != pq.ExecStatus.COPY_OUT:
            raise _error_of(result)
        lines: list[bytes] = []
        held = 0
        try:
            while (taken := pgconn.get_copy_data(0))[0] > 0:
                heard()
                lines.append(bytes(taken[1]))
                held += taken[0]
                if held >= _PIECE:
                    yield np.frombuffer(b"".join(lines), np.uint8)
                    heard()  # what our caller did meanwhile was not the server's silence
                    lines, held = [], 0
        except OperationalError as error:
            raise refused(None, str(error)) from None
        except GeneratorExit:
            pgconn.finish()  # given up half-way: nobody else could make sense of the rest
            raise
        ended = pgconn.get_result()
        while pgconn.get_result() is not None:
            pass
    if ended is None or ended.status != pq.ExecStatus.COMMAND_OK:
        raise refused(None, "the copy ended early") if ended is None else _error_of(ended)
    if lines:
        yield np.frombuffer(b"".join(lines), np.uint8)


def _off_the_socket(pgconn: pq.abc.PGconn, statement: str) -> Stream:
    wire = SocketWire(pgconn)
    answer = _Answer()
    try:
        wire.begin(statement)
        buffer = np.empty(_BUFFER, np.uint8)
        filled = 0
        while not answer.over:
            if filled == len(buffer):  # one row that is longer than the buffer
                buffer = np.concatenate([buffer, np.empty_like(buffer)])
            filled += _received(wire, memoryview(buffer.data)[filled:], answer)
            if filled < _PIECE and buffer[max(0, filled - 6) : filled - 1].tobytes() != _READY:
                continue
            found = frames(buffer, 0, filled)
            answer.take(buffer, found)
            lines = payloads(buffer, found)
            if len(lines):
                yield lines
            filled -= found.tail
            buffer[:filled] = buffer[found.tail : found.tail + filled].copy()
    finally:
        # Given up half-way: nobody else could make sense of the rest.
        wire.leave() if answer.over else wire.close()
    if answer.error is not None:
        raise answer.error


@dataclass(slots=True)
class _Answer:
    """What the server answers to COPY, beside the rows."""

    over: bool = False  # it is ready for the next statement
    error: HeadraceError | None = None

    def take(self, data: Bytes, found: Frames) -> None:
        if found.malformed:
            raise Transient(
                "PG_BAD_FRAME",
                "the server's answer to COPY cannot be read",
                hint="check what stands between this machine and the server",
            )
        for i in np.flatnonzero(found.kinds != ord("d")):
            if found.kinds[i] == ord("E"):
                said = fields(data[found.starts[i] + 5 : found.stops[i]].tobytes())
                self.error = refused(said.get("C", "").encode(), said.get("M", ""))
            self.over |= bool(found.kinds[i] == ord("Z"))


def _received(wire: SocketWire, into: memoryview, answer: _Answer) -> int:
    """The next bytes, however long the server takes within reason."""
    deadline = time.monotonic() + COPY_SECONDS
    try:
        while not (count := wire.receive(into, _WAIT)):
            if time.monotonic() > deadline:
                raise lost(f"nothing came for {COPY_SECONDS:.0f} s")
    except Transient:
        # A server that ends the session says why before it hangs up.
        raise answer.error or lost("it ended in the midst of a copy") from None
    return count
