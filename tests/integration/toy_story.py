"""The story of a mirror of a toy source: `python -m tests.integration.toy_story FILE LAKE` tells it as JSON.

A process of its own, since Spark's workers find the source by the path that the process began with.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from pyspark.sql import SparkSession

import headrace
from headrace.spark.session import SparkConfig, open_session
from toy_source.database import prepare


def chapters(path: str, lake: str, spark: SparkSession) -> Iterator[object]:
    """The table as the source and the lake have it, after each chapter."""
    config = {
        "lake": {"path": lake},
        "source": {"main": {"url": f"toy://{path}", "tables": ["main.*"], "every": "0s", "on_ddl": "stop"}},
    }
    execute(path, "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price INTEGER)")
    execute(path, *(f"INSERT INTO item VALUES ({n}, 'item {n}', {7 * n})" for n in range(50)))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = wal")
        prepare(connection, "item")
    for statements in (
        (),
        ("UPDATE item SET name = NULL WHERE id < 5", "INSERT INTO item VALUES (900, 'é', -1)"),
        ("DELETE FROM item WHERE id > 40", "UPDATE item SET id = id + 1000 WHERE id = 7"),
    ):
        execute(path, *statements)
        headrace.mirror(config, spark, once=True)
        yield rows(path), mirrored(lake)
    marks = headrace.Lake(lake).marks()
    yield next(mirrored(lake, mark.epoch) for mark in marks if "main.item" in mark.versions)
    [verdict] = headrace.verify(config, spark=spark)
    yield {table.name: table.outcome for table in verdict.tables}
    execute(path, "ALTER TABLE item ADD COLUMN more TEXT", "UPDATE item SET more = 'x'")
    try:
        headrace.mirror(config, spark, once=True)
    except headrace.HeadraceError as error:
        yield error.code


def execute(path: str, *statements: str) -> None:
    """Run them as one transaction."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def rows(path: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return [list(row) for row in connection.execute("SELECT * FROM item ORDER BY 1")]


def mirrored(lake: str, epoch: int | None = None) -> list[Any]:
    found = headrace.Lake(lake).at(epoch=epoch).arrow("item")
    return sorted(list(row) for row in zip(*found.to_pydict().values(), strict=True))


if __name__ == "__main__":
    with open_session(SparkConfig(master="local[2]")) as session:
        sys.stdout.write(json.dumps(list(chapters(sys.argv[1], sys.argv[2], session.spark))))
