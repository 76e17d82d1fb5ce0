"""Preflight of the tables: those that the patterns name, and whether statement triggers capture each wholly.

These can't be mirrored:

    partitioned   a partitioned table that is a partition itself: events have the root of the whole tree
    partitions    a table with a foreign, unlogged or leaving partition: not all of its rows are captured
    inherited     a statement on the parent changes rows of its children, and fires none of their triggers
    subscribed    changes that a subscription applies fire no statement trigger
    unlogged      a crash empties it, and no trigger reports that

The checks of rows and rights are PostgreSQL's own (`postgres.preflight.tables`). The replica identity does
not matter here: rows come whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.names import TableName
from headrace.sources.contract.findings import Finding, Level
from headrace.sources.postgres.catalog.definitions import PostgresCandidate, candidates
from headrace.sources.postgres.catalog.table_def import ORDINARY, PARTITIONED, PERMANENT, TableEntry
from headrace.sources.postgres.preflight.roots import check_tree
from headrace.sources.postgres.preflight.tables import (
    Access,
    access,
    check_contents,
    check_later_partitions,
    check_leaves,
    check_left_out,
    names_nothing,
)
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue.upstream import Objects
from headrace.sources.shared.patterns import select

_KINDS = {
    "v": "it is a view",
    "m": "it is a materialized view: its refreshes fire no trigger",
    "f": "it is a foreign table: its rows are another server's",
}
_PERSISTENCE = {
    "u": "it is unlogged: a crash empties it, and no trigger says so",
    "t": "it is temporary: it is gone with its session",
}


@dataclass(frozen=True, slots=True)
class FitTables:
    """The tables that patterns name and that can have triggers, and findings on the others."""

    oids: tuple[int, ...]
    named_tables: frozenset[TableName]  # named outright, not swept in by a wildcard
    findings: tuple[Finding, ...]


def choose(connection: Session, objects: Objects, patterns: Sequence[str]) -> FitTables:
    """Find the tables that the patterns name; none of the queue's own schema is among them."""
    among = {each.name: each for each in candidates(connection) if each.name.schema != objects.schema}
    selection = select(patterns, among)
    findings = [Finding(Level.ERROR, error) for error in selection.errors]
    findings += [names_nothing(pattern, pattern.near(among)) for pattern in selection.empty]
    meant = frozenset(selection.named_tables)
    why = {name: _without_triggers(among[name]) for name in selection.names}
    findings += [_refusal(name, reason).for_swept(meant) for name, reason in why.items() if reason]
    fit = tuple(among[name].oid for name, reason in why.items() if reason is None)
    return FitTables(fit, meant, tuple(findings))


def _without_triggers(candidate: PostgresCandidate) -> str | None:
    if candidate.kind not in (ORDINARY, PARTITIONED):
        return _KINDS[candidate.kind]
    return None if candidate.persistence == PERMANENT else _PERSISTENCE[candidate.persistence]


def _refusal(name: TableName, why: str) -> Finding:
    error = Misconfigured(
        "QUEUE_NOT_CAPTURED",
        f"{name} is not mirrored",
        detail=why,
        hint=f"name the tables that it is made of, or leave it out: '!{name}'",
    )
    return Finding(Level.ERROR, error, table=name)


# --- each table -----------------------------------------------------------------------------------


def check_tables(
    connection: Session, entries: Sequence[TableEntry], rights: Mapping[int, Access]
) -> Iterator[Finding]:
    """Check everything about tables that decides whether triggers capture them and rows can be read."""
    user = connection.info.user
    related = _relations(connection, entries)
    for entry in entries:
        error = _unfit(entry) or _misplaced_error(entry, related[entry.oid])
        if error is not None:
            yield Finding(Level.ERROR, error, table=entry.name)
        else:
            yield from check_tree(entry)
            yield from check_contents(entry, rights[entry.oid], user)
    yield from check_leaves(connection, entries, user)
    yield from check_later_partitions(connection, entries, rights)
    yield from check_left_out(entries, connection.info.server_version, None, by_triggers=True)


def unfit_tables(connection: Session, entries: Sequence[TableEntry]) -> dict[TableName, HeadraceError]:
    """The tables that cannot be mirrored as they are now."""
    rights = access(connection, [entry.oid for entry in entries])
    # A table that was dropped meanwhile has no rights: the next look will miss it.
    there = [entry for entry in entries if entry.oid in rights]
    errors: dict[TableName, HeadraceError] = {}
    for finding in check_tables(connection, there, rights):
        if finding.level is Level.ERROR and finding.table is not None:
            errors.setdefault(finding.table, finding.error)
    return errors


def _unfit(entry: TableEntry) -> HeadraceError | None:
    """The error of a table that has become another kind of table since it was chosen."""
    why = _without_triggers(PostgresCandidate(entry.oid, entry.name, entry.kind, entry.persistence))
    return None if why is None else _refusal(entry.name, why).error


@dataclass(frozen=True, slots=True)
class _Relations:
    inherits: bool  # it inherits or is inherited from, and is no partition
    subscriptions: tuple[str, ...]  # subscriptions of this server that write it


_RELATED = """
SELECT c.oid::int8,
       c.relkind <> 'p' AND NOT c.relispartition AND EXISTS (
           SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid OR i.inhrelid = c.oid),
       (SELECT pg_catalog.json_agg(s.subname ORDER BY s.subname) FROM pg_catalog.pg_subscription_rel r
          JOIN pg_catalog.pg_subscription s ON s.oid = r.srsubid WHERE r.srrelid = c.oid)
  FROM pg_catalog.pg_class c WHERE c.oid = ANY (%s::oid[])
"""


def _relations(connection: Session, entries: Sequence[TableEntry]) -> dict[int, _Relations]:
    """The relations of these tables, by oid; those of partitions count for their root."""
    owner = {branch.oid: entry.oid for entry in entries for branch in entry.tree}
    owner |= {entry.oid: entry.oid for entry in entries}
    found = {entry.oid: _Relations(False, ()) for entry in entries}
    for oid, inherits, subscriptions in query(connection, _RELATED, [list(owner)]):
        before = found[owner[oid]]
        found[owner[oid]] = _Relations(
            before.inherits or inherits, (*before.subscriptions, *(subscriptions or ()))
        )
    return found


def _misplaced_error(entry: TableEntry, related: _Relations) -> HeadraceError | None:
    leave = f"leave it out: '!{entry.name}'; or mirror it by logical replication: postgresql://..."
    if entry.kind == PARTITIONED and entry.ancestors:
        return Misconfigured(
            "QUEUE_PARTITIONED",
            f"{entry.name} is partitioned, and a partition itself, which a queue does not mirror",
            detail="the rows of a tree are written down under its root",
            hint=f"mirror its root, or leave it out to mirror its partitions one by one: '!{entry.name}'",
        )
    if related.inherits:
        return Misconfigured(
            "QUEUE_INHERITED",
            f"{entry.name} inherits from another table, or is inherited from",
            detail="a statement on the parent changes rows of its children, and fires no trigger of theirs",
            hint=leave,
        )
    if related.subscriptions:
        return Misconfigured(
            "QUEUE_SUBSCRIBED",
            f"a subscription of this server writes {entry.name}",
            detail=f"{', '.join(related.subscriptions)}: what it applies fires no trigger on statements",
            hint=f"mirror the server that it subscribes to, or leave it out: '!{entry.name}'",
        )
    return None
