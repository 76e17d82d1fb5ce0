"""The look at the source's catalog before each mark.

Rewriting DDL sends nothing through the stream if no row changes after it, so the stream alone can't
vouch for a table. Before a mark, and after the epoch's last commit was received, one look compares each
mirrored table with what was recorded when it was copied.

    differs   the table is not what was copied: it stops; its last mark stands
    locked    somebody holds it exclusively: DDL whose commit may be in the stream already while no
              look can see it yet; the table sits this mark out and is in the next
    the same  the mark may name it; what is new about it and means nothing (`Look.seen`) is recorded

The look also brings what only the server knows: how far it is, and a recent 64-bit transaction id,
against which the 32 bits of the stream are widened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.core.errors import Definite
from headrace.core.names import TableName
from headrace.core.position import Lsn
from headrace.pipeline.records import SourceRecord, TableRecord
from headrace.sources.postgres import catalog, upstream
from headrace.sources.postgres.lookrecord import from_record, to_record
from headrace.sources.postgres.session import Session, query

_SERVER = f"""
select pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::int8,
       {upstream.WAL_END}::text,
       coalesce((select array_agg(distinct l.relation::int8)
                   from pg_catalog.pg_locks l
                  where l.locktype = 'relation' and l.mode = 'AccessExclusiveLock' and l.granted
                    and l.database = (select oid from pg_catalog.pg_database
                                       where datname = pg_catalog.current_database())
                    and l.pid is distinct from pg_catalog.pg_backend_pid()), '{{}}'),
       (select p.oid::int8 from pg_catalog.pg_publication p where p.pubname = %s)
"""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look showed."""

    xid_reference: int
    wal: Lsn
    changed: dict[TableName, Definite]
    locked: frozenset[TableName]
    publication_oid: int | None = None
    seen: dict[TableName, dict[str, Any]] = field(default_factory=dict)  # looks that replace recorded ones


def look(connection: Session, source: SourceRecord, records: Iterable[TableRecord], after: Lsn) -> Look:
    """Look at the server and at these tables; `after` is the position of the mark before.

    The locks are read first: a table that is found unlocked has no DDL behind it that the look at the
    catalog, which comes later, could miss.
    """
    known = {record.oid: record for record in records}
    [(xid, wal, exclusive, published)] = query(connection, _SERVER, [source.publication])
    now = {seen.oid: seen for seen in catalog.look(connection, list(known), [source.publication]).values()}
    wal = source.shifted(Lsn.parse(wal))
    changed, seen = {}, {}
    for oid, record in known.items():
        last = from_record(record.look)
        what = catalog.differs(last, now[oid]) if oid in now else "it was dropped"
        if what is not None:
            changed[record.name] = _changed(record, what, after, wal)
        elif catalog.is_news(last, now[oid]):
            seen[record.name] = to_record(now[oid])
    locked = frozenset(known[oid].name for oid in exclusive if oid in known)
    return Look(int(xid), wal, changed, locked, published, seen)


def _changed(record: TableRecord, what: str, after: Lsn, wal: Lsn) -> Definite:
    return Definite(
        "TABLE_CHANGED",
        f"{record.name} is not what was copied: {what}",
        detail=f'noticed between the positions "{record.applied or after}" and "{wal}"',
        hint="`headrace tables resync` copies it anew, if its columns are the same; older marks hold it",
    )
