"""The examination: all checks on one connection, and the tables that pass them.

    the patterns' tables ─► each by itself ─► publication, slot ─► the server ─► Report

A table that a pattern names outright is refused by what stands against it. What a wildcard swept in is
left out instead, with the same code, and the others are mirrored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.contract.findings import CheckReport, Finding, in_order
from headrace.sources.contract.values import TableSize as AnySize
from headrace.sources.postgres.catalog.candidates import PostgresCandidate, candidates
from headrace.sources.postgres.catalog.definitions import read_entries
from headrace.sources.postgres.catalog.locks import measure
from headrace.sources.postgres.catalog.partition_tree import leaves
from headrace.sources.postgres.catalog.sizes import RelationSize, total
from headrace.sources.postgres.catalog.table_def import TableEntry
from headrace.sources.postgres.catalog.table_def_record import definition
from headrace.sources.postgres.declaration import CHUNKS
from headrace.sources.postgres.preflight.costly_ddl import costly_ddl
from headrace.sources.postgres.preflight.leftovers import check_leftovers
from headrace.sources.postgres.preflight.roots import beside_mirrored, outside_roots
from headrace.sources.postgres.preflight.script import script
from headrace.sources.postgres.preflight.server import check_server
from headrace.sources.postgres.preflight.tables import (
    Access,
    Choice,
    access,
    check_chunks,
    check_later_partitions,
    check_leaves,
    check_left_out,
    check_table,
    choose,
)
from headrace.sources.postgres.preflight.upstream_objects import (
    check_making,
    check_own_slot,
    check_publication,
    read_publication,
)
from headrace.sources.postgres.preflight.wish import PostgresWish
from headrace.sources.postgres.publication import publication_oid
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
from headrace.sources.postgres.session.statements import Session
from headrace.sources.shared.patterns import select


def examine(address: PostgresAddress, wish: PostgresWish) -> CheckReport:
    """Look at everything that the wish depends on. Raises only if the server cannot be asked at all."""
    with closing(connect(address, role="check")) as connection:
        identity = identify(connection)
        chosen, findings = choose(wish.patterns, candidates(connection), by_root=_by_root(connection, wish))
        meant = frozenset(choice.candidate.name for choice in chosen if choice.by_name)
        oids = [choice.candidate.oid for choice in chosen]
        entries, inside = outside_roots(_entries(connection, chosen, wish), meant)
        findings += inside
        rights, known = access(connection, oids), _sizes(connection, entries)
        # A table may be dropped between two of these statements.
        entries = [each for each in entries if each.oid in rights and each.oid in known]
        findings += _of_tables(connection, entries, rights, wish, meant)
        refused = _refused_tables(findings)
        if wish.publication is None and not identity.standby:
            findings += check_making(connection, entries, rights, meant, refused, _hopeless(findings))
            refused = _refused_tables(findings)
        tables = tuple(each for each in entries if each.name not in refused)
        if wish.handoff == CHUNKS:
            findings += check_chunks(connection, tables)
        findings += check_own_slot(connection, wish, identity.database)
        findings += check_leftovers(connection, wish)
        copy_bytes = sum(known[each.oid].bytes for each in tables)
        findings += check_server(address, connection, identity, wish, copy_bytes)
    return CheckReport(
        version=identity.version,
        tables=tuple(definition(each) for each in tables),
        sizes={each.name: AnySize(known[each.oid].bytes, known[each.oid].rows) for each in tables},
        findings=in_order(findings),
        script=tuple(script(in_order(findings))),
        named_tables=meant,
        costly_ddl={each.name: said for each in tables if (said := costly_ddl(each))},
    )


def _sizes(connection: Session, entries: list[TableEntry]) -> dict[int, RelationSize]:
    """Measure them; one that somebody holds is named, with the holder, and not waited for."""
    tables = {each.oid: each.name for each in entries}
    beneath = {leaf.oid: leaf.name for each in entries for leaf in leaves(each.tree)}
    found = measure(connection, tables | beneath)
    for error in found.busy.values():
        others = [str(name) for name in found.busy][1:]
        raise error.adding(f"also locked: {', '.join(others)}") if others else error
    return {each.oid: _size(each, found.sizes) for each in entries if each.oid in found.sizes}


def _size(entry: TableEntry, sizes: Mapping[int, RelationSize]) -> RelationSize:
    """The size of a table; that of a root is its partitions'."""
    return total(
        [sizes[oid] for oid in (entry.oid, *(leaf.oid for leaf in leaves(entry.tree))) if oid in sizes]
    )


def _by_root(connection: Session, wish: PostgresWish) -> bool:
    """Tell whether partitions are sent under the name of their root, by a publication of ours or of yours."""
    publication = None if wish.publication is None else read_publication(connection, wish.publication)
    return publication is None or publication.via_root


def find_unmirrored(
    connection: Session, wish: PostgresWish, mirrored_tables: Collection[TableName]
) -> dict[TableName, HeadraceError | None]:
    """Find what patterns match and nobody mirrors, with what stands against it; None where nothing does."""
    among = candidates(connection)
    names = select(wish.patterns, [each.name for each in among]).names
    there = set(names) - set(mirrored_tables)
    by_root = _by_root(connection, wish)
    chosen, findings = choose(wish.patterns, [each for each in among if each.name in there], by_root=by_root)
    entries = beside_mirrored(_entries(connection, chosen, wish), _oids(among, mirrored_tables))
    rights = access(connection, [each.oid for each in entries])
    entries = [each for each in entries if each.oid in rights]
    findings += _of_tables(connection, entries, rights, wish, frozenset())
    if wish.publication is None:
        findings += check_making(
            connection, entries, rights, frozenset(), _refused_tables(findings), _hopeless(findings)
        )
    reasons: dict[TableName, HeadraceError | None] = {each.name: None for each in entries}
    for finding in reversed(findings):
        reasons |= dict.fromkeys(finding.concerned_tables if finding.refuses else (), finding.error)
    return dict(sorted(reasons.items()))


def _oids(among: Sequence[PostgresCandidate], names: Collection[TableName]) -> frozenset[int]:
    return frozenset(each.oid for each in among if each.name in names)


def _of_tables(
    connection: Session,
    entries: list[TableEntry],
    rights: Mapping[int, Access],
    wish: PostgresWish,
    meant: frozenset[TableName],
) -> list[Finding]:
    """Examine the tables by themselves, and as members of the user's publication."""
    user, version = connection.info.user, connection.info.server_version
    findings = [found for each in entries for found in check_table(each, rights[each.oid], user, version)]
    findings += check_leaves(connection, entries, user)
    findings += check_later_partitions(connection, entries, rights)
    refused = _refused_tables(findings)
    findings += check_left_out([e for e in entries if e.name not in refused], version, wish.publication)
    if wish.publication is not None:
        findings += check_publication(connection, wish.publication, entries, _hopeless(findings))
    return [finding.for_swept(meant) for finding in findings]


def _refused_tables(findings: list[Finding]) -> frozenset[TableName]:
    return frozenset(name for finding in findings if finding.refuses for name in finding.concerned_tables)


def _hopeless(findings: list[Finding]) -> frozenset[TableName]:
    """The tables that no statement of ours makes fit."""
    unmended = (finding for finding in findings if finding.refuses and not finding.mend)
    return frozenset(name for finding in unmended for name in finding.concerned_tables)


def _entries(connection: Session, chosen: list[Choice], wish: PostgresWish) -> list[TableEntry]:
    """The tables to examine; wildcards select within a publication that is named, and there."""
    meant = {choice.candidate.oid for choice in chosen if choice.by_name}
    there = wish.publication is not None and publication_oid(connection, wish.publication)
    publications = [wish.publication] if there and wish.publication is not None else []
    entries = read_entries(connection, [choice.candidate.oid for choice in chosen], publications).values()
    within = [each for each in entries if not publications or each.memberships or each.oid in meant]
    return sorted(within, key=lambda each: each.name)
