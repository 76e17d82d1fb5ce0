"""Queries over a lake of two sources: names, places, refusals; on Spark, without a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.lake.format import datafile, formatfile, layout, schemas
from headrace.lake.format.plan import Plan, TableStep
from headrace.lake.log.commit import open_log
from headrace.lake.log.marks import Mark
from headrace.lake.read.lake import Lake
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.sql.session import At, SqlSession
from tests.lakes import Bucket

pytestmark = pytest.mark.spark

Where = TypeVar("Where", str, Path)

TABLES = {
    "main": ["public.orders", "public.items", "sales.items", '"Sales Data"."Order"'],
    "shop": ["public.customers", "public.items"],
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made(tmp_path_factory.mktemp("lakes") / "lake")


def _made(path: Where) -> Where:
    """A lake each of whose tables has one row, that says which it is."""
    store = open_store(path)
    formatfile.create_lake(store)
    for source, tables in TABLES.items():
        _publish(store, source, tables, tables, "0/10", 15)
    return path


def _publish(store: Store, source: str, made: list[str], named: list[str], frontier: str, time: int) -> None:
    """A mark that names tables, some of which are made in it."""
    log = open_log(store, source)
    epoch = log.takeover().mark.epoch + 1
    steps = []
    for number, name in enumerate(made):
        folder = layout.table_folder(source, TableName.parse(name))
        rows = pa.table({"id": [number], "which": [f"{source}.{name}"]})
        file = datafile.write(store, folder, layout.file_name(epoch), rows)
        steps.append(TableStep(folder, -1, (file,), schema=schemas.encode(rows.schema)))
    plan = Plan(
        source,
        epoch,
        "p",
        "copy",
        1,
        frontier,
        time,
        steps=tuple(steps),
        versions=dict.fromkeys(named, 0),
        state={"source": {"kind": "postgres"}},
    )
    log.put_plan(plan)
    assert isinstance(log.finish(plan), Mark)


def _run(
    path: str | Path, spark: Any, sql: str, at: At = None, source: str | None = None
) -> list[tuple[Any, ...]]:
    rows = SqlSession(str(path), lambda: spark, at=at, source=source).run(sql).rows
    return [] if rows is None else [tuple(row.values()) for row in rows.to_pylist()]


@pytest.mark.parametrize(
    ("sql", "which"),
    [
        ("SELECT which FROM orders", "main.public.orders"),
        ("SELECT orders.which FROM public.orders", "main.public.orders"),
        ("SELECT public.orders.which FROM PUBLIC.ORDERS WHERE public.orders.id = 0", "main.public.orders"),
        ('SELECT o.which FROM main."Sales Data"."Order" o', 'main."Sales Data"."Order"'),
        ('SELECT which FROM "Order"', 'main."Sales Data"."Order"'),
        ("SELECT which FROM shop.public.items", "shop.public.items"),
        ("SELECT which FROM sales.items", "main.sales.items"),
        ("WITH orders AS (SELECT * FROM customers) SELECT which FROM orders", "shop.public.customers"),
        ("SELECT max(o.which) FROM orders o JOIN shop.public.customers c ON true", "main.public.orders"),
        ("SELECT which FROM (TABLE customers) WHERE id IN (SELECT id FROM orders)", "shop.public.customers"),
    ],
)  # fmt: skip
def test_a_name_means_one_table(path: Path, spark: Any, sql: str, which: str) -> None:
    assert _run(path, spark, sql) == [(which,)]


def test_a_lake_in_a_bucket_is_asked_alike_by_a_spark_that_knows_none(any_bucket: Bucket, spark: Any) -> None:
    lake = _made(any_bucket.address)
    assert _run(lake, spark, "SELECT which FROM orders") == [("main.public.orders",)]
    joined = "SELECT o.id AS a, c.id AS b FROM orders o JOIN customers c ON o.id = c.id WHERE o.id >= 0"
    assert _run(lake, spark, joined) == [(0, 0)]
    assert _run(lake, spark, "SELECT id FROM sales.items", at="0/10", source="main") == [(2,)]


@pytest.mark.parametrize(
    ("sql", "code", "said"),
    [
        ("SELECT * FROM items", "LAKE_NAME_AMBIGUOUS", "main.sales.items"),
        ("SELECT * FROM public.items", "LAKE_NAME_AMBIGUOUS", "shop.public.items"),
        ("SELECT * FROM ordres", "LAKE_TABLE_UNKNOWN", 'did you mean "public.orders" or '),
        ("SELECT * FROM public.orders, nowhere", "LAKE_TABLE_UNKNOWN", "nowhere"),
        ("SELECT *\nFROM public.orders\nWHERE id = = 1", "SQL_MALFORMED", "line 3, column 12"),
        ("SELECT public.orders.id, nothing FROM public.orders", "SQL_REFUSED", "line 1, column 26"),
        ("SELECT 1/0", "SQL_FAILED", "DIVIDE_BY_ZERO"),
        ("SELECT CAST(which AS INT) FROM orders", "SQL_FAILED", "CAST_INVALID_INPUT"),
        ("SELECT 'open", "SQL_MALFORMED", "line 1, column 8"),
        ("DELETE FROM orders", "SQL_ONLY_READS", "DELETE"),
        ("SHOW CREATE VIEW nothing", "SQL_VIEW_UNKNOWN", "nothing"),
        ("DROP SOURCE nothing", "SQL_SOURCE_UNKNOWN", "nothing"),
    ],
)
def test_what_cannot_be_answered_is_said(path: Path, spark: Any, sql: str, code: str, said: str) -> None:
    with pytest.raises(HeadraceError) as raised:
        _run(path, spark, sql)
    assert raised.value.code == code
    assert said in str(raised.value)
    assert "main.public.orders" not in str(raised.value), "a value of a row"


@pytest.mark.parametrize(
    ("at", "source", "code"),
    [
        ("2026-11-20T12:00:00", None, "TIMESTAMP_MALFORMED"),
        ("yesterday", None, "TIMESTAMP_MALFORMED"),
        ("0/11", "main", "LAKE_NOT_REACHED"),
        ("0/10", None, "LAKE_SOURCE_AMBIGUOUS"),
        (9, "main", "LAKE_NO_MARK"),
        (None, "other", "LAKE_SOURCE_UNKNOWN"),
    ],
)
def test_a_place_that_is_not_there_is_refused(
    path: Path, spark: Any, at: At, source: str | None, code: str
) -> None:
    with pytest.raises(HeadraceError) as raised:
        _run(path, spark, "SELECT * FROM orders", at, source)
    assert raised.value.code == code


def test_a_place_is_named_by_mark_or_position(path: Path, spark: Any) -> None:
    for at in (2, "0/10"):
        assert _run(path, spark, "SELECT count(*) FROM orders", at, "main") == [(1,)]
    assert len(_run(path, spark, "SHOW TABLES")) == 6
    assert len(_run(path, spark, "SHOW TABLES", source="shop")) == 2
    assert _run(path, spark, "SELECT 1 AS one") == [(1,)]
    assert _run(path, spark, "DESCRIBE public.orders")[0][:2] == ("id", "bigint")


def test_the_last_mark_that_has_all_tables_of_a_query_is_found(tmp_path: Path, spark: Any) -> None:
    lake = Lake(_made(tmp_path / "lake"))
    rest = [name for name in TABLES["main"] if name != "public.orders"]
    _publish(lake.store, "main", ["public.late"], [*rest, "public.late"], "0/20", 31)
    with pytest.raises(HeadraceError) as caught:
        _run(tmp_path / "lake", spark, "SELECT * FROM orders")
    assert (caught.value.code, "--at 3," in caught.value.hint) == ("LAKE_TABLE_NOT_EXACT", True)
    session = SqlSession(str(tmp_path / "lake"), lambda: spark, at="last-exact")
    session.run("CREATE VIEW v AS SELECT which FROM late")
    for sql, epoch in (("SELECT which FROM orders, customers", 3), ("SELECT which FROM v", 4)):
        answer = session.run(sql.replace("which", "count(*)"))
        assert answer.rows is not None
        assert answer.rows.to_pylist() == [{"count(1)": 1}]
        assert answer.places[0].startswith(f"main at epoch {epoch} ")
    assert lake.at(exact=["orders", "sales.items"]).marks["main"].epoch == 3
    assert lake.at(exact=["late", "customers"]).marks["main"].epoch == 4
    for names, code in ((["orders", "late"], "LAKE_NO_MARK"), (["none"], "LAKE_TABLE_UNKNOWN")):
        with pytest.raises(HeadraceError) as caught:
            lake.at(exact=names)
        assert caught.value.code == code


def test_names_are_looked_up_before_spark_is_begun(path: Path) -> None:
    begun: list[str] = []

    def session(*, alone: bool = True) -> SqlSession:
        return SqlSession(
            str(path), lambda: begun.append("got"), expect=lambda: begun.append("begun"), alone=alone
        )

    for sql, code in (
        ("SELECT * FROM ordres", "LAKE_TABLE_UNKNOWN"),
        ("SELECT * FROM (SELECT 1) JOIN public.items ON true", "LAKE_NAME_AMBIGUOUS"),
        ("CREATE VIEW v AS SELECT * FROM nowhere", "LAKE_TABLE_UNKNOWN"),
    ):
        with pytest.raises(HeadraceError) as caught:
            session().run(sql)
        assert caught.value.code == code
    assert begun == []
    # These may be Spark's own to understand.
    for sql in ("DESCRIBE FUNCTION upper", 'SELECT * FROM parquet."/somewhere/x"', "SELECT * FROM orders"):
        with pytest.raises(AttributeError):
            session().run(sql)
    with pytest.raises(AttributeError):
        session(alone=False).run("SELECT * FROM ordres")
    assert begun == ["begun", "got"] * 4


def test_views_that_are_written_stay_in_the_lake(path: Path, spark: Any) -> None:
    _run(path, spark, "CREATE VIEW chosen AS SELECT which AS w FROM main.sales.items")
    _run(path, spark, 'CREATE VIEW "over it" AS SELECT upper(w) AS u FROM chosen')
    assert _run(path, spark, 'SELECT u FROM "over it"') == [("MAIN.SALES.ITEMS",)]
    assert _run(path, spark, "SHOW CREATE VIEW chosen") == [
        ("CREATE VIEW chosen AS SELECT which AS w FROM main.sales.items",)
    ]
    for sql, code in (
        ("CREATE VIEW chosen AS SELECT 1", "SQL_NAME_TAKEN"),
        ("CREATE VIEW wrong AS SELECT nothing FROM orders", "SQL_REFUSED"),
        ('CREATE OR REPLACE VIEW chosen AS SELECT * FROM "over it"', "SQL_VIEW_CIRCULAR"),
    ):
        with pytest.raises(HeadraceError) as raised:
            _run(path, spark, sql)
        assert raised.value.code == code
    _run(path, spark, 'DROP VIEW "over it"')
    _run(path, spark, "DROP VIEW chosen")
    assert _run(path, spark, "SHOW VIEWS") == []


def test_a_password_is_not_registered(tmp_path: Path) -> None:
    for connection in ("postgresql://me:hunter2@h/d", "host=h password=hunter2"):
        with pytest.raises(HeadraceError) as raised:
            _run(
                tmp_path / "lake",
                None,
                f"CREATE SOURCE s FROM POSTGRES CONNECTION '{connection}' PUBLICATION 'p'",
            )
        assert raised.value.code == "SQL_PASSWORD"
        assert "hunter2" not in str(raised.value)
    assert not any("hunter2" in file.read_text() for file in (tmp_path / "lake").rglob("*") if file.is_file())


def test_a_lake_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path / "lake")
    formatfile.create_lake(store)
    store.put(layout.FORMAT, json.dumps({"format": 99, "lake_id": "x"}).encode())
    with pytest.raises(HeadraceError) as raised:
        _run(tmp_path / "lake", None, "SHOW TABLES")
    assert raised.value.code == "LAKE_TOO_NEW"


def test_the_command_prints_for_programs_and_exits_as_it_ends(path: Path) -> None:
    # Without a folder to keep it in, no archive of Java's classes is written.
    environment = {**os.environ, "XDG_CACHE_HOME": "none"}
    command = [sys.executable, "-m", "headrace", "sql", "--lake", str(path), "--format"]
    talk = (
        "SELECT id, which, NULL AS n, 0.5D AS f, X'00ff' AS b FROM orders; SELECT array(1.50, NULL) AS a;\n"
        "DROP VIEW nothing;\nSELECT CAST(which AS INT)\nFROM orders;\n"
    )
    told = subprocess.run(
        [*command, "json"], input=talk, env=environment, capture_output=True, text=True, check=False
    )
    assert told.returncode == 2
    assert [json.loads(line) for line in told.stdout.splitlines()] == [
        {"id": 0, "which": "main.public.orders", "n": None, "f": 0.5, "b": "\\x00ff"},
        {"a": ["1.50", None]},
    ]
    assert [line for line in told.stderr.splitlines() if line.startswith("error: ")] == [
        'error: SQL_VIEW_UNKNOWN: nobody has written a view "nothing" in this lake',
        "error: SQL_FAILED: the query failed while it ran",
    ]
    assert "main.public" not in told.stderr
    assert told.stderr.count("starting Spark\n") == 1
    shown = subprocess.run(
        [*command, "csv", "SHOW TABLES"], env=environment, capture_output=True, text=True, check=False
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[:2] == ["source,schema,table", "main,Sales Data,Order"]
