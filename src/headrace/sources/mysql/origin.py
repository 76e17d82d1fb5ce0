"""Find where a stream begins, and see that the server still is as one needs it. Nothing is made there.

    LOCK TABLES of the mirror ─► what was executed: the start ─► UNLOCK TABLES ─► the server's clock

A transaction comes whole, with its commit, so that of what is merely open at the start nothing is missing.
But one that is *prepared* there (XA) has its rows before the start and its end behind it: the stream brings
its end alone, as if it concerned none of our tables. While the tables are locked no such one exists that
wrote them (`snapshot.locks`). So the locks are tried once. Where others hold them for longer, the stream
begins all the same, and is not *fresh*: a table is exact from its copy on, which needs the locks, too.

After a lost position the start need not hold what was reached: the server was set back, or another has taken
its place. Then its times would say something else than ours did before. In the life that begins there, the
base of all times is larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.sources.contract.findings import Level
from headrace.sources.contract.session import Origin, StreamOrder
from headrace.sources.contract.waiting import Waiting
from headrace.sources.mysql.binlog_position import holds
from headrace.sources.mysql.preflight.grants import rights
from headrace.sources.mysql.preflight.server import check_server
from headrace.sources.mysql.session import clock, log_end
from headrace.sources.mysql.session.address import Address
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import Identity, identify, verify
from headrace.sources.mysql.session.statements import Session, query
from headrace.sources.mysql.snapshot.locks import TablesHeld, locked
from headrace.sources.mysql.stream import history
from headrace.sources.mysql.upstream import Upstream


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a stream, as the life counts that was before, and what was reached in that."""

    identity: Identity
    upstream: Upstream
    position: Position
    reached: Position | None = None


def establish(
    address: Address,
    identity: Identity,
    upstream: Upstream,
    order: StreamOrder,
    waiting: Waiting,
) -> Origin:
    """Find where the stream of these tables begins, on a connection of its own."""
    with closing(connect(address, role="begin")) as session:
        verify(identify(session), identity)
        upstream = replace(upstream, unlogged=str(log_end.unlogged(session)), folded=_folds(session))
        end = history.end_of_log(session, identity)
        executed, fresh = _executed(session, order.names, waiting)
        # The other order would take what is unlogged from now on for something that the start holds.
        position = history.start(session, log_end.counted(session, upstream.log, executed), end)
        begun = clock.begun(session)
    return origin_of(Start(identity, upstream, position, order.reached), fresh=fresh, begun=begun)


def _folds(session: Session) -> bool:
    [(folds,)] = query(session, "SELECT @@global.lower_case_table_names <> 0")
    return bool(folds)


def _executed(session: Session, names: Sequence[TableName], waiting: Waiting) -> tuple[str, bool]:
    """Ask what was executed, and whether no transaction is prepared there that has rows of these tables."""
    if not names:
        return log_end.executed(session), True
    try:
        with locked(session, names, waiting, seconds=0.0) as locks:
            executed = log_end.executed(session)
            locks.release(session)
            return executed, True
    except TablesHeld:
        return log_end.executed(session), False


def origin_of(found: Start, *, fresh: bool, begun: int | None) -> Origin:
    """The beginning of a stream; after a lost position it lies behind what was reached."""
    upstream, start, reached = found.upstream, found.position, found.reached
    parted = reached is not None and not holds(start.text, reached.text)
    if reached is not None and parted:
        upstream = replace(upstream, base=upstream.log.behind(reached, start.text).base)
        start = upstream.log.position(start.text)
    return Origin(
        found.identity.known(), upstream.as_record(), start, fresh=fresh, begun=begun, another_life=parted
    )


def confirm(session: Session) -> None:
    """Refuse a server whose settings or privileges are not those any more that a stream needs."""
    findings = check_server(session, rights(session), copy_bytes=0)
    error = next((each.error for each in findings if each.level is Level.ERROR), None)
    if error is not None:
        raise error
