"""Tables of unusual shape: parts of larger ones, with columns that are gone or computed, or very many.

All of them are mirrored side by side: what one is must not matter to another.
"""

from __future__ import annotations

import pytest

from headrace.core.errors import Definite
from headrace.pipeline.state.table_state import State
from headrace_testing import validators
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors

pytestmark = pytest.mark.server

WIDE = 300

SHAPES = f"""
CREATE TABLE p (id int, region text, n int, PRIMARY KEY (region, id)) PARTITION BY LIST (region)
CREATE TABLE p_north PARTITION OF p FOR VALUES IN ('n')
CREATE TABLE p_south PARTITION OF p FOR VALUES IN ('s') PARTITION BY RANGE (id)
CREATE TABLE p_south_low PARTITION OF p_south FOR VALUES FROM (0) TO (100)
CREATE TABLE p_south_rest (n int, id int NOT NULL, region text NOT NULL)
ALTER TABLE p_south ATTACH PARTITION p_south_rest DEFAULT
CREATE TABLE parent (id int PRIMARY KEY, n int)
CREATE TABLE child (extra text, PRIMARY KEY (id)) INHERITS (parent)
CREATE TABLE generated (id int PRIMARY KEY, n int, s int GENERATED ALWAYS AS (n * 2) STORED, t text)
CREATE TABLE virtual (id int PRIMARY KEY, n int, v int GENERATED ALWAYS AS (n * 2), t text)
CREATE TABLE by_default (id serial PRIMARY KEY, n int DEFAULT 7, s text DEFAULT 'NULL')
CREATE TABLE dropped (a int, id int PRIMARY KEY, b text, c int, d text)
ALTER TABLE dropped DROP a
ALTER TABLE dropped DROP b
CREATE TABLE dropped_full (a int, id int, b text, n int)
ALTER TABLE dropped_full DROP a
ALTER TABLE dropped_full DROP b
ALTER TABLE dropped_full REPLICA IDENTITY FULL
CREATE TABLE empty (id int PRIMARY KEY, n int)
CREATE TABLE only_a_key (id int PRIMARY KEY)
CREATE TABLE turned_key (a int, b text, c date, d uuid, PRIMARY KEY (b, d, c, a))
CREATE TABLE wide (id int PRIMARY KEY, {", ".join(f"c{i} int" for i in range(WIDE))})
CREATE TABLE added (id int PRIMARY KEY, n int)
INSERT INTO added VALUES (1, 1)
ALTER TABLE added ADD late int DEFAULT 5, ADD later text DEFAULT 'x'
"""

ROWS = """
INSERT INTO p SELECT i, CASE WHEN i % 2 = 0 THEN 'n' ELSE 's' END, 0 FROM generate_series({low}, {high}) i
INSERT INTO parent SELECT i, 0 FROM generate_series({low}, {high}) i
INSERT INTO child SELECT i, 0, 'x' FROM generate_series({low}, {high}) i
INSERT INTO generated (id, n, t) SELECT i, i, 'x' FROM generate_series({low}, {high}) i
INSERT INTO virtual (id, n, t) SELECT i, i, 'x' FROM generate_series({low}, {high}) i
INSERT INTO by_default (n) SELECT NULL FROM generate_series({low}, {high}) i
INSERT INTO by_default DEFAULT VALUES
INSERT INTO dropped SELECT i, i, 'x' FROM generate_series({low}, {high}) i
INSERT INTO dropped_full SELECT i, i FROM generate_series({low}, {high}) i
INSERT INTO only_a_key SELECT i FROM generate_series({low}, {high}) i
INSERT INTO turned_key SELECT i, 'x' || i, 'now', gen_random_uuid() FROM generate_series({low}, {high}) i
INSERT INTO wide SELECT i, i, NULL, i FROM generate_series({low}, {high}) i
INSERT INTO added SELECT i FROM generate_series({low} + 1000, {high} + 1000) i
"""

CHANGES = """
UPDATE p SET n = n + 1
UPDATE p SET region = 's' WHERE id % 10 = 0
UPDATE p SET id = id + 500 WHERE id % 7 = 0
DELETE FROM p WHERE id % 9 = 0
UPDATE parent SET n = n + 1
DELETE FROM parent WHERE id % 5 = 0
UPDATE generated SET n = n + 1
UPDATE virtual SET n = n + 1
UPDATE by_default SET n = 8 WHERE n IS NULL
UPDATE dropped SET d = 'y' WHERE c % 2 = 0
DELETE FROM dropped WHERE id % 3 = 0
UPDATE dropped_full SET n = n + 1
UPDATE only_a_key SET id = id + 5000 WHERE id % 2 = 0
UPDATE turned_key SET b = 'y' WHERE a % 2 = 0
UPDATE wide SET c299 = id, c7 = 7
UPDATE added SET late = late + 1
"""


def _run(database: Database, statements: str) -> None:
    with database.connect(user="app") as connection:
        for statement in statements.strip().splitlines():
            connection.execute(statement.encode())


def test_tables_of_any_shape_are_mirrored_side_by_side(mirrors: Mirrors, database: Database) -> None:
    _run(database, SHAPES)
    _run(database, ROWS.format(low=1, high=20))
    tables = _same(mirrors, database)
    assert {"public.p", "public.p_south"}.isdisjoint(tables)
    assert {"public.p_north", "public.p_south_low", "public.p_south_rest"} <= tables
    cut = mirrors.lake.at()
    assert cut.arrow("public.generated").column_names == ["id", "n", "t"]
    assert cut.arrow("public.virtual").column_names == ["id", "n", "t"]
    assert cut.arrow("public.dropped").column_names == ["id", "c", "d"]
    assert cut.arrow("public.wide").num_columns == WIDE + 1
    assert cut.arrow("public.parent").num_rows == 20  # without its child's
    assert cut.arrow("public.empty").num_rows == 0

    _run(database, ROWS.format(low=101, high=120))
    _run(database, CHANGES)
    _run(database, "INSERT INTO empty VALUES (1, 1)")
    assert _same(mirrors, database) == tables

    _run(database, "\n".join(f"DELETE FROM {name}" for name in sorted(tables)))
    assert _same(mirrors, database) == tables
    assert sum(mirrors.lake.at().arrow(name).num_rows for name in tables) == 0
    assert validators.definite(mirrors.lake) == []


def _same(mirrors: Mirrors, database: Database) -> set[str]:
    lake = mirrors.once("public.*", "!public.p", "!public.p_south")
    assert validators.exact(lake, database.url(), values=True) == []
    return set(lake.at().tables())


GROWING = """
CREATE TYPE mood AS ENUM ('sad', 'glad')
CREATE TYPE pair AS (n int, feeling mood)
CREATE TABLE direct (id int PRIMARY KEY, m mood)
CREATE TABLE as_list (id int PRIMARY KEY, m mood[])
CREATE TABLE in_pair (id int PRIMARY KEY, m pair)
CREATE TABLE other (id int PRIMARY KEY)
INSERT INTO direct VALUES (1, 'sad')
INSERT INTO as_list VALUES (1, '{sad,glad}')
INSERT INTO in_pair VALUES (1, '(1,glad)')
INSERT INTO other VALUES (1)
"""


def test_an_enum_that_grew_stops_who_hides_it_in_another_type(mirrors: Mirrors, database: Database) -> None:
    """The stream tells a renamed label of a column that is one, or a list of them; of no other column."""
    _run(database, GROWING)
    _same(mirrors, database)
    before = mirrors.lake.marks()[-1]
    database.execute("ALTER TYPE mood ADD VALUE 'new'", user="app")
    database.execute("INSERT INTO direct VALUES (2, 'new')")
    database.execute("INSERT INTO as_list VALUES (2, '{new,sad}')")
    database.execute("INSERT INTO other VALUES (2)")
    with pytest.raises(Definite) as stopped:
        mirrors.once(on_ddl="stop")
    assert stopped.value.code == "TABLE_CHANGED"
    newest = mirrors.lake.marks()[-1]
    assert set(newest.versions) == {"public.direct", "public.as_list", "public.other"}
    assert mirrors.record("public.in_pair").state == State.STOPPED
    assert mirrors.lake.at(epoch=before.epoch).arrow("public.in_pair").num_rows == 1
    assert mirrors.lake.at().arrow("public.direct")["m"].to_pylist() == ["sad", "new"]
    assert mirrors.lake.at().arrow("public.as_list")["m"].to_pylist() == [["sad", "glad"], ["new", "sad"]]
    assert mirrors.lake.at().arrow("public.other").num_rows == 2


def test_a_partition_that_leaves_its_tree_stops_alone(mirrors: Mirrors, database: Database) -> None:
    _run(database, SHAPES)
    _run(database, "INSERT INTO p SELECT i, 'n', 0 FROM generate_series(1, 5) i")
    mirrors.once("public.p_*", "!public.p_south")
    database.execute("ALTER TABLE p DETACH PARTITION p_north", user="app")
    database.execute("INSERT INTO p VALUES (7, 's', 0)", user="app")
    with pytest.raises(Definite) as stopped:
        mirrors.once("public.p_*", "!public.p_south", on_ddl="stop")
    assert stopped.value.code == "TABLE_CHANGED"
    assert set(mirrors.lake.marks()[-1].versions) == {"public.p_south_low", "public.p_south_rest"}
    assert mirrors.lake.at().arrow("public.p_south_low").num_rows == 1
