"""The server's clock, held against its log: what is committed from a position on bears a later time.

    a commit     locks its xid ─► notes the time ─► writes its record ─► frees its xid
    a reading    notes the time ─► looks whether an xid is locked ─► asks for the end of the log

Whoever writes a commit record behind the reading's position writes it after the reading. If it noted its
time before the reading did, it held its xid's lock from before the look until after it. So where no xid is
locked, every commit from the position on bears a later time than the reading. Where one is, its transaction
may have noted its time already and be about to write its record, which takes microseconds, or as long as the
log's disk is busy: only of a moment somewhat before the reading it can be said then (`HESITATION`). A
snapshot would not do: it lists no transaction that began after the last that ended.

On a standby there are no such locks, and its own clock is another machine's; there the newest commit that was
replayed tells the time. The keepalives of the stream can't serve: the log may go on past the position that
they name, and commits behind it may be older than the keepalive.

Transactions that are replicated from elsewhere bear the time of their first commit, and a clock may be set
back: no reading is proof against those, and whoever uses one must bear it (`headrace.lake.read.resolve`).

Reads only.
"""

from __future__ import annotations

from headrace.sources.contract.mirror import ClockReading
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from headrace.sources.postgres.session.statements import Session, query

HESITATION = 1_000_000  # microseconds

# now() is the time at which the statement's transaction began. The log's end is where the next record is
# inserted, not what is written: an asynchronous commit frees its xid before it is written.
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
# The newest commit that a standby has replayed may have noted its time before another that came earlier.
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
    """A moment that no commit before any position that was had by now is later than."""
    [(moment,)] = query(connection, _BEGUN)
    microseconds: int = round(moment.timestamp() * 1_000_000)
    return microseconds


def _reachable(end: Lsn) -> Lsn:
    """The end of the log as a stream reports it: at a page's edge, where the next record follows the header.

    No record begins in between.
    """
    within = int(end) % _PAGE
    return Lsn(int(end) - within) if within in _HEADERS else end
