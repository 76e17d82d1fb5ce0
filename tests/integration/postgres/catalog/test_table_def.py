"""The look at the catalog: equal while nothing happens, different after every DDL that matters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.names import TableName
from headrace.sources.postgres.catalog import definitions
from headrace.sources.postgres.catalog.definitions import candidates, read_entries, read_entries_by_name
from headrace.sources.postgres.catalog.locks import sizes
from headrace.sources.postgres.catalog.table_def import TableEntry, schema_of
from headrace.sources.postgres.ddl.alteration import differs, is_news
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.refusals import CatalogMoved
from headrace.sources.postgres.session.statements import Session, in_transaction, query
from headrace_testing.postgres import Database
from headrace_testing.stopwatch import least_seconds

pytestmark = pytest.mark.server

TABLE = TableName("public", "t")
SETUP = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TYPE pair AS (x int, feeling mood);
CREATE TYPE moods AS RANGE (subtype = mood);
CREATE DOMAIN cents AS numeric(10, 2);
CREATE TABLE t (id int PRIMARY KEY, name varchar(10), feeling mood, p pair[], price cents, r moods,
                n int NOT NULL, g int GENERATED ALWAYS AS (n + 1) STORED);
CREATE UNIQUE INDEX t_n ON t (n);
CREATE TABLE u (id int PRIMARY KEY, k int NOT NULL);
CREATE TABLE root (id int PRIMARY KEY) PARTITION BY LIST (id);
CREATE PUBLICATION p FOR TABLE t, u;
"""


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    database.execute(SETUP, user="app")
    with closing(connect(PostgresAddress.parse(database.url(user="app")), role="test")) as connection:
        yield connection


def see(session: Session, name: TableName = TABLE) -> TableEntry:
    return read_entries_by_name(session, [name], ["p"])[name]


def test_two_looks_at_an_untouched_table_are_equal(session: Session, database: Database) -> None:
    before = see(session)
    database.execute("INSERT INTO t VALUES (1, 'a', 'sad', NULL, 1, NULL, 1)")
    database.execute("UPDATE t SET name = 'b'; ANALYZE t")
    database.execute("VACUUM t")
    database.execute("CREATE INDEX ON t (name); ALTER TABLE u ADD COLUMN z int")
    assert differs(before, see(session)) is None


@pytest.mark.parametrize("statement", ["TRUNCATE v", "VACUUM FULL v", "CLUSTER v USING v_pkey"])
@pytest.mark.parametrize("toast", [True, False])
def test_a_new_file_node_alone_is_no_difference(
    session: Session, database: Database, statement: str, toast: bool
) -> None:
    database.execute(f"CREATE TABLE v (id int PRIMARY KEY, n int{', s text' if toast else ''})")
    database.execute("ALTER PUBLICATION p ADD TABLE v")
    v = TableName("public", "v")
    before = see(session, v)
    assert (before.toast != 0) == toast
    database.execute(statement)
    now = see(session, v)
    assert now.filenode != before.filenode
    assert differs(before, now) is None
    assert is_news(before, now)
    database.execute("ALTER TABLE v ALTER n TYPE int USING n + 1")
    assert differs(now, see(session, v)) == "it was rewritten"


@pytest.mark.parametrize("toast", [True, False])
def test_a_table_that_was_unlogged_for_a_while_differs(
    session: Session, database: Database, toast: bool
) -> None:
    """The server forbids it where a publication names the table; one of all tables does not hinder it."""
    database.execute("DROP PUBLICATION p; CREATE PUBLICATION p FOR ALL TABLES")
    database.execute(f"CREATE TABLE v (id int PRIMARY KEY{', s text' if toast else ''})")
    v = TableName("public", "v")
    before = see(session, v)
    assert (before.toast != 0) == toast
    database.execute("ALTER TABLE v SET UNLOGGED; INSERT INTO v VALUES (1); ALTER TABLE v SET LOGGED")
    assert differs(before, see(session, v)) == "it was rewritten"
    again = see(session, v)
    database.execute("TRUNCATE v")
    # Without a TOAST table this cannot be told from the above: it stops, though it need not.
    assert differs(again, see(session, v)) == (None if toast else "it was rewritten")


def test_a_look_does_not_depend_on_the_tables_beside_it(session: Session) -> None:
    """The types that t reaches, among them int, are none of u's business."""
    u = TableName("public", "u")
    both = read_entries_by_name(session, [TABLE, u], ["p"])
    assert differs(both[u], see(session, u)) is None
    assert differs(both[TABLE], see(session)) is None


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("ALTER TABLE t ADD COLUMN d int DEFAULT 5", 'column "d" was added'),
        ("ALTER TABLE t DROP COLUMN name", 'column "name" was dropped'),
        ("ALTER TABLE t RENAME COLUMN name TO called", 'column "name" was renamed to "called"'),
        ("ALTER TABLE t DROP COLUMN name, ADD COLUMN name varchar(10)", 'column "name" was dropped'),
        ("ALTER TABLE t ALTER name TYPE char(20)", "from character varying(10) to"),
        ("ALTER TABLE t ALTER name TYPE varchar(10) USING upper(name)", "rewritten"),
        ("ALTER TABLE t RENAME TO v; CREATE TABLE t (LIKE v)", "renamed to public.v"),
        ("ALTER TABLE t REPLICA IDENTITY FULL", "replica identity"),
        ("ALTER TABLE t REPLICA IDENTITY USING INDEX t_n", "replica identity"),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey", "replica identity"),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, n)", "replica identity"),
        ("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'", "a type"),
        ("ALTER TYPE pair ADD ATTRIBUTE y int", "a type"),
        ("ALTER PUBLICATION p DROP TABLE t", "taken out"),
        ("ALTER PUBLICATION p DROP TABLE t; ALTER PUBLICATION p ADD TABLE t", "publication"),
        ("ALTER PUBLICATION p SET TABLE t (id, n), u", "publication"),
        ("ALTER PUBLICATION p SET TABLE t WHERE (id > 5), u", "publication"),
    ],
)
def test_every_ddl_that_changes_what_a_table_means_is_seen(
    session: Session, database: Database, ddl: str, said: str
) -> None:
    before = see(session)
    database.execute(ddl, user="app")
    (now,) = read_entries(session, [before.oid], ["p"]).values()
    assert said in str(differs(before, now))


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("ALTER TABLE u SET UNLOGGED", "logged or unlogged"),
        ("ALTER TABLE root ATTACH PARTITION u FOR VALUES IN (1)", "partition tree"),
    ],
)
def test_a_table_outside_the_publication_is_watched_as_well(
    session: Session, database: Database, ddl: str, said: str
) -> None:
    database.execute("ALTER PUBLICATION p DROP TABLE u; ALTER TABLE root ADD COLUMN k int NOT NULL")
    before = see(session, TableName("public", "u"))
    database.execute(ddl)
    assert said in str(differs(before, see(session, TableName("public", "u"))))


def test_a_definition_holds_no_value_of_a_column_that_is_not_sent(
    session: Session, database: Database
) -> None:
    """Old rows have the default of an added column, which the catalog shows: a lake keeps definitions."""
    database.execute("CREATE TABLE leaf PARTITION OF root FOR VALUES IN (1); INSERT INTO root VALUES (1)")
    listed = "TABLE t (id, n), u, root (id) WITH (publish_via_partition_root = true)"
    database.execute(f"DROP PUBLICATION p; CREATE PUBLICATION p FOR {listed}")
    for table in ("t", "u", "root"):
        database.execute(f"ALTER TABLE {table} ADD COLUMN more text DEFAULT 'canary'")
    held = {name: "canary" in str(see(session, TableName("public", name))) for name in ("t", "u", "root")}
    assert held == {"t": False, "u": True, "root": False}


def test_a_table_that_is_gone_is_absent(session: Session, database: Database) -> None:
    before = see(session)
    database.execute("DROP TABLE t", user="app")
    assert read_entries(session, [before.oid], ["p"]) == {}


def test_a_type_that_is_dropped_beside_a_look_has_it_look_again(
    session: Session, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value that old rows have is printed by its type's function, which looks at the present."""
    add = "CREATE TYPE brief AS ENUM ('a'); ALTER TABLE u ADD b brief DEFAULT 'a'"
    drop = "ALTER TABLE u DROP b; DROP TYPE brief"
    database.execute("INSERT INTO u VALUES (1, 1)", user="app")
    database.execute(add, user="app")
    with in_transaction(session):
        query(session, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        query(session, "SELECT 1")
        database.execute(drop, user="app")
        with pytest.raises(CatalogMoved):
            see(session, TableName("public", "u"))
    # Outside of a transaction nothing but the next statement is lost.
    asked, entries = list[int](), definitions._entries

    def dropped_once(*arguments: Any) -> dict[TableName, TableEntry]:
        asked.append(len(asked))
        if len(asked) == 1:
            raise CatalogMoved("PG_CATALOG_MOVED", "gone", hint="none")
        return entries(*arguments)

    monkeypatch.setattr(definitions, "_entries", dropped_once)
    assert see(session, TableName("public", "u")).attributes
    assert len(asked) == 2


def test_a_table_made_again_under_its_name_is_another(session: Session, database: Database) -> None:
    before = see(session, TableName("public", "u"))
    database.execute(
        "DROP TABLE u; CREATE TABLE u (id int PRIMARY KEY, k int NOT NULL); ALTER PUBLICATION p ADD TABLE u",
        user="app",
    )
    assert "made again" in str(differs(before, see(session, TableName("public", "u"))))


def test_a_table_becomes_a_schema_of_the_lake(session: Session) -> None:
    schema = schema_of(see(session))
    assert schema.names == ("id", "name", "feeling", "p", "price", "r", "n")
    assert schema.key == ("id",)
    assert not schema.full
    types = dict(zip(schema.names, (column.type for column in schema.columns), strict=True))
    assert types["price"] == pa.decimal128(10, 2)
    assert types["p"] == pa.list_(pa.string())
    assert {column.name: column.source_type for column in schema.columns}["name"] == "character varying(10)"


@pytest.mark.parametrize(
    ("ddl", "key", "full"),
    [
        ("ALTER TABLE t REPLICA IDENTITY FULL", ("id",), True),
        ("ALTER TABLE t REPLICA IDENTITY USING INDEX t_n", ("n",), False),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (n, id)", ("n", "id"), False),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id) INCLUDE (n)", ("id",), False),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id) DEFERRABLE", (), False),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey, REPLICA IDENTITY FULL", (), True),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (g), REPLICA IDENTITY FULL", (), True),
    ],
)
def test_the_key_is_that_of_the_replica_identity(
    session: Session, database: Database, ddl: str, key: tuple[str, ...], full: bool
) -> None:
    database.execute(ddl, user="app")
    schema = schema_of(see(session))
    assert (schema.key, schema.full) == (key, full)


def test_odd_names_come_back_as_they_are(session: Session, database: Database) -> None:
    database.execute(
        'CREATE SCHEMA "Ödd ""Schema"; CREATE TABLE "Ödd ""Schema"."select" '
        '("Käse "" %s" int PRIMARY KEY, "UPPER" text)',
        user="app",
    )
    name = TableName('Ödd "Schema', "select")
    assert name in {candidate.name for candidate in candidates(session)}
    assert schema_of(see(session, name)).names == ('Käse " %s', "UPPER")


def test_a_publication_of_a_schema_or_of_all_tables_or_of_a_root_holds_the_table(
    session: Session, database: Database
) -> None:
    database.execute("CREATE TABLE leaf PARTITION OF root FOR VALUES IN (1)", user="app")
    database.execute("DROP PUBLICATION p")
    for what in ("ALL TABLES", "TABLES IN SCHEMA public", "TABLE root"):
        database.execute(f"CREATE PUBLICATION p FOR {what}")
        leaf = see(session, TableName("public", "leaf"))
        assert {m.publication for m in leaf.memberships} == {"p"}, what
        assert len(see(session).memberships) == (0 if what == "TABLE root" else 1), what
        database.execute("DROP PUBLICATION p")


@pytest.mark.parametrize(
    ("what", "again"),
    [
        ("ALL TABLES", "DROP PUBLICATION p; CREATE PUBLICATION p FOR ALL TABLES"),
        (
            "TABLES IN SCHEMA public",
            "ALTER PUBLICATION p DROP TABLES IN SCHEMA public;"
            " ALTER PUBLICATION p ADD TABLES IN SCHEMA public",
        ),
    ],
)
def test_a_table_that_was_unpublished_between_two_looks_is_noticed(
    session: Session, database: Database, what: str, again: str
) -> None:
    database.execute(f"DROP PUBLICATION p; CREATE PUBLICATION p FOR {what}")
    before = see(session)
    database.execute("CREATE TABLE another (id int PRIMARY KEY)")
    assert differs(before, see(session)) is None
    database.execute(again)
    assert "publication" in str(differs(before, see(session)))


IN_FULL = "publish = 'insert, update, delete, truncate'"


@pytest.mark.parametrize(
    ("published", "altered"),
    [
        ("TABLE t WHERE (id > 5)", "ALTER PUBLICATION p SET TABLE t WHERE (id > 6)"),
        ("TABLE t WHERE (id > 5)", "ALTER PUBLICATION p SET TABLE t"),
        ("TABLE t (id, n)", "ALTER PUBLICATION p SET TABLE t (id, name)"),
        ("TABLE t (id, n)", "ALTER PUBLICATION p SET TABLE t"),
        ("TABLE t", "ALTER PUBLICATION p SET (publish = 'insert')"),
        ("TABLE t", "ALTER PUBLICATION p SET (publish = 'insert, update, delete')"),
        ("TABLE t", f"ALTER PUBLICATION p SET (publish = 'insert'); ALTER PUBLICATION p SET ({IN_FULL})"),
        ("TABLE t", "ALTER PUBLICATION p SET (publish_via_partition_root = true)"),
        ("TABLE root", "ALTER PUBLICATION p SET (publish_via_partition_root = true)"),
        (
            "TABLE root WITH (publish_via_partition_root = true)",
            "ALTER PUBLICATION p SET TABLE root WHERE (id = 1)",
        ),
        ("TABLE root", "ALTER PUBLICATION p SET TABLE t"),
        ("TABLE root", "ALTER TABLE root DETACH PARTITION leaf"),
        ("TABLES IN SCHEMA public", "ALTER PUBLICATION p SET TABLE t, root"),
        ("TABLES IN SCHEMA public", "ALTER TABLE t SET SCHEMA other; ALTER TABLE leaf SET SCHEMA other"),
        ("ALL TABLES", "DROP PUBLICATION p; CREATE PUBLICATION p FOR TABLE t, root"),
        ("ALL TABLES", "ALTER PUBLICATION p SET (publish = 'insert, update, delete')"),
        ("TABLE t, root", "ALTER PUBLICATION p RENAME TO q"),
        ("TABLE t, root", "ALTER PUBLICATION p RENAME TO q; ALTER PUBLICATION q RENAME TO p"),
        ("TABLE t, root", "DROP PUBLICATION p"),
        ("TABLE t, root", "DROP PUBLICATION p; CREATE PUBLICATION p FOR TABLE t, root"),
    ],
)
def test_every_change_of_the_publication_that_may_lose_rows_is_seen(
    session: Session, database: Database, published: str, altered: str
) -> None:
    """Also one that was taken back before the look: rows that were written in between are in no stream."""
    database.execute("CREATE TABLE leaf PARTITION OF root FOR VALUES IN (1); CREATE SCHEMA other")
    database.execute(f"DROP PUBLICATION p; CREATE PUBLICATION p FOR {published}")
    names = [TABLE, TableName("public", "leaf")]
    before = [seen for seen in read_entries_by_name(session, names, ["p"]).values() if seen.memberships]
    assert before
    for statement in altered.split("; "):
        database.execute(statement)
    now = read_entries(session, [seen.oid for seen in before], ["p"]).values()
    after = {seen.oid: seen for seen in now}
    assert [seen.name for seen in before if differs(seen, after[seen.oid]) is None] == []


def test_what_a_publication_may_do_without_losing_a_row_is_no_difference(
    session: Session, database: Database
) -> None:
    before = see(session)
    database.execute("ALTER PUBLICATION p ADD TABLE root")
    database.execute("ALTER PUBLICATION p SET TABLE t, u")
    database.execute("ALTER PUBLICATION p DROP TABLE u; COMMENT ON PUBLICATION p IS 'ours'")
    database.execute("CREATE PUBLICATION q FOR ALL TABLES")
    assert differs(before, see(session)) is None


def test_sizes_are_of_now_and_rows_follow_the_density(session: Session, database: Database) -> None:
    database.execute("INSERT INTO u SELECT g, g FROM generate_series(1, 10000) g; ANALYZE u")
    database.execute("INSERT INTO u SELECT g, g FROM generate_series(10001, 20000) g")
    oid = see(session, TableName("public", "u")).oid
    size = sizes(session, [oid])[oid]
    assert size.bytes >= size.pages * 8192
    assert 18_000 < size.rows < 22_000


def test_a_look_at_hundreds_of_tables_is_quick(session: Session, database: Database) -> None:
    database.execute(
        "DO $$ BEGIN FOR i IN 1..200 LOOP EXECUTE format('CREATE TABLE many_%s (id int PRIMARY KEY,"
        " a text, b text, c timestamptz, d numeric(10, 2))', i); END LOOP; END $$"
    )
    oids = [candidate.oid for candidate in candidates(session)]
    read_entries(session, oids, ["p"])
    assert len(read_entries(session, oids, ["p"])) > 200
    # 10 ms on a quiet machine; a plan that scans a catalog for each table takes seconds.
    assert least_seconds(lambda: read_entries(session, oids, ["p"])) < 0.5
