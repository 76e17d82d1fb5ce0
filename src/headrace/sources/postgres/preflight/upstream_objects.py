"""Preflight of publication and slot: the user's own as they are, or whether ours can be made.

`unfit_tables` and `unfit_members` check tables that are mirrored already, before they are copied anew. Every
fact that made a table fit may have changed since: the publication may send less, a filter may be set, the
table may be unlogged, its key or a privilege may be gone. Each table has an error of its own, which does not
concern the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.names import TableName, quote_identifier
from headrace.sources.contract.column_rules import NO_RULES, ColumnRules
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.postgres.catalog.definitions import PostgresCandidate
from headrace.sources.postgres.catalog.definitions import read_entries as look_at
from headrace.sources.postgres.catalog.table_def import PARTITIONED, TableEntry, identity_flaw
from headrace.sources.postgres.preflight.roots import inside_root
from headrace.sources.postgres.preflight.tables import Access, access, check_leaves, check_table, choose
from headrace.sources.postgres.preflight.wish import PostgresWish
from headrace.sources.postgres.publication import (
    VIA_ROOT,
    check_part,
    keeps_rules,
    limits,
    publication_statement,
    rule_findings,
)
from headrace.sources.postgres.session.connection import application_name
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.session.stream_errors import slot_active, slot_taken
from headrace.sources.postgres.slot import check_slot, slot_state
from headrace.sources.postgres.upstream import PostgresUpstream

ACTIONS = "insert, update, delete, truncate"
THEIRS = "headrace"  # the suggested name of a publication that a user with more privileges makes for us


@dataclass(frozen=True, slots=True)
class Publication:
    """The options of a publication that hold for all its tables."""

    complete: bool  # it publishes every action
    via_root: bool


# --- publication --------------------------------------------------------------------------------


def check_publication(
    connection: Session,
    name: str,
    tables: Sequence[TableEntry],
    hopeless: frozenset[TableName] = frozenset(),
    rules: ColumnRules = NO_RULES,
) -> Iterator[Finding]:
    """Check the user's publication: it is used as it is, so it must send everything.

    No suggested statement publishes `hopeless` tables: no statement makes them fit.
    """
    found = read_publication(connection, name)
    yield from check_members(connection, name, found, tables, hopeless, rules=rules)


def check_members(
    connection: Session,
    name: str,
    publication: Publication | None,
    tables: Sequence[TableEntry],
    hopeless: frozenset[TableName] = frozenset(),
    *,
    ours: bool = False,
    rules: ColumnRules = NO_RULES,
) -> Iterator[Finding]:
    """Check a publication that has been read already; it is None if none has this name."""
    quoted = quote_identifier(name)
    if publication is None:
        fit, flawed = _by_identity(connection, tables, hopeless)
        mend = (_creation(name, fit, tables),)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_PUBLICATION_UNKNOWN",
                f'there is no publication "{name}" in this database',
                hint=hint_of(mend),
            ),
            mend=mend,
            then=_additions(name, flawed),
        )
        return
    if not tables:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_PUBLICATION_EMPTY",
                f'the publication "{name}" holds none of the tables that the patterns name',
                hint=f"ALTER PUBLICATION {quoted} ADD TABLE ..., or widen the patterns",
            ),
        )
    yield from _whole(name, publication, tables)
    for table in tables:
        yield from _membership(connection, name, table, table.name in hopeless, ours, rules)


def _by_identity(
    connection: Session, tables: Iterable[TableEntry], hopeless: frozenset[TableName]
) -> tuple[list[TableName], list[TableName]]:
    """The tables that a publication may hold now, and the tables whose UPDATE and DELETE it would break."""
    version = connection.info.server_version
    fit: list[TableName] = []
    flawed: list[TableName] = []
    for table in tables:
        if table.name not in hopeless:
            (fit if identity_flaw(table, version) is None else flawed).append(table.name)
    return fit, flawed


def _creation(name: str, fit: Sequence[TableName], tables: Iterable[TableEntry]) -> str:
    via_root = any(entry.kind == PARTITIONED for entry in tables)
    if fit:
        return publication_statement(name, fit, via_root=via_root)
    return f"CREATE PUBLICATION {quote_identifier(name)}" + (f" WITH ({VIA_ROOT} = true)" if via_root else "")


def _additions(name: str, tables: Sequence[TableName]) -> tuple[str, ...]:
    """A statement for each table: one that still has no identity then does not keep the others out."""
    return tuple(f"ALTER PUBLICATION {quote_identifier(name)} ADD TABLE ONLY {table}" for table in tables)


def read_publication(connection: Session, name: str) -> Publication | None:
    """Read a publication; None if there is none of this name."""
    rows = query(
        connection,
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot"
        " FROM pg_publication WHERE pubname = %s",
        [name],
    )
    return Publication(*rows[0]) if rows else None


def _whole(name: str, publication: Publication, tables: Sequence[TableEntry]) -> Iterator[Finding]:
    alter = f"ALTER PUBLICATION {quote_identifier(name)} SET"
    if not publication.complete:
        mend = (f"{alter} (publish = '{ACTIONS}')",)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_PUBLICATION_PARTIAL",
                f'the publication "{name}" leaves out some kinds of changes: the mirror would be wrong',
                hint=hint_of(mend),
            ),
            mend=mend,
        )
    roots = [entry for entry in tables if entry.kind == PARTITIONED]
    if roots and not publication.via_root:
        mend = (f"{alter} ({VIA_ROOT} = true)",)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_PUBLICATION_ROOT",
                f'the publication "{name}" sends partitions by themselves, not under the name of their root',
                hint=f"{hint_of(mend)}, or choose the partitions by a pattern",
            ),
            mend=mend,
            tables=tuple(entry.name for entry in roots),
        )


def _membership(
    connection: Session, name: str, entry: TableEntry, hopeless: bool, ours: bool, rules: ColumnRules
) -> Iterator[Finding]:
    alter = f"ALTER PUBLICATION {quote_identifier(name)}"
    mend: tuple[str, ...]
    if not entry.memberships:
        # Publishing a table without an identity would break the application's UPDATE and DELETE.
        flawed = identity_flaw(entry, connection.info.server_version) is not None
        addition = (f"{alter} ADD TABLE ONLY {entry.name}",)
        mend = () if flawed else addition
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_TABLE_UNPUBLISHED",
                f'table {entry.name} is not in the publication "{name}"',
                hint=hint_of(mend) or f"give it an identity first; then {hint_of(addition)}",
            ),
            mend=mend,
            then=addition if flawed and not hopeless else (),
            table=entry.name,
        )
        return
    if entry.is_sent_above:
        yield inside_root(entry.name, None) if ours else _sent_above(name, entry)
        return
    if not ours:
        yield from _sent_too_much(name, entry, rules)
        yield from check_part(connection, name, entry)
        return
    if entry.name in rules.tables:
        whole = entry.filter is None and keeps_rules(entry, rules)
        limited = None if whole else "what its rule of columns does not say"
    else:
        limited = limits(entry)
    if limited is None:
        return
    mend = (f"{alter} DROP TABLE ONLY {entry.name}", f"{alter} ADD TABLE ONLY {entry.name}")
    yield Finding(
        Level.ERROR,
        Misconfigured(
            "PG_TABLE_LIMITED",
            f'our publication "{name}" does not send table {entry.name} as it is',
            detail=f"it leaves out {limited}",
            hint=hint_of(mend),
        ),
        mend=mend,
        table=entry.name,
    )


def _sent_too_much(name: str, entry: TableEntry, rules: ColumnRules) -> Iterator[Finding]:
    """The user's publication sends a column that must not leave: we never alter it."""
    columns = rules.forbidden(entry.name, [column.name for column in entry.columns])
    if columns:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_COLUMNS_SENT",
                f'the publication "{name}" sends columns of table {entry.name} that must not leave',
                detail=", ".join(f'"{column}"' for column in columns),
                hint=f"ALTER PUBLICATION {quote_identifier(name)} DROP TABLE {entry.name}; then ADD TABLE "
                f"{entry.name} (...) with the other columns",
            ),
            table=entry.name,
        )


def _sent_above(name: str, entry: TableEntry) -> Finding:
    mend = (f"ALTER PUBLICATION {quote_identifier(name)} SET ({VIA_ROOT} = false)",)
    return Finding(
        Level.ERROR,
        Misconfigured(
            "PG_PUBLICATION_ROOT",
            f'the publication "{name}" sends the changes of {entry.name} under the name of its root',
            hint=f"choose the root in its place, or {hint_of(mend)}",
        ),
        mend=mend,
        table=entry.name,
    )


def check_making(
    connection: Session,
    tables: Sequence[TableEntry],
    rights: Mapping[int, Access],
    named_tables: frozenset[TableName] = frozenset(),
    refused_tables: frozenset[TableName] = frozenset(),
    hopeless: frozenset[TableName] = frozenset(),
) -> Iterator[Finding]:
    """Check that this user can make our own publication; it can't hold tables that others own."""
    user = quote_identifier(connection.info.user)
    foreign = [entry for entry in tables if not rights[entry.oid].owner]
    own = [entry for entry in tables if rights[entry.oid].owner and entry.name not in refused_tables]
    ((may_create, database),) = query(
        connection,
        "SELECT has_database_privilege(current_database(), 'CREATE'), current_database()",
    )
    if foreign:
        offered = [entry for entry in tables if entry.name not in hopeless]
        yield _foreign(connection, foreign, offered, named_tables, alone=not own)
    if own and not may_create:
        mend = (f"GRANT CREATE ON DATABASE {quote_identifier(database)} TO {user}",)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_PUBLICATION_PRIVILEGE",
                f"the user {user} may not make a publication in this database",
                hint=hint_of(mend),
            ),
            mend=mend,
        )


def _foreign(
    connection: Session,
    foreign: Sequence[TableEntry],
    tables: Sequence[TableEntry],
    meant: frozenset[TableName],
    *,
    alone: bool,
) -> Finding:
    """Report tables that only their owner can publish: an error if one is meant, or if all are such."""
    names = tuple(entry.name for entry in foreign)
    mend, then = _theirs(connection, tables)
    option = f"--publication {THEIRS}"
    use = f"use {option}"
    error = alone or bool(meant & set(names))
    return Finding(
        Level.ERROR if error else Level.WARNING,
        Misconfigured(
            "PG_PUBLICATION_PRIVILEGE",
            f"only the owner of a table can publish it, and {quote_identifier(connection.info.user)} "
            f"does not own {len(names)} of them",
            detail=", ".join(str(name) for name in names[:5]),
            hint=f"let their owner run: {hint_of(mend)}; then {use}" if mend else use,
        ),
        mend=mend,
        tables=names,
        leaves_out=not error,
        then=then,
        option=option,
    )


def _theirs(connection: Session, tables: Sequence[TableEntry]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The owner's statements for one publication of all tables; they also work if it exists already."""
    if read_publication(connection, THEIRS) is None:
        fit, flawed = _by_identity(connection, tables, frozenset())
        return (_creation(THEIRS, fit, tables),), _additions(THEIRS, flawed)
    there = look_at(connection, [each.oid for each in tables], [THEIRS]).values()
    lacking = [each for each in there if not each.memberships]
    fit, flawed = _by_identity(connection, lacking, frozenset())
    return _additions(THEIRS, fit), _additions(THEIRS, flawed)


# --- slot ---------------------------------------------------------------------------------------


def check_own_slot(connection: Session, wish: PostgresWish, database: str) -> Iterator[Finding]:
    """Check the user's slot."""
    if wish.slot is None:
        return
    state = slot_state(connection, wish.slot)
    if state is None:
        literal = wish.slot.replace("'", "''")
        mend = (f"SELECT pg_create_logical_replication_slot('{literal}', 'pgoutput')",)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_SLOT_UNKNOWN",
                f'there is no replication slot "{wish.slot}" on this server',
                hint=hint_of(mend),
            ),
            mend=mend,
        )
        return
    try:
        check_slot(wish.slot, state, database)
    except HeadraceError as error:
        yield Finding(Level.ERROR, error)
    if state.active_pid is not None:
        yield _read_already(connection, wish.slot, state.active_pid)


def _read_already(connection: Session, slot: str, pid: int) -> Finding:
    """The finding of a slot that is being read: an error unless a receiver of ours is letting it go."""
    rows = query(connection, "SELECT application_name FROM pg_stat_activity WHERE pid = %s", [pid])
    if rows and rows[0][0] != application_name(f"receiver {slot}"):
        return Finding(Level.ERROR, slot_taken(slot, pid, f'application "{rows[0][0]}"'))
    return Finding(Level.WARNING, slot_active(slot, pid, "it is being read now"))


def unfit_tables(
    connection: Session, entries: Sequence[TableEntry], rules: ColumnRules
) -> dict[TableName, HeadraceError]:
    """The tables that cannot be mirrored as they are now, whatever publication holds them."""
    rights = access(connection, [entry.oid for entry in entries])
    # A table that was dropped meanwhile has no rights: the next look will miss it.
    there = [entry for entry in entries if entry.oid in rights]
    found = {entry.name: _flaw(connection, entry, rights[entry.oid], rules) for entry in there}
    return {name: error for name, error in found.items() if error is not None}


def unfit_members(
    connection: Session, upstream: PostgresUpstream, entries: Sequence[TableEntry]
) -> dict[TableName, HeadraceError]:
    """The tables that the publication does not send as it should; `entries` were read through it.

    Ours sends all that the rules of columns let through. One of the user's may send a part, if that can be
    followed.
    """
    if not entries:
        return {}
    name, ours, rules = upstream.publication, upstream.owns_publication, upstream.rules
    whole = read_publication(connection, name)
    found = {
        entry.name: _first(check_members(connection, name, whole, [entry], ours=ours, rules=rules))
        for entry in entries
    }
    return {name: error for name, error in found.items() if error is not None}


def _flaw(connection: Session, entry: TableEntry, rights: Access, rules: ColumnRules) -> HeadraceError | None:
    candidate = PostgresCandidate(entry.oid, entry.name, entry.kind, entry.persistence)
    _, findings = choose([str(entry.name)], [candidate])
    user, version = connection.info.user, connection.info.server_version
    findings += check_table(entry, rights, user, version)
    return _first([*findings, *rule_findings(entry, rules), *check_leaves(connection, [entry], user)])


def _first(findings: Iterable[Finding]) -> HeadraceError | None:
    """The first finding with which its table can't be mirrored."""
    return next((finding.error for finding in findings if finding.level is Level.ERROR), None)
