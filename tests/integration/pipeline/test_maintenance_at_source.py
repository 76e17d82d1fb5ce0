"""DDL at the source that changes no row stops no table; DDL that was taken back does.

So does the new name of a label that rows have. Rows are written under each of the layouts, so that the stream
shows them as well as the catalog.
"""

from __future__ import annotations

import pytest

from headrace.core.errors import Definite
from headrace.pipeline.state.table_state import State
from tests.integration.pipeline.conftest import Mirrors

MAINTENANCE = """
INSERT INTO t VALUES (2, 'bb', 'sad', 2)
ALTER TABLE t ALTER name TYPE varchar(50)
INSERT INTO t VALUES (3, repeat('c', 50), 'sad', 3)
ALTER TYPE mood ADD VALUE 'mad' BEFORE 'sad'
INSERT INTO t VALUES (4, 'dd', 'mad', 4)
ALTER TABLE t ALTER n DROP NOT NULL
INSERT INTO t VALUES (5, 'ee', 'sad', NULL)
REINDEX TABLE CONCURRENTLY t
UPDATE t SET n = 0 WHERE id = 2
ALTER TABLE t ALTER name TYPE text
INSERT INTO t VALUES (6, repeat('f', 5000), 'mad', 6)
""".strip().splitlines()

TAKEN_BACK = """
SET timezone = 'UTC'
ALTER TABLE u ALTER at TYPE timestamp
INSERT INTO u VALUES (2, '2026-01-02 12:00')
ALTER TABLE u ALTER at TYPE timestamptz
""".strip().splitlines()


def run(mirrors: Mirrors, statements: list[str]) -> None:
    with mirrors.database.connect(user="app") as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_maintenance_goes_by_and_a_type_that_was_another_for_a_while_does_not(mirrors: Mirrors) -> None:
    database = mirrors.database
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'glad');"
        " CREATE TABLE t (id int PRIMARY KEY, name varchar(5), feeling mood, n int NOT NULL);"
        " CREATE TABLE u (id int PRIMARY KEY, at timestamptz); INSERT INTO t VALUES (1, 'aa', 'glad', 1);"
        " INSERT INTO u VALUES (1, '2026-01-01 12:00+00')",
        user="app",
    )
    mirrors.once()
    run(mirrors, MAINTENANCE)
    run(mirrors, TAKEN_BACK)
    # Nothing is left of it in the catalog, but rows were printed without an offset.
    with pytest.raises(Definite) as stopped:
        mirrors.once(on_ddl="stop")
    assert stopped.value.code == "TABLE_ALTERED"
    cut = mirrors.lake.at()
    assert set(cut.marks["main"].versions) == {"public.t"}
    rows = database.execute("SELECT id, name, feeling::text, n FROM t ORDER BY id")
    assert sorted(tuple(row.values()) for row in cut.arrow("public.t").to_pylist()) == rows
    record = mirrors.record("public.t")
    assert record.state is State.LIVE
    assert record.schema.columns[1].source_type == "text"


ADDED_AND_RENAMED = """
ALTER TYPE mood ADD VALUE 'new'
ALTER TYPE mood ADD VALUE 'a {new}, "one"'
INSERT INTO t VALUES (2, 'new')
INSERT INTO several VALUES (2, '{sad,new}')
INSERT INTO deep VALUES (2, '{{glad,NULL},{sad,"a {new}, \\"one\\""}}'), (3, '[0:0]={glad}')
INSERT INTO within VALUES (2, ROW('new'))
ALTER TYPE mood RENAME VALUE 'new' TO 'mad'
ALTER TYPE mood RENAME VALUE 'a {new}, "one"' TO 'old'
""".strip().splitlines()


def test_a_label_that_was_renamed_after_rows_had_it_does_not_go_by(mirrors: Mirrors) -> None:
    """The stream prints its first name, the source the second."""
    database = mirrors.database
    database.execute("CREATE TYPE mood AS ENUM ('sad'); CREATE TYPE state AS (feeling mood)", user="app")
    for name, kind, value in [
        ("t", "mood", "sad"),
        ("several", "mood[]", "{sad}"),
        ("deep", "mood[]", "{{sad,NULL}}"),
        ("within", "state", "(sad)"),
    ]:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, feeling {kind})", user="app")
        database.execute(f"INSERT INTO {name} VALUES (1, '{value}')", user="app")
    mirrors.once()
    # A new label alone is nothing to stop for, unless nobody could tell how it was called before.
    run(
        mirrors,
        [
            "ALTER TYPE mood ADD VALUE 'glad'",
            "UPDATE t SET feeling = 'glad'",
            "INSERT INTO deep VALUES (9, '{{glad}}')",
        ],
    )
    with pytest.raises(Definite) as stopped:
        mirrors.once(on_ddl="stop")
    assert stopped.value.code == "TABLE_CHANGED"
    assert set(mirrors.lake.marks()[-1].versions) == {"public.deep", "public.several", "public.t"}
    assert mirrors.lake.at().arrow("public.t")["feeling"].to_pylist() == ["glad"]
    run(mirrors, ADDED_AND_RENAMED)
    with pytest.raises(Definite) as stopped:
        mirrors.once(on_ddl="stop")
    assert stopped.value.code == "TABLE_ALTERED"
    assert not mirrors.lake.marks()[-1].versions
