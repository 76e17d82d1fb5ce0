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
from headrace.sources.postgres.catalog.candidates import Candidate
from headrace.sources.postgres.catalog.table_def import TableLook
from headrace.sources.postgres.preflight.tables import Access, access, check_table, choose
from headrace.sources.postgres.preflight.upstream_objects import check_members, read_publication
from headrace.sources.postgres.session.statements import Session


def unfit_tables(connection: Session, looks: Sequence[TableLook]) -> dict[TableName, HeadraceError]:
    """The tables that cannot be mirrored as they are now, wherever they are published."""
    rights = access(connection, [look.oid for look in looks])
    # One that was dropped meanwhile has no rights: it is missed when it is looked at again.
    there = [look for look in looks if look.oid in rights]
    found = {look.name: _flaw(connection, look, rights[look.oid]) for look in there}
    return {name: error for name, error in found.items() if error is not None}


def unfit_members(
    connection: Session, publication: str, looks: Sequence[TableLook]
) -> dict[TableName, HeadraceError]:
    """The tables of which the publication does not send everything; `looks` are taken through it."""
    if not looks:
        return {}
    whole = read_publication(connection, publication)
    found = {look.name: _first(check_members(connection, publication, whole, [look])) for look in looks}
    return {name: error for name, error in found.items() if error is not None}


def _flaw(connection: Session, look: TableLook, rights: Access) -> HeadraceError | None:
    candidate = Candidate(look.oid, look.name, look.kind, look.persistence)
    _, findings = choose([str(look.name)], [candidate])
    version = connection.info.server_version
    return _first([*findings, *check_table(look, rights, connection.info.user, version)])


def _first(findings: Iterable[Finding]) -> HeadraceError | None:
    """The first of them that a mirror cannot live with."""
    return next((finding.error for finding in findings if finding.level is Level.ERROR), None)
