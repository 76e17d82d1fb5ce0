"""The look at the source's catalog before each mark.

Rewriting DDL sends nothing through the stream if no row changes after it, so the stream alone can't
vouch for a table. Before a mark, and after the epoch's last commit was received, one look compares each
mirrored table with what was recorded when it was copied.

    differs   the table is not what was copied: it stops; its last mark stands
    locked    somebody holds it exclusively: DDL whose commit may be in the stream already while no
              look can see it yet; the table sits this mark out and is in the next
    the same  the mark may name it

The look also brings what only the server knows: how far it is, and a recent 64-bit transaction id,
against which the 32 bits of the stream are widened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.core.errors import Definite
from headrace.core.names import TableName
from headrace.core.position import Lsn
from headrace.pipeline.records import TableRecord
from headrace.sources.postgres import catalog
from headrace.sources.postgres.lookrecord import from_record
from headrace.sources.postgres.session import Session, query

_SERVER = """
select pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::int8,
       pg_catalog.pg_current_wal_lsn()::text,
       coalesce((select array_agg(distinct l.relation::int8)
                   from pg_catalog.pg_locks l
                  where l.locktype = 'relation' and l.mode = 'AccessExclusiveLock' and l.granted
                    and l.database = (select oid from pg_catalog.pg_database
                                       where datname = pg_catalog.current_database())
                    and l.pid is distinct from pg_catalog.pg_backend_pid()), '{}')
"""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look showed."""

    xid_reference: int
    wal: Lsn
    changed: dict[TableName, Definite]
    locked: frozenset[TableName]


def look(connection: Session, publication: str, records: Iterable[TableRecord]) -> Look:
    """Look at the server and at these tables.

    The locks are read first: a table that is found unlocked has no DDL behind it that the look at the
    catalog, which comes later, could miss.
    """
    known = {record.oid: record for record in records}
    [(xid, wal, exclusive)] = query(connection, _SERVER)
    now = {seen.oid: seen for seen in catalog.look(connection, list(known), [publication]).values()}
    changed = {}
    for oid, record in known.items():
        what = _difference(record, now.get(oid))
        if what is not None:
            changed[record.name] = _changed(record.name, what)
    locked = frozenset(known[oid].name for oid in exclusive if oid in known)
    return Look(int(xid), Lsn.parse(wal), changed, locked)


def _difference(record: TableRecord, now: catalog.TableLook | None) -> str | None:
    if now is None:
        return "it was dropped"
    return catalog.differs(from_record(record.look), now)


def _changed(name: TableName, what: str) -> Definite:
    return Definite(
        "TABLE_CHANGED",
        f"{name} is not what was copied: {what}",
        hint="`headrace run` into a new lake copies it anew; marks up to here still hold it",
    )
