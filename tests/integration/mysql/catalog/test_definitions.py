"""Looks at real tables: which columns and keys they have, and which changes a later look betrays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.decode.mysql import table_map
from headrace.decode.mysql.framing import TABLE_MAP
from headrace.sources.mysql.catalog import definitions
from headrace.sources.mysql.catalog.candidates import candidates, sizes
from headrace.sources.mysql.catalog.definitions import look
from headrace.sources.mysql.catalog.table_def import TableLook, definition, recorded_look, schema_of
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.statements import MysqlConnection
from headrace.sources.mysql.types.columns import positions
from headrace_testing.mysql import Database, Server
from tests.integration.mysql.types.binlogs import Tail

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", params=("mysql", "mariadb"))
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, Server)
    return found


@pytest.fixture
def db(server: Server) -> Iterator[Database]:
    server.start()
    with server.database() as made:
        yield made


@pytest.fixture
def session(db: Database) -> Iterator[MysqlConnection]:
    with closing(connect(MysqlAddress.parse(db.url(user="mirror")), role="test")) as made:
        yield made


# What a table is made of, and the columns by which its rows are told apart.
IDENTITIES = [
    ("a int, b int, PRIMARY KEY (b, a)", ("b", "a")),
    ("v varchar(50), PRIMARY KEY (v(10))", ("v",)),
    ("b blob NOT NULL, UNIQUE (b(10))", ()),
    ("a int NOT NULL, b blob NOT NULL, UNIQUE (a, b(10))", ()),
    ("a int NOT NULL, b int, UNIQUE (a, b)", ()),
    ("a int NOT NULL, b int NOT NULL, UNIQUE z (a), UNIQUE y (b)", ()),
    ("a int NOT NULL, b int NOT NULL, PRIMARY KEY (b), UNIQUE `A` (a)", ("b",)),
    ("a int NOT NULL, UNIQUE (a DESC)", ("a",)),
    ("a int NOT NULL, i int NOT NULL DEFAULT 1 INVISIBLE, UNIQUE (i)", ("i",)),
    ("e enum('a','it''s') PRIMARY KEY", ("e",)),
    ("e enum('a','') PRIMARY KEY, u int NOT NULL UNIQUE", ()),
    ("c varchar(9) CHARACTER SET cp932 PRIMARY KEY", ()),
    ("a int", ()),
]
OF_MYSQL = [
    ("a int NOT NULL, UNIQUE ((a + 1))", ()),
    ("a int, s int AS (a + 1) STORED NOT NULL, UNIQUE (s)", ("s",)),
    ("e enum('') PRIMARY KEY, a int NOT NULL, UNIQUE (a) INVISIBLE", ()),
    ("a int, v int AS (a + 1) VIRTUAL NOT NULL, UNIQUE (v)", ()),
]
OF_MARIADB = [
    ("e enum('') PRIMARY KEY, a int NOT NULL, UNIQUE (a) IGNORED", ()),
    ("b longtext NOT NULL, UNIQUE (b)", ()),
]


def test_rows_are_told_apart_by_a_key_that_says_so(db: Database, session: MysqlConnection) -> None:
    cases = [*IDENTITIES, *(OF_MARIADB if db.server.flavour.is_mariadb else OF_MYSQL)]
    for number, (columns, _) in enumerate(cases):
        db.execute(f"CREATE TABLE t{number} ({columns})")
    looks = look(session, [TableName(db.name, f"t{number}") for number in range(len(cases))])
    found = {columns: looks[TableName(db.name, f"t{n}")].key for n, (columns, _) in enumerate(cases)}
    assert found == dict(cases)


def test_the_log_names_the_key_that_rows_are_told_apart_by_until_it_is_dropped(
    db: Database, session: MysqlConnection
) -> None:
    mariadb = db.server.flavour.is_mariadb
    cases = [*IDENTITIES, *(OF_MARIADB if mariadb else OF_MYSQL)]
    keyed = {f"t{number}": columns for number, (columns, key) in enumerate(cases) if key}
    for table, columns in keyed.items():
        db.execute(f"CREATE TABLE {table} ({columns})")
    db.execute("CREATE TABLE bare (a int NOT NULL, UNIQUE u (a))")
    looks = look(session, [TableName(db.name, table) for table in (*keyed, "bare")])
    schemas = {name.name: schema_of(found) for name, found in looks.items()}
    tail = Tail.of(db.server)
    for table in keyed:
        db.execute(f"INSERT IGNORE INTO {table} () VALUES ()")
    db.execute("INSERT INTO bare VALUES (1)")
    db.execute("DROP INDEX u ON bare")
    db.execute("INSERT INTO bare VALUES (1)")
    fits = [
        positions(table_map.layout(body, mariadb=mariadb), schemas[table_map.names(body)[1]]) is not None
        for kind, body in tail.events()
        if kind == TABLE_MAP
    ]
    assert fits == [True] * (len(keyed) + 1) + [False]


def test_a_key_that_the_server_made_is_seen_where_it_is_hidden(mysql_server: Server) -> None:
    mysql_server.start()
    with mysql_server.database() as db:
        with db.connect(init_command="SET SESSION sql_generate_invisible_primary_key = ON") as maker:
            maker.cursor().execute("CREATE TABLE t (v int)")
        mysql_server.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF")
        try:
            with closing(connect(MysqlAddress.parse(db.url(user="mirror")), role="test")) as session:
                (seen,) = look(session, [TableName(db.name, "t")]).values()
        finally:
            mysql_server.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = DEFAULT")
    assert [column.name for column in seen.columns] == ["my_row_id", "v"]
    assert seen.key == ("my_row_id",)


SAME = [
    "ALTER TABLE t ADD INDEX i (v)",
    "ALTER TABLE t COMMENT 'x', AUTO_INCREMENT 77",
    "ALTER TABLE t ALTER v SET DEFAULT 'y'",
    "ALTER TABLE t MODIFY v varchar(10) DEFAULT 'y' COMMENT 'x'",
    "ANALYZE TABLE t",
    "OPTIMIZE TABLE t",
    "TRUNCATE TABLE t",
]
OTHER = [
    "ALTER TABLE t ADD COLUMN w int FIRST",
    "ALTER TABLE t DROP COLUMN w",
    "ALTER TABLE t MODIFY v varchar(11)",
    "ALTER TABLE t MODIFY v varchar(11) CHARACTER SET latin1",
    "ALTER TABLE t MODIFY v varchar(11) CHARACTER SET latin1 COLLATE latin1_bin",
    "ALTER TABLE t MODIFY v varchar(11) NOT NULL",
    "ALTER TABLE t MODIFY e enum('a','b','c')",
    "ALTER TABLE t RENAME COLUMN v TO v2",
    "ALTER TABLE t DROP COLUMN g, ADD COLUMN g int AS (id + 2) VIRTUAL",
    "ALTER TABLE t MODIFY id bigint, DROP PRIMARY KEY",
    "ALTER TABLE t ENGINE = MyISAM",
]


def test_a_look_is_another_after_each_change_that_means_something(
    db: Database, session: MysqlConnection
) -> None:
    db.execute(
        "CREATE TABLE t (id bigint AUTO_INCREMENT PRIMARY KEY, v varchar(10), e enum('a','b'),"
        " g int AS (id * 0 + 1) VIRTUAL)"
        if db.server.flavour.is_mariadb
        else "CREATE TABLE t (id bigint PRIMARY KEY, v varchar(10), e enum('a','b'), g int AS (id) VIRTUAL)"
    )
    name = TableName(db.name, "t")

    def seen() -> TableLook:
        return look(session, [name])[name]

    before = seen()
    for statement in SAME:
        db.execute(statement)
        assert seen() == before, statement
    for statement in OTHER:
        db.execute(statement)
        assert seen() != before, statement
        before = seen()
        assert recorded_look(json.loads(json.dumps(to_record(before)))) == before


def test_names_that_differ_in_case_alone_are_two_tables(db: Database, session: MysqlConnection) -> None:
    db.execute("CREATE TABLE Orders (a int PRIMARY KEY)")
    db.execute("CREATE TABLE orders (b int PRIMARY KEY, c int)")
    names = [TableName(db.name, "Orders"), TableName(db.name, "orders")]
    looks = look(session, names)
    assert {name.name: look.key for name, look in looks.items()} == {"Orders": ("a",), "orders": ("b",)}
    assert look(session, names[:1]).keys() == {names[0]}
    assert len({definition(each).number for each in looks.values()}) == 2


def test_the_longest_names_are_looked_at(db: Database, session: MysqlConnection) -> None:
    longest = "ж" * 64
    db.execute(f"CREATE TABLE `{longest}` (`{longest}` int PRIMARY KEY)")
    (seen,) = look(session, [TableName(db.name, longest)]).values()
    assert definition(seen).schema.key == (longest,)
    assert [each.name.name for each in candidates(session, [f"{db.name}.*"])] == [longest]


def test_sizes_are_those_of_now(db: Database, session: MysqlConnection) -> None:
    name = TableName(db.name, "t")
    db.execute("CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, v varchar(255))")
    small = sizes(session, [name])[name]
    assert small.bytes > 0
    db.execute("INSERT INTO t (v) VALUES (REPEAT('x', 255))")
    for _ in range(11):
        db.execute("INSERT INTO t (v) SELECT v FROM t")
    db.execute("ANALYZE TABLE t")
    grown = sizes(session, [name, TableName(db.name, "gone")])
    assert grown.keys() == {name}
    assert grown[name].bytes > 500_000
    assert 1000 < grown[name].rows < 4000


@pytest.mark.parametrize("question", ["_columns", "_keys"])
def test_a_table_that_is_dropped_during_a_look_is_gone_and_not_hidden(
    db: Database, session: MysqlConnection, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    for name in ("gone", "stays"):
        db.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    ask = getattr(definitions, question)

    def late(*arguments: object) -> object:
        db.execute("DROP TABLE gone")
        return ask(*arguments)

    monkeypatch.setattr(definitions, question, late)
    names = [TableName(db.name, name) for name in ("gone", "stays")]
    assert list(look(session, names)) == names[1:]
