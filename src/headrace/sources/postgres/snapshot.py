"""The snapshot: a leader that holds one moment open, and followers that copy ranges of it.

    driver     Leader      BEGIN REPEATABLE READ, by slot or by xid ─► the handoff
                           pg_export_snapshot() ─► id
                           ... stays open, answers alive() ... COMMIT, last of all
    executors  copy(id)    BEGIN REPEATABLE READ; SET TRANSACTION SNAPSHOT id; COPY a ctid range

`by="slot"`: CREATE_REPLICATION_SLOT tmp ... USE_SNAPSHOT is the first statement of the leader's
transaction and puts it on a point of the log. The snapshot holds exactly the commits with
`commit_lsn < consistent_point`; the stream has all others. The slot itself is of no further use and goes
at once, since it would hold back the log; the transaction keeps its snapshot. Its making waits for every
transaction that has an xid, in all databases of the server.

`by="xid"`: any moment will do, and nobody is waited for; the snapshot holds the transactions that it shows
(`visibility`). Not on a standby.

Either snapshot is accepted only if it shows every transaction of W (`upstream.writers`): such a one changed
the table before its changes were captured.

A follower needs nothing but its arguments and may run anywhere, again and again, as long as the leader
is open. It yields COPY's text format in large pieces of whole lines. On a plain connection the socket
is read directly (see `wire`); with TLS libpq does it. Ranges are cut by the table's size in pages; a
table that grows or has grown since only skews the work, for the last range has no end.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

import numpy as np
import numpy.typing as npt
from psycopg import OperationalError, pq

from headrace.core.errors import HeadraceError, Transient
from headrace.core.frontier import LsnFrontier
from headrace.core.handoff import ByPosition, ByXid
from headrace.core.names import TableName, quote_identifier
from headrace.decode.copydata import Frames, frames, payloads
from headrace.sources.postgres.catalog import Size, TableLook
from headrace.sources.postgres.protocol import fields
from headrace.sources.postgres.refusals import refused
from headrace.sources.postgres.session import (
    Address,
    Identity,
    Session,
    ask,
    connect,
    identify,
    plain,
    query,
    replication,
    verify,
)
from headrace.sources.postgres.silence import COPY_SECONDS, silence
from headrace.sources.postgres.upstream import PLUGIN, bound, create_slot, release_slot
from headrace.sources.postgres.visibility import accept, refuse_standby, see
from headrace.sources.postgres.wire import SocketWire, lost

Bytes = npt.NDArray[np.uint8]

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
_AGAIN = 0.2  # seconds until a barred snapshot by xid, which costs nothing, is tried again


def lead(
    address: Address,
    identity: Identity,
    name: str,
    *,
    by: By = "slot",
    barred: Set[int] = frozenset(),
    attempt_seconds: float = 30.0,
    seconds: float = 600.0,
) -> Leader:
    """Open a snapshot; a temporary slot, where one is needed, is named after `name`.

    Tries again until `seconds` are over when the slot's making waits too long or a transaction of
    `barred` (W) still runs; the last refusal is raised then.
    """
    deadline = time.monotonic() + seconds
    with closing(connect(address, role="snapshot observer")) as observer:
        verify(identify(observer), identity)
        while True:
            left = deadline - time.monotonic()
            try:
                if by == "xid":
                    return _by_xid(address, identity, barred)
                return _by_slot(
                    address, identity, observer, name, barred, min(attempt_seconds, max(left, 0.1))
                )
            except Transient as error:
                if error.code not in ("PG_SLOT_WAITS", "PG_SNAPSHOT_BARRED") or time.monotonic() > deadline:
                    raise
            if by == "xid":
                time.sleep(_AGAIN)


def _by_slot(
    address: Address,
    identity: Identity,
    observer: Session,
    name: str,
    barred: Set[int],
    seconds: float,
) -> Leader:
    with _led(replication(address, role="snapshot"), identity) as pgconn:
        # Before BEGIN: USE_SNAPSHOT must come first within the transaction.
        bound(pgconn, seconds)
        ask(pgconn, BEGIN)
        slot = f"{name[:50]}_{secrets.token_hex(5)}"
        description = f"{quote_identifier(slot)} TEMPORARY LOGICAL {PLUGIN} USE_SNAPSHOT"
        point = create_slot(pgconn, observer, description, seconds)
        ((visible,),) = ask(pgconn, "SELECT pg_current_snapshot()::text")
        accept(pgconn, visible or "", barred)
        snapshot_id = _export(pgconn)
        release_slot(pgconn, slot)
        return Leader(pgconn, snapshot_id, ByPosition(LsnFrontier(point)))


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
    low_page: int
    high_page: int | None
    rows: int  # estimates, for progress and for the size of the file
    bytes: int


def ranges(looks: Sequence[TableLook], sizes: Mapping[int, Size], target_bytes: int) -> list[CopyRange]:
    """Cut the tables into ranges of about `target_bytes` each, TOAST included; every page is in one."""
    return [piece for look in looks for piece in _cut(look.name, sizes[look.oid], target_bytes)]


def _cut(table: TableName, size: Size, target_bytes: int) -> Iterator[CopyRange]:
    count = max(1, min(size.pages, round(size.bytes / target_bytes)))
    edges = [size.pages * k // count for k in range(count)]
    for k, low in enumerate(edges):
        yield CopyRange(
            table=table,
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


def copy(
    address: Address, identity: Identity, snapshot_id: str, columns: Sequence[str], piece: CopyRange
) -> Generator[Bytes, None, None]:
    """The rows of a range as they were at the leader's snapshot: COPY text, in pieces of whole lines."""
    with following(address, identity, snapshot_id, piece.table, role="copy") as connection:
        yield from stream_copy(connection.pgconn, copy_statement(columns, piece))


@contextmanager
def following(
    address: Address, identity: Identity, snapshot_id: str, table: TableName, *, role: str
) -> Iterator[Session]:
    """A connection that sees one table as the leader does."""
    with closing(connect(address, role=role)) as connection:
        verify(identify(connection), identity)
        _import(connection, snapshot_id)
        hold(connection, table)
        yield connection


def stream_copy(pgconn: pq.abc.PGconn, statement: str) -> Iterator[Bytes]:
    """What COPY answers, in pieces of whole lines."""
    return _through_libpq(pgconn, statement) if pgconn.ssl_in_use else _off_the_socket(pgconn, statement)


_OVERTAKEN = """
SELECT c.relfilenode IS NOT DISTINCT FROM pg_catalog.pg_relation_filenode(c.oid)
  FROM pg_catalog.pg_class c WHERE c.oid = %s::regclass
"""


def hold(connection: Session, table: TableName) -> None:
    """Keep the table's rows where the snapshot saw them.

    TRUNCATE and rewriting DDL are not bound by snapshots: who reads the table afterwards finds it empty,
    however old his snapshot is. So it is locked as a reader first, and then the file that the snapshot knows
    (a query's catalog) is compared with the one that is read (the function's).
    """
    read_lock(connection, table)
    if query(connection, _OVERTAKEN, [str(table)]) != [(True,)]:
        raise Transient(
            "PG_COPY_OVERTAKEN",
            f"{table} was truncated or rewritten after the snapshot that it is copied by",
            hint="nothing to do: it is copied from a new snapshot",
        )


def read_lock(connection: Session, table: TableName) -> None:
    """Wait for who truncates or rewrites the table, and keep others from it; this takes no snapshot."""
    query(connection, f"LOCK TABLE ONLY {table} IN ACCESS SHARE MODE")


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


def _through_libpq(pgconn: pq.abc.PGconn, statement: str) -> Iterator[Bytes]:
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
        ended = pgconn.get_result()
    if ended is None or ended.status != pq.ExecStatus.COMMAND_OK:
        raise refused(None, "the copy ended early") if ended is None else _error_of(ended)
    if lines:
        yield np.frombuffer(b"".join(lines), np.uint8)


def _off_the_socket(pgconn: pq.abc.PGconn, statement: str) -> Iterator[Bytes]:
    with closing(SocketWire(pgconn)) as wire:
        wire.begin(statement)
        buffer = np.empty(_BUFFER, np.uint8)
        filled, ready = 0, False
        while not ready:
            if filled == len(buffer):  # one row that is longer than the buffer
                buffer = np.concatenate([buffer, np.empty_like(buffer)])
            filled += _received(wire, memoryview(buffer.data)[filled:])
            if filled < _PIECE and buffer[max(0, filled - 6) : filled - 1].tobytes() != _READY:
                continue
            found = frames(buffer, 0, filled)
            ready = _look_for_end(buffer, found)
            lines = payloads(buffer, found)
            if len(lines):
                yield lines
            filled -= found.tail
            buffer[:filled] = buffer[found.tail : found.tail + filled].copy()


def _received(wire: SocketWire, into: memoryview) -> int:
    """The next bytes, however long the server takes within reason."""
    deadline = time.monotonic() + COPY_SECONDS
    while not (count := wire.receive(into, _WAIT)):
        if time.monotonic() > deadline:
            raise lost(f"nothing came for {COPY_SECONDS:.0f} s")
    return count


def _look_for_end(data: Bytes, found: Frames) -> bool:
    """Whether the server is ready again; an error that it sent instead of rows is raised."""
    if found.malformed:
        raise Transient(
            "PG_BAD_FRAME",
            "the server's answer to COPY cannot be read",
            hint="check what stands between this machine and the server",
        )
    for i in np.flatnonzero(found.kinds != ord("d")):
        if found.kinds[i] == ord("E"):
            said = fields(data[found.starts[i] + 5 : found.stops[i]].tobytes())
            raise refused(said.get("C", "").encode(), said.get("M", ""))
        if found.kinds[i] == ord("Z"):
            return True
    return False
