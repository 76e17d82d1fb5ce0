"""The examination: all checks on one connection, and the tables that pass them.

    the patterns' tables ─► each by itself ─► privileges ─► the server ─► Report

If a pattern without wildcards names a table, the table's fault is an error. If only a wildcard names it, the
table is left out instead, with the same code, and the others are mirrored.

`costly_ddl` names the DDL that costs more for a table than for others, for `headrace check`. `docs/mysql.md`
lists by statement the DDL that costs the same for all tables. The rest depends on the table: on its key, and
on columns that the server computes. The verdicts are those of `ddl.evidence`.

All checks take a `MysqlWish`: the tables to mirror.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.contract.column_rules import (
    NO_RULES,
    ColumnRules,
    check_rule,
    hash_type_error,
    unknown_tables,
)
from headrace.sources.contract.findings import CheckReport, Finding, Level, Wish, in_order
from headrace.sources.contract.values import ExaminedTables, Json, TableSize
from headrace.sources.mysql.catalog.candidates import (
    MysqlCandidate,
    candidates,
    changes_an_hour,
    databases,
    sizes,
)
from headrace.sources.mysql.catalog.definitions import look, read_visible_tables
from headrace.sources.mysql.catalog.questions import busy
from headrace.sources.mysql.catalog.table_def import TableLook, apply_rules, definition, schema_of
from headrace.sources.mysql.ddl.volatile import volatile_stored
from headrace.sources.mysql.declaration import ACCEPT, CHUNKS, HANDOFF, UNLOGGED_CASCADES
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.preflight.grants import Rights, check_locking, check_reading, rights
from headrace.sources.mysql.preflight.hosting import translate
from headrace.sources.mysql.preflight.script import script
from headrace.sources.mysql.preflight.server import (
    as_integer,
    check_server,
    check_version,
    logs_generated,
)
from headrace.sources.mysql.preflight.tables import (
    ChosenTables,
    check_chunks,
    check_numbers,
    check_table,
    choose,
)
from headrace.sources.mysql.preflight.variables import variables
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import identify, prove, prove_kind
from headrace.sources.mysql.session.statements import MysqlConnection
from headrace.sources.mysql.types.columns import is_hashable
from headrace.sources.mysql.upstream import MysqlUpstream


@dataclass(frozen=True, slots=True)
class MysqlWish:
    """A wish to mirror tables. Nothing of ours is made upstream for it."""

    patterns: Sequence[str]
    connections: int = 4  # that the copy may open
    accepts_cascades: bool = False  # the user guarantees that unlogged cascades change no row
    in_chunks: bool = False  # copy tables in chunks if their keys allow it
    identity: Json | None = None  # of the source that the lake already mirrors
    flavour: Flavour | None = None  # from the address
    rules: ColumnRules = NO_RULES  # of columns

    @classmethod
    def of(cls, wish: Wish, flavour: Flavour | None = None) -> MysqlWish:
        """Read a wish."""
        accepts = wish.options.get(UNLOGGED_CASCADES.name) == ACCEPT
        in_chunks = wish.options.get(HANDOFF.name) == CHUNKS
        known = wish.upstream
        rules = ColumnRules.of(wish.options) if known is None else MysqlUpstream.of(known).rules
        return cls(wish.patterns, wish.connections, accepts, in_chunks, wish.identity, flavour, rules)


_CASE = "lower_case_table_names"


def examine(address: MysqlAddress, wish: MysqlWish) -> CheckReport:
    """Check everything that the wish depends on. Raises only if the server cannot be asked at all."""
    with closing(connect(address, role="check")) as connection:
        findings = list(check_version(connection.release))
        findings += _identity(connection, wish)
        ours = rights(connection)
        chosen = _choose(connection, wish.patterns)
        for error in chosen.unopened_tables.values():
            raise error
        looks, known = _look_at(connection, chosen.names)
        findings += unknown_tables(wish.rules, _there(connection, wish.rules))
        findings += [*chosen.findings, *_of_tables(connection, looks, ours, chosen.named_tables, wish)]
        looks = [apply_rules(each, wish.rules) for each in looks]
        refused = _refused_tables(findings)
        tables = [each for each in looks if each.name not in refused]
        findings += check_chunks(tables) if wish.in_chunks else []
        findings += check_server(connection, ours, sum(known[each.name].bytes for each in tables))
        findings = translate(connection, findings)
        rates = changes_an_hour(connection, [each.name for each in tables])
    return CheckReport(
        version=as_integer(connection.release.number),
        tables=tuple(definition(each) for each in tables),
        sizes={each.name: replace(known[each.name], changes_an_hour=rates.get(each.name)) for each in tables},
        findings=in_order(findings),
        script=tuple(script(in_order(findings))),
        named_tables=chosen.named_tables,
        costly_ddl={each.name: said for each in tables if (said := costly_ddl(each))},
    )


def _identity(connection: MysqlConnection, wish: MysqlWish) -> list[Finding]:
    found = identify(connection)
    try:
        if wish.flavour is not None:
            prove_kind(found, wish.flavour)
        if wish.identity is not None:
            prove(found, wish.identity)
    except HeadraceError as error:
        return [Finding(Level.ERROR, error)]
    return []


def examine_tables(
    connection: MysqlConnection, names: Sequence[TableName], wish: MysqlWish
) -> ExaminedTables:
    """Examine the tables that exist: those that can be mirrored as wished, and the errors of the others.

    A table that the server does not show now has an error of its own, and does not hold up the others.
    """
    looks, hidden = read_visible_tables(connection, names)
    there = [MysqlCandidate(each.name, each.kind, each.engine) for each in looks.values()]
    chosen = choose([str(name) for name in looks], there, lower=False)
    fit = [looks[name] for name in chosen.names]
    findings = [*chosen.findings, *_of_tables(connection, fit, rights(connection), chosen.named_tables, wish)]
    errors = {**_reasons(findings), **{name: busy(name, None) for name in hidden}}
    fit = [apply_rules(each, wish.rules) for each in fit]
    return ExaminedTables({each.name: definition(each) for each in fit if _is_definable(each)}, errors)


def _is_definable(each: TableLook) -> bool:
    """Tell whether the lake can have all columns of the table; if not, a check has an error for it."""
    try:
        schema_of(each)
    except HeadraceError:
        return False
    return True


def list_unmirrored(
    connection: MysqlConnection, wish: MysqlWish, mirrored_tables: Collection[TableName]
) -> dict[TableName, HeadraceError | None]:
    """Find the tables that the patterns match and are not mirrored, each with its error or None.

    A mirror calls this beside its work: a table that the server does not show now may be absent until later.
    """
    chosen = _choose(connection, wish.patterns, without=mirrored_tables, whole=False)
    looks, hidden = read_visible_tables(connection, chosen.names)
    there = list(looks.values())
    findings = [*chosen.findings, *_of_tables(connection, there, rights(connection), frozenset(), wish)]
    # A ruled table that was renamed would come in under its new name, with all of its columns.
    missing = unknown_tables(wish.rules, _there(connection, wish.rules))
    found: dict[TableName, HeadraceError | None] = dict.fromkeys(looks, missing[0].error if missing else None)
    found |= {**chosen.unopened_tables, **{name: busy(name, None) for name in hidden}}
    return dict(sorted({**found, **_reasons(findings)}.items()))


def _choose(
    connection: MysqlConnection,
    patterns: Sequence[str],
    *,
    without: Collection[TableName] = (),
    whole: bool = True,
) -> ChosenTables:
    """Find the tables that the patterns name, except those that are known already."""
    lower = variables(connection, [_CASE])[_CASE] != "0"
    spelled = [pattern.lower() for pattern in patterns] if lower else patterns
    among = candidates(connection, spelled, whole=whole)
    return choose(patterns, among, lower=lower, without=without, databases=databases(connection))


def _look_at(
    connection: MysqlConnection, names: Sequence[TableName]
) -> tuple[list[TableLook], dict[TableName, TableSize]]:
    """The looks at tables, by name, and their sizes; raises if another session is altering one."""
    looks, known = look(connection, names), sizes(connection, names)
    for name in names:
        if name not in looks or name not in known:
            raise busy(name, None)
    return [looks[name] for name in names], known


def _of_tables(
    connection: MysqlConnection,
    looks: Sequence[TableLook],
    ours: Rights,
    meant: frozenset[TableName],
    wish: MysqlWish,
) -> list[Finding]:
    """Collect the findings on the tables and on our rights on them."""
    names = [each.name for each in looks]
    rules = [found for each in looks for found in _check_rule(each, wish.rules)]
    looks = [apply_rules(each, wish.rules) for each in looks]
    cascades, generated = wish.accepts_cascades, logs_generated(connection.release)
    findings = [
        found
        for each in looks
        for found in check_table(each, accepts_cascades=cascades, logs_generated=generated)
    ]
    findings += [*check_numbers(names), *check_reading(looks, ours), *check_locking(connection, names, ours)]
    # A rule names its table, however the table was chosen.
    return [finding.for_swept(meant | wish.rules.tables.keys()) for finding in [*rules, *findings]]


def _check_rule(look: TableLook, rules: ColumnRules) -> list[Finding]:
    unfit = [
        hash_type_error(look.name, column.name, column.data_type)
        for column in look.columns
        if rules.hashes(look.name, column.name) and not is_hashable(column.column_type)
    ]
    if unfit:
        return [Finding(Level.ERROR, unfit[0], table=look.name)]
    return check_rule(rules, look.name, [column.name for column in look.columns], look.key)


def _there(connection: MysqlConnection, rules: ColumnRules) -> list[TableName]:
    """The tables that we may see in the databases of ruled tables."""
    among = candidates(connection, [str(name) for name in rules.tables], whole=False) if rules.tables else ()
    return [each.name for each in among]


def _refused_tables(findings: Iterable[Finding]) -> frozenset[TableName]:
    return frozenset(name for finding in findings if finding.refuses for name in finding.concerned_tables)


def _reasons(findings: Sequence[Finding]) -> dict[TableName, HeadraceError]:
    """The first error of each refused table."""
    reasons: dict[TableName, HeadraceError] = {}
    for finding in findings:
        for name in finding.concerned_tables if finding.refuses else ():
            reasons.setdefault(name, finding.error)
    return reasons


_NO_KEY = "written again in the lake by every added column: it has no key"


def costly_ddl(look: TableLook) -> tuple[str, ...]:
    """Say which DDL is costly for this table, the costliest first."""
    return tuple(_costs(look))


def _costs(look: TableLook) -> Iterator[str]:
    computed = ", ".join(f'"{row.name}"' for row in look.columns if row.generation)
    if any(row.generation == "s" for row in look.columns):
        yield f"copied anew by every change of its columns: it has stored generated ones ({computed})"
    elif computed:
        yield f"copied anew by every column that is defined anew: it has generated ones ({computed})"
    if named := ", ".join(f'"{name}"' for name in volatile_stored(look.columns)):
        yield (
            "copied anew by every ALTER TABLE, CREATE INDEX, DROP INDEX and OPTIMIZE TABLE: the session that "
            f"does it may compute stored columns anew, by settings of its own ({named})"
        )
    if not look.key:
        yield _NO_KEY
