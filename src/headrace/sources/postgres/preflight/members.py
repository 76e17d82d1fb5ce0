"""Preflight of tables that are mirrored already, one by one: for those that are copied anew.

Everything that a table's first choice depends on may have changed since: the publication leaves out a part, a
filter was set, the table is not logged any more, its key or a privilege went. What is wrong with one of them
says nothing of the others, so the answer is an error for each that fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.contract.findings import Finding, Level
from headrace.sources.postgres.catalog.definitions import PostgresCandidate
from headrace.sources.postgres.catalog.table_def import TableEntry
from headrace.sources.postgres.preflight.tables import Access, access, check_leaves, check_table, choose
from headrace.sources.postgres.preflight.upstream_objects import check_members, read_publication
from headrace.sources.postgres.session.statements import Session


def unfit_tables(connection: Session, entries: Sequence[TableEntry]) -> dict[TableName, HeadraceError]:
    """The tables that cannot be mirrored as they are now, wherever they are published."""
    rights = access(connection, [entry.oid for entry in entries])
    # One that was dropped meanwhile has no rights: it is missed when it is looked at again.
    there = [entry for entry in entries if entry.oid in rights]
    found = {entry.name: _flaw(connection, entry, rights[entry.oid]) for entry in there}
    return {name: error for name, error in found.items() if error is not None}


def unfit_members(
    connection: Session, publication: str, entries: Sequence[TableEntry], *, ours: bool
) -> dict[TableName, HeadraceError]:
    """The tables that the publication does not send as it should; `entries` were read through it.

    One of `ours` sends everything. One of the user's may send a part, if that can be followed.
    """
    if not entries:
        return {}
    whole = read_publication(connection, publication)
    found = {
        entry.name: _first(check_members(connection, publication, whole, [entry], ours=ours))
        for entry in entries
    }
    return {name: error for name, error in found.items() if error is not None}


def _flaw(connection: Session, entry: TableEntry, rights: Access) -> HeadraceError | None:
    candidate = PostgresCandidate(entry.oid, entry.name, entry.kind, entry.persistence)
    _, findings = choose([str(entry.name)], [candidate])
    user, version = connection.info.user, connection.info.server_version
    findings += check_table(entry, rights, user, version)
    return _first([*findings, *check_leaves(connection, [entry], user)])


def _first(findings: Iterable[Finding]) -> HeadraceError | None:
    """The first of them that a mirror cannot live with."""
    return next((finding.error for finding in findings if finding.level is Level.ERROR), None)
