"""Values without a lake form: NULL in the table, their text in `errors/` for as long as the row has them."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Sequence

import polars as pl
import pytest

from headrace.core.errors import Definite
from headrace.core.names import TableName
from headrace.lake.log import errors_table
from headrace.lake.read.lake import Lake
from headrace.lake.store.contract import Store
from headrace.pipeline.commands.ask import ask
from headrace.pipeline.state.table_state import State
from headrace.sql import rawrows
from headrace_testing import validators
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors

pytestmark = pytest.mark.server

# On Spark, and in the driver, where the same functions run.
both_ways = pytest.mark.parametrize("driver_epochs", [pytest.param(0, marks=pytest.mark.full), 20_000])

TABLES = ("by_key", "by_image", "bag")
COLUMNS = "id int, n int, t timestamptz, p numeric(6,2), a int[], big int[]"
# An array that does not begin at 1, too long to lie in its row: an update that leaves it alone does not
# send it.
BIG = "array_fill(7, ARRAY[3000], ARRAY[0])"
HEAD = "[0:2999]"

Text = tuple[int, str, str]  # id of the row, column, raw text


def _create(database: Database, columns: str = COLUMNS, tables: Sequence[str] = TABLES) -> None:
    for name in tables:
        database.execute(f"CREATE TABLE {name} ({columns})", user="app")
        if name != "bag":
            database.execute(f"ALTER TABLE {name} ADD PRIMARY KEY (id)", user="app")
        if name != "by_key":
            database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL", user="app")


def _each(database: Database, statement: str, tables: Sequence[str] = TABLES) -> None:
    with database.connect(user="app") as connection, connection.transaction():
        for name in tables:
            connection.execute(statement.replace("<t>", name).encode())


def _standing(lake: Lake, name: str) -> Counter[Text]:
    frame = errors_table.standing(lake.store, "errors/main", TableName("public", name))
    return Counter(
        (json.loads(key)["id"], column, raw)
        for key, column, raw in frame.select("key", "column", "raw").rows()
    )


def _stand(mirrors: Mirrors, *texts: Text) -> None:
    """Catch up; exactly these texts stand, in each table, and the tables are as their source is."""
    lake = mirrors.once()
    for name in TABLES:
        found = _standing(lake, name)
        short = {(i, c, raw if c != "big" else raw[: len(HEAD)]): n for (i, c, raw), n in found.items()}
        assert (name, short) == (name, dict.fromkeys(texts, 1))
    assert validators.definite(lake) == []
    assert validators.exact(lake, mirrors.database.url(), values=True) == []


@both_ways
def test_a_text_stands_while_its_row_has_the_value(
    mirrors: Mirrors, database: Database, driver_epochs: int
) -> None:
    mirrors.options["driver_epochs"] = driver_epochs
    _create(database)
    _each(database, "INSERT INTO <t> VALUES (1, 0, now(), 1, '{1}', NULL)")
    _stand(mirrors)
    # First met in the stream, not by the copy.
    _each(database, "INSERT INTO <t> VALUES (2, 0, 'infinity', 'NaN', '{{1},{2}}', NULL)")
    _stand(mirrors, (2, "t", "infinity"), (2, "p", "NaN"), (2, "a", "{{1},{2}}"))
    _each(database, "UPDATE <t> SET t = '-infinity', a = '{1}' WHERE id = 2")
    _each(database, "UPDATE <t> SET t = 'infinity' WHERE id = 1")
    _stand(mirrors, (1, "t", "infinity"), (2, "t", "-infinity"), (2, "p", "NaN"))
    # Under another key, and touched twice in one epoch.
    _each(database, "UPDATE <t> SET id = 3 WHERE id = 2")
    _each(database, "UPDATE <t> SET n = n + 1 WHERE id = 3")
    _stand(mirrors, (1, "t", "infinity"), (3, "t", "-infinity"), (3, "p", "NaN"))
    _each(database, "UPDATE <t> SET t = NULL, p = 5 WHERE id = 3")
    _each(database, "DELETE FROM <t> WHERE id = 1")
    _stand(mirrors)


@both_ways
def test_the_text_of_an_unchanged_long_value_stays(
    mirrors: Mirrors, database: Database, driver_epochs: int
) -> None:
    mirrors.options["driver_epochs"] = driver_epochs
    _create(database)
    _each(database, "ALTER TABLE <t> ALTER big SET STORAGE EXTERNAL")
    _each(database, f"INSERT INTO <t> VALUES (1, 0, now(), 1, NULL, {BIG})")
    _stand(mirrors, (1, "big", HEAD))
    _each(database, f"INSERT INTO <t> VALUES (2, 0, now(), 1, NULL, {BIG})")
    _each(database, "UPDATE <t> SET n = n + 1")
    _stand(mirrors, (1, "big", HEAD), (2, "big", HEAD))
    _each(database, "UPDATE <t> SET id = id + 10")
    _each(database, "UPDATE <t> SET n = n + 1")
    _stand(mirrors, (11, "big", HEAD), (12, "big", HEAD))
    _each(database, "UPDATE <t> SET big = '{}' WHERE id = 11")
    _each(database, "DELETE FROM <t> WHERE id = 12")
    _stand(mirrors)


def test_rows_that_differ_only_in_such_a_value_are_told_apart(mirrors: Mirrors, database: Database) -> None:
    """In the lake they are copies of one row; their texts are apart."""
    _create(database, "id int, t timestamp", ["bag"])
    for value in ("infinity", "-infinity", "infinity"):
        database.execute("INSERT INTO bag VALUES (1, %s)", [value])
    database.execute("INSERT INTO bag VALUES (1, NULL)")
    lake = mirrors.once()
    assert lake.at().arrow("public.bag").num_rows == 4
    assert set(_standing(lake, "bag")) == {(1, "t", "infinity"), (1, "t", "-infinity")}
    database.execute("DELETE FROM bag WHERE t = '-infinity'")
    database.execute("DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag WHERE t = 'infinity')")
    lake = mirrors.once()
    assert lake.at().arrow("public.bag").num_rows == 2
    assert set(_standing(lake, "bag")) == {(1, "t", "infinity")}
    database.execute("DELETE FROM bag WHERE t IS NOT NULL")
    lake = mirrors.once()
    assert lake.at().arrow("public.bag").num_rows == 1
    assert set(_standing(lake, "bag")) == set()


def test_keys_that_json_cannot_write_have_texts_of_their_own(mirrors: Mirrors, database: Database) -> None:
    columns = (
        "id float8, d date, b bytea, p numeric(38,38), u uuid[], t timestamp, PRIMARY KEY (id, d, b, p, u)"
    )
    database.execute(f"CREATE TABLE t ({columns})", user="app")
    rows = [
        ("NaN", "5874897-12-31", r"\x00ff", "1e-38", "{}"),
        ("Infinity", "5874897-12-31", r"\x00ff", "1e-38", "{}"),
        ("-Infinity", "4714-11-24 BC", "", "0", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"),
    ]
    for row in rows:
        database.execute("INSERT INTO t VALUES (%s, %s, %s, %s, %s, 'infinity')", row)
    lake = mirrors.once()
    assert _raws(lake) == ["infinity"] * 3
    database.execute("UPDATE t SET t = '-infinity' WHERE id = 'Infinity'")
    database.execute("DELETE FROM t WHERE id = 'NaN'")
    database.execute("INSERT INTO t VALUES ('NaN', '4714-11-24 BC', '', 0, '{}', 'infinity')")
    lake = mirrors.once()
    assert _raws(lake) == ["-infinity", "infinity", "infinity"]
    assert validators.exact(lake, database.url(), values=True) == []
    database.execute("DELETE FROM t")
    assert _raws(mirrors.once()) == []


def test_a_table_that_is_dropped_keeps_its_texts_at_its_marks(mirrors: Mirrors, database: Database) -> None:
    """It goes where its last mark stands, and comes back without those of its first interval."""
    tables = TABLES[:1]
    _create(database, tables=tables)
    _each(database, "INSERT INTO <t> VALUES (1, 0, 'infinity', 1, '{1}', NULL)", tables)
    lake = mirrors.once()
    last = lake.marks()[-1]
    url = database.url(user="app")
    ask(str(mirrors.path), "tables.drop", {"tables": ["public.by_key"]}, url=url)
    name = TableName("public", "by_key")
    of_mark = errors_table.standing(lake.store, "errors/main", name, last.time)
    assert of_mark["raw"].to_list() == ["infinity"]
    assert not _standing(lake, "by_key")
    _each(database, "UPDATE <t> SET t = '-infinity'", tables)
    ask(str(mirrors.path), "tables.add", {"tables": ["public.by_key"]}, url=url)
    mirrors.once()
    assert _standing(lake, "by_key") == {(1, "t", "-infinity"): 1}
    newest = errors_table.standing(lake.store, "errors/main", name, lake.marks()[-1].time)
    assert newest["raw"].to_list() == ["-infinity"]
    assert errors_table.standing(lake.store, "errors/main", name, last.time).equals(of_mark)


def _raws(lake: Lake) -> list[str]:
    frame = errors_table.standing(lake.store, "errors/main", TableName("public", "t"))
    assert frame["key"].n_unique() == frame.height
    return sorted(frame["raw"].to_list())


# A table, a value that stops it, and the code it stops with, if the source is strict and if it is not.
STOPPED = {
    "moments": ("id int PRIMARY KEY, v timestamptz", "1, 'infinity'", "STRICT_VALUE_WITHOUT_LAKE_FORM", None),
    "lists": ("id int, v int[]", "1, '{{1}}'", "STRICT_VALUE_WITHOUT_LAKE_FORM", None),
    "days": ("id date PRIMARY KEY", "'-infinity'", "KEY_WITHOUT_LAKE_FORM", "KEY_WITHOUT_LAKE_FORM"),
    "sums": ("id numeric(5,2) PRIMARY KEY", "'NaN'", "KEY_WITHOUT_LAKE_FORM", "KEY_WITHOUT_LAKE_FORM"),
}


@pytest.mark.parametrize(
    ("by", "strict"),
    [
        ("copy", True),
        ("stream", False),
        pytest.param("copy", False, marks=pytest.mark.full),
        pytest.param("stream", True, marks=pytest.mark.full),
    ],
)
def test_a_value_that_may_not_be_lost_stops_its_table(
    mirrors: Mirrors, database: Database, by: str, strict: bool
) -> None:
    mirrors.options["strict"] = strict
    for name, (columns, *_) in STOPPED.items():
        database.execute(f"CREATE TABLE {name} ({columns})", user="app")
        database.execute(f"ALTER TABLE {name} REPLICA IDENTITY {'FULL' if name == 'lists' else 'DEFAULT'}")
    database.execute("CREATE TABLE fine (id int PRIMARY KEY, v timestamptz)", user="app")
    if by == "stream":
        assert len(mirrors.once().at().tables()) == len(STOPPED) + 1
    for name, (_, values, *_) in STOPPED.items():
        database.execute(f"INSERT INTO {name} VALUES ({values})", user="app")
    database.execute("INSERT INTO fine VALUES (1, NULL)", user="app")
    with pytest.raises(Definite):
        mirrors.once()
    for name, (_, _, if_strict, otherwise) in STOPPED.items():
        code = if_strict if strict else otherwise
        record = mirrors.record(f"public.{name}")
        assert (name, record.error and record.error.code) == (name, code)
        assert (record.state is State.STOPPED) == (code is not None)
        assert (f"public.{name}" in mirrors.lake.marks()[-1].versions) == (code is None)
    assert mirrors.lake.at().arrow("public.fine").num_rows == 1
    # The value itself is in no message.
    told = [str(mirrors.record(f"public.{name}").error) for name in STOPPED]
    assert not any("infinity" in text.partition("hint")[0] or "{{" in text for text in told)


def test_g7_a_task_that_prints_a_source_reads_the_texts_of_its_own_rows(
    mirrors: Mirrors, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are of the table; alike rows of a table without a key get one each."""
    _create(database, "id int, t timestamptz, s text", ("by_key", "bag"))
    rows = 100_000
    database.execute(
        f"INSERT INTO by_key SELECT i, 'infinity', repeat(i::text, 9) FROM generate_series(1, {rows}) i",
        user="app",
    )
    database.execute("INSERT INTO bag VALUES (1, 'infinity'), (1, '-infinity'), (1, NULL)", user="app")
    lake = mirrors.once()
    cut, read = lake.at(), []
    pieces = errors_table._Piece.read

    def noted(piece: errors_table._Piece, store: Store, folder: str) -> pl.DataFrame:
        read.append(piece.rows)
        return pieces(piece, store, folder)

    monkeypatch.setattr(errors_table._Piece, "read", noted)
    printed = {}
    for name in cut.standings.names():
        task = rawrows.printing(lake.store, cut, name, rawrows.read_records(cut, name))
        assert len(pickle.dumps(task)) < 10_000
        table = cut.arrow(str(name[1]))
        few = table.slice(rows // 2, 100) if name[1].name == "by_key" else table
        batches = few.combine_chunks().to_batches(max_chunksize=2 if few.num_rows < 10 else 50)
        printed[name[1].name] = [
            row for out in rawrows.printed_rows(task, iter(batches)) for row in out.column(0).to_pylist()
        ]
    assert [row[1] for row in printed["by_key"]] == ["infinity"] * 100
    assert sorted(str(row[1]) for row in printed["bag"]) == ["-infinity", "None", "infinity"]
    assert sum(read) < rows // 2
