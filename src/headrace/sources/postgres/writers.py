"""Writers: the transactions that keep a snapshot or a slot from being made.

W          transactions with a write lock on a table to be copied, when the capture of its changes begins: no
           snapshot is accepted in which one of them still runs (`copy.visibility`)
blockers   the oldest writing transactions of the server: a slot waits for them, and a message names them
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.sources.postgres.catalog.locks import transaction
from headrace.sources.postgres.session.statements import Session, query

_BLOCKERS = """
WITH writing AS (  -- with its sub-transactions, each of which has an xid, a transaction is one line
    SELECT pid, virtualtransaction, max(age(transactionid)) AS age, array_agg(transactionid) AS xids
      FROM pg_locks WHERE locktype = 'transactionid' AND granted AND mode = 'ExclusiveLock'
     GROUP BY pid, virtualtransaction)
SELECT w.pid, p.gid, a.usename, a.application_name, COALESCE(a.datname, p.database), a.state,
       round(EXTRACT(epoch FROM clock_timestamp() - COALESCE(a.xact_start, p.prepared)))::bigint
  FROM writing w
  LEFT JOIN pg_stat_activity a ON a.pid = w.pid
  LEFT JOIN pg_prepared_xacts p ON w.pid IS NULL AND p.transaction = ANY (w.xids)
 WHERE w.pid IS DISTINCT FROM pg_backend_pid()
 ORDER BY w.age DESC LIMIT 5
"""


def blockers(connection: Session, *, older_than: int = 0) -> list[str]:
    """The oldest open transactions that write, in all databases, in the words of a message.

    Without pg_read_all_stats the age of other users' transactions is unknown, and counts as old.
    """
    rows = query(connection, _BLOCKERS)
    return [transaction(*row) for row in rows if row[-1] is None or row[-1] >= older_than]


_WRITERS = """
WITH now AS MATERIALIZED (
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next)
SELECT DISTINCT held.transactionid::text::bigint, now.next
  FROM now, pg_locks wrote JOIN pg_locks held USING (virtualtransaction)
 WHERE wrote.locktype = 'relation' AND wrote.granted
   AND wrote.database = (SELECT oid FROM pg_database
                          WHERE datname = current_database())
   AND wrote.relation = ANY (%s::oid[])
   -- ShareUpdateExclusive (vacuum) and Share (create index) let nobody write.
   AND wrote.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
   AND held.locktype = 'transactionid' AND held.granted AND held.mode = 'ExclusiveLock'
"""


def writers(connection: Session, oids: Sequence[int]) -> set[int]:
    """W: the transactions, as 64-bit xids, that hold a write lock on one of the tables, prepared ones too.

    Sub-transactions are among them and do no harm: a snapshot lists top-level ones only. A
    transaction that has the lock and no xid has written nothing yet, so all of it is captured.
    """
    # Ask twice: PREPARE hands a transaction's locks over one by one, and meanwhile the join may miss them.
    rows = [row for _ in range(2) for row in query(connection, _WRITERS, [list(oids)])]
    return {widen(xid, near) for xid, near in rows}


def widen(xid: int, near: int) -> int:
    """The 64-bit xid whose low half this is, next to `near`."""
    return near + ((xid - near + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000
