"""Time travel against the source itself: what it held after each transaction, recorded as it went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from headrace.core.names import TableName
from headrace.lake.read.cut import Cut
from headrace.lake.read.lake import Lake
from headrace.pipeline.commands import ask
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from headrace_testing import validators
from headrace_testing.canonical import lake_rows
from headrace_testing.oracle.postgres_rows import source_rows
from headrace_testing.postgres import Database
from headrace_testing.validators import Recording
from tests.integration.pipeline.conftest import Mirrors

pytestmark = [pytest.mark.spark, pytest.mark.server]

TABLES = ("public.bag", "public.items")
STATEMENTS = (
    "INSERT INTO public.items SELECT i, i, 'v' FROM generate_series({n} * 10 + 1000, {n} * 10 + 1007) i",
    "UPDATE public.items SET v = v + 1, s = NULL WHERE id % 5 = {n} % 5",
    "INSERT INTO public.bag SELECT 1, '-0'::float, '\\x00' FROM generate_series(1, 3)",
    "DELETE FROM public.items WHERE id % 7 = {n} % 7; UPDATE public.bag SET f = 'NaN' WHERE ctid IN "
    "(SELECT ctid FROM public.bag LIMIT 2)",
    "UPDATE public.items SET id = id + 100000 WHERE id < 20; INSERT INTO public.bag VALUES ({n}, 0, NULL)",
    "DELETE FROM public.bag WHERE ctid IN (SELECT ctid FROM public.bag LIMIT 1)",
)


def _create(database: Database) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, v int, s text)", user="app")
    database.execute("CREATE TABLE bag (a int, f float, b bytea)", user="app")
    database.execute("ALTER TABLE bag REPLICA IDENTITY FULL; ALTER TABLE items REPLICA IDENTITY FULL")
    database.execute("INSERT INTO public.items SELECT i, 0, 's' FROM generate_series(1, 50) i", user="app")
    database.execute("INSERT INTO public.bag VALUES (1, 1, NULL), (1, 1, NULL)", user="app")


def _written(database: Database, numbers: range) -> Iterator[Recording]:
    """A single writer's transactions; after each, the position and what the tables hold."""
    with database.connect(user="app") as connection:
        connection.autocommit = True
        for number in numbers:
            connection.execute(
                f"BEGIN; {STATEMENTS[number % len(STATEMENTS)].format(n=number)}; COMMIT".encode()
            )
            [(position,)] = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
            rows = {name: source_rows(connection, TableName.parse(name)) for name in TABLES}
            yield Recording(PostgresTimeline().position(Lsn.parse(position)), rows)


def _hashed(frame: pl.DataFrame) -> int:
    """The rows of a frame, in whatever order, as one number."""
    return int(frame.select(pl.struct(pl.all()).hash(seed=0).sum()).item() or 0)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("transactions", "merge"),
    [
        (12, "vectors"),
        *(pytest.param(200, merge, marks=pytest.mark.full) for merge in ("rewrite", "vectors")),
    ],
)
def test_after_each_transaction_the_state_is_the_one_that_the_source_had_also_once_maintained(
    mirrors: Mirrors, database: Database, spark: Any, transactions: int, merge: str
) -> None:
    mirrors.options["merge"] = merge
    _create(database)
    lake = mirrors.once()
    third = transactions // 3
    recordings: list[Recording] = []
    for start in range(0, transactions, third):
        recordings += _written(database, range(start, min(transactions, start + third)))
        mirrors.once()
    marks = {mark.position.time for mark in lake.marks()}
    assert len([each for each in recordings if each.position.time not in marks]) > transactions // 2
    _agree(lake, recordings, spark)
    before = len(lake.marks())
    # Every mark may be thinned out, and no reader is waited for.
    report = ask.ask(str(mirrors.path), "maintain", {"marks": "0s", "grace": "0s"})
    assert report["marks"]["dropped"] > 0
    assert report["deleted"]["files"] > 0
    assert len(lake.marks()) < before
    _agree(lake, recordings, spark)


def _agree(lake: Lake, recordings: list[Recording], spark: Any) -> None:
    """After each transaction the lake holds what the source held, by Python and by SQL."""
    for number, recording in enumerate(recordings):
        cut = lake.at(position=str(recording.position))
        want = {name: _hashed(recording.rows[name].frame) for name in TABLES}
        assert {name: _hashed(lake_rows(cut.arrow(name)).frame) for name in TABLES} == want, number
        if number % 10 == 3 or len(recordings) == 200:
            assert _by_sql(spark, cut) == want, number
    assert validators.consistent(lake) == []


def _by_sql(spark: Any, cut: Cut) -> dict[str, int]:
    cut.register(spark)
    rows = {name: spark.sql(f"SELECT * FROM `{name}`").toArrow().cast(cut.schema(name)) for name in TABLES}
    return {name: _hashed(lake_rows(table).frame) for name, table in rows.items()}
