"""The look at the source's catalog before each mark.

Rewriting DDL sends nothing through the stream if no row changes after it, so the stream alone can't
vouch for a table. Before a mark, and after the epoch's last commit was received, one look compares each
mirrored table with what was recorded when it was copied.

    differs   the table is not what was copied: it stops; its last mark stands
    locked    DDL may be in the stream already while no look can see it yet: somebody holds the table
              exclusively, or what makes it a member of the publication or a type of it is being altered,
              for which no lock is kept; the table sits this mark out and is in the next
    the same  the mark may name it; what is new about it and means nothing is recorded (`Look.renewed`)

A transaction gives up its locks, and makes its rows visible, only after its commit record is in the log
(and, where a synchronous standby is away, long after). So the locks are read first, then the catalog: DDL
that the stream holds already is seen in one of the two, or on the rows that it replaces
(`catalog.unfinished`). One thing replaces no row: a partition that is a member by its root is listed itself,
with a filter. Its lock is one that VACUUM takes too, but hardly ever beside a transaction id.

The look also brings what only the server knows: how far it is, and a recent 64-bit transaction id,
against which the 32 bits of the stream are widened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from headrace.core.errors import Definite, HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.pipeline.state.records import SourceRecord, TableRecord
from headrace.pipeline.state.remedies import way_back
from headrace.sources.postgres.catalog import definitions, table_def
from headrace.sources.postgres.catalog.alteration import differs, is_news
from headrace.sources.postgres.catalog.table_def_record import from_record, to_record
from headrace.sources.postgres.catalog.unfinished_ddl import unfinished
from headrace.sources.postgres.lsn import Lsn
from headrace.sources.postgres.session.log_end import WAL_END
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.upstream import Upstream

_SERVER = f"""
with held as (
    select l.relation::int8 as relation, l.mode, l.virtualtransaction
      from pg_catalog.pg_locks l
     where l.locktype = 'relation' and l.mode in ('AccessExclusiveLock', 'ShareUpdateExclusiveLock')
       and l.granted and l.pid is distinct from pg_catalog.pg_backend_pid()
       and l.database = (select oid from pg_catalog.pg_database
                          where datname = pg_catalog.current_database()))
select pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::int8,
       pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::int8,
       {WAL_END}::text,
       array(select distinct relation from held where mode = 'AccessExclusiveLock'),
       array(select distinct h.relation from held h
               join pg_catalog.pg_locks x using (virtualtransaction)
              where h.mode = 'ShareUpdateExclusiveLock'
                and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock' and x.granted),
       (select p.oid::int8 from pg_catalog.pg_publication p where p.pubname = %s)
"""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look showed. A table and its new copy are two records, which may differ by themselves."""

    xid_reference: int
    end: Position
    errors: dict[str, Definite]  # by the record's key
    locked: frozenset[TableName]
    publication_oid: int | None = None
    news: dict[str, table_def.TableLook] = field(default_factory=dict)  # by the record's key

    def changed(self, records: Iterable[TableRecord]) -> dict[TableName, HeadraceError]:
        """Those of the records whose tables are not what was recorded."""
        return {r.name: self.errors[r.key] for r in records if r.key in self.errors}

    def renewed(self, record: TableRecord) -> TableRecord:
        """The record with what is new of its table and means nothing to its rows."""
        now = self.news.get(record.key)
        if now is None:
            return record
        return replace(record, look=to_record(now), schema=table_def.as_shown(record.schema, now))


def look(connection: Session, source: SourceRecord, records: Iterable[TableRecord], after: Position) -> Look:
    """Look at the server and at these tables; `after` is the position of the mark before."""
    known = list(records)
    oids = {record.oid for record in known}
    [(xid, xmin, end, exclusive, shared, published)] = query(
        connection, _SERVER, [Upstream.of(source.upstream).publication]
    )
    now = {
        seen.oid: seen
        for seen in definitions.look(
            connection, sorted(oids), [Upstream.of(source.upstream).publication]
        ).values()
    }
    reached = Upstream.of(source.upstream).position(Lsn.parse(end))
    errors, news = {}, {}
    for record in known:
        last, seen = from_record(record.look), now.get(record.oid)
        what = "it was dropped" if seen is None else differs(last, seen)
        if what is not None:
            hint = way_back(source, record, seen, connection.info.server_version)
            errors[record.key] = _changed(record, what, (after, reached), hint)
        elif seen is not None and is_news(last, seen):
            news[record.key] = seen
    hidden = {*exclusive, *unfinished(connection, now.values(), int(xmin))}
    hidden |= {oid for oid in shared if oid in now and all(m.inherited for m in now[oid].memberships)}
    locked = frozenset(record.name for record in known if record.oid in hidden)
    return Look(int(xid), reached, errors, locked, published, news)


def _changed(record: TableRecord, what: str, span: tuple[Position, Position], hint: str) -> Definite:
    return Definite(
        "TABLE_CHANGED",
        f"{record.name} is not what was copied: {what}",
        detail=f'noticed between the positions "{record.applied or span[0]}" and "{span[1]}"',
        hint=hint,
    )
