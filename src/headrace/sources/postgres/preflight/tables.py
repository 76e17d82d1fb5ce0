"""Preflight of the tables: those that the patterns name, and whether each can be mirrored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName, quote_identifier
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.postgres.catalog.definitions import PostgresCandidate
from headrace.sources.postgres.catalog.partition_tree import identity_differs, leaves
from headrace.sources.postgres.catalog.rights import grants
from headrace.sources.postgres.catalog.table_def import (
    ORDINARY,
    PARTITIONED,
    PERMANENT,
    TableEntry,
    columns_left_out,
    full_identity,
    identity_flaw,
    not_whole_error,
    schema_of,
)
from headrace.sources.postgres.copy.key_range import disorder
from headrace.sources.postgres.preflight.roots import check_tree, check_without_lake
from headrace.sources.postgres.publication import VIA_ROOT
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.types.columns import doubtful_key
from headrace.sources.shared.findings import doubtful_keys, new_names
from headrace.sources.shared.patterns import Pattern, select

_SENDS_GENERATED = 180000
_NAMED = 10  # tables that a message names

_NO_ROWS_OF_THEIR_OWN = {
    "v": "it is a view",
    "m": "it is a materialized view: its refreshes are not published",
    "f": "it is a foreign table: its rows are another server's",
}


# --- choosing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choice:
    """A table that the patterns name and that can be streamed."""

    candidate: PostgresCandidate
    by_name: bool  # named outright, not swept in by a wildcard


def choose(
    patterns: Sequence[str], among: Sequence[PostgresCandidate], *, by_root: bool = True
) -> tuple[list[Choice], list[Finding]]:
    """The tables that the patterns name and that can be streamed, and findings on the others.

    Partitioned tables are among them if partitions are sent under the root's name (`by_root`).
    """
    by_name = {candidate.name: candidate for candidate in among}
    selection = select(patterns, by_name)
    findings = [Finding(Level.ERROR, error) for error in selection.errors]
    findings += [names_nothing(pattern, pattern.near(by_name)) for pattern in selection.empty]
    chosen: list[Choice] = []
    for name in selection.names:
        candidate, meant = by_name[name], name in selection.named_tables
        why = _unstreamable(candidate, by_root)
        if why is None:
            chosen.append(Choice(candidate, meant))
        else:
            findings.append(_refusal(candidate, why, meant))
    return chosen, findings


def names_nothing(pattern: Pattern, near: str | None) -> Finding:
    """The finding of a pattern that matches no table; `near` suggests the table that may be meant."""
    if pattern.excludes:
        return Finding(
            Level.WARNING,
            Misconfigured(
                "PG_PATTERN_EMPTY",
                f'the pattern "{pattern.text}" excludes nothing: no table of this database matches it',
                detail=near,
                hint="check the spelling; upper and lower case differ",
            ),
        )
    return Finding(
        Level.ERROR,
        Misconfigured(
            "PG_PATTERN_EMPTY",
            f'no table of this database matches the pattern "{pattern.text}"',
            detail=near,
            hint=(
                "headrace check URL lists the tables; quote a name that has capitals or blanks: "
                "'public.\"Orders\"'"
            ),
        ),
    )


def _unstreamable(candidate: PostgresCandidate, by_root: bool) -> str | None:
    if candidate.kind == PARTITIONED and not by_root:
        return "it is partitioned, and the publication sends its partitions by themselves"
    if candidate.kind not in (ORDINARY, PARTITIONED):
        return _NO_ROWS_OF_THEIR_OWN[candidate.kind]
    if candidate.persistence != PERMANENT:
        kind = {"u": "unlogged", "t": "temporary"}[candidate.persistence]
        return f"it is {kind}: its changes are not in the log"
    return None


def _refusal(candidate: PostgresCandidate, why: str, meant: bool) -> Finding:
    """An error for a table named outright, a warning for a table that only a wildcard names."""
    mend: tuple[str, ...] = ()
    hint = "name the tables that it is made of, or leave it out"
    if candidate.kind == PARTITIONED:
        hint = f"choose its partitions by a pattern, or alter the publication: SET ({VIA_ROOT} = true)"
    elif candidate.persistence == "u":
        # A table named outright is wanted; under a wildcard, somebody made it unlogged on purpose.
        mend = (f"ALTER TABLE {candidate.name} SET LOGGED",) if meant else ()
        hint = f"ALTER TABLE {candidate.name} SET LOGGED"
    return Finding(
        Level.ERROR if meant else Level.WARNING,
        Misconfigured(
            "PG_NOT_STREAMED",
            f"{candidate.name} is not mirrored",
            detail=why,
            hint=hint,
        ),
        mend=mend,
        table=candidate.name,
        leaves_out=not meant,
    )


# --- each table ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Access:
    """The rights of the connection's user on a table."""

    schema: bool
    select: bool
    policies: bool  # row-level security would hide rows
    owner: bool


def access(connection: Session, oids: Sequence[int]) -> dict[int, Access]:
    """The user's rights on each table. A copy locks the table: SELECT on its columns is not enough."""
    rows = query(
        connection,
        "SELECT c.oid::bigint, has_schema_privilege(c.relnamespace, 'USAGE'),"
        " has_table_privilege(c.oid, 'SELECT'),"
        " row_security_active(c.oid), pg_has_role(c.relowner, 'USAGE')"
        " FROM pg_class c WHERE c.oid = ANY (%s::oid[])",
        [list(oids)],
    )
    return {oid: Access(*rights) for oid, *rights in rows}


def check_table(entry: TableEntry, rights: Access, user: str, version: int) -> Iterator[Finding]:
    """Check everything about one table that decides whether and how it is mirrored."""
    yield from check_tree(entry)
    yield from check_contents(entry, rights, user)
    yield from _identity(entry, version)


def check_whole(entry: TableEntry) -> Iterator[Finding]:
    """Find what keeps a stream without a lake from having every row that goes, whole."""
    yield from check_without_lake(entry)
    if entry.kind != PARTITIONED and not entry.identity.full:
        yield Finding(
            Level.ERROR, not_whole_error(entry.name), mend=(full_identity(entry.name),), table=entry.name
        )


def check_contents(entry: TableEntry, rights: Access, user: str) -> Iterator[Finding]:
    """The checks of a table that concern its rows, however their changes are captured."""
    yield from _columns(entry)
    yield from _privileges(entry, rights, user)
    yield from _key(entry)
    yield from _types(entry)


def _columns(entry: TableEntry) -> Iterator[Finding]:
    if not entry.columns:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_COLUMNS_NONE",
                f"table {entry.name} has no columns to mirror",
                hint=f"leave it out: '!{entry.name}'",
            ),
            table=entry.name,
        )
    renamed = new_names([column.name for column in entry.columns])
    if renamed:
        # Only the application's owner may rename columns: a person reads these, no script runs them.
        statements = tuple(
            f"ALTER TABLE {entry.name} RENAME COLUMN {quote_identifier(old)} TO {quote_identifier(new)}"
            for old, new in renamed.items()
        )
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_COLUMNS_ALIKE",
                f"columns of table {entry.name} differ only in case, which Delta cannot hold",
                detail=", ".join(f'"{name}"' for name in renamed),
                hint=f"leave it out: '!{entry.name}'; or, if the application bears it: {hint_of(statements)}",
            ),
            table=entry.name,
        )


def _identity(entry: TableEntry, version: int) -> Iterator[Finding]:
    flaw = identity_flaw(entry, version)
    if flaw is None:
        return
    mend = _mend_identity(entry, version)
    having = ", ".join(f'"{each.publication}"' for each in entry.memberships)
    refused = f"; the server refuses its UPDATE and DELETE while it is in publication {having}"
    yield Finding(
        Level.ERROR,
        Misconfigured(
            "PG_IDENTITY_MISSING",
            f"table {entry.name} has no identity by which UPDATE and DELETE could be published",
            detail=flaw + (refused if having else ""),
            hint=hint_of(mend)
            or f"give it a primary key of columns that are not generated, or leave it out: '!{entry.name}'",
        ),
        mend=mend,
        table=entry.name,
    )


def _mend_identity(entry: TableEntry, version: int) -> tuple[str, ...]:
    """The statement that gives the table an identity, if one does without altering a column."""
    if entry.identity.kind != "n" and (entry.identity.full or entry.identity.key):
        flawed = [
            leaf
            for leaf in leaves(entry.tree)
            if identity_differs(entry.identity.full, entry.identity.key, leaf)
        ]
        if flawed:
            return tuple(f"ALTER TABLE {leaf.name} REPLICA IDENTITY FULL" for leaf in flawed)
    table = f"ALTER TABLE {entry.name}"
    generated = {a.name for a in entry.attributes if a.generation}
    if not (generated and version >= 180000):
        names = [entry.name, *(leaf.name for leaf in leaves(entry.tree) if leaf.identity != "f")]
        return tuple(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in names)
    if entry.identity.key and not generated & set(entry.identity.key):
        return (f"{table} REPLICA IDENTITY DEFAULT",)
    return ()


def check_leaves(connection: Session, entries: Sequence[TableEntry], user: str) -> Iterator[Finding]:
    """Check the rights on the partitions of roots: a copy reads each partition by its own name."""
    beneath = {leaf.oid: (entry, leaf) for entry in entries for leaf in leaves(entry.tree)}
    rights = access(connection, list(beneath)) if beneath else {}
    for oid, (entry, leaf) in beneath.items():
        if oid in rights:
            yield from _privileges(entry, rights[oid], user, leaf.name)


def check_left_out(
    entries: Sequence[TableEntry], version: int, publication: str | None, *, by_triggers: bool = False
) -> Iterator[Finding]:
    """Name generated columns that will not be in the lake, and how the stored ones can be published.

    `entries` must be fit: a publication keeps the application from updating unfit tables.
    """
    lacking = {each.name: names for each in entries if (names := columns_left_out(each))}
    if not lacking:
        return
    stored = {
        each.name
        for each in entries
        for attribute in each.attributes
        if attribute.name in lacking.get(each.name, ()) and attribute.generation == "s"
    }
    said = [f"{name} ({', '.join(map(quote_identifier, names))})" for name, names in sorted(lacking.items())]
    more = f" and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    hint = "let whoever reads the lake compute them from the other columns"
    if stored and version >= _SENDS_GENERATED and not by_triggers:
        hint = f"{_sending(entries, publication)}; or {hint}"
    error = Misconfigured(
        "PG_COLUMNS_GENERATED",
        f"generated columns of {len(lacking)} table{'s' if len(lacking) > 1 else ''} are not sent by the "
        "server, and will not be in the lake",
        detail="; ".join(said[:_NAMED]) + more,
        hint=hint,
    )
    yield Finding(Level.INFO, error, tables=tuple(lacking))


def _sending(entries: Sequence[TableEntry], publication: str | None) -> str:
    """The statement that publishes stored generated columns: our own publication does not send them."""
    if publication is not None:
        name = quote_identifier(publication)
        return f"ALTER PUBLICATION {name} SET (publish_generated_columns = stored) sends the stored ones"
    listed = ", ".join(f"ONLY {each.name}" for each in entries)
    return (
        f"CREATE PUBLICATION headrace FOR TABLE {listed} WITH ({VIA_ROOT} = true, "
        "publish_generated_columns = stored); then --publication headrace sends the stored ones"
    )


# Per owner and schema of roots that we don't own: may we read tables that the owner will make there?
_DEFAULTS = """
SELECT r.rolname, n.nspname, EXISTS (
           SELECT FROM pg_default_acl d, aclexplode(d.defaclacl) a
            WHERE d.defaclrole = c.relowner AND d.defaclnamespace IN (0, n.oid) AND d.defaclobjtype = 'r'
              AND a.privilege_type = 'SELECT' AND (a.grantee = 0 OR pg_has_role(a.grantee, 'USAGE')))
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles r ON r.oid = c.relowner
 WHERE c.oid = ANY (%s::oid[]) GROUP BY 1, 2, 3 ORDER BY 1, 2
"""


def check_later_partitions(
    connection: Session, entries: Sequence[TableEntry], rights: Mapping[int, Access]
) -> Iterator[Finding]:
    """Warn of later partitions of roots that others own: a new partition gives us no rights by itself."""
    roots = [each for each in entries if each.kind == PARTITIONED and not rights[each.oid].owner]
    if not roots or _reads_all(connection):
        return
    found = query(connection, _DEFAULTS, [[each.oid for each in roots]])
    user = quote_identifier(connection.info.user)
    mend = tuple(
        f"ALTER DEFAULT PRIVILEGES FOR ROLE {quote_identifier(owner)} IN SCHEMA {quote_identifier(schema)}"
        f" GRANT SELECT ON TABLES TO {user}"
        for owner, schema, covered in found
        if not covered
    )
    if mend:
        error = Misconfigured(
            "PG_LATER_PARTITIONS",
            f"the user {user} may not read what others add to partitioned tables, and no copy does without",
            detail=", ".join(str(each.name) for each in roots[:5]),
            hint=hint_of(mend),
        )
        yield Finding(Level.INFO, error, mend=mend, tables=tuple(each.name for each in roots))


def _reads_all(connection: Session) -> bool:
    return query(connection, "SELECT pg_has_role('pg_read_all_data', 'USAGE')") == [(True,)]


def _privileges(
    entry: TableEntry, rights: Access, user: str, leaf: TableName | None = None
) -> Iterator[Finding]:
    role, read = quote_identifier(user), leaf or entry.name
    if mend := grants(user, read, schema=rights.schema, select=rights.select):
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_TABLE_PRIVILEGE",
                f'the user "{user}" may not read table {read}',
                hint=hint_of(mend),
            ),
            mend=mend,
            table=entry.name,
        )
    if rights.policies:
        mend = (f"ALTER ROLE {role} BYPASSRLS",)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_ROW_SECURITY",
                f"row-level security would hide rows of table {read} from the copy",
                hint=hint_of(mend),
            ),
            mend=mend,
            table=entry.name,
        )


def _key(entry: TableEntry) -> Iterator[Finding]:
    if doubtful := doubtful_keys(schema_of(entry), doubtful_key):
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "PG_KEY_DOUBTFUL",
                f"the key of table {entry.name} may hold {doubtful}, which would stop it",
                hint="keep such values out of the key, or choose another one by REPLICA IDENTITY USING INDEX",
            ),
            table=entry.name,
        )


# Types whose values are their text.
_TEXT_TYPES = frozenset({18, 19, 25, 1042, 1043, 114, 3802, 2950, 142})


def _types(entry: TableEntry) -> Iterator[Finding]:
    kinds = {known.oid: known.kind for known in entry.types}
    columns = {column.name: column for column in schema_of(entry).columns}
    as_text = [
        f'"{a.name}" {a.type_text}'
        for a in entry.columns
        if columns[a.name].form == "text" and a.type not in _TEXT_TYPES and kinds.get(a.type) != "e"
    ]
    if as_text:
        yield Finding(
            Level.INFO,
            Misconfigured(
                "PG_TYPES_AS_TEXT",
                f"columns of table {entry.name} are kept as text, as the server prints them",
                detail=", ".join(as_text),
                hint="cast them where they are read; docs/types.md has the whole list",
            ),
            table=entry.name,
        )


def check_chunks(connection: Session, entries: Sequence[TableEntry]) -> list[Finding]:
    """Name the tables that are copied in one snapshot although the option asks for chunks."""
    return [
        Finding(
            Level.INFO,
            Misconfigured(
                "PG_COPIED_WHOLE",
                f"{name} is copied in one snapshot, not in chunks",
                detail=reason,
                hint="nothing to do; its copy keeps one transaction open",
            ),
            table=name,
        )
        for name, reason in disorder(connection, entries).items()
    ]
