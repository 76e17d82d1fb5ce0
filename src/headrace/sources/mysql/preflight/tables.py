"""Preflight of the tables: those that the patterns name, and whether each can be mirrored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.names import TableName
from headrace.core.schema import Column, TableSchema
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.mysql.catalog.candidates import BASE_TABLE, MysqlCandidate
from headrace.sources.mysql.catalog.questions import busy
from headrace.sources.mysql.catalog.table_def import TableLook, schema_of, table_number
from headrace.sources.mysql.copy.key_range import disorder
from headrace.sources.mysql.ddl.volatile import volatile
from headrace.sources.mysql.declaration import ACCEPT, UNLOGGED_CASCADES
from headrace.sources.mysql.session.statements import quote
from headrace.sources.mysql.types.columns import doubtful_key
from headrace.sources.shared.findings import doubtful_keys, new_names
from headrace.sources.shared.patterns import Pattern, select

_NO_ROWS_OF_THEIR_OWN = {
    "VIEW": "it is a view",
    "SYSTEM VIEW": "it is a view of the server's",
    "SEQUENCE": "it is a sequence",
    "SYSTEM VERSIONED": "it is system-versioned: the rows of its past are rows to the log",
    "TEMPORARY": "it is temporary: its changes are not in the log",
}
_TRANSACTIONAL = "InnoDB"


# --- choosing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChosenTables:
    """The tables that patterns name and that can be followed, and findings on the others."""

    names: tuple[TableName, ...]
    named_tables: frozenset[TableName]  # those that a pattern without wildcards names
    findings: tuple[Finding, ...]
    unopened_tables: Mapping[TableName, HeadraceError]  # tables that the server can't show now


def choose(
    patterns: Sequence[str],
    among: Sequence[MysqlCandidate],
    *,
    lower: bool,
    without: Collection[TableName] = (),
    databases: Collection[str] = (),
) -> ChosenTables:
    """Match the patterns; with `lower` the server stores all names in lower case, or compares them so.

    A pattern with wildcards may match nothing yet if it means one of `databases`.
    """
    by_name = {each.name: each for each in among}
    selection = select(patterns, by_name, case_insensitive=lower)
    findings = [Finding(Level.ERROR, error) for error in selection.errors]
    spell = str.lower if lower else str
    empty = set(map(spell, databases)).difference(spell(each.name.schema) for each in among)
    findings += [_nothing(pattern, empty, pattern.near(by_name)) for pattern in selection.empty]
    chosen: list[TableName] = []
    unopened: dict[TableName, HeadraceError] = {}
    for name in sorted(set(selection.names) - set(without)):
        candidate = by_name[name]
        if candidate.why_unopened is not None:
            unopened[name] = busy(name, candidate.why_unopened)
            continue
        why = _why_unfollowed(candidate)
        if why is None:
            chosen.append(name)
        else:
            findings.append(_refusal(candidate, why).for_swept(selection.named_tables))
    return ChosenTables(tuple(chosen), selection.named_tables, tuple(findings), unopened)


def _nothing(pattern: Pattern, empty: Collection[str], near: str | None) -> Finding:
    """The finding of a pattern that matches no table; `empty` are databases in which we see no table."""
    if pattern.excludes:
        return Finding(
            Level.WARNING,
            Misconfigured(
                "MY_PATTERN_EMPTY",
                f'the pattern "{pattern.text}" excludes nothing: no table that we may see matches it',
                detail=near,
                hint="check the spelling; the schema is the database: '!shop.log'",
            ),
        )
    of_schema = None if pattern.exact else pattern.schema
    if of_schema is not None and any(map(of_schema.fullmatch, empty)):
        return Finding(
            Level.WARNING,
            Misconfigured(
                "MY_PATTERN_EMPTY",
                f'no table matches the pattern "{pattern.text}" yet: we see no table in its database',
                hint="if it has tables, GRANT SELECT on them: the server hides them from us; "
                "headrace tables add takes those that are created later",
            ),
        )
    return Finding(
        Level.ERROR,
        Misconfigured(
            "MY_PATTERN_EMPTY",
            f'no table that we may see matches the pattern "{pattern.text}"',
            detail=near,
            hint=(
                "headrace check URL lists the tables that we may see; others need GRANT SELECT; "
                "quote a name that has blanks: 'shop.\"Old orders\"'"
            ),
        ),
    )


def _why_unfollowed(candidate: MysqlCandidate) -> str | None:
    if candidate.kind != BASE_TABLE:
        return _NO_ROWS_OF_THEIR_OWN.get(candidate.kind, f"it is a {candidate.kind.lower()}")
    if candidate.engine != _TRANSACTIONAL:
        return f"its engine is {candidate.engine}: what is rolled back stays, and no snapshot holds it still"
    return None


def _refusal(candidate: MysqlCandidate, why: str) -> Finding:
    # A rebuild holds up the table's writers: a person reads this, no script runs it.
    rebuild = f"ALTER TABLE {quote(candidate.name.schema)}.{quote(candidate.name.name)} ENGINE = InnoDB"
    leave = f"leave it out: '!{candidate.name}'"
    return Finding(
        Level.ERROR,
        Misconfigured(
            "MY_NOT_STREAMED",
            f"{candidate.name} is not mirrored",
            detail=why,
            hint=f"{rebuild}; or {leave}" if candidate.kind == BASE_TABLE else leave,
        ),
        table=candidate.name,
    )


# --- each table ---------------------------------------------------------------------------------


def check_table(
    look: TableLook, *, accepts_cascades: bool = False, logs_generated: bool = True
) -> Iterator[Finding]:
    """Check everything about one table that decides whether and how it is mirrored."""
    yield from () if logs_generated else _unlogged_findings(look)
    yield from _cascades(look, Level.WARNING if accepts_cascades else Level.ERROR)
    yield from _volatile(look)
    yield from _columns(look)
    try:
        schema = schema_of(look)
    except HeadraceError as error:
        yield Finding(Level.ERROR, error, table=look.name)
        return
    yield from _key(look, schema)
    yield from _types(look, schema)


def _cascades(look: TableLook, level: Level) -> Iterator[Finding]:
    if look.cascades:
        yield Finding(
            level,
            Misconfigured(
                "MY_CASCADES_UNLOGGED",
                f"foreign keys change or remove rows of table {look.name}, and the log does not say so",
                detail=", ".join(f'"{name}"' for name in look.cascades),
                hint=f"leave it out: '!{look.name}'; or let the application do what they do, and make them "
                "ON DELETE RESTRICT ON UPDATE RESTRICT; MySQL from 9.6 logs them, with "
                f"innodb_native_foreign_keys = OFF; {UNLOGGED_CASCADES.name} = {ACCEPT} mirrors it all the "
                "same, but the mirror is wrong after the first such change",
            ),
            table=look.name,
        )


def _unlogged_findings(look: TableLook) -> Iterator[Finding]:
    names = [row.name for row in look.columns if row.generation]
    if names:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_GENERATED_UNLOGGED",
                f"this release logs changes of table {look.name} without its generated columns",
                detail=", ".join(f'"{name}"' for name in names),
                hint=f"leave the table out: '!{look.name}'; or, if the application bears it, drop them, "
                "or make them plain columns that triggers fill",
            ),
            table=look.name,
        )


def _volatile(look: TableLook) -> Iterator[Finding]:
    names = volatile(look.columns)
    if names:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_COLUMN_VOLATILE",
                f"virtual columns of table {look.name} may have other values for other sessions",
                detail=", ".join(f'"{name}"' for name in names),
                hint=f"leave the table out: '!{look.name}'; or, if the application bears it, make them "
                "STORED, or drop them",
            ),
            table=look.name,
        )


def _columns(look: TableLook) -> Iterator[Finding]:
    renamed = new_names([column.name for column in look.columns])
    if renamed:
        table = f"{quote(look.name.schema)}.{quote(look.name.name)}"
        # Only the application's owner may rename columns: a person reads these, no script runs them.
        statements = tuple(
            f"ALTER TABLE {table} RENAME COLUMN {quote(old)} TO {quote(new)}" for old, new in renamed.items()
        )
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_COLUMNS_ALIKE",
                f"columns of table {look.name} differ only in case, which Delta cannot hold",
                detail=", ".join(f'"{name}"' for name in renamed),
                hint=f"leave it out: '!{look.name}'; or, if the application bears it: {hint_of(statements)}",
            ),
            table=look.name,
        )


def _key(look: TableLook, schema: TableSchema) -> Iterator[Finding]:
    if doubtful := doubtful_keys(schema, doubtful_key):
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_KEY_DOUBTFUL",
                f"the key of table {look.name} may hold {doubtful}, which would stop it",
                hint="keep such values out of the key (sql_mode with NO_ZERO_DATE and NO_ZERO_IN_DATE does)",
            ),
            table=look.name,
        )


# Forms that are text in the lake, where one might expect another type.
_AS_TEXT = ("digits", "time")


def _types(look: TableLook, schema: TableSchema) -> Iterator[Finding]:
    as_text = [f'"{column.name}" {column.source_type}' for column in schema.columns if _is_text(column)]
    if as_text:
        yield Finding(
            Level.INFO,
            Misconfigured(
                "MY_TYPES_AS_TEXT",
                f"columns of table {look.name} are kept as text, as the server prints them",
                detail=", ".join(as_text),
                hint="cast them where they are read; docs/types.md has the whole list",
            ),
            table=look.name,
        )


def _is_text(column: Column) -> bool:
    return column.form in _AS_TEXT


# --- all of them --------------------------------------------------------------------------------


def check_numbers(names: Sequence[TableName]) -> Iterator[Finding]:
    """Refuse tables whose names make the same number: the stream could not distinguish them."""
    numbers = Counter(map(table_number, names))
    alike = tuple(name for name in names if numbers[table_number(name)] > 1)
    if alike:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_TABLES_ALIKE",
                "tables cannot be told apart in the stream: their names make the same number",
                detail=", ".join(map(str, alike)),
                hint=f"leave one of them out: '!{alike[-1]}'",
            ),
            tables=alike,
        )


def check_chunks(looks: Iterable[TableLook]) -> Iterator[Finding]:
    """Name the tables that are copied in one moment although the option asks for chunks."""
    for each in looks:
        if reason := disorder(each):
            yield Finding(
                Level.INFO,
                Misconfigured(
                    "MY_COPIED_WHOLE",
                    f"{each.name} is copied in one moment, not in chunks",
                    detail=reason,
                    hint="nothing to do; where its copy is ended it begins again",
                ),
                table=each.name,
            )
