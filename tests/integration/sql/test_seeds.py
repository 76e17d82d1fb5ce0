"""The SQL of the seeds: sources, their rows as text, views by hand and by CREATE VIEWS, on a real server."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from psycopg import pq

from headrace.core.errors import HeadraceError, Misconfigured
from headrace_testing.canonical import lake_rows
from headrace_testing.oracle.postgres_rows import Connection, pin
from headrace_testing.postgres import Database
from tests.integration.pipeline import everytype
from tests.integration.sql.conftest import Asked

pytestmark = [pytest.mark.spark, pytest.mark.server]


def _create(database: Database) -> None:
    types = everytype.create_types(database)
    everytype.create(database, "table_a", types, key="id", full=True)
    everytype.create(database, "table_b", types, key=None, full=True)
    database.execute("CREATE TABLE other (id bigint PRIMARY KEY, v text)", user="app")
    database.execute("INSERT INTO other VALUES (1, 'one'), (2, NULL)", user="app")
    steps = max(len(each.values) for each in types) + 1
    with database.connect() as connection, connection.transaction():
        for name in ("table_a", "table_b", "table_b"):
            everytype.insert(connection, name, types, {number: number for number in range(steps)})
    database.execute("CREATE PUBLICATION mz_source FOR TABLE table_a, table_b, other")


def _printed(connection: Connection, table: str) -> Counter[tuple[str | None, ...]]:
    """The rows of a table as the server prints them."""
    pin(connection)
    result = connection.pgconn.exec_(f"SELECT * FROM public.{table}".encode())
    assert result.status == pq.ExecStatus.TUPLES_OK
    rows = [
        tuple(_text(result.get_value(row, column)) for column in range(result.nfields))
        for row in range(result.ntuples)
    ]
    return Counter(rows)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def test_a_source_is_mirrored_and_asked_as_the_seed_has_it(asked: Asked, database: Database) -> None:
    _create(database)
    asked.create_source("repl_stream", "mz_source")
    asked.run('CREATE VIEWS FROM SOURCE "repl_stream" ("table_a", "table_b", "other")')
    assert [row["mirrored"] for row in asked.run("SHOW SOURCES")] == [False]
    asked.run('CREATE VIEW early AS SELECT oid FROM "repl_stream"')
    asked.mirror()

    assert database.execute("SELECT count(*) FROM pg_replication_slots") == [(1,)]
    _the_source_is_a_relation(asked, database)
    _views_by_hand_are_the_generated_ones(asked)
    assert {row["name"] for row in asked.run("SHOW VIEWS")} == {
        *("early", "hand_table_a", "hand_table_b", "public.table_a", "public.table_b", "public.other")
    }
    assert len(asked.run("SELECT DISTINCT oid FROM early")) == 3

    database.execute(
        "UPDATE other SET v = 'two' WHERE id = 2; INSERT INTO other VALUES (3, 'three')", user="app"
    )
    before = asked.session().cut().mark.epoch
    asked.mirror()
    asked.run(
        "CREATE VIEW named AS SELECT CAST(row_data[0] AS bigint) AS id, row_data[1] AS v "
        f'FROM "repl_stream" WHERE oid = {_oid(database, "other")}'
    )
    for at, rows in ((before, [(1, "one"), (2, None)]), (None, [(1, "one"), (2, "two"), (3, "three")])):
        found = asked.run("SELECT * FROM named ORDER BY id", at=at)
        assert [(row["id"], row["v"]) for row in found] == rows
    assert database.execute("SELECT count(*) FROM pg_replication_slots") == [(1,)]
    _it_goes_again(asked, database)


def _oid(database: Database, table: str) -> int:
    return int(database.execute(f"SELECT 'public.{table}'::regclass::oid::bigint")[0][0])


def _the_source_is_a_relation(asked: Asked, database: Database) -> None:
    rows = asked.run('SELECT oid, row_data FROM "repl_stream"')
    with database.connect() as connection:
        for table in ("table_a", "table_b", "other"):
            oid = _oid(database, table)
            found = Counter(tuple(row["row_data"]) for row in rows if row["oid"] == oid)
            want = _printed(connection, table)
            assert found - want == want - found == Counter()
    assert len({row["oid"] for row in rows}) == 3


def _views_by_hand_are_the_generated_ones(asked: Asked) -> None:
    for table in ("table_a", "table_b"):
        [shown] = asked.run(f'SHOW CREATE VIEW "{table}"')
        made = shown["statement"]
        assert made.startswith(f'CREATE VIEW "{table}" AS')
        asked.run(made.replace(f'CREATE VIEW "{table}"', f"CREATE VIEW hand_{table}", 1))
        session = asked.session()
        schema = session.cut().schema(table)
        hand, generated = (session.run(f"SELECT * FROM {name}").rows for name in (f"hand_{table}", table))
        assert hand is not None
        assert generated is not None
        assert hand.column_names == generated.column_names == schema.names
        same = [_same(hand, generated, name, schema.field(name).type) for name in schema.names]
        assert [name for name, equal in zip(schema.names, same, strict=True) if not equal] == []
        assert lake_rows(hand.cast(schema)).frame.height == lake_rows(generated.cast(schema)).frame.height


def _same(hand: Any, generated: Any, name: str, kind: Any) -> bool:
    one, other = (
        lake_rows(rows.select(["id", name]).rename_columns(["id", "v"]).cast(_pair(rows, kind))).frame
        for rows in (hand, generated)
    )
    return bool(one.sort(one.columns).equals(other.sort(other.columns)))


def _pair(rows: Any, kind: Any) -> Any:
    import pyarrow as pa

    return pa.schema([pa.field("id", rows.schema.field("id").type), pa.field("v", kind)])


def _it_goes_again(asked: Asked, database: Database) -> None:
    with pytest.raises(Misconfigured) as unpublished:
        asked.run('CREATE VIEWS FROM SOURCE "repl_stream" ("elsewhere")')
    assert unpublished.value.code == "PG_PATTERN_EMPTY"
    database.execute("CREATE TABLE late (id int PRIMARY KEY)", user="app")
    database.execute("ALTER PUBLICATION mz_source ADD TABLE late")
    asked.run('CREATE VIEWS FROM SOURCE "repl_stream" ("late")')
    asked.mirror()
    assert asked.run("SELECT count(*) AS n FROM late") == [{"n": 0}]
    told = asked.session().run("DROP SOURCE repl_stream").line
    assert "dropped" in str(told)
    assert database.execute("SELECT count(*) FROM pg_replication_slots") == [(0,)]
    assert asked.run("SELECT count(*) AS n FROM other") == [{"n": 3}]


def test_a_view_over_rows_keeps_its_columns_through_ddl(asked: Asked, database: Database) -> None:
    """A view finds its columns by name, and is refused where one is gone or a table is made again."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, secret text, cheap bool); "
        "INSERT INTO orders SELECT n, 'f', n > 2 FROM generate_series(1, 5) AS n; "
        "CREATE TABLE other (id int PRIMARY KEY, secret bool); INSERT INTO other VALUES (7, true); "
        "CREATE PUBLICATION p FOR TABLE orders, other",
        user="app",
    )
    asked.create_source("shop", "p")
    asked.run('CREATE VIEW early AS SELECT oid, row_data FROM "shop"')
    asked.mirror()
    of = f"oid = {_oid(database, 'orders')}"
    asked.run(f"CREATE VIEW cheap AS SELECT row_data[0] AS id FROM shop WHERE {of} AND row_data[2] = 't'")
    asked.run("CREATE VIEW upon AS SELECT count(*) AS n FROM cheap")
    asked.run(f"CREATE VIEW other_rows AS SELECT row_data[1] AS v FROM shop WHERE NOT {of}")
    before = asked.session().cut().mark.epoch
    assert asked.run("SELECT n FROM upon") == [{"n": 3}]
    _refused(asked, "SELECT row_data FROM early")
    assert len(asked.run("SELECT DISTINCT oid FROM early")) == 2

    # The columns that the view knows are there, at other places, and one is added.
    database.execute(
        "ALTER TABLE orders DROP COLUMN secret; ALTER TABLE orders ADD COLUMN note text", user="app"
    )
    asked.mirror()
    _refused(asked, "SELECT n FROM upon")
    assert asked.run("SELECT v FROM other_rows") == [{"v": "t"}]
    assert asked.run("SELECT n FROM upon", at=before) == [{"n": 3}]
    asked.run(
        f"CREATE OR REPLACE VIEW cheap AS SELECT row_data[0] AS id FROM shop WHERE {of} AND row_data[1] = 't'"
    )
    assert asked.run("SELECT n FROM upon") == [{"n": 3}]

    database.execute("ALTER TABLE orders ADD COLUMN more int", user="app")
    database.execute("DROP TABLE other", user="app")
    with pytest.raises(HeadraceError):
        asked.mirror()
    assert asked.run("SELECT n FROM upon") == [{"n": 3}]
    assert asked.run("SELECT size(row_data) AS n FROM shop WHERE " + of + " LIMIT 1") == [{"n": 4}]
    _refused(asked, "SELECT v FROM other_rows", "LAKE_TABLE_NOT_EXACT")
    _refused(asked, "SELECT count(*) FROM shop", "LAKE_TABLE_NOT_EXACT")


def _refused(asked: Asked, sql: str, code: str = "SQL_VIEW_OUTDATED") -> None:
    with pytest.raises(HeadraceError) as caught:
        asked.run(sql)
    assert caught.value.code == code
