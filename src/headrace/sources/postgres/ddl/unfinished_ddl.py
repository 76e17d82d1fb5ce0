"""Unfinished DDL: the tables that somebody may be changing just now, where no look can show it.

DDL that has written its commit record, and waits for a synchronous standby, is in the stream while every look
still shows the rows that it replaced. Those have an xmax (`TableEntry.replacing`). Called before each
mark, by `schema_check`.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headrace.core.handoff import widen
from headrace.sources.postgres.catalog.table_def import TableEntry
from headrace.sources.postgres.session.statements import Session, query


def with_unfinished_ddl(connection: Session, entries: Iterable[TableEntry], xmin: int) -> frozenset[int]:
    """The tables (by oid) that DDL may have changed already where no look can show it.

    A row that was looked at was replaced by a transaction that was not over, or is not rolled back since.
    All before `xmin`, of a snapshot from before the look, were over: what they left of themselves on a row
    that is still there was rolled back, or a mere lock. Where several transactions held the row at once, the
    number is that of a multixact, which nothing shows: it is taken for either.
    """
    replaced = {entry.oid: entry.replacing for entry in entries if entry.replacing}
    if not replaced:
        return frozenset()
    numbers = sorted(frozenset().union(*replaced.values()))
    writers = [(n, n) for n in numbers] + query(connection, _WRITERS_AMONG, [numbers])
    low = sorted({xid for _, xid in writers})
    wide = dict(zip(low, widen(pa.array(low, pa.uint32()), xmin).to_pylist(), strict=True))
    recent = [xid for xid in wide.values() if xid >= xmin]
    alive = {xid for (xid,) in query(connection, _NOT_ROLLED_BACK, [recent])} if recent else set()
    pending = {number for number, xid in writers if wide[xid] in alive}
    return frozenset(oid for oid, named in replaced.items() if not named.isdisjoint(pending))


# Of the numbers that are those of multixacts (by what a row of this database may hold), the members that
# replaced the row and did not only lock it. CASE: of others the function knows nothing but an error.
_WRITERS_AMONG = """
SELECT x.number, m.xid::text::int8
  FROM unnest(%s::int8[]) x(number)
  JOIN pg_database d ON d.datname = current_database()
 CROSS JOIN LATERAL pg_get_multixact_members(
           CASE WHEN mxid_age(x.number::text::xid) BETWEEN 1 AND mxid_age(d.datminmxid)
                THEN x.number::text::xid END) m
 WHERE m.mode IN ('nokeyupd', 'upd')
"""


# CASE keeps the order: of a transaction that is to come the function knows nothing but an error. It is none,
# then; but an age is counted from our own transaction where we are in one.
_NOT_ROLLED_BACK = """
SELECT x.xid FROM unnest(%s::int8[]) x(xid)
 WHERE CASE WHEN age((x.xid & 4294967295)::text::xid) > 0
            THEN pg_xact_status(x.xid::text::xid8) IS DISTINCT FROM 'aborted'
            ELSE pg_current_xact_id_if_assigned() IS NOT NULL END
"""
