"""The transactions that a server has executed, as one of our positions: a count that its stream comes to.

    executed    all that was committed on the server, or that it was told was
    purged      of these, what is in no log any more, and what never was in one
    unlogged    the second half of that: purged, but not said to lie before the oldest log

A stream counts what the log brings, and a position counts what was executed. So the two agree only while
nothing becomes executed without a log: by `SET GLOBAL gtid_purged = '+...'`, as in dumps of mysqldump, or by
a server that ran for a while without its binlog. What was `unlogged_gtids` when the stream began is in the
set that it began at, and stays as it is over purges and restarts; it stands in `upstream`. Whoever makes a
position of what a server has executed asks here, where any other set is refused.

The order of the questions matters: first what was executed, then what is purged, then where the oldest log
begins. Of two transactions that were unlogged by then none is missed, and a purge in between hides nothing.

MySQL counts a transaction as executed once it is in the log, and visible; MariaDB's position is of its log
alone. `FLUSH BINARY LOGS DELETE_DOMAIN_ID` takes a domain out of that, whose transactions the stream has
counted: `unlogged_gtids` remembers its last one, once the lake is seen to hold it (`successor`).

So DDL before the end is seen in the catalog by whoever looks afterwards (`ddl.schema_check`).
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
    """The server counts transactions as executed that no log of it ever held."""

    codes = ("MY_GTIDS_UNLOGGED",)


class DomainForgotten(Transient):
    """The server has forgotten a domain of its log: the next attempt sees whether anything is lost."""

    codes = ("MY_DOMAIN_FORGOTTEN",)


def executed_gtids(session: MysqlConnection) -> str:
    """Ask what the server has executed."""
    [(text,)] = query(session, f"SELECT @@global.{session.release.words.executed_variable}")
    return str(text)


def position(session: MysqlConnection, log: MysqlTimeline) -> Position:
    """Ask how far the server is."""
    return count(session, log, executed_gtids(session))


def count(session: MysqlConnection, log: MysqlTimeline, text: str) -> Position:
    """The position of what this server had executed a moment ago; refused where no stream counts so far."""
    if session.release.is_mariadb:
        at = MariadbPosition.parse(text)
        _refuse_forgotten(session, at)
        return log.position(str(with_forgotten(at, log)))
    _refuse_unlogged(session, log)
    return log.position(str(parse(text)))


def with_forgotten(at: MariadbPosition, log: MysqlTimeline) -> MariadbPosition:
    """The position of a MariaDB server, with the domains that its log was told to forget."""
    forgotten = MariadbPosition.parse(log.unlogged_gtids)
    return MariadbPosition.of([*at.newest, *(gtid for gtid in forgotten.newest if not at.last(gtid.domain))])


def is_quiet(start: Position, stop: Position) -> bool:
    """Tell whether no transaction at all lies in between: whose tables one is of only the log tells."""
    return not start < stop


def unlogged_gtids(session: MysqlConnection) -> GtidSet:
    """Ask which transactions count as executed, and never were in a log; MariaDB has none."""
    if session.release.is_mariadb:
        return GtidSet()
    return _unlogged_gtids(session, _purged_gtids(session))


def purged_gtids(session: MysqlConnection) -> str:
    """Ask what is not in the log any more; on MariaDB, behind what its oldest file begins."""
    if not session.release.is_mariadb:
        return _purged_gtids(session)
    return str(begin_of_file(session))


def begin_of_file(session: MysqlConnection, file: str | None = None) -> MariadbPosition:
    """Ask behind what a file of MariaDB's log begins; None: the oldest."""
    asked = f"SHOW BINLOG EVENTS{'' if file is None else f' IN {literal(file)}'} LIMIT 4"
    lists = [row for row in query(session, asked) if row[2] == "Gtid_list"]
    return MariadbPosition.parse_list(str(lists[0][5]).strip("[]")) if lists else MariadbPosition()


def _refuse_forgotten(session: MysqlConnection, at: MariadbPosition) -> None:
    """Have the next attempt look what became of a domain that was in the log a moment ago."""
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
    # The second event of a file; where there is none the file begins with the first transaction.
    events = query(session, "SHOW BINLOG EVENTS LIMIT 2")
    before = next((str(event[5]) for event in events if event[2] == "Previous_gtids"), "")
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
