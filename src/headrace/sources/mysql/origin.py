"""Find the start of a stream, and check that the server still has the settings for one. Nothing is made
there.

    LOCK TABLES of the mirror ─► the executed transactions: the start ─► UNLOCK TABLES ─► the server's clock

A transaction comes whole, with its commit, so nothing is missing of a transaction that is merely open at the
start. But a transaction that is *prepared* then (XA) has its rows before the start and its end after it: the
stream brings its end alone, as if it concerned none of our tables. While the tables are locked, no prepared
transaction has written them (`copy.locks`). So the locks are tried once. If other sessions hold them for
longer, the stream begins all the same, and is not *fresh*: a table is then exact from its copy on, which
needs the locks too.

After a lost position the start may not include everything that was received: the server was set back, or
another has taken its place. Then its times would mean other transactions than before. So a new life begins,
with a larger base for all times.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.sources.contract.findings import Level
from headrace.sources.contract.mirror import StreamOrder, StreamOrigin
from headrace.sources.contract.values import Waiting
from headrace.sources.mysql.copy.locks import TablesHeld, lock_tables
from headrace.sources.mysql.position import holds
from headrace.sources.mysql.preflight.grants import rights
from headrace.sources.mysql.preflight.server import check_server
from headrace.sources.mysql.session import clock, log_end
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity, identify, verify
from headrace.sources.mysql.session.statements import MysqlConnection, query
from headrace.sources.mysql.stream import history
from headrace.sources.mysql.upstream import MysqlUpstream


@dataclass(frozen=True, slots=True)
class MysqlStart:
    """The start of a stream in the former life's times, and the position received in that life."""

    identity: MysqlIdentity
    upstream: MysqlUpstream
    position: Position
    received_until: Position | None = None


def establish(
    address: MysqlAddress,
    identity: MysqlIdentity,
    upstream: MysqlUpstream,
    order: StreamOrder,
    waiting: Waiting,
) -> StreamOrigin:
    """Find the start of a stream of these tables, over a connection of its own."""
    with closing(connect(address, role="begin")) as session:
        verify(identify(session), identity)
        upstream = replace(
            upstream, unlogged_gtids=str(log_end.unlogged_gtids(session)), case_insensitive=_folds(session)
        )
        end = history.end_of_log(session, identity)
        executed, fresh = _executed_gtids(session, order.names, waiting)
        # In the other order, later unlogged transactions would count as included in the start.
        position = history.start(session, log_end.count(session, upstream.log, executed), end)
        begun = clock.begin(session)
    return origin_of(
        MysqlStart(identity, upstream, position, order.received_until), fresh=fresh, begun_at=begun
    )


def _folds(session: MysqlConnection) -> bool:
    [(folds,)] = query(session, "SELECT @@global.lower_case_table_names <> 0")
    return bool(folds)


def _executed_gtids(
    session: MysqlConnection, names: Sequence[TableName], waiting: Waiting
) -> tuple[str, bool]:
    """The executed transactions, and whether it is certain that no prepared one has rows of these tables."""
    if not names:
        return log_end.executed_gtids(session), True
    try:
        with lock_tables(session, names, waiting, seconds=0.0) as locks:
            executed = log_end.executed_gtids(session)
            locks.release(session)
            return executed, True
    except TablesHeld:
        return log_end.executed_gtids(session), False


def origin_of(stream_start: MysqlStart, *, fresh: bool, begun_at: int | None) -> StreamOrigin:
    """The start of a stream; after a lost position it lies behind the received position."""
    upstream, start, reached = stream_start.upstream, stream_start.position, stream_start.received_until
    parted = reached is not None and not holds(start.text, reached.text)
    if reached is not None and parted:
        upstream = replace(upstream, base=upstream.log.behind(reached, start.text).base)
        start = upstream.log.position(start.text)
    return StreamOrigin(
        stream_start.identity.lasting_part(),
        to_record(upstream),
        start,
        fresh=fresh,
        begun_at=begun_at,
        another_life=parted,
    )


def confirm(session: MysqlConnection) -> None:
    """Refuse a server whose settings, or our privileges, do not allow a stream any more."""
    findings = check_server(session, rights(session), copy_bytes=0)
    error = next((each.error for each in findings if each.level is Level.ERROR), None)
    if error is not None:
        raise error
