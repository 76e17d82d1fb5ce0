"""Capture: which tables the publication holds, and whether it sends all that it should of each.

    examine    are the tables fit? in the user's publication, which we never alter: also as its members
    capture    add the tables to our publication, whole; committed ─► as `define`
    define     the very same tables (by oid) as members of the publication
    release    take tables out of our publication

If somebody added a row filter or a column list to our publication, `capture` removes it. A publication of the
user's is used as it is, with its filters and lists (`publication`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.records import from_record
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.values import ExaminedTables, TableDef
from headrace.sources.postgres.catalog.definitions import read_entries, read_entries_by_name
from headrace.sources.postgres.catalog.table_def import TableEntry, apply_rules, definition
from headrace.sources.postgres.copy.table_access import overtaken
from headrace.sources.postgres.preflight.roots import inside_root, leaves_held, outside_roots
from headrace.sources.postgres.preflight.upstream_objects import unfit_members, unfit_tables
from headrace.sources.postgres.publication import (
    ensure_publication,
    published_tables,
    withdraw,
    withdraw_by_oid,
    without_identity,
)
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.upstream import PostgresUpstream

_MOMENT = "200ms"  # lock timeout for each table, once one of them is known to be locked


def examine(connection: Session, upstream: PostgresUpstream, names: Sequence[TableName]) -> ExaminedTables:
    """Read the tables before they are added to our publication; a user's publication holds them already."""
    entries = list(read_entries_by_name(connection, names, [upstream.publication]).values())
    errors = unfit_tables(connection, entries, upstream.rules)
    errors |= _overlapping(connection, upstream, entries)
    if not upstream.owns_publication:
        fit = [each for each in entries if each.name not in errors]
        errors |= unfit_members(connection, upstream, fit)
    return _examine(upstream, entries, errors)


def _overlapping(
    connection: Session, upstream: PostgresUpstream, entries: Sequence[TableEntry]
) -> dict[TableName, HeadraceError]:
    """The tables whose rows would come under two names, or under another name than they are mirrored by."""
    _, inside = outside_roots(entries, [entry.name for entry in entries])
    if upstream.owns_publication:
        inside += [inside_root(entry.name, None) for entry in entries if entry.is_sent_above]
    errors = {name: finding.error for finding in inside for name in finding.concerned_tables}
    roots = [entry for entry in entries if entry.tree and not entry.memberships]
    if roots and upstream.owns_publication:
        held = published_tables(connection, upstream.publication) or frozenset()
        by_leaf = {root.name: held.intersection(branch.name for branch in root.tree) for root in roots}
        errors |= {name: leaves_held(name, those) for name, those in by_leaf.items() if those}
    return errors


def capture(connection: Session, upstream: PostgresUpstream, names: Sequence[TableName]) -> ExaminedTables:
    """Make sure that our publication holds the whole tables; committed when this returns.

    A table that another session locks comes with an error; the other tables are added all the same.
    """
    busy: dict[TableName, HeadraceError] = {}
    if upstream.owns_publication and names:
        limited = partly(connection, upstream, names)
        try:
            ensure_publication(
                connection, upstream.publication, names, make=False, anew=limited, rules=upstream.rules
            )
        except TableBusy:
            busy = _one_by_one(connection, upstream, names, limited)
    there = [name for name in names if name not in busy]
    entries = read_entries_by_name(connection, there, [upstream.publication]).values()
    found = _members(connection, upstream, entries)
    return ExaminedTables(found.defs, {**found.errors, **busy})


def _one_by_one(
    connection: Session,
    upstream: PostgresUpstream,
    names: Sequence[TableName],
    limited: Collection[TableName],
) -> dict[TableName, HeadraceError]:
    busy: dict[TableName, HeadraceError] = {}
    for name in names:
        try:
            ensure_publication(
                connection,
                upstream.publication,
                [name],
                make=False,
                anew=limited,
                patience=_MOMENT,
                rules=upstream.rules,
            )
        except TableBusy as error:
            busy[name] = error
    return busy


def define(connection: Session, upstream: PostgresUpstream, tables: Iterable[TableDef]) -> ExaminedTables:
    """Read the very same tables (by oid) again, as members of the publication.

    A table comes with an error if its membership in the user's publication changed since the first look: a
    stream that began in between first sent it in another way.
    """
    before = {table.number: from_record(TableEntry, table.details) for table in tables}
    now = read_entries(connection, list(before), [upstream.publication])
    found = _members(connection, upstream, now.values())
    if upstream.owns_publication:
        return found
    moved = [each.name for each in now.values() if _table_origin(each) != _table_origin(before[each.oid])]
    errors = {name: overtaken(f"what the publication sends of {name} was altered") for name in moved}
    return ExaminedTables(found.defs, {**errors, **found.errors})


def _table_origin(entry: TableEntry) -> list[str]:
    return [membership.life for membership in entry.memberships]


def partly(
    connection: Session, upstream: PostgresUpstream, names: Sequence[TableName]
) -> Collection[TableName]:
    """The tables that our publication sends only in part, because somebody altered it."""
    if not upstream.owns_publication:
        return ()
    entries = read_entries_by_name(connection, names, [upstream.publication]).values()
    members = [each for each in entries if each.memberships]
    return unfit_members(connection, upstream, members).keys()


def _members(
    connection: Session, upstream: PostgresUpstream, entries: Iterable[TableEntry]
) -> ExaminedTables:
    there = list(entries)
    return _examine(upstream, there, unfit_members(connection, upstream, there))


def _examine(
    upstream: PostgresUpstream, entries: Iterable[TableEntry], errors: dict[TableName, HeadraceError]
) -> ExaminedTables:
    ruled = (apply_rules(each, upstream.rules) for each in entries)
    return ExaminedTables({each.name: definition(each) for each in ruled}, errors)


# --- the captured tables ------------------------------------------------------------------------


def captured_tables(connection: Session, upstream: PostgresUpstream) -> frozenset[TableName]:
    """The tables that the publication lists."""
    return published_tables(connection, upstream.publication) or frozenset()


def release(connection: Session, upstream: PostgresUpstream, names: Sequence[TableName]) -> None:
    """Take tables out of our publication."""
    if upstream.owns_publication:
        withdraw(connection, upstream.publication, names)


def release_now(connection: Session, upstream: PostgresUpstream, oids: Collection[int]) -> None:
    """Take tables out of our publication by oid, whatever their names are now; give up after a short wait."""
    if upstream.owns_publication:
        withdraw_by_oid(connection, upstream.publication, oids)


def unwritable(connection: Session, upstream: PostgresUpstream) -> frozenset[int]:
    """The tables, by oid, whose UPDATE and DELETE the server refuses because our publication holds them."""
    return without_identity(connection, upstream.publication) if upstream.owns_publication else frozenset()
