"""Candidates: the tables and views that a pattern may name. Preflight matches patterns against them.

The server shows only objects on which we have a privilege. So if a table is missing here, it may exist all
the same. MariaDB opens every table that it is asked about, so we ask only about databases that a pattern can
mean. A table that it cannot open has no engine, and the reason in its comment.

`sizes` estimates the sizes of tables, to cut their copies and to show progress. MySQL keeps such figures for
a day in a table of its own. We ask for fresh ones, and then it stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.names import TableName
from headrace.sources.contract.values import COUNTED_SECONDS, TableSize
from headrace.sources.mysql.catalog.questions import ask, number, of_tables, text
from headrace.sources.mysql.session.statements import MysqlConnection, Value, query
from headrace.sources.shared.patterns import Pattern

BASE_TABLE = "BASE TABLE"
_SYSTEM = frozenset(("information_schema", "mysql", "performance_schema", "sys"))


@dataclass(frozen=True, slots=True)
class MysqlCandidate:
    """A table or a view that a pattern may name."""

    name: TableName
    kind: str  # information_schema.tables.table_type
    engine: str | None  # None: a view, or a table that the server cannot open now
    why_unopened: str | None = None  # the reason, in the server's words


def candidates(
    connection: MysqlConnection, patterns: Sequence[str], *, whole: bool = True
) -> list[MysqlCandidate]:
    """Every table and view of the databases that the patterns may mean, without system databases.

    With `whole` it raises if the server leaves out a table that it cannot show now.
    """
    put = ask if whole else query
    rows = [
        row
        for database in _named_databases(patterns, databases(connection))
        for row in put(
            connection,
            "SELECT table_schema, table_name, table_type, engine, IF(engine IS NULL, table_comment, '')"
            " FROM information_schema.tables WHERE table_schema = %s",
            [database],
        )
    ]
    return sorted((_candidate(*row) for row in rows), key=lambda each: each.name)


def _candidate(database: Value, name: Value, kind: Value, engine: Value, comment: Value) -> MysqlCandidate:
    unopened = str(comment) if kind == BASE_TABLE and engine is None else None
    return MysqlCandidate(TableName(str(database), str(name)), str(kind), text(engine), unopened)


def databases(connection: MysqlConnection) -> list[str]:
    """The databases that we may see, without system databases."""
    rows = query(connection, "SELECT schema_name FROM information_schema.schemata")
    names = sorted(str(name) for (name,) in rows)
    return [name for name in names if name.lower() not in _SYSTEM]


def _named_databases(texts: Sequence[str], databases: Iterable[str]) -> list[str]:
    """The databases in which a pattern may match tables, to mirror them or to leave them out."""
    patterns: list[Pattern] = []
    for each in texts:
        try:
            patterns.append(Pattern.parse(each))
        except Misconfigured:
            continue  # the matching of patterns will refuse it
    return [
        database
        for database in databases
        if any(known.schema is None or known.schema.fullmatch(database) for known in patterns)
    ]


_UNKNOWN = (1 << 32) - 1  # MySQL's size of a table that another session is altering


def sizes(connection: MysqlConnection, names: Iterable[TableName]) -> dict[TableName, TableSize]:
    """The bytes of these tables' rows, without indexes, and their number, estimated.

    A table that another session is altering is absent: the server gives no figures for it.
    """
    if not connection.release.is_mariadb:
        query(connection, "SET SESSION information_schema_stats_expiry = 0")
    rows = of_tables(
        connection,
        "SELECT table_schema, table_name, data_length, table_rows"
        " FROM information_schema.tables WHERE {named} AND table_type <> 'VIEW'",
        names,
    )
    known = {name: (number(length), number(count)) for name, (length, count) in rows}
    return {
        name: TableSize(length, count)
        for name, (length, count) in known.items()
        if length is not None and count is not None and length != _UNKNOWN
    }


def changes_an_hour(connection: MysqlConnection, names: Iterable[TableName]) -> dict[TableName, float]:
    """The rate of changes to these tables since the server's start; empty if it may not or cannot say.

    Within `COUNTED_SECONDS` of its start there is no rate: the tables may just have been loaded.
    """
    try:
        [(_, uptime)] = query(connection, "SHOW GLOBAL STATUS LIKE 'Uptime'")
        seconds = float(str(uptime))
        if seconds < COUNTED_SECONDS:
            return {}
        rows = dict(
            of_tables(
                connection,
                "SELECT table_schema, table_name, changes FROM (SELECT object_schema AS table_schema,"
                " object_name AS table_name, count_insert + count_update + count_delete AS changes"
                " FROM performance_schema.table_io_waits_summary_by_table) counts WHERE {named}",
                names,
            )
        )
    except HeadraceError:
        return {}
    return {name: 3600 * float(number(count) or 0) / seconds for name, (count,) in rows.items()}
