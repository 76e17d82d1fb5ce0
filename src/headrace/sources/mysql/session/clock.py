"""The server's clock, read with its binlog: every commit from a position on has a later time than the
reading.

    a commit     begins its statement ─► notes the time ─► is written ─► counts as executed
    a reading    notes the time ─► looks which statements run ─► asks which transactions are executed

A commit that is not in the reading's position has one of two causes. Its statement was running when the
reading looked: then its time is later than that statement's start. Or its statement began afterwards: then
its time is later than the reading's. So the reading takes the earlier of the two. MySQL notes the time when
it writes the commit. MariaDB has the time of the statement's start, in whole seconds. The server lists the
duration of statements in whole seconds.

Only users with the privilege PROCESS see other users' statements; without it there is no reading. There is
none either if the server applies another server's changes: these threads are no statements, and their commits
have times of elsewhere. No reading is proof against a clock that is set back, or a session that sets its own
(`SET timestamp`).

Reads only. Only the time of the position is of use: its text does not name prepared transactions.
"""

from __future__ import annotations

from headrace.sources.contract.mirror import ClockReading
from headrace.sources.mysql.position import MysqlTimeline
from headrace.sources.mysql.session.log_end import position
from headrace.sources.mysql.session.statements import MysqlConnection, query
from headrace.sources.shared.refusals import PrivilegeMissing

_SECOND = 1_000_000
_NOW = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
# The server refuses this to users who don't see others' statements.
_SEES_OTHERS = "SELECT COUNT(*) FROM information_schema.innodb_trx"
_RUNNING = """
SELECT COUNT(*), COALESCE(MAX(time), 0), COALESCE(SUM(user = 'system user'), 0)
  FROM information_schema.processlist
 WHERE id <> CONNECTION_ID() AND command NOT IN ('Sleep', 'Daemon', 'Binlog Dump', 'Binlog Dump GTID')
"""


def read(session: MysqlConnection, log: MysqlTimeline) -> ClockReading | None:
    """Read the server's clock; None if we can't see the transactions that are about to commit."""
    at = begin(session)
    try:
        query(session, _SEES_OTHERS)
    except PrivilegeMissing:
        return None
    [(running, longest, appliers)] = query(session, _RUNNING)
    if appliers:
        return None
    reached = position(session, log)
    if running:
        at -= (_whole(longest) + 1) * _SECOND
    if session.release.is_mariadb:
        at -= at % _SECOND
    return ClockReading(at - 1, reached)


def begin(session: MysqlConnection) -> int:
    """Read a time that no commit before an already known position is later than."""
    [(now,)] = query(session, _NOW)
    return _whole(now)


def _whole(value: object) -> int:
    return max(0, int(str(value)))
