"""The server's clock, read with its log: every commit from a position on has a later time than the reading.

    a commit     locks its xid ─► notes the time ─► writes its record ─► frees its xid
    a reading    notes the time ─► looks whether an xid is locked ─► asks for the end of the log

A commit record behind the reading's position is written after the reading. If its transaction noted its time
before the reading did, it held its xid's lock during the look. So if no xid is locked, every commit from the
position on has a later time than the reading. If one is locked, its transaction may have noted its time
already and be about to write its record. That takes microseconds, or as long as the log's disk is busy. So
the reading's time is then set back by `HESITATION`. A snapshot would not do: it lists no transaction that
began after the last one that ended.

A standby has no such locks, and its clock belongs to another machine. There the time is that of the newest
replayed commit, set back in the same way. The keepalives of the stream can't serve: the log may go on past
the position that they name, and commits behind it may be older than the keepalive.

A transaction that was replicated from elsewhere has the time of its first commit, and a clock may be set
back. No reading can exclude either, so readers must allow for both (`headrace.lake.read.resolve`).

Reads only.
"""

from __future__ import annotations

from headrace.sources.contract.mirror import ClockReading
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from headrace.sources.postgres.session.statements import Session, query

HESITATION = 1_000_000  # microseconds

# now() is the time at which the statement's transaction began. The log's end is the insert position and not
# the write position: an asynchronous commit frees its xid before it is written.
_READING = """
WITH seen AS MATERIALIZED (
    SELECT s.standby,
           CASE WHEN s.standby THEN pg_catalog.pg_last_xact_replay_timestamp()
                ELSE pg_catalog.now() END AS moment,
           s.standby OR EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE l.locktype = 'transactionid'
                                   AND l.mode = 'ExclusiveLock' AND l.granted) AS somebody
      FROM (SELECT pg_catalog.pg_is_in_recovery() AS standby) s)
SELECT moment, somebody,
       (CASE WHEN standby THEN pg_catalog.pg_last_wal_replay_lsn()
             ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text
  FROM seen
"""
# A commit that a standby replayed earlier may have a later time than the newest one: add a second.
_BEGUN = """
SELECT CASE WHEN pg_catalog.pg_is_in_recovery()
            THEN coalesce(pg_catalog.pg_last_xact_replay_timestamp() + '1 s', pg_catalog.clock_timestamp())
            ELSE pg_catalog.clock_timestamp() END
"""
_PAGE = 8192
_HEADERS = (24, 40)  # of a page of the log, and of the first one of a segment


def read(connection: Session, log: PostgresTimeline) -> ClockReading | None:
    """Read the server's clock; None on a standby that has not replayed a commit yet."""
    [(moment, somebody, end)] = query(connection, _READING)
    if moment is None:
        return None
    at = round(moment.timestamp() * 1_000_000)
    return ClockReading(at - HESITATION if somebody else at, log.position(_reachable(Lsn.parse(end))))


def begin(connection: Session) -> int:
    """Read a time that no commit before an already known position is later than."""
    [(moment,)] = query(connection, _BEGUN)
    microseconds: int = round(moment.timestamp() * 1_000_000)
    return microseconds


def _reachable(end: Lsn) -> Lsn:
    """The end of the log as a stream reports it: the page's start, if only the page's header is written.

    No record begins inside a header.
    """
    within = int(end) % _PAGE
    return Lsn(int(end) - within) if within in _HEADERS else end
