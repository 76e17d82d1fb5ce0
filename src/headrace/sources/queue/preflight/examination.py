"""The examination: all checks on one connection, and the tables that pass them.

the patterns' tables ─► each by itself ─► queue and triggers ─► the server ─► Report

All checks take a `QueueWish`: the tables to mirror, and the queue to use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.contract.findings import CheckReport, Finding, Level, Wish, in_order
from headrace.sources.contract.values import Json, TableSize
from headrace.sources.postgres.catalog.definitions import candidates
from headrace.sources.postgres.catalog.locks import measure, total
from headrace.sources.postgres.catalog.partition_tree import leaves
from headrace.sources.postgres.preflight.roots import beside_mirrored, check_without_lake, outside_roots
from headrace.sources.postgres.preflight.script import script as mending_script
from headrace.sources.postgres.preflight.server import (
    check_connections,
    check_encoding,
    check_event_triggers,
    check_support,
)
from headrace.sources.postgres.preflight.tables import access, check_chunks
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import PostgresIdentity, identify
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue.catalog.definitions import QueuedTable, definition, read_tables
from headrace.sources.queue.declaration import CHUNKS, DECLARATION, HANDOFF, QUEUE, SCHEMA, XID
from headrace.sources.queue.preflight.fitness import check_tables, choose
from headrace.sources.queue.preflight.making import check_queue, check_triggers
from headrace.sources.queue.proof import standby
from headrace.sources.queue.upstream import Objects, QueueUpstream
from headrace.sources.shared.patterns import select


@dataclass(frozen=True, slots=True)
class QueueWish:
    """A wish to mirror tables through a queue."""

    patterns: Sequence[str]
    objects: Objects
    handoff: str = XID  # how a table is copied
    connections: int = 4  # that the copy may open
    identity: Json | None = None  # of the source that the lake already mirrors
    whole_rows: bool = False  # there is no lake to copy a table anew

    @classmethod
    def of(cls, wish: Wish) -> QueueWish:
        """Read a wish: from its options, or from the record of a mirror that exists."""
        if wish.upstream is not None:
            objects = QueueUpstream.of(wish.upstream).objects
        else:
            said = {option.name: DECLARATION.value(wish.options, option.name) for option in (SCHEMA, QUEUE)}
            objects = Objects(said[SCHEMA.name] or "", said[QUEUE.name] or "")
        handoff = DECLARATION.value(wish.options, HANDOFF.name) or XID
        return cls(wish.patterns, objects, handoff, wish.connections, wish.identity, wish.whole_rows)


# Tags of our DDL for which event triggers are reported. Making the queue uses more, but applications meet the
# triggers.
_COMMANDS = ("CREATE TRIGGER", "ALTER TABLE", "DROP TRIGGER", "CREATE TABLE", "CREATE FUNCTION")
_OTHER_CONNECTIONS = 4  # besides the copy's: receiver, leader, its observer, the mirror's own


def examine(address: PostgresAddress, wish: QueueWish) -> CheckReport:
    """Check everything that the wish depends on. Raises only if the server cannot be asked at all."""
    with closing(connect(address, role="check")) as connection:
        identity = identify(connection)
        chosen = choose(connection, wish.objects, wish.patterns)
        tables, inside = _outside_roots(
            read_tables(connection, wish.objects, chosen.oids), chosen.named_tables
        )
        sizes = _sizes(connection, tables)
        rights = access(connection, [each.entry.oid for each in tables])
        # A table may be dropped between two of these statements.
        tables = [each for each in tables if each.entry.oid in rights and each.name in sizes]
        found = check_tables(connection, [each.entry for each in tables], rights)
        findings = [*chosen.findings, *inside, *(each.for_swept(chosen.named_tables) for each in found)]
        if wish.whole_rows:
            findings += [found for each in tables for found in check_without_lake(each.entry)]
        if not identity.standby:
            fit = [each for each in tables if each.name not in _hopeless(findings)]
            findings += check_queue(connection, wish.objects)
            triggers = check_triggers(connection, wish.objects, fit, rights)
            findings += [each.for_swept(chosen.named_tables) for each in triggers]
            findings += check_event_triggers(connection, _COMMANDS)
        findings += _server(connection, identity, wish)
        refused = _refused_tables(findings)
        if wish.handoff == CHUNKS:
            copied = [each.entry for each in tables if each.name not in refused]
            findings += check_chunks(connection, copied)
    return CheckReport(
        version=identity.version,
        tables=tuple(definition(each) for each in tables if each.name not in refused),
        sizes=sizes,
        findings=in_order(findings),
        script=tuple(script(in_order(findings))),
        named_tables=chosen.named_tables,
    )


def script(findings: Iterable[Finding]) -> list[str]:
    """The statements that mend the findings, then those that make missing objects: the queue first."""
    return mending_script(sorted(findings, key=lambda finding: bool(finding.concerned_tables)))


def find_unmirrored(
    connection: Session, objects: Objects, patterns: Sequence[str], mirrored_tables: Collection[TableName]
) -> dict[TableName, HeadraceError | None]:
    """Find the tables that the patterns match and are not mirrored, each with its error or None."""
    among = candidates(connection)
    names = select(patterns, [each.name for each in among]).names
    wanted = [str(name) for name in names if name not in mirrored_tables and name.schema != objects.schema]
    chosen = choose(connection, objects, wanted)
    tables = read_tables(connection, objects, chosen.oids)
    own = frozenset(each.oid for each in among if each.name in mirrored_tables)
    apart = {each.oid for each in beside_mirrored([each.entry for each in tables], own)}
    tables = [each for each in tables if each.entry.oid in apart]
    rights = access(connection, [each.entry.oid for each in tables])
    tables = [each for each in tables if each.entry.oid in rights]
    findings = [*chosen.findings, *check_tables(connection, [each.entry for each in tables], rights)]
    findings += check_triggers(connection, objects, tables, rights)
    reasons: dict[TableName, HeadraceError | None] = {each.name: None for each in tables}
    for finding in reversed(findings):
        reasons |= dict.fromkeys(finding.concerned_tables if finding.refuses else (), finding.error)
    return dict(sorted(reasons.items()))


def _outside_roots(
    tables: Sequence[QueuedTable], meant: Collection[TableName]
) -> tuple[list[QueuedTable], list[Finding]]:
    """The tables that are inside no root among these, and an error for each inner table named outright."""
    entries, inside = outside_roots([each.entry for each in tables], meant)
    apart = {entry.oid for entry in entries}
    return [each for each in tables if each.entry.oid in apart], inside


def _refused_tables(findings: Sequence[Finding]) -> frozenset[TableName]:
    return frozenset(name for finding in findings if finding.refuses for name in finding.concerned_tables)


def _hopeless(findings: Sequence[Finding]) -> frozenset[TableName]:
    """The tables that no statement makes fit: their triggers are not checked."""
    unmended = (finding for finding in findings if finding.refuses and not finding.mend)
    return frozenset(name for finding in unmended for name in finding.concerned_tables)


def _sizes(connection: Session, tables: Sequence[QueuedTable]) -> dict[TableName, TableSize]:
    """Measure tables. Raises at once if another session locks one, with the session's name."""
    beneath = {leaf.oid: leaf.name for each in tables for leaf in leaves(each.entry.tree)}
    found = measure(connection, {each.entry.oid: each.name for each in tables} | beneath)
    for error in found.busy.values():
        others = [str(name) for name in found.busy][1:]
        raise error.adding(f"also locked: {', '.join(others)}") if others else error
    sizes: dict[TableName, TableSize] = {}
    for each in tables:
        oids = (each.entry.oid, *(leaf.oid for leaf in leaves(each.entry.tree)))
        if each.entry.oid in found.sizes:
            size = total([found.sizes[oid] for oid in oids if oid in found.sizes])
            sizes[each.name] = TableSize(size.bytes, size.rows, size.changes_an_hour)
    return sizes


# --- the server -----------------------------------------------------------------------------------


def _server(connection: Session, identity: PostgresIdentity, wish: QueueWish) -> Iterator[Finding]:
    yield from check_support(identity)
    if identity.standby:
        yield Finding(Level.ERROR, standby())
    [(encoding, most, reserved, used)] = query(
        connection,
        "SELECT pg_catalog.current_setting('server_encoding'),"
        " pg_catalog.current_setting('max_connections')::int4,"
        " pg_catalog.current_setting('superuser_reserved_connections')::int4,"
        " (SELECT sum(numbackends) FROM pg_catalog.pg_stat_database)::int8",
    )
    yield from check_encoding(encoding)
    yield from check_connections(most, reserved, used or 0, wish.connections + _OTHER_CONNECTIONS)
