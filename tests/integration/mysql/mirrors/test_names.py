"""A server that keeps all names in small letters, whatever somebody types: patterns, DDL, commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pymysql
import pytest

import headrace
from headrace.core.errors import HeadraceError
from headrace.pipeline.commands.ask import ask
from headrace.pipeline.state import config
from headrace_testing.mysql import Database, Server, mariadb, mysql
from tests.conformance.conftest import Mirror
from tests.conformance.sources import MysqlPlace
from tests.integration.mysql.mirrors.judging import assert_exact

pytestmark = pytest.mark.server

SERVERS: Mapping[str, Callable[..., AbstractContextManager[Server]]] = {"mysql": mysql, "mariadb": mariadb}


@pytest.mark.full
@pytest.mark.parametrize("kind", SERVERS)
def test_names_in_capitals_mean_the_tables_that_the_server_keeps_in_small_letters(
    kind: str, tmp_path: Path
) -> None:
    with SERVERS[kind]({"lower_case_table_names": 1}) as server, server.database("Shop_A") as database:
        # `SHOW DATABASES` says how the server keeps it.
        place = MysqlPlace(type(database)(server, "shop_a"))
        mirror = Mirror(place, tmp_path / "lake")
        wanted = ["SHOP_A.Orders", "Shop_a.EMPTIED", "shop_a.gone"]
        for name in ("ORDERS", "Emptied", "GONE", "Later"):
            database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)")
            database.execute(f"INSERT INTO {name.title()} VALUES (1, 1), (2, 2)")
        mirror.once(tables=wanted)
        database.execute("UPDATE oRDERS SET v = 3")
        database.execute("TRUNCATE TABLE SHOP_A.EMPTIED")
        database.execute("INSERT INTO emptied VALUES (7, 7)")
        lake = mirror.once(tables=wanted)  # the same words again
        assert set(lake.at().mark.versions) == {"shop_a.orders", "shop_a.emptied", "shop_a.gone"}
        assert lake.at().arrow("shop_a.emptied")["id"].to_pylist() == [7]
        assert_exact(lake, place.url)

        _renames_to_capitals(mirror, database, wanted)
        _ask(mirror, "tables.add", "SHOP_A.LATER")
        _ask(mirror, "resync", "Shop_A.ORDERS")
        asked = config.parse(mirror.configuration(tables=[*wanted, "Shop_A.Later"]))
        assert_exact(mirror.once(tables=[*wanted, "Shop_A.Later"]), place.url)
        [verdict] = headrace.verify(asked, tables=["SHOP_A.ORDERS", "*.later"])
        assert {each.name: each.outcome for each in verdict.tables} == {
            "shop_a.orders": "equal",
            "shop_a.later": "equal",
        }
        _ask(mirror, "tables.drop", "SHOP_A.LATER")
        database.execute("DROP TABLE Gone")
        with pytest.raises(HeadraceError) as stopped:
            mirror.once(tables=wanted)
        assert stopped.value.code in ("TABLE_ALTERED", "TABLE_CHANGED")  # told, or found to be gone
        lake = mirror.lake
        assert set(lake.at().mark.versions) == {"shop_a.orders", "shop_a.emptied"}
        assert_exact(lake, place.url)


def _renames_to_capitals(mirror: Mirror, database: Database, wanted: list[str]) -> None:
    """To the server its name stays as it is, by whichever statement: the table is followed."""
    with pytest.raises(pymysql.err.OperationalError, match="already exists"):
        database.execute("RENAME TABLE orders TO ORDERS")
    for renamed in (
        "ALTER TABLE orders RENAME ORDERS",
        "ALTER TABLE Orders RENAME TO ORDERS, ADD COLUMN w int",
        "RENAME TABLE orders TO x, x TO ORDERS",
    ):
        database.execute("UPDATE orders SET v = v + 1 WHERE id = 1")
        database.execute(renamed)
        database.execute("UPDATE orders SET v = v + 1 WHERE id = 2")
        lake = mirror.once(tables=wanted)
        assert set(lake.at().mark.versions) == {"shop_a.orders", "shop_a.emptied", "shop_a.gone"}
        assert_exact(lake, mirror.place.url)


def _ask(mirror: Mirror, command: str, table: str) -> None:
    ask(str(mirror.path), command, {"tables": [table]}, url=mirror.place.url)
