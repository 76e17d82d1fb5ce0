"""Our publication: make it, add tables, take them out; and the tables that a publication sends in part.

The publication is made when tables are chosen, before the slot (`objects` says why in this order). A
publication of the user's is never altered or dropped here.

Some minor releases have a bug: before 15.13, 16.9 and 17.5 a walsender may decode a transaction that was open
while its table was added to the publication. It then goes on treating the table as unpublished, and leaves
out changes of *later* transactions, which W (`writers`) does not cover. A first run is safe: its slot is made
after its publication, and waits for all open transactions. A table that is added to a running stream is not
safe, whatever command adds it.

A publication sends a table in part if it has a row filter for it, a column list, or both. A publication of
the user's is used as it is, and the lake then holds the part. This module finds, before anything is copied,
whether the server would then refuse the application's own UPDATE and DELETE, or end the stream. In our own
publication nobody has asked for a part but by the rules of columns (`column_rules`), so `capture` adds the
table again, as those have it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType

from headrace.core.errors import HeadraceError, Misconfigured, Transient
from headrace.core.names import TableName, quote_identifier
from headrace.sources.contract.column_rules import (
    NO_RULES,
    ColumnRules,
    check_rule,
    hash_type_error,
    rule_flaw,
)
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.postgres.catalog.definitions import read_entries_by_name
from headrace.sources.postgres.catalog.locks import of_publication
from headrace.sources.postgres.catalog.table_def import TableEntry, deciding, identity_flaw
from headrace.sources.postgres.session.ddl import execute_ddl
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.session.stream_errors import publication_missing
from headrace.sources.postgres.types.columns import HASHABLE
from headrace.sources.shared.refusals import LockTimeout, PrivilegeMissing

LATE_TABLES_WHOLE = {15: 150013, 16: 160009, 17: 170005}


def late_tables_lost(version: int) -> Misconfigured | None:
    """The reason why no table can be added to a running stream of this server; None if tables can."""
    major = version // 10000
    whole = LATE_TABLES_WHOLE.get(major, 0)
    if version >= whole:
        return None
    return Misconfigured(
        "PG_VERSION_LOSES",
        f"PostgreSQL {major}.{version % 10000} may leave out changes of a table that is added to a source "
        "which runs",
        hint=f"first install PostgreSQL {major}.{whole % 10000} or a later minor release; "
        "nothing has to be copied for that",
    )


VIA_ROOT = "publish_via_partition_root"
_WITHDRAWAL_LOCK = "200ms"  # it is tried again


Lists = Mapping[TableName, Sequence[str]]  # the columns that are sent of tables that are sent in part


def publication_statement(
    name: str, tables: Sequence[TableName], *, via_root: bool = True, lists: Lists = MappingProxyType({})
) -> str:
    """The statement that makes our publication, for us or for a user with more privileges to run.

    With `via_root` partitions are sent under the name of their root. Ours always has it, even without a
    partitioned table: altering it later would make every membership a new one.
    """
    statement = f"CREATE PUBLICATION {quote_identifier(name)} FOR TABLE {_list_names(tables, lists)}"
    return f"{statement} WITH ({VIA_ROOT} = true)" if via_root else statement


def ensure_publication(
    connection: Session,
    name: str,
    tables: Sequence[TableName],
    *,
    make: bool = True,
    anew: Collection[TableName] = (),
    patience: str | None = None,
    rules: ColumnRules = NO_RULES,
) -> None:
    """Make sure that our publication exists and holds these tables; committed when this returns.

    Each table's identity is checked once its lock is held: without a usable one the application's own UPDATE
    and DELETE would fail from the commit on. Without `make` a missing publication is an error: a new one
    would hide the changes that were not published meanwhile. Tables in `anew` are added again, which removes
    a filter or a column list that somebody set. `patience` is the timeout for the lock of each table. `rules`
    leave out columns.
    """
    with _altering(connection, tables, patience):
        held = published_tables(connection, name)
        if held is None and not make:
            raise publication_missing(f'"{name}"')
        leaving = [table for table in tables if held is not None and table in held and table in anew]
        missing = [table for table in tables if held is None or table not in held or table in leaving]
        if held is not None and missing:
            _refuse_by_leaf(connection, name, missing)
        if missing and not make and (lost := late_tables_lost(connection.info.server_version)) is not None:
            raise lost
        if leaving:
            _execute(
                connection, f"ALTER PUBLICATION {quote_identifier(name)} DROP TABLE {_list_names(leaving)}"
            )
        lists = _lists(connection, missing, rules)
        if held is None:
            _execute(connection, publication_statement(name, tables, lists=lists))
        elif missing:
            addition = _list_names(missing, lists)
            _execute(connection, f"ALTER PUBLICATION {quote_identifier(name)} ADD TABLE {addition}")
        _refuse_without_identity(connection, missing)


def withdraw(connection: Session, name: str, tables: Sequence[TableName]) -> None:
    """Take tables out of our publication; a table that it does not hold is skipped."""
    with _altering(connection, tables):
        held = published_tables(connection, name) or frozenset()
        leaving = [table for table in tables if table in held]
        if leaving:
            statement = f"ALTER PUBLICATION {quote_identifier(name)} DROP TABLE {_list_names(leaving)}"
            _execute(connection, statement, then="")


def withdraw_by_oid(connection: Session, name: str, oids: Collection[int]) -> None:
    """Take tables out of our publication, whatever their names are now; give up after a short wait."""
    rows = query(
        connection,
        "SELECT c.oid::int8, n.nspname, c.relname FROM pg_publication p"
        " JOIN pg_publication_rel r ON r.prpubid = p.oid"
        " JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE p.pubname = %s AND c.oid = ANY (%s::oid[])",
        [name, list(oids)],
    )
    if leaving := [TableName(schema, table) for _, schema, table in rows]:
        with _altering(connection, leaving, patience=_WITHDRAWAL_LOCK):
            statement = f"ALTER PUBLICATION {quote_identifier(name)} DROP TABLE {_list_names(leaving)}"
            _execute(connection, statement, then="")


# For a root its partitions count: the rows are written there.
_WITHOUT_IDENTITY = """
WITH RECURSIVE written(member, oid, listed) AS (
    SELECT r.prrelid, r.prrelid,
           (SELECT array_agg(a.attname) FROM pg_attribute a
             WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs::int2[]))
      FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
     WHERE p.pubname = %s
    UNION ALL
    SELECT w.member, i.inhrelid, w.listed FROM written w JOIN pg_class c ON c.oid = w.oid AND c.relkind = 'p'
      JOIN pg_inherits i ON i.inhparent = w.oid)
SELECT DISTINCT w.member::int8 FROM written w JOIN pg_class c ON c.oid = w.oid
 WHERE c.relkind = 'r' AND CASE c.relreplident
       WHEN 'f' THEN w.listed IS NOT NULL OR
                     %s AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
                                       AND NOT a.attisdropped AND a.attgenerated <> '')
       ELSE NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
                           AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid
                                              AND a.attnum = ANY (i.indkey) AND a.attname <> ALL (w.listed))
                           AND CASE c.relreplident WHEN 'i' THEN i.indisreplident
                                                   WHEN 'd' THEN i.indisprimary ELSE false END) END
"""


def without_identity(connection: Session, name: str) -> frozenset[int]:
    """The tables, by oid, whose UPDATE and DELETE the server refuses because our publication names them."""
    generated = connection.info.server_version >= 180000  # columns that the server does not publish
    return frozenset(oid for (oid,) in query(connection, _WITHOUT_IDENTITY, [name, generated]))


@contextmanager
def _altering(
    connection: Session, tables: Sequence[TableName], patience: str | None = None
) -> Iterator[None]:
    """A transaction that alters our publication; if it waits too long for a lock, the error names the holder.

    Its commit waits for no standby (`session.connection.PINS`), and no longer than any statement. `patience`
    is the timeout for each table's lock, if the session's own is too long.
    """
    try:
        query(connection, "BEGIN")
        if patience is not None:
            query(connection, f"SET LOCAL lock_timeout = '{patience}'".encode())
        yield
        query(connection, "COMMIT")
    except HeadraceError as error:
        _roll_back(connection)
        if isinstance(error, LockTimeout):
            raise of_publication(connection, _oids(connection, tables), error) from None
        raise


def _roll_back(connection: Session) -> None:
    """Roll back; if the connection is lost, the server does it."""
    with suppress(Transient):
        query(connection, "ROLLBACK")


def _oids(connection: Session, tables: Sequence[TableName]) -> dict[int, TableName]:
    found = query(
        connection,
        "SELECT pg_catalog.to_regclass(name)::oid::bigint"
        " FROM unnest(%s::text[]) WITH ORDINALITY t(name, place) ORDER BY place",
        [[str(table) for table in tables]],
    )
    return {oid: table for (oid,), table in zip(found, tables, strict=True) if oid is not None}


def _list_names(tables: Sequence[TableName], lists: Lists = MappingProxyType({})) -> str:
    # ONLY: children of an inheritance parent are tables of their own for us.
    return ", ".join(f"ONLY {table}{_columns(lists.get(table, ()))}" for table in tables)


def _columns(names: Sequence[str]) -> str:
    return f" ({', '.join(map(quote_identifier, names))})" if names else ""


def _lists(connection: Session, tables: Sequence[TableName], rules: ColumnRules) -> Lists:
    """The columns to publish of the tables that have a rule."""
    tables = [table for table in tables if table in rules.tables]
    found = {}
    for table, entry in read_entries_by_name(connection, tables).items():
        if (flaw := unruly(entry, rules)) is not None:
            raise flaw
        found[table] = columns_to_send(entry, rules)
    return found


def columns_to_send(entry: TableEntry, rules: ColumnRules) -> list[str]:
    """The columns that the rules let through."""
    return [a.name for a in entry.attributes if not a.generation and rules.sends(entry.name, a.name)]


def keeps_rules(entry: TableEntry, rules: ColumnRules) -> bool:
    """Tell whether the publication sends what the table's rule lets through, and nothing else."""
    if entry.name not in rules.tables:
        return True
    return {column.name for column in entry.columns} == set(columns_to_send(entry, rules))


def unruly(entry: TableEntry, rules: ColumnRules) -> HeadraceError | None:
    """The reason why a table's rule can't be kept; None if it can."""
    flaw = rule_flaw(rules, entry.name, [a.name for a in entry.attributes], entry.identity.key)
    unfit = [a for a in entry.attributes if rules.hashes(entry.name, a.name) and a.type not in HASHABLE]
    if flaw is None and unfit:
        return hash_type_error(entry.name, unfit[0].name, unfit[0].type_text)
    if flaw is not None or entry.name not in rules.tables or not entry.identity.full:
        return flaw
    return Misconfigured(
        "PG_COLUMNS_FULL",
        f"no column can stay out of table {entry.name}: its replica identity is FULL",
        detail="the server then wants all columns in the publication",
        hint=f"ALTER TABLE {entry.name} REPLICA IDENTITY DEFAULT, with a primary key",
    )


def rule_findings(entry: TableEntry, rules: ColumnRules) -> list[Finding]:
    """The findings of a table's rule, if it has one."""
    if (flaw := unruly(entry, rules)) is not None:
        return [Finding(Level.ERROR, flaw, table=entry.name)]
    names = [a.name for a in entry.attributes]
    return check_rule(rules, entry.name, names, entry.identity.key)


def publication_oid(connection: Session, name: str) -> int:
    """The oid of a publication, which differs if one of that name is made again; 0 if there is none."""
    rows = query(connection, "SELECT oid::int8 FROM pg_publication WHERE pubname = %s", [name])
    return int(rows[0][0]) if rows else 0


def published_tables(connection: Session, name: str) -> frozenset[TableName] | None:
    """The tables that the publication lists; None if there is no such publication."""
    rows = query(
        connection,
        "SELECT p.puballtables, p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate,"
        " n.nspname, c.relname FROM pg_publication p"
        " LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid"
        " LEFT JOIN pg_class c ON c.oid = r.prrelid"
        " LEFT JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s",
        [name],
    )
    if not rows:
        return None
    if rows[0][0] or not rows[0][1]:
        raise Misconfigured(
            "PG_PUBLICATION_ALTERED",
            f'the publication "{name}" is not as headrace made it',
            hint=f"ALTER PUBLICATION {quote_identifier(name)} SET (publish = 'insert, update, delete, "
            "truncate'), or drop it and run again",
        )
    return frozenset(TableName(schema, table) for _, _, schema, table in rows if schema is not None)


# The roots among these tables, if the publication sends partitions by themselves.
_ROOTS_BY_LEAF = """
SELECT n.nspname, c.relname FROM pg_publication p, unnest(%s::text[], %s::text[]) w(schema, name)
  JOIN pg_namespace n ON n.nspname = w.schema
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
 WHERE p.pubname = %s AND NOT p.pubviaroot AND c.relkind = 'p' ORDER BY 1, 2
"""


def _refuse_by_leaf(connection: Session, name: str, tables: Sequence[TableName]) -> None:
    """Refuse a root if an older release made our publication: it sends partitions by themselves."""
    asked = [[table.schema for table in tables], [table.name for table in tables], name]
    for schema, table in query(connection, _ROOTS_BY_LEAF, asked):
        raise Misconfigured(
            "PG_PUBLICATION_LEAVES",
            f'our publication "{name}" sends partitions by themselves, and not {TableName(schema, table)}',
            detail="an older release made it",
            hint=f"ALTER PUBLICATION {quote_identifier(name)} SET ({VIA_ROOT} = true), and try again; "
            "the tables that it holds are then copied anew, each by itself",
        )


def _refuse_without_identity(connection: Session, tables: Sequence[TableName]) -> None:
    for table, entry in read_entries_by_name(connection, tables).items():
        flaw = identity_flaw(entry, connection.info.server_version)
        if flaw is not None:
            raise Misconfigured(
                "PG_IDENTITY_MISSING",
                f"table {table} has no identity by which UPDATE and DELETE could be published",
                detail=flaw,
                hint=f"ALTER TABLE {table} ADD PRIMARY KEY (...), or "
                f"ALTER TABLE {table} REPLICA IDENTITY FULL",
            )


def _execute(
    connection: Session, statement: str, *, then: str = "; then give its name with --publication"
) -> None:
    """Run DDL of ours; if we lack a privilege, the error has the statement for a user who has it."""
    try:
        execute_ddl(connection, statement)
    except PrivilegeMissing as error:
        raise Misconfigured(
            "PG_PUBLICATION_PRIVILEGE",
            "the server does not let this user make, alter or drop the publication",
            detail=error.detail,
            hint=f"let {'its owner' if not then else 'the owner of the tables'} run: {statement}{then}",
        ) from None


def drop_publication(connection: Session, name: str) -> bool:
    """Drop our publication; False if there is none."""
    if not query(connection, "SELECT 1 FROM pg_publication WHERE pubname = %s", [name]):
        return False
    with _altering(connection, ()):
        _execute(connection, f"DROP PUBLICATION {quote_identifier(name)}", then="")
    return True


def limits(entry: TableEntry) -> str | None:
    """Name the rows and columns that the publication leaves out; None if it sends the whole table."""
    left_out = {a.name for a in entry.attributes if not a.generation} - {a.name for a in entry.columns}
    said = [
        "rows that its row filter does not let through" if entry.filter else "",
        f"columns that its list lacks: {_quote(left_out)}" if left_out else "",
    ]
    return "; ".join(filter(None, said)) or None


def check_part(connection: Session, name: str, entry: TableEntry) -> Iterator[Finding]:
    """Check that the part of a table that the user's publication sends can be followed exactly."""
    left_out = limits(entry)
    if left_out is not None:
        yield Finding(
            Level.INFO,
            Misconfigured(
                "PG_TABLE_IN_PART",
                f'the publication "{name}" sends a part of table {entry.name}, which the lake will hold',
                detail=f"it leaves out {left_out}",
                hint="nothing to do, if that is meant; else publish it without",
            ),
            table=entry.name,
        )
    yield from _filter_identity(connection, entry)
    yield from _list_identity(name, entry)
    yield from _filter_privileges(connection, entry)


def part_flaw(connection: Session, name: str, entry: TableEntry) -> Finding | None:
    """The first reason why the part of a table can't be followed."""
    return next((each for each in check_part(connection, name, entry) if each.level is Level.ERROR), None)


def _filter_identity(connection: Session, entry: TableEntry) -> Iterator[Finding]:
    member = entry.filter
    if member is None or entry.identity.full:
        return
    asked = {a.name for a in entry.attributes if a.number in member.filter_columns}
    lacking = sorted(asked - set(entry.identity.key))
    if not lacking:
        return
    possible = _could_be_full(entry, connection.info.server_version)
    mend = (f"ALTER TABLE {entry.name} REPLICA IDENTITY FULL",) if possible else ()
    yield Finding(
        Level.ERROR,
        Misconfigured(
            "PG_FILTER_IDENTITY",
            f"the row filter of table {entry.name} asks for what its replica identity lacks: "
            "the server refuses its UPDATE and DELETE",
            detail=_quote(lacking),
            hint=hint_of(mend) or "publish it with a filter on its key, or without one",
        ),
        mend=mend,
        table=entry.name,
    )


def _could_be_full(entry: TableEntry, version: int) -> bool:
    """Tell whether REPLICA IDENTITY FULL is possible: it allows no column list, and no unsent column."""
    unsent = {a.name for a in entry.attributes} - {a.name for a in entry.columns}
    return not _is_listed(entry) and not (unsent and version >= 180000)


def _is_listed(entry: TableEntry) -> bool:
    return any(member.columns is not None for member in deciding(entry.memberships))


def _list_identity(name: str, entry: TableEntry) -> Iterator[Finding]:
    if not _is_listed(entry):
        return
    sent = {a.name for a in entry.columns}
    lacking = [column for column in entry.identity.key if column not in sent]
    if not lacking and not entry.identity.full:
        return
    mend: tuple[str, ...] = ()
    if not lacking and entry.identity.key:
        mend = (f"ALTER TABLE {entry.name} REPLICA IDENTITY DEFAULT",)
    elif lacking and not entry.identity.full and entry.filter is None and not entry.ancestors:
        alter = f"ALTER PUBLICATION {quote_identifier(name)}"
        listed = [a.name for a in entry.attributes if a.name in {*sent, *lacking}]
        columns = ", ".join(map(quote_identifier, listed))
        mend = (f"{alter} DROP TABLE ONLY {entry.name}", f"{alter} ADD TABLE ONLY {entry.name} ({columns})")
    yield Finding(
        Level.ERROR,
        Misconfigured(
            "PG_COLUMNS_IDENTITY",
            f"the column list of table {entry.name} does not go with its replica identity: "
            "the server refuses its UPDATE and DELETE",
            detail=f"it lacks {_quote(lacking)}" if lacking else "with identity FULL no list is allowed",
            hint=hint_of(mend) or "publish it with all columns of its key, or without a list",
        ),
        mend=mend,
        table=entry.name,
    )


# The functions in the tree of the filter's expression, those of operators too. Printing the expression as SQL
# would lock the table.
_DENIED = r"""
SELECT DISTINCT f.oid::pg_catalog.regprocedure::text
  FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
 CROSS JOIN LATERAL pg_catalog.regexp_matches(r.prqual::text, ':(?:op)?funcid ([0-9]+) ', 'g') named(id)
  JOIN pg_catalog.pg_proc f ON f.oid = named.id[1]::oid
 WHERE p.pubname = %s AND r.prrelid = %s AND NOT pg_catalog.has_function_privilege(f.oid, 'EXECUTE')
 ORDER BY 1
"""


def _filter_privileges(connection: Session, entry: TableEntry) -> Iterator[Finding]:
    """Check our rights on the filter's functions: the server evaluates the filter with our rights."""
    if entry.filter is None:
        return
    user = quote_identifier(connection.info.user)
    denied = [
        str(function) for (function,) in query(connection, _DENIED, [entry.filter.publication, entry.oid])
    ]
    if not denied:
        return
    mend = tuple(f"GRANT EXECUTE ON FUNCTION pg_catalog.{function} TO {user}" for function in denied)
    yield Finding(
        Level.ERROR,
        Misconfigured(
            "PG_FILTER_PRIVILEGE",
            f"the user {user} may not evaluate the row filter of table {entry.name}",
            detail=", ".join(denied),
            hint=hint_of(mend),
        ),
        mend=mend,
        table=entry.name,
    )


def _quote(names: Collection[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
