"""The schema check: do tables match their records, and does a difference matter?

    end of the log  ─►  the catalog          the order is the proof

MySQL    DDL on an InnoDB table is one transaction of dictionary and log, and counts as executed once it is
         visible. The end is read first, so the look after it sees all DDL before the end.
MariaDB  DDL changes the catalog and writes its log while it holds the table exclusively. If it lies before
         the end, it has released the table by the time of the look, and the look sees it. Or the server
         leaves the table out of its answer and says so (`catalog.questions`): the table is *locked*.

The look may or may not see DDL behind the end. A look is several statements. With DDL between them it may
show a state that never existed, even a table without columns. It is certain all the same that the table
changed.

    locked    the server does not show the table now
    denied    the same, because we lost a privilege: nothing is known of the table
    changes   the table does not match its record (`differs`)
    news      a difference that means nothing to rows

    differs(last, now)   ──►  None, or the change that gives the stream or the copy another meaning
    is_news(last, now)   ──►  nothing differs, but the next look must be compared with this one

A look holds only what matters to rows (`table_def`), so `differs` compares all of it, with two exceptions: a
unique key that is new, or that does not identify rows; and foreign keys that are gone.

DDL is checked twice. The stream brings it at its place (`alterations`), but not if its session kept it out of
the log (`sql_log_bin = 0`); only this check sees that. Neither server has a table number that every user may
see. So a renamed table counts as gone, and a table that took its name counts as the same table.

The check runs before each mark. It takes no lock, and waits a moment for those of others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from headrace.core.conversion import Conversion, Take
from headrace.core.errors import HeadraceError, Transient
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.core.schema import TableSchema
from headrace.sources.contract.values import Change, ColumnDerivation, SchemaCheck, StatementLog, TableDef
from headrace.sources.mysql.catalog.definitions import read_visible_tables
from headrace.sources.mysql.catalog.questions import denial
from headrace.sources.mysql.catalog.table_def import (
    ColumnRow,
    TableLook,
    apply_rules,
    definition,
    recorded_look,
    schema_of,
)
from headrace.sources.mysql.ddl.evidence import explain
from headrace.sources.mysql.ddl.known_statements import with_statements
from headrace.sources.mysql.ddl.steps import AlterStatement
from headrace.sources.mysql.session import log_end
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.statements import MysqlConnection
from headrace.sources.mysql.upstream import MysqlUpstream
from headrace.sources.shared.refusals import PrivilegeMissing


def differs(last: TableLook, now: TableLook, key: Sequence[str]) -> str | None:
    """Say what changed that matters between two looks at a table whose rows `key` identifies, or None."""
    checks: tuple[tuple[bool, str], ...] = (
        (last.kind != now.kind, f"it is a {now.kind.lower()} now"),
        (last.engine != now.engine, f"its engine changed from {last.engine} to {now.engine}"),
        ((columns := _columns_differ(last.columns, now.columns)) is not None, str(columns)),
        (bool(key) and tuple(key) not in now.keys, "the key that its rows are known by is gone"),
        (bool(key) and last.primary != now.primary, "it was given a primary key, or lost it"),
        (
            not set(now.cascades) <= set(last.cascades),
            "it was given a foreign key that changes rows of it without a word in the log",
        ),
        # It changes no row by itself, but an unlogged statement may have defined a column under it.
        (last.charset not in ("", now.charset), "the charset of its texts by default was changed"),
    )
    return next((what for changed, what in checks if changed), None)


def is_news(last: TableLook, now: TableLook) -> bool:
    """Tell whether a look that does not differ has something new that the next look is compared with."""
    return _passing(last) != _passing(now)


def _passing(look: TableLook) -> tuple[object, ...]:
    return look.keys, look.primary, look.cascades, look.counting, look.charset, look.left_out


def _columns_differ(last: Sequence[ColumnRow], now: Sequence[ColumnRow]) -> str | None:
    before, after = ({column.name: column for column in columns} for columns in (last, now))
    gone = [f'"{name}"' for name in before if name not in after]
    if gone:
        return f"column {', '.join(gone)} was dropped or renamed"
    added = [f'"{name}"' for name in after if name not in before]
    if added:
        return f"column {', '.join(added)} was added"
    for name, column in before.items():
        later = after[name]
        if later.column_type != column.column_type:
            return f'the type of column "{name}" changed from {_show(column)} to {_show(later)}'
        if later != column:
            return f'column "{name}" was altered'
    return None


def _show(column: ColumnRow) -> str:
    """The type without the labels of an enum or a set: labels are the application's data."""
    return column.column_type if column.data_type not in ("enum", "set") else f"{column.data_type}(...)"


def check(
    connection: MysqlConnection,
    upstream: MysqlUpstream,
    records: Mapping[str, TableDef],
    log: StatementLog | None = None,
) -> SchemaCheck:
    """Read the end of the server's log, then look at these tables."""
    end = log_end.position(connection, upstream.log)
    looks, hidden = read_visible_tables(connection, sorted({table.name for table in records.values()}))
    changes, news, locked = _compare(records, _apply_rules(upstream, looks), hidden, log)
    denied: dict[str, PrivilegeMissing] = {}
    if changes:
        doubtful = {key: records[key] for key in changes}
        again, hidden, denied = _looked_again(connection, doubtful)
        _see_whether_stale(connection, doubtful, denied)
        changes, more, still = _compare(doubtful, _apply_rules(upstream, again), hidden, log)
        news, locked = news | more, locked | still
        changes = _awaited_changes(changes, log, log_end.position(connection, upstream.log))
    return SchemaCheck(
        end=end,
        reference=0,
        changes={key: change for key, change in changes.items() if key not in denied},
        news=news,
        locked_tables=locked | denied.keys(),
        denials=denied,
        late_columns=_late_columns(upstream, records, looks),
    )


def _apply_rules(upstream: MysqlUpstream, looks: _Looks) -> _Looks:
    return (
        {name: apply_rules(look, upstream.rules) for name, look in looks.items()}
        if upstream.columns
        else looks
    )


def _late_columns(
    upstream: MysqlUpstream, records: Mapping[str, TableDef], looks: _Looks
) -> dict[str, HeadraceError]:
    rules = upstream.rules
    there = {key: looks[table.name] for key, table in records.items() if table.name in looks}
    names = {key: [column.name for column in look.columns] for key, look in there.items()}
    found = {key: rules.late_error(look.name, names[key]) for key, look in there.items()}
    return {key: error for key, error in found.items() if error is not None}


_Looks = Mapping[TableName, TableLook]
_Compared = tuple[dict[str, Change], dict[str, TableDef], frozenset[str]]


def _compare(
    known: Mapping[str, TableDef], looks: _Looks, hidden: Set[TableName], heard: StatementLog | None
) -> _Compared:
    """The changes, the news, and the tables that the server does not show."""
    changes, news = {}, {}
    for key, table in known.items():
        if table.name in hidden:
            continue
        last, seen = recorded_look(table.details), looks.get(table.name)
        if seen is None or not seen.columns:
            changes[key] = Change("it was dropped or renamed", None)
            continue
        if last.left_out or seen.left_out:
            seen = replace(seen, left_out=tuple(sorted({*last.left_out, *seen.left_out})))
        if heard is None:
            seen = replace(seen, charset=last.charset)  # the stream will bring it with the next mark
        what = differs(last, seen, table.schema.key)
        if heard is not None and heard.effects.get(key) and (found := _follow(table, last, seen, heard, key)):
            if isinstance(found, TableDef):
                news[key] = found
            else:
                changes[key] = replace(found, what=what or "a statement altered it")
        elif what is not None:
            changes[key] = Change(what, _definition(seen))
        elif is_news(last, seen):
            news[key] = replace(table, details=with_statements(to_record(seen), table.details, (), 0))
    return changes, news, frozenset(key for key, table in known.items() if table.name in hidden)


def _follow(
    table: TableDef, last: TableLook, seen: TableLook, heard: StatementLog, key: str
) -> TableDef | Change | None:
    """Follow a table through statements: news if no row changes, else a change; None: not proven."""
    told = heard.effects[key]
    if any(each.steps is None for each in told):
        return None
    statements = [
        (each.time, AlterStatement.parse(each.steps or b"").without(seen.left_out)) for each in told
    ]
    # Hashes of old values say nothing of new ones.
    hashed = {column.name for look in (last, seen) for column in look.columns if column.is_hashed}
    if any(statement.touches(hashed) for _, statement in statements):
        return None
    found = explain(last, seen, table.schema.key, statements)
    if found is None:
        return None
    rows = [(version.conversion.until, version.columns) for version in found.versions]
    details = with_statements(to_record(seen), table.details, rows, heard.after.time)
    schema = replace(schema_of(seen), key=found.key, version=table.schema.version)
    first, *between = (version.conversion for version in found.versions)
    if _holds_the_same(first, table.schema, schema):
        earlier = (*table.schema.at_time(heard.after.time).earlier, first, *between)
        return TableDef(table.name, table.number, replace(schema, earlier=earlier), details)
    until = Position(first.until, "")
    now = TableDef(table.name, table.number, schema, details)
    return Change("", now, derivation=ColumnDerivation(first.parts, until, tuple(between)))


def _holds_the_same(step: Conversion, old: TableSchema, new: TableSchema) -> bool:
    """Tell whether each column has its old place, its old name, and its old form in the lake."""
    before = [(column.name, column.type, column.form) for column in old.columns]
    after = [(column.name, column.type, column.form) for column in new.columns]
    return before == after and step.parts == tuple(map(Take, range(len(before))))


def _awaited_changes(
    changes: Mapping[str, Change], heard: StatementLog | None, end: Position
) -> dict[str, Change]:
    """The changes; up to the log's end after the look, the stream may still tell more of them."""
    hopeless = {
        key
        for key in changes
        if heard is None or any(told.steps is None for told in heard.effects.get(key, ()))
    }
    return {
        key: change
        if key in hopeless or change.now is None or change.derivation
        else replace(change, told_by=end)
        for key, change in changes.items()
    }


def _looked_again(
    connection: MysqlConnection, known: Mapping[str, TableDef]
) -> tuple[_Looks, frozenset[TableName], dict[str, PrivilegeMissing]]:
    """Look again at tables that seem changed, between two proofs that no part of them is hidden from us."""
    denied = _denied_tables(connection, known)
    left = {key: table for key, table in known.items() if key not in denied}
    looks, hidden = read_visible_tables(connection, sorted({table.name for table in left.values()}))
    return looks, hidden, denied | _denied_tables(connection, left)


def _see_whether_stale(
    connection: MysqlConnection, known: Mapping[str, TableDef], denied: Mapping[str, PrivilegeMissing]
) -> None:
    """Raise if a new session is denied less: an old session does not always get a privilege granted again."""
    if not denied:
        return
    with connect(connection.address, role=connection.role) as fresh:
        now = _denied_tables(fresh, {key: known[key] for key in denied})
    if now.keys() < denied.keys():
        raise Transient(
            "MY_SESSION_STALE",
            "this session was denied a right that a new one has",
            detail=f"for {len(denied)} tables, a new one for {len(now)}: a role or our user was made again",
            hint="nothing to do: the connection is made anew",
        )


def _denied_tables(connection: MysqlConnection, known: Mapping[str, TableDef]) -> dict[str, PrivilegeMissing]:
    asked = {
        key: denial(connection, table.name, [column.name for column in table.schema.columns])
        for key, table in known.items()
    }
    return {key: error for key, error in asked.items() if error is not None}


def _definition(seen: TableLook) -> TableDef | None:
    """The table as it is now; None if the lake can't hold it, as if it were gone."""
    try:
        return definition(seen)
    except HeadraceError:
        return None
