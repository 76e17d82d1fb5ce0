"""The transactions that a server has executed, as our position: a count that its stream reaches.

    executed    all transactions that were committed on the server, or were declared as executed
    purged      those of them that are in no log any more, or never were in one
    unlogged    those that never were: purged, but not before the start of the oldest log

A stream counts the transactions in the log, and a position counts the executed ones. So the two agree only as
long as no transaction becomes executed without a log: by `SET GLOBAL gtid_purged = '+...'`, as in dumps of
mysqldump, or because the server ran for a while without its binlog. The `unlogged_gtids` of the stream's
start are in the set at which it began, and stay the same over purges and restarts; `upstream` has them. Code
that makes a position from executed transactions must do it here, where any other unlogged set is refused.

The order of the queries matters: first the executed transactions, then the purged ones, then the start of the
oldest log. Then no unlogged transaction is missed, and a purge in between hides nothing.

MySQL counts a transaction as executed once it is in the log and visible. MariaDB's position is that of its
log alone. `FLUSH BINARY LOGS DELETE_DOMAIN_ID` removes a domain from it, whose transactions the stream has
counted. Then `unlogged_gtids` remembers the domain's last transaction, once it is proven that the lake holds
it (`successor`).

So a look at the catalog after reading the end sees all DDL before that end (`ddl.schema_check`).
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.errors import Definite, PositionLost, Transient
from headrace.core.position import Position
from headrace.sources.mysql.gtid_set import GtidSet
from headrace.sources.mysql.mariadb_position import MariadbPosition
from headrace.sources.mysql.position import MysqlTimeline, parse
from headrace.sources.mysql.session.statements import MysqlConnection, literal, query


class GtidsUnlogged(Definite, PositionLost):
    """The server counts transactions as executed that were never in its log."""

    codes = ("MY_GTIDS_UNLOGGED",)


class DomainForgotten(Transient):
    """The server has forgotten a domain of its log: the next attempt finds out if anything is lost."""

    codes = ("MY_DOMAIN_FORGOTTEN",)


def executed_gtids(session: MysqlConnection) -> str:
    """The executed transactions, as the server spells them."""
    [(text,)] = query(session, f"SELECT @@global.{session.release.words.executed_variable}")
    return str(text)


def position(session: MysqlConnection, log: MysqlTimeline) -> Position:
    """The position behind everything that the server has executed."""
    return count(session, log, executed_gtids(session))


def count(session: MysqlConnection, log: MysqlTimeline, text: str) -> Position:
    """The position of the executed transactions that were just read; raises if no stream counts so far."""
    if session.release.is_mariadb:
        at = MariadbPosition.parse(text)
        _refuse_forgotten(session, at)
        return log.position(str(with_forgotten(at, log)))
    _refuse_unlogged(session, log)
    return log.position(str(parse(text)))


def with_forgotten(at: MariadbPosition, log: MysqlTimeline) -> MariadbPosition:
    """The position of a MariaDB server, completed with the domains that were removed from its log."""
    forgotten = MariadbPosition.parse(log.unlogged_gtids)
    return MariadbPosition.of([*at.newest, *(gtid for gtid in forgotten.newest if not at.last(gtid.domain))])


def is_quiet(start: Position, stop: Position) -> bool:
    """Tell whether no transaction at all lies in between: only the log shows which tables one concerns."""
    return not start < stop


def unlogged_gtids(session: MysqlConnection) -> GtidSet:
    """The transactions that count as executed and never were in a log; MariaDB has none."""
    if session.release.is_mariadb:
        return GtidSet()
    return _unlogged_gtids(session, _purged_gtids(session))


def purged_gtids(session: MysqlConnection) -> str:
    """The transactions that are not in the log any more; on MariaDB, the position at which its oldest file
    begins."""
    if not session.release.is_mariadb:
        return _purged_gtids(session)
    return str(begin_of_file(session))


def begin_of_file(session: MysqlConnection, file: str | None = None) -> MariadbPosition:
    """The position at which a file of MariaDB's log begins; without a name, the oldest file."""
    asked = f"SHOW BINLOG EVENTS{'' if file is None else f' IN {literal(file)}'} LIMIT 4"
    lists = [row for row in query(session, asked) if row[2] == "Gtid_list"]
    return MariadbPosition.parse_list(str(lists[0][5]).strip("[]")) if lists else MariadbPosition()


def previous_gtids(session: MysqlConnection, file: str | None = None) -> GtidSet:
    """The transactions before a file of MySQL's log; without a name, before the oldest file."""
    # The second event of a file; without it the file begins with the first transaction.
    events = query(session, f"SHOW BINLOG EVENTS{'' if file is None else f' IN {literal(file)}'} LIMIT 2")
    return GtidSet.parse(next((str(event[5]) for event in events if event[2] == "Previous_gtids"), ""))


def _refuse_forgotten(session: MysqlConnection, at: MariadbPosition) -> None:
    """Raise if a domain that was in the log before is gone: the next attempt finds out why."""
    domains = frozenset(gtid.domain for gtid in at.newest)
    if gone := session.domains - domains:
        raise domain_forgotten(gone)
    session.domains = domains


def domain_forgotten(domains: Iterable[int]) -> DomainForgotten:
    return DomainForgotten(
        "MY_DOMAIN_FORGOTTEN",
        "the server does not count a GTID domain any more that was received from it",
        detail="domains: " + ", ".join(map(str, sorted(domains))),
        hint="FLUSH BINARY LOGS DELETE_DOMAIN_ID has removed it, or the server was set back: the next "
        "connection goes on if the lake holds all of it, or says what to do",
    )


def _refuse_unlogged(session: MysqlConnection, log: MysqlTimeline) -> None:
    now = _purged_gtids(session)
    if now == session.purged_gtids:
        return
    found, known = _unlogged_gtids(session, now), GtidSet.parse(log.unlogged_gtids)
    if found != known:
        raise gtids_unlogged(found, known)
    session.purged_gtids = now


def _purged_gtids(session: MysqlConnection) -> str:
    [(found,)] = query(session, "SELECT @@global.gtid_purged")
    return str(found)


def _unlogged_gtids(session: MysqlConnection, gone: str) -> GtidSet:
    if not gone:
        return GtidSet()
    before = str(previous_gtids(session))
    [(rest,)] = query(session, "SELECT GTID_SUBTRACT(%s, %s)", [gone, before])
    return GtidSet.parse(str(rest))


def gtids_unlogged(actual: GtidSet, recorded_gtids: GtidSet) -> GtidsUnlogged:
    return GtidsUnlogged(
        "MY_GTIDS_UNLOGGED",
        "the server counts transactions as executed that never were in its log",
        detail=f"executed and in no log: {_show(actual)}; when the stream began: {_show(recorded_gtids)}",
        hint="somebody has set gtid_purged, as dumps of mysqldump do (--set-gtid-purged=OFF leaves it out), "
        "or the server ran without its log: headrace run --reconcile",
    )


def _show(gtids: GtidSet) -> str:
    return str(gtids) or "none"
