"""The schema check: do tables match their records, and which may a session be changing right now?

A transaction releases its locks, and makes its rows visible, only after its commit record is in the log (long
after, if a synchronous standby is away). So the check reads the locks first, then the catalog. DDL that the
stream holds already shows in one of the two, or on the catalog rows that it replaces (`with_unfinished_ddl`):
if it waits for a standby, every look still shows the replaced rows, and those have an xmax
(`TableEntry.replacing`).

A partition that came and went again between two looks shows in neither: `TreeWatch`, asked between the two,
notices that the tree was changed.

Two changes replace no row: a partition that is a member by its root gets an entry and a filter of its own; or
a partition is attached. Both take a lock that VACUUM takes too, but VACUUM hardly ever has a transaction id
at the same time.

    locked    a session holds the table exclusively; or it alters the table's membership in the publication,
              or a type of the table, and keeps no lock for that
    changes   the table does not match its record (`ddl.alteration`)
    news      a difference that means nothing to rows

The check also brings two things that only the server knows: how far it is, and a recent 64-bit transaction
id, by which the stream's 32 bits are widened. It runs before each mark and takes no lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from headrace.core.errors import HeadraceError
from headrace.core.handoff import widen
from headrace.core.names import quote_identifier
from headrace.core.records import from_record, to_record
from headrace.sources.contract.values import Change, ColumnDerivation, SchemaCheck, TableDef
from headrace.sources.postgres.catalog import definitions, table_def
from headrace.sources.postgres.catalog.definitions import EntryMemory
from headrace.sources.postgres.catalog.locks import busy
from headrace.sources.postgres.catalog.rights import rows_hidden
from headrace.sources.postgres.catalog.table_def import (
    PARTITIONED,
    TableEntry,
    apply_rules,
    definition,
    is_root,
    partitioned_below,
)
from headrace.sources.postgres.ddl.alteration import breaks_capture, derive, differs, is_news, parts_of
from headrace.sources.postgres.ddl.emptiness import with_emptiness
from headrace.sources.postgres.objects import remade
from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.publication import keeps_rules, part_flaw
from headrace.sources.postgres.session.log_end import WAL_END, behind_all
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.upstream import PostgresUpstream


def with_unfinished_ddl(connection: Session, entries: Iterable[TableEntry], xmin: int) -> frozenset[int]:
    """Find the tables (by oid) that DDL may have changed already, though no look can show it.

    A row of such a table was replaced by a transaction that was not over, and that has not rolled back since.
    `xmin` is of a snapshot from before the look. All transactions before it were over: an xmax of theirs on a
    row that is still visible was rolled back, or was only a lock. If several transactions hold a row at once,
    its number is that of a multixact. Nothing tells the two kinds apart, so each number is tried as both.
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


# Takes the numbers that may be multixacts of this database, and returns the members that replaced the row and
# did not only lock it. CASE is needed because the function raises for any other number.
_WRITERS_AMONG = """
SELECT x.number, m.xid::text::int8
  FROM unnest(%s::int8[]) x(number)
  JOIN pg_database d ON d.datname = current_database()
 CROSS JOIN LATERAL pg_get_multixact_members(
           CASE WHEN mxid_age(x.number::text::xid) BETWEEN 1 AND mxid_age(d.datminmxid)
                THEN x.number::text::xid END) m
 WHERE m.mode IN ('nokeyupd', 'upd')
"""


# CASE is needed because the function raises for a transaction of the future. Such a number is no transaction
# yet; but inside a transaction of ours, an age is counted from that one.
_NOT_ROLLED_BACK = """
SELECT x.xid FROM unnest(%s::int8[]) x(xid)
 WHERE CASE WHEN age((x.xid & 4294967295)::text::xid) > 0
            THEN pg_xact_status(x.xid::text::xid8) IS DISTINCT FROM 'aborted'
            ELSE pg_current_xact_id_if_assigned() IS NOT NULL END
"""


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
class _Server:
    """The server before the catalog is read."""

    xid: int
    xmin: int
    end: str
    exclusive: list[int]  # tables with an AccessExclusiveLock, by oid
    shared_locks: list[int]  # ShareUpdateExclusiveLock and a transaction id: DDL, hardly ever VACUUM
    publication: int | None


def check(
    connection: Session,
    upstream: PostgresUpstream,
    records: Mapping[str, TableDef],
    memory: EntryMemory | None = None,
) -> SchemaCheck:
    """Look at the server, then at these tables; skip comparisons whose inputs are those of the last look."""
    memory = EntryMemory() if memory is None else memory
    [row] = query(connection, _SERVER, [upstream.publication])
    server = _Server(*row)
    roots = {t.number: partitioned_below(t.details) for t in records.values() if is_root(t.details)}
    same = memory.trees.look(connection, roots)
    numbers = sorted({table.number for table in records.values()})
    entries = definitions.read_entries(connection, numbers, [upstream.publication], memory).values()
    now: Mapping[int, TableEntry] = {entry.oid: apply_rules(entry, upstream.rules) for entry in entries}
    last = {
        key: from_record(TableEntry, table.details)
        for key, table in records.items()
        if not memory.is_same(key, table.details, now.get(table.number))
    }
    now, held = with_emptiness(connection, last.values(), now)
    changes, news = {}, {}
    for key, before in last.items():
        table, seen = records[key], now.get(records[key].number)
        change = _change(connection, upstream, table, before, seen)
        if change is not None:
            changes[key] = change
        elif seen is not None and is_news(before, seen):
            news[key] = _renew(table, seen)
        elif seen is not None:
            memory.note_same(key, table.details, seen)
    memory.forget_records(records)
    hidden = {*server.exclusive, *with_unfinished_ddl(connection, now.values(), server.xmin)}
    hidden |= {
        oid for oid in server.shared_locks if oid in now and all(m.by_ancestor for m in now[oid].memberships)
    }
    hidden |= held | {oid for oid, entry in now.items() if _is_tree_hidden(entry, server)}
    locked = {key: table.number for key, table in records.items() if table.number in hidden}
    there = {key: now[table.number] for key, table in records.items() if table.number in now}
    trees = {key: (root.name, root.tree) for key, root in there.items() if root.kind == PARTITIONED}
    policed = {key: (each.oid, each.name) for key, each in there.items() if each.policies}
    return SchemaCheck(
        end=upstream.position(Lsn.parse(server.end)),
        reference=server.xid,
        changes=changes,
        news=news,
        locked_tables=frozenset(locked),
        upstream_error=remade(upstream, server.publication),
        unreadable=memory.partitions.denials(connection, trees) | rows_hidden(connection, policed),
        busy=busy(connection, {key: (number, records[key].name) for key, number in locked.items()}),
        late_columns=_late_columns(upstream, there),
        unproven={key: upstream.position(same[records[key].number]) for key in trees},
    )


def _change(
    connection: Session,
    upstream: PostgresUpstream,
    table: TableDef,
    before: TableEntry,
    seen: TableEntry | None,
) -> Change | None:
    """Say what changed of a table since the look that its record has."""
    if seen is None:
        return Change("it was dropped", None)
    rule = _rule_difference(upstream, seen)
    what = differs(before, seen) or rule
    if what is None:
        return None
    parts = parts_of(seen, derive(before, seen))
    return Change(
        what,
        definition(seen),
        _mend(connection, upstream, table, seen),
        None if parts is None else ColumnDerivation(parts, upstream.position(behind_all(connection))),
        capture_unbroken=rule is None and not breaks_capture(before, seen),
    )


def _rule_difference(upstream: PostgresUpstream, seen: TableEntry) -> str | None:
    """Say that the publication does not send what the table's rule of columns lets through."""
    if upstream.owns_publication:
        fits = keeps_rules(seen, upstream.rules)
    else:
        fits = not upstream.rules.forbidden(seen.name, [column.name for column in seen.columns])
    return None if fits else "the publication sends other columns than its rule of columns says"


def _late_columns(upstream: PostgresUpstream, there: Mapping[str, TableEntry]) -> dict[str, HeadraceError]:
    rules = upstream.rules
    names = {key: [a.name for a in each.attributes if not a.generation] for key, each in there.items()}
    found = {key: rules.late_error(each.name, names[key]) for key, each in there.items()}
    return {key: error for key, error in found.items() if error is not None}


def _is_tree_hidden(root: TableEntry, server: _Server) -> bool:
    """Tell whether a session may be changing the tree beneath a root.

    ATTACH and DETACH CONCURRENTLY lock the root, or the partitioned table beneath it that they change, with
    VACUUM's lock. TRUNCATE and DROP lock the partition.
    """
    if root.kind != PARTITIONED:
        return False
    roots = {root.oid, *(branch.oid for branch in root.tree if not branch.has_rows)}
    beneath = {branch.oid for branch in root.tree}
    return not roots.isdisjoint(server.shared_locks) or not beneath.isdisjoint(server.exclusive)


def _renew(table: TableDef, seen: TableEntry) -> TableDef:
    """Renew a table's record; the types that were chosen for its columns in the lake stay."""
    return TableDef(table.name, seen.oid, table_def.as_shown(table.schema, seen), to_record(seen))


def _mend(connection: Session, upstream: PostgresUpstream, known: TableDef, now: TableEntry) -> str | None:
    """Find the statement that makes the table fit again; for other columns, one that restores an identity."""
    if table_def.identity_flaw(now, connection.info.server_version) is not None:
        kind = "DEFAULT" if now.identity.full else "FULL"
        return f"ALTER TABLE {known.name} REPLICA IDENTITY {kind}"
    if not upstream.owns_publication and (flaw := part_flaw(connection, upstream.publication, now)):
        return flaw.error.hint
    others = table_def.schema_of(now).columns != known.schema.columns
    if upstream.owns_publication or now.memberships or others:
        return None
    return f"ALTER PUBLICATION {quote_identifier(upstream.publication)} ADD TABLE ONLY {known.name}"
