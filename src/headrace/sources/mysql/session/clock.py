"""The server's clock, held against its binlog: what is committed from a position on bears a later time.

    a commit     begins its statement ─► notes the time ─► is written ─► is among what was executed
    a reading    notes the time ─► looks who is running a statement ─► asks what was executed

A commit that is not in the reading's position was either within a statement when the reading looked, and
then bears a time behind that statement's beginning; or its statement began later, behind the reading's time.
So the reading says the earlier of the two. MySQL notes the time when it writes the commit; MariaDB has that
of the statement's beginning, in whole seconds. The server lists how long a statement runs in whole seconds.

Whose statements run is shown to those who have the privilege PROCESS; without it a user sees only their own,
and there is no reading. Nor is there one where the server applies another's changes: those threads are no
statements, and what they commit bears times of elsewhere. A clock that is set back, or a session that sets
its own (`SET timestamp`), no reading is proof against.

Reads only. Of the position, only its time is of use: its text doesn't say which transactions are prepared.
"""

from __future__ import annotations

from headrace.sources.contract.mirror import ClockReading
from headrace.sources.mysql.position import MysqlTimeline
from headrace.sources.mysql.session.log_end import position
from headrace.sources.mysql.session.statements import MysqlConnection, query
from headrace.sources.shared.refusals import PrivilegeMissing

_SECOND = 1_000_000
_NOW = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
# Refused to whoever would not see the others' statements.
_SEES_OTHERS = "SELECT COUNT(*) FROM information_schema.innodb_trx"
_RUNNING = """
SELECT COUNT(*), COALESCE(MAX(time), 0), COALESCE(SUM(user = 'system user'), 0)
  FROM information_schema.processlist
 WHERE id <> CONNECTION_ID() AND command NOT IN ('Sleep', 'Daemon', 'Binlog Dump', 'Binlog Dump GTID')
"""


def read(session: MysqlConnection, log: MysqlTimeline) -> ClockReading | None:
    """Read the server's clock; None where nobody can tell what is about to be committed."""
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
    """A moment that no commit before any position that was had by now is later than."""
    [(now,)] = query(session, _NOW)
    return _whole(now)


def _whole(value: object) -> int:
    return max(0, int(str(value)))
