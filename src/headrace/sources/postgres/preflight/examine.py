"""The examination: all checks on one connection, and the tables that pass them."""

from __future__ import annotations

from contextlib import closing

from headrace.sources.postgres.catalog import Size, TableLook, candidates, look
from headrace.sources.postgres.locks import measured
from headrace.sources.postgres.preflight.findings import Finding, Level, Report, Wish
from headrace.sources.postgres.preflight.making import check_making, check_own_slot, check_publication
from headrace.sources.postgres.preflight.server import check_server
from headrace.sources.postgres.preflight.tables import Choice, access, check_chunks, check_table, choose
from headrace.sources.postgres.session import Address, Session, connect, identify


def examine(address: Address, wish: Wish) -> Report:
    """Look at everything that the wish depends on. Raises only if the server cannot be asked at all."""
    with closing(connect(address, role="check")) as connection:
        identity = identify(connection)
        chosen, findings = choose(wish.patterns, candidates(connection))
        oids = [choice.candidate.oid for choice in chosen]
        looks = _looks(connection, chosen, wish)
        rights, known = access(connection, oids), _sizes(connection, looks)
        # A table may be dropped between two of these statements.
        looks = [each for each in looks if each.oid in rights and each.oid in known]
        for each in looks:
            findings += check_table(each, rights[each.oid], connection.info.user, identity.version)
        if wish.publication is not None:
            findings += check_publication(connection, wish.publication, looks)
        elif not identity.standby:
            findings += check_making(connection, looks, rights)
        if wish.handoff == "chunks":
            findings += check_chunks(connection, looks)
        findings += check_own_slot(connection, wish, identity.database)
        copy_bytes = sum(known[each.oid].bytes for each in looks)
        findings += check_server(address, connection, identity, wish, copy_bytes)
    refused = {finding.table for finding in findings if finding.level is Level.ERROR}
    tables = tuple(each for each in looks if each.name not in refused)
    return Report(
        identity=identity,
        tables=tables,
        sizes={each.oid: known[each.oid] for each in tables},
        findings=_ordered(findings),
    )


def _sizes(connection: Session, looks: list[TableLook]) -> dict[int, Size]:
    """How big they are; one that somebody holds is named, with the holder, and not waited for."""
    found = measured(connection, {each.oid: each.name for each in looks})
    for error in found.busy.values():
        others = [str(name) for name in found.busy][1:]
        raise error.adding(f"also locked: {', '.join(others)}") if others else error
    return found.sizes


def _looks(connection: Session, chosen: list[Choice], wish: Wish) -> list[TableLook]:
    """The tables to examine; wildcards select within a publication that is named."""
    meant = {choice.candidate.oid for choice in chosen if choice.meant}
    publications = [] if wish.publication is None else [wish.publication]
    looks = look(connection, [choice.candidate.oid for choice in chosen], publications).values()
    within = [each for each in looks if not publications or each.memberships or each.oid in meant]
    return sorted(within, key=lambda each: each.name)


def _ordered(findings: list[Finding]) -> tuple[Finding, ...]:
    """Errors first, then warnings; within a level as they were found."""
    levels = list(Level)
    return tuple(sorted(findings, key=lambda finding: levels.index(finding.level)))
