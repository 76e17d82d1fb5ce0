"""The look at tables in the catalog as they are now, some hundreds of them in a few statements.

`table_def` says what a look holds. The servers have these traps:

* MariaDB shows foreign keys in `referential_constraints` only to users with more than SELECT. Every user
finds their
  columns in `key_column_usage`, and their rules only in SHOW CREATE TABLE.
* MySQL prints the expression of a generated column like the inside of a literal, with escapes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.core.names import TableName
from headrace.sources.mysql.catalog.questions import MysqlTableBusy, number, of_tables, text
from headrace.sources.mysql.catalog.table_def import ColumnRow, TableLook
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.session.statements import MysqlConnection, Value, query, quote
from headrace.sources.shared.refusals import LockTimeout, PrivilegeMissing, StatementOverruled, TableGone

_COLUMNS = """
SELECT table_schema, table_name, column_name, ordinal_position, column_type, data_type, character_set_name,
       collation_name, is_nullable, extra, generation_expression, numeric_precision, numeric_scale,
       datetime_precision, {srs_id}, FIND_IN_SET('select', privileges) > 0
  FROM information_schema.columns WHERE {{named}}
"""
_EXTRA = 7  # the place of `extra` behind the two names of a table
_KEYS = """
SELECT table_schema, table_name, index_name, seq_in_index,
       IF(index_name = 'PRIMARY' OR (sub_part IS NULL AND index_type = 'BTREE'), column_name, NULL)
  FROM information_schema.statistics WHERE {named} AND non_unique = 0
"""
_TABLES = """
SELECT table_schema, table_name, table_type, engine, table_collation
  FROM information_schema.tables WHERE {named} AND table_type <> 'VIEW'
"""
_FOREIGN_KEYS = """
SELECT DISTINCT table_schema, table_name
  FROM information_schema.key_column_usage WHERE {named} AND referenced_table_name IS NOT NULL
"""
# The names and texts in a CREATE TABLE: all parts that a person chose.
_CHOSEN = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_FOREIGN_KEY = re.compile(r"CONSTRAINT `(\d+)` FOREIGN KEY \([^)]*\) REFERENCES \S+ \([^)]*\)([A-Z ]*)")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "Z": "\x1a"}
_CHANGES_ROWS = re.compile(r"CASCADE|SET NULL|SET DEFAULT")


class Keys(NamedTuple):
    """The keys of a table: whether it has a primary key, and all unique keys, the primary one first."""

    primary: bool
    unique: tuple[tuple[str, ...], ...]


def look(connection: MysqlConnection, names: Iterable[TableName]) -> dict[TableName, TableLook]:
    """Look at these tables; tables that are gone, and views, are absent."""
    wanted = list(names)
    tables = dict(of_tables(connection, _TABLES, wanted))
    columns, hidden, counting = _columns(connection, tables)
    keys = _keys(connection, columns)
    cascades = _cascades(connection, columns)
    unclear = [name for name in tables if name not in columns or name not in keys]
    gone = set(unclear).difference(name for name, _ in of_tables(connection, _TABLES, unclear))
    return {
        name: TableLook(
            name=name,
            kind=str(kind),
            engine=str(engine),
            columns=tuple(columns.get(name, ())),
            primary=name in keys and keys[name].primary,
            keys=keys[name].unique if name in keys else (),
            cascades=cascades.get(name, ()),
            counting=counting.get(name, ""),
            readable=name in columns and name not in hidden,
            charset=charset_of_collation(text(collation) or ""),
        )
        for name, (kind, engine, collation) in tables.items()
        if name not in gone  # dropped between two of these queries
    }


def charset_of_collation(collation: str) -> str:
    """The charset of a collation: the collation's name begins with it."""
    return (_newer_name(collation) or "").partition("_")[0]


def read_visible_tables(
    connection: MysqlConnection, names: Sequence[TableName]
) -> tuple[dict[TableName, TableLook], frozenset[TableName]]:
    """The visible tables, and the names of those that the server does not show now."""
    try:
        return look(connection, names), frozenset()
    except (MysqlTableBusy, LockTimeout, StatementOverruled, TableGone):
        if len(names) == 1:
            return {}, frozenset(names)
    looks: dict[TableName, TableLook] = {}
    hidden: frozenset[TableName] = frozenset()
    for half in (names[: len(names) // 2], names[len(names) // 2 :]):
        found, unseen = read_visible_tables(connection, half)
        looks, hidden = looks | found, hidden | unseen
    return looks, hidden


def _columns(
    connection: MysqlConnection, names: Iterable[TableName]
) -> tuple[dict[TableName, list[ColumnRow]], set[TableName], dict[TableName, str]]:
    """The columns of each table in order; the tables with a column that we may not read; the AUTO_INCREMENT
    columns."""
    columns: dict[TableName, list[ColumnRow]] = defaultdict(list)
    hidden: set[TableName] = set()
    counting: dict[TableName, str] = {}
    asked = _COLUMNS.format(srs_id="NULL" if connection.release.is_mariadb else "srs_id")
    for name, (*said, readable) in of_tables(connection, asked, names):
        columns[name].append(_column(said, inner=connection.release.flavour is Flavour.MYSQL))
        if "auto_increment" in str(said[_EXTRA]).lower():
            counting[name] = str(said[0])
        if not readable:
            hidden.add(name)
    for found in columns.values():
        found.sort(key=lambda column: column.ordinal)
    return columns, hidden, counting


def _column(values: Sequence[Value], *, inner: bool) -> ColumnRow:
    name, ordinal, column_type, data_type, charset, collation, nullable, extra, expression, *numbers = values
    generated = re.search(r"(VIRTUAL|STORED|PERSISTENT) GENERATED", str(extra))
    precision, scale, fraction, srs_id = map(number, numbers)
    formula = text(expression) or ""
    return ColumnRow(
        name=str(name),
        ordinal=number(ordinal) or 0,
        column_type=str(column_type),
        data_type=str(data_type),
        charset=_newer_name(charset),
        collation=_newer_name(collation),
        nullable=nullable == "YES",
        generation="" if generated is None else ("v" if generated[1] == "VIRTUAL" else "s"),
        expression=_ESCAPED.sub(_unescape, formula) if inner else formula,
        invisible="INVISIBLE" in str(extra),
        precision=precision,
        scale=scale,
        fraction=fraction,
        srs_id=srs_id,
    )


def _newer_name(charset_or_collation: Value) -> str | None:
    """The name since MySQL 8.0.30, where utf8 is called utf8mb3."""
    name = text(charset_or_collation)
    return None if name is None else re.sub(r"\Autf8(?=_|\Z)", "utf8mb3", name)


def _unescape(escaped: re.Match[str]) -> str:
    return _ESCAPES.get(escaped[1], escaped[1])


def _keys(connection: MysqlConnection, columns: dict[TableName, list[ColumnRow]]) -> dict[TableName, Keys]:
    """The unique keys of each table that consist of whole columns which cannot be NULL."""
    indexes: dict[TableName, dict[str, list[tuple[int, str | None]]]] = defaultdict(lambda: defaultdict(list))
    for name, (index, at, column) in of_tables(connection, _KEYS, columns):
        indexes[name][str(index)].append((number(at) or 0, text(column)))
    return {
        name: Keys("PRIMARY" in unique, tuple(_whole(unique, _never_null(columns[name]))))
        for name, unique in indexes.items()
    }


def _never_null(columns: Iterable[ColumnRow]) -> set[str]:
    """The columns that a key may have; the server identifies no rows by virtual columns."""
    return {row.name for row in columns if not row.nullable and row.generation != "v"}


def _whole(
    unique: dict[str, list[tuple[int, str | None]]], never_null: set[str]
) -> Iterator[tuple[str, ...]]:
    for index in sorted(unique, key=lambda index: (index != "PRIMARY", index)):
        # A part that is an expression has no column here. Nor has a prefix or a hash, except in the primary
        # key.
        columns = [column for _, column in sorted(unique[index]) if column in never_null]
        if len(columns) == len(unique[index]):
            yield tuple(column for column in columns if column is not None)


def _cascades(
    connection: MysqlConnection, columns: dict[TableName, list[ColumnRow]]
) -> dict[TableName, tuple[str, ...]]:
    """The foreign keys of each table by which its rows may change without an event in the log.

    A user with rights on columns alone does not see them. The columns of such a table are removed, as if the
    server hid them.
    """
    if _are_logged(connection):
        return {}
    found: dict[TableName, tuple[str, ...]] = {}
    for name, _ in list(of_tables(connection, _FOREIGN_KEYS, columns)):
        try:
            shown = query(connection, f"SHOW CREATE TABLE {quote(name.schema)}.{quote(name.name)}")
        except PrivilegeMissing:
            del columns[name]
            continue
        found[name] = cascading(str(shown[0][1]))
    return found


def _are_logged(connection: MysqlConnection) -> bool:
    """Tell whether cascades are logged as row events: since MySQL 9.6, unless the engine executes them."""
    rows = query(connection, "SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")
    return bool(rows) and rows[0][1] == "OFF"


def cascading(statement: str) -> tuple[str, ...]:
    """The foreign keys in a CREATE TABLE that may change or remove the table's rows, in order."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[0].startswith("'"):
            return "''"
        names.append(match[0][1:-1].replace("``", "`"))
        return f"`{len(names) - 1}`"

    found = _FOREIGN_KEY.findall(_CHOSEN.sub(number, statement))
    return tuple(names[int(at)] for at, rules in found if _CHANGES_ROWS.search(rules))
