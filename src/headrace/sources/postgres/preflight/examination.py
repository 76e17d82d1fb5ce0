"""The examination: all checks on one connection, and the tables that pass them.

    the patterns' tables ─► each by itself ─► publication, slot ─► the server ─► Report

If a pattern without wildcards names a table, the table's fault is an error. If only a wildcard names it, the
table is left out instead, with the same code, and the others are mirrored.

`costly_ddl` names the DDL that costs more for a table than for others, for `headrace check`.
`docs/change-shape.md` covers DDL that costs the same for every table: another type, another key. The rest
depends on the table: its key, its partitions, the user-defined types of its columns, and the columns and rows
that the publication sends. The verdicts are those of `ddl.alteration`.

`check_leftovers` finds objects of earlier lakes: a slot that nobody reads holds back log for ever. Such a
slot may belong to a lake that is not running, or to one that was deleted. The server cannot tell which, so
the statement that drops it is in the hint for a person, and never in a script.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.names import TableName, quote_identifier
from headrace.sources.contract.column_rules import unknown_tables
from headrace.sources.contract.findings import CheckReport, Finding, Level, in_order
from headrace.sources.contract.values import TableSize
from headrace.sources.postgres.catalog.definitions import PostgresCandidate, candidates, read_entries
from headrace.sources.postgres.catalog.locks import RelationSize, measure, total
from headrace.sources.postgres.catalog.partition_tree import leaves
from headrace.sources.postgres.catalog.table_def import (
    PARTITIONED,
    TableEntry,
    apply_rules,
    definition,
    identity_flaw,
    schema_of,
    watched_columns,
)
from headrace.sources.postgres.declaration import CHUNKS
from headrace.sources.postgres.objects import OURS
from headrace.sources.postgres.preflight.failover import check_failover
from headrace.sources.postgres.preflight.hosting import translate
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
    check_whole,
    choose,
)
from headrace.sources.postgres.preflight.upstream_objects import (
    THEIRS,
    check_making,
    check_own_slot,
    check_publication,
    read_publication,
)
from headrace.sources.postgres.preflight.wish import PostgresWish
from headrace.sources.postgres.publication import publication_oid, rule_findings
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
from headrace.sources.postgres.session.log_end import WAL_END
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.types.columns import TypeEntry, enum_of
from headrace.sources.shared.patterns import select


def examine(address: PostgresAddress, wish: PostgresWish) -> CheckReport:
    """Check everything that the wish depends on. Raises only if the server cannot be asked at all."""
    with closing(connect(address, role="check")) as connection:
        identity = identify(connection)
        among = candidates(connection)
        chosen, findings = choose(wish.patterns, among, by_root=_by_root(connection, wish))
        findings += unknown_tables(wish.columns, [each.name for each in among])
        meant = frozenset(choice.candidate.name for choice in chosen if choice.by_name)
        oids = [choice.candidate.oid for choice in chosen]
        entries, inside = outside_roots(_entries(connection, chosen, wish), meant)
        findings += inside
        rights, known = access(connection, oids), _sizes(connection, entries)
        # A table may be dropped between two of these statements.
        entries = [each for each in entries if each.oid in rights and each.oid in known]
        findings += _of_tables(connection, entries, rights, wish, meant)
        refused = _refused_tables(findings)
        if wish.whole_rows:  # also of tables that only a wildcard names: a stream that lacks one misleads
            findings += (found for e in entries if e.name not in refused for found in check_whole(e))
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
        findings += check_failover(address, connection, identity, wish)
        findings = translate(connection, findings)
    return CheckReport(
        version=identity.version,
        tables=tuple(definition(each) for each in tables),
        sizes={each.name: known[each.oid] for each in tables},
        findings=in_order(findings),
        script=tuple(script(in_order(findings))),
        named_tables=meant,
        costly_ddl={each.name: said for each in tables if (said := costly_ddl(each))},
    )


def _sizes(connection: Session, entries: list[TableEntry]) -> dict[int, TableSize]:
    """Measure tables. Raises at once if another session locks one, with the session's name."""
    tables = {each.oid: each.name for each in entries}
    beneath = {leaf.oid: leaf.name for each in entries for leaf in leaves(each.tree)}
    found = measure(connection, tables | beneath)
    for error in found.busy.values():
        others = [str(name) for name in found.busy][1:]
        raise error.adding(f"also locked: {', '.join(others)}") if others else error
    return {each.oid: _size(each, found.sizes) for each in entries if each.oid in found.sizes}


def _size(entry: TableEntry, sizes: Mapping[int, RelationSize]) -> TableSize:
    """The size of a table; for a root, the sum of its partitions."""
    oids = (entry.oid, *(leaf.oid for leaf in leaves(entry.tree)))
    size = total([sizes[oid] for oid in oids if oid in sizes])
    return TableSize(size.bytes, size.rows, size.changes_an_hour)


def _by_root(connection: Session, wish: PostgresWish) -> bool:
    """Tell whether the publication, ours or the user's, sends partitions under the name of their root."""
    publication = None if wish.publication is None else read_publication(connection, wish.publication)
    return publication is None or publication.via_root


def find_unmirrored(
    connection: Session, wish: PostgresWish, mirrored_tables: Collection[TableName]
) -> dict[TableName, HeadraceError | None]:
    """Find the tables that match the patterns and are not mirrored, each with its error or None."""
    among = candidates(connection)
    names = select(wish.patterns, [each.name for each in among]).names
    there = set(names) - set(mirrored_tables)
    by_root = _by_root(connection, wish)
    chosen, findings = choose(wish.patterns, [each for each in among if each.name in there], by_root=by_root)
    missing = unknown_tables(wish.columns, [each.name for each in among])
    entries = beside_mirrored(_entries(connection, chosen, wish), _oids(among, mirrored_tables))
    rights = access(connection, [each.oid for each in entries])
    entries = [each for each in entries if each.oid in rights]
    findings += _of_tables(connection, entries, rights, wish, frozenset())
    if wish.publication is None:
        findings += check_making(
            connection, entries, rights, frozenset(), _refused_tables(findings), _hopeless(findings)
        )
    # A ruled table that was renamed would come in under its new name, with all of its columns.
    why = missing[0].error if missing else None
    reasons: dict[TableName, HeadraceError | None] = {each.name: why for each in entries}
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
    hopeless = _hopeless(findings)
    publishable = [e for e in entries if e.name not in hopeless and identity_flaw(e, version) is None]
    owned = all(rights[each.oid].owner for each in entries)
    made = not owned or read_publication(connection, THEIRS)  # it is there, or another finding asks for it
    findings += check_left_out(publishable, version, wish.publication or (THEIRS if made else None))
    if wish.publication is not None:
        findings += check_publication(connection, wish.publication, entries, hopeless, wish.columns)
    findings += [found for each in entries for found in rule_findings(each, wish.columns)]
    # A rule names its table, however the table was chosen.
    return [finding.for_swept(meant | wish.columns.tables.keys()) for finding in findings]


def _refused_tables(findings: list[Finding]) -> frozenset[TableName]:
    return frozenset(name for finding in findings if finding.refuses for name in finding.concerned_tables)


def _hopeless(findings: list[Finding]) -> frozenset[TableName]:
    """The tables that no statement makes fit."""
    unmended = (finding for finding in findings if finding.refuses and not finding.mend)
    return frozenset(name for finding in unmended for name in finding.concerned_tables)


def _entries(connection: Session, chosen: list[Choice], wish: PostgresWish) -> list[TableEntry]:
    """The tables to examine; if the user names a publication that exists, wildcards select within it."""
    meant = {choice.candidate.oid for choice in chosen if choice.by_name}
    there = wish.publication is not None and publication_oid(connection, wish.publication)
    publications = [wish.publication] if there and wish.publication is not None else []
    entries = read_entries(connection, [choice.candidate.oid for choice in chosen], publications).values()
    within = [each for each in entries if not publications or each.memberships or each.oid in meant]
    return [apply_rules(each, wish.columns) for each in sorted(within, key=lambda each: each.name)]


_TREE = "copied anew where a partition is dropped, detached, truncated, rewritten, or attached with rows"
_PART = "copied anew by every change of its columns, of its row filter or of its column list"
_NO_KEY = "written again in the lake by every added column: it has no key"


def costly_ddl(entry: TableEntry) -> tuple[str, ...]:
    """Say which DDL is costly for this table, the costliest first."""
    return tuple(_costs(entry))


def _costs(entry: TableEntry) -> Iterator[str]:
    if any(member.has_filter or member.columns is not None for member in entry.memberships):
        yield _PART
    if entry.kind == PARTITIONED:
        yield _TREE
    if types := _types(entry):
        yield f"copied anew where a type of its columns is altered ({types})"
    if computed := ", ".join(f'"{a.name}"' for a in entry.attributes if a.generation == "s"):
        yield f"copied anew by another expression of its generated columns ({computed})"
    if schema_of(entry).is_multiset:
        yield _NO_KEY


def _types(entry: TableEntry) -> str:
    """Name the column types whose ALTER TYPE is costly; adding a label to a plain enum column is not."""
    known = {each.oid: each for each in entry.types}
    found: dict[str, str] = {}
    for attribute in watched_columns(entry.attributes, entry.memberships):
        name = attribute.type_text.removesuffix("[]")
        if enum_of(attribute.type, known) is not None:
            found[name] = ": a label renamed"
        elif any(known[oid].kind in "ce" for oid in _within(attribute.type, known)):
            found[name] = ""
    return ", ".join(f"{name}{how}" for name, how in sorted(found.items()))


def _within(type: int, known: Mapping[int, TypeEntry]) -> Iterator[int]:
    """Yield a user-defined type, and the types that its values consist of."""
    entry = known.get(type)
    if entry is None:
        return
    yield type
    for part in (entry.base, entry.element, entry.subtype, *(of for _, _, of, _ in entry.attributes)):
        yield from _within(part, known)


_SLOTS = f"""
SELECT s.slot_name, s.database, pg_wal_lsn_diff({WAL_END}, s.restart_lsn)::bigint
  FROM pg_replication_slots s
 WHERE s.slot_name ~ %s AND NOT s.active AND NOT s.temporary AND s.slot_name IS DISTINCT FROM %s
 ORDER BY 1
"""
_PUBLICATIONS = """
SELECT p.pubname FROM pg_publication p
 WHERE p.pubname ~ %s AND p.pubname IS DISTINCT FROM %s
   AND NOT EXISTS (SELECT 1 FROM pg_replication_slots s WHERE s.slot_name = p.pubname)
 ORDER BY 1
"""


def check_leftovers(connection: Session, wish: PostgresWish) -> Iterator[Finding]:
    """Find slots of ours that nobody reads, and publications of ours in this database that have no slot."""
    for slot, database, retained in query(connection, _SLOTS, [OURS, wish.slot]):
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "PG_SLOT_UNUSED",
                f'nobody reads the slot "{slot}", which a lake made',
                detail=f'it is of database "{database}" and holds back {retained or 0:,} bytes of log',
                hint="headrace run goes on with its lake; if that is gone: "
                f"SELECT pg_drop_replication_slot('{slot}')",
            ),
        )
    for (name,) in query(connection, _PUBLICATIONS, [OURS, wish.publication]):
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "PG_PUBLICATION_UNUSED",
                f'the publication "{name}", which a lake made, has no slot',
                hint=f"if its lake is gone: DROP PUBLICATION {quote_identifier(name)}",
            ),
        )
