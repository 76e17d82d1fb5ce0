"""Both servers keep each value of every pair of types that is listed as pure, under any mode of the session.

A table with a column for each pair, the bounds of its values over its rows. All are altered at once, and
read as a copy reads them, before and behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pytest

from headrace.core.names import TableName
from headrace.decode.mysql import result_rows
from headrace.sources.mysql.catalog.definitions import look
from headrace.sources.mysql.catalog.table_def import ColumnRow
from headrace.sources.mysql.ddl.closed_form import alteration
from headrace.sources.mysql.ddl.steps import Add, AlterStatement
from headrace.sources.mysql.ddl.tokens import Dialect, StatementWords
from headrace.sources.mysql.ddl.values import is_pure, value_before
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.types.columns import column_of, select_expression
from headrace_testing.mysql import Database
from tests.integration.mysql.types.result_sets import packets

pytestmark = pytest.mark.server

_WIDTHS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
TEXTS = ["''", "' '", "'a '", "'é𝄞'", "'plain'", "'0'", "'A'"]
NARROW_TEXTS = ["''", "' '", "'a '", "'é'", "'plain'", "'0'", "'A'"]
BYTES = ["''", "x'00'", "x'0020'", "x'ff'"]
MOMENTS = ["'1970-01-01 00:00:01'", "'2026-02-28 23:59:59'", "'2037-12-31 00:00:00'"]
NUMBERS = ["0", "-1.5", "99999.99", "-99999.99", "0.01"]


def _integers() -> Iterator[tuple[str, str, Sequence[str]]]:
    names = list(_WIDTHS)
    for at, old in enumerate(names):
        low, high = -(1 << _WIDTHS[old] - 1), (1 << _WIDTHS[old] - 1) - 1
        for new in names[at:]:
            yield old, new, [str(low), str(high), "0", "-1"]
            yield f"{old} unsigned", f"{new} unsigned", ["0", str(2 * high + 1)]
            if new != old:
                yield f"{old} unsigned", new, ["0", str(2 * high + 1)]
    yield "int(9) unsigned zerofill", "int unsigned", ["0", "7"]


PAIRS = [
    *_integers(),
    ("decimal(7,2)", "decimal(7,2)", NUMBERS),
    ("decimal(7,2)", "decimal(38,2)", NUMBERS),
    ("decimal(7,2)", "decimal(12,6)", NUMBERS),
    ("decimal(7,2) unsigned", "decimal(9,3)", ["0", "99999.99"]),
    ("float", "double", ["0", "0.1", "-3.4e38", "1e-38", "16777217"]),
    ("float unsigned", "float", ["0", "0.1"]),
    ("bit(5)", "bit(40)", ["0", "31", "7"]),
    ("datetime", "datetime(6)", MOMENTS),
    ("datetime(3)", "datetime(4)", [*MOMENTS, "'2026-01-01 00:00:00.999'"]),
    ("timestamp NULL", "timestamp(3) NULL", MOMENTS),
    ("varchar(9)", "varchar(300)", TEXTS),
    ("varchar(9)", "text", TEXTS),
    ("varchar(9)", "tinytext", TEXTS),
    ("char(9)", "char(50)", TEXTS),
    ("tinytext", "text", TEXTS),
    ("text", "mediumtext", TEXTS),
    ("mediumtext", "longtext", TEXTS),
    ("varchar(9) COLLATE utf8mb4_general_ci", "varchar(9) COLLATE utf8mb4_bin", TEXTS),
    ("varchar(9) CHARACTER SET utf8mb3", "varchar(9) CHARACTER SET utf8mb4", NARROW_TEXTS),
    ("text CHARACTER SET utf8mb3", "text CHARACTER SET utf8mb4", NARROW_TEXTS),
    ("varchar(9) CHARACTER SET ascii", "varchar(12) CHARACTER SET utf8mb3", ["''", "'a '"]),
    ("char(9) CHARACTER SET latin1", "char(10) CHARACTER SET latin1", ["''", "'a'", "'é'"]),
    ("varbinary(9)", "varbinary(40)", BYTES),
    ("varbinary(9)", "blob", BYTES),
    ("tinyblob", "longblob", BYTES),
    ("enum('x','y')", "enum('x','y','z')", ["'x'", "'y'", "0"]),
    ("set('p','q')", "set('p','q','r','s','t','u','v','w','xx')", ["'p'", "'p,q'", "''"]),
    ("enum('x') CHARACTER SET utf8mb3", "enum('x','y') CHARACTER SET utf8mb4", ["'x'", "0"]),
]
UNLISTED = [
    ("int", "smallint"), ("int", "int unsigned"), ("int unsigned", "int"), ("decimal(7,2)", "decimal(7,3)"),
    ("decimal(7,2)", "decimal(8,1)"), ("decimal(20,2)", "decimal(50,2)"), ("double", "float"),
    ("float(7,3)", "double"), ("bit(1)", "bit(2)"), ("binary(3)", "binary(5)"), ("char(3)", "varchar(9)"),
    ("varchar(9)", "char(9)"), ("varchar(9)", "varchar(8)"), ("text", "tinytext"),
    ("varchar(300)", "tinytext"), ("time", "time(3)"), ("timestamp NULL", "datetime"),
    ("datetime", "timestamp NULL"), ("date", "datetime"), ("varchar(9) CHARACTER SET latin1", "varchar(9)"),
    ("varchar(9)", "varchar(9) CHARACTER SET utf8mb3"), ("enum('x','y')", "enum('y','x')"),
    ("enum('x','y')", "enum('x')"), ("enum('x')", "set('x')"), ("set('p','q')", "set('q','p')"),
    ("int", "varchar(20)"), ("varchar(9)", "int"), ("int", "float"), ("varchar(9)", "varbinary(40)"),
    ("int", "decimal(20,0)"), ("year", "int"),
]  # fmt: skip
ADDED = [
    *(
        "int NOT NULL",
        "bigint unsigned NOT NULL",
        "decimal(9,3) NOT NULL",
        "float NOT NULL",
        "bit(9) NOT NULL",
    ),
    *("varchar(9) NOT NULL", "char(9) NOT NULL", "text NOT NULL", "blob NOT NULL", "varbinary(3) NOT NULL"),
    *("enum('b','a') NOT NULL", "set('b','a') NOT NULL", "int", "timestamp NULL", "json", "int DEFAULT NULL"),
    *("int DEFAULT 7", "int DEFAULT '7'", "int DEFAULT -007", "bigint unsigned DEFAULT 18446744073709551615"),
    *(
        "bool DEFAULT true",
        "decimal(9,3) DEFAULT 1.5",
        "decimal(9,3) DEFAULT '-12.125'",
        "double DEFAULT 0.5",
    ),
    *("float DEFAULT 1234.5", "bit(9) DEFAULT 300", "varchar(9) DEFAULT 'it is'", "varchar(9) DEFAULT ''"),
    *("varchar(9) DEFAULT 'a  '", "char(9) DEFAULT 'a  '", "varchar(9) CHARACTER SET utf16 DEFAULT 'a~'"),
    *("enum('b','a') DEFAULT 'a'", "set('b','a') DEFAULT 'a'", "date DEFAULT '2026-02-28'"),
    *("datetime DEFAULT '2026-02-28 01:02:03'", "datetime(6) NOT NULL DEFAULT '2026-02-28 01:02:03'"),
]
NOT_PROVEN = [
    *("date NOT NULL DEFAULT '0000-00-00'", "int DEFAULT 1.5", "varchar(9) DEFAULT 7", "float DEFAULT 0.1"),
    *("bit(9) DEFAULT '1'", "enum('b','a') DEFAULT 'A'", "timestamp NOT NULL DEFAULT '2026-01-01 00:00:00'"),
    *("decimal(9,1) DEFAULT 1.55", "time DEFAULT '01:02:03'", "year DEFAULT 26", "binary(3) DEFAULT 'a'"),
    *("datetime DEFAULT '2026-2-1'", "date DEFAULT '20260201'", "varchar(9) DEFAULT 0x41"),
]


def _rows(database: Database) -> tuple[ColumnRow, ...]:
    name = TableName(database.name, "t")
    with connect(MysqlAddress.parse(database.url()), role="test") as session:
        return look(session, [name])[name].columns


def _values(database: Database, rows: Sequence[ColumnRow]) -> pa.Table:
    columns = [column_of(row.name, row.column_type, row.charset) for row in rows]
    with database.connect() as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION time_zone = '+00:00', character_set_results = utf8mb4")
        found = packets(connection, f"SELECT {', '.join(map(select_expression, columns))} FROM t ORDER BY id")
    return result_rows.decode(found, columns).rows


def _run(database: Database, mode: str, *statements: str) -> None:
    with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET sql_mode = '{mode}', time_zone = '+05:00'")
        for statement in statements:
            cursor.execute(statement)


def _made(database: Database, pairs: Sequence[tuple[str, str, Sequence[str]]]) -> None:
    declared = ", ".join(f"c{i} {old}" for i, (old, _, _) in enumerate(pairs))
    count = max(len(values) for _, _, values in pairs) + 1
    rows = [
        f"({at}, {', '.join(values[at] if at < len(values) else 'NULL' for _, _, values in pairs)})"
        for at in range(count)
    ]
    _run(
        database,
        "",
        f"CREATE TABLE t (id int PRIMARY KEY, {declared}) CHARACTER SET utf8mb4",
        f"INSERT INTO t VALUES {', '.join(rows)}",
    )


@pytest.mark.parametrize("mode", ["", "STRICT_ALL_TABLES", "PAD_CHAR_TO_FULL_LENGTH"])
@pytest.mark.parametrize("database", ["mysql", "mariadb"], indirect=True)
def test_each_pair_that_is_listed_keeps_all_of_its_values(database: Database, mode: str) -> None:
    _made(database, PAIRS)
    rows = _rows(database)
    before = _values(database, rows)
    clauses = ", ".join(f"MODIFY c{i} {new}" for i, (_, new, _) in enumerate(PAIRS))
    _run(database, mode, f"ALTER TABLE t {clauses}")
    later = _rows(database)
    after = _values(database, later)
    for (old, new, _), row, now, was, found in zip(
        PAIRS, rows[1:], later[1:], before.columns[1:], after.columns[1:], strict=True
    ):
        assert is_pure(row, now), (old, new)
        assert found.to_pylist() == was.cast(found.type).to_pylist(), (old, new)


@pytest.mark.parametrize("database", ["mysql", "mariadb"], indirect=True)
def test_no_other_pair_is_taken_for_one(database: Database) -> None:
    _made(database, [(old, "", ()) for old, _ in UNLISTED])
    rows = _rows(database)
    clauses = ", ".join(f"MODIFY c{i} {new}" for i, (_, new) in enumerate(UNLISTED))
    _run(database, "", f"ALTER TABLE t {clauses}")
    pairs = zip(UNLISTED, rows[1:], _rows(database)[1:], strict=True)
    assert [pair for pair, row, now in pairs if is_pure(row, now)] == []


def _added(database: Database, mode: str, definitions: Sequence[str]) -> Mapping[str, tuple[Add, ColumnRow]]:
    clauses = ", ".join(f"ADD c{i} {definition}" for i, definition in enumerate(definitions))
    statement = f"ALTER TABLE t {clauses}"
    _run(database, mode, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", statement)
    found: dict[str, tuple[Add, ColumnRow]] = {}
    dialect = Dialect(database.server.flavour.is_mariadb, 101100)
    for definition, row in zip(definitions, _rows(database)[1:], strict=True):
        said = alteration(StatementWords(f"ALTER TABLE t ADD c {definition}", dialect))
        assert isinstance(said, AlterStatement)
        [step] = said.steps
        assert isinstance(step, Add)
        found[definition] = (step, row)
    return found


@pytest.mark.parametrize("mode", ["", "STRICT_ALL_TABLES"])
@pytest.mark.parametrize("database", ["mysql", "mariadb"], indirect=True)
def test_a_column_that_was_added_holds_what_is_said_of_it(database: Database, mode: str) -> None:
    found = _added(database, mode, ADDED)
    held = _values(database, _rows(database))
    for (definition, (step, row)), column in zip(found.items(), held.columns[1:], strict=True):
        value = value_before(step, row)
        assert value is not None, definition
        assert column.to_pylist() == [value.as_py()] * 2, definition
        assert column.type == value.type, definition


@pytest.mark.parametrize("database", ["mysql", "mariadb"], indirect=True)
def test_of_other_columns_nothing_is_said(database: Database) -> None:
    readable = [definition for definition in NOT_PROVEN if "0x" not in definition]
    found = _added(database, "", readable)
    assert [d for d, (step, row) in found.items() if value_before(step, row) is not None] == []
