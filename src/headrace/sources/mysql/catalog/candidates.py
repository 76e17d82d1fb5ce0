"""Candidates: what a pattern may name. Preflight matches patterns against them.

The server shows what we have a privilege on, and nothing else: of a table that is missing here it cannot be
told whether it exists. MariaDB opens every table that it is asked about, so only databases are asked about
that a pattern can mean; a table that it cannot open comes with the reason in place of its engine.

Sizes: how big tables are, to cut their copies and to show progress. Both are estimates of the server.

MySQL remembers such figures for a day, in a table of its own. It is asked for those of now,
and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName
from headrace.sources.contract.values import TableSize
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
    engine: str | None  # None of a view, and of a table that the server cannot open now
    why_unopened: str | None = None  # why not, in the server's words


def candidates(
    connection: MysqlConnection, patterns: Sequence[str], *, whole: bool = True
) -> list[MysqlCandidate]:
    """Every table and view of the databases that the patterns may mean; system databases are none.

    Raises where the server leaves out a table that it cannot show now, if the `whole` is wanted.
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
    """The databases that we may see; system databases are none."""
    rows = query(connection, "SELECT schema_name FROM information_schema.schemata")
    names = sorted(str(name) for (name,) in rows)
    return [name for name in names if name.lower() not in _SYSTEM]


def _named_databases(texts: Sequence[str], databases: Iterable[str]) -> list[str]:
    """The databases in which one of the patterns may name something, by taking it or by leaving it out."""
    patterns: list[Pattern] = []
    for each in texts:
        try:
            patterns.append(Pattern.parse(each))
        except Misconfigured:
            continue  # it is refused where the patterns are matched
    return [
        database
        for database in databases
        if any(known.schema is None or known.schema.fullmatch(database) for known in patterns)
    ]


_UNKNOWN = (1 << 32) - 1  # bytes, as MySQL says of a table that another session alters: no number of pages


def sizes(connection: MysqlConnection, names: Iterable[TableName]) -> dict[TableName, TableSize]:
    """The bytes of these tables' rows, without indexes, and about how many rows they are.

    Of a table that another session alters now the server says nothing: it is absent.
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
