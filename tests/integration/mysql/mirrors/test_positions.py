"""Positions that are read: each place in the order of the server, and none where it never was.

server    a  b  a  b  a  b          of two origins (MariaDB: domains), the marks before and behind them
read      each of the sets between  what the table held there
refused   a b a a                   as many transactions as at one place, and others
"""

from __future__ import annotations

import uuid

import pymysql
import pytest

from headrace.core.errors import HeadraceError
from headrace.lake.read.lake import Lake
from headrace.sources.mysql.gtid_set import GtidSet
from headrace.sources.mysql.mariadb_position import MariadbPosition
from headrace_testing.mysql import Database
from headrace_testing.mysql.server import run
from tests.conformance.conftest import Mirror
from tests.integration.mysql.mirrors.judging import kinds

pytestmark = pytest.mark.server


def _insert(connection: pymysql.Connection[pymysql.cursors.Cursor], number: int, other: str | None) -> None:
    """One transaction, of the server's own origin or of another one."""
    statements = [f"INSERT INTO t VALUES ({number})"]
    if other is not None and ":" in other:
        statements = [f"SET gtid_next = '{other}'", *statements, "SET gtid_next = AUTOMATIC"]
    elif other is not None:
        statements = [f"SET gtid_domain_id = {other}", *statements, "SET gtid_domain_id = DEFAULT"]
    for statement in statements:
        run(connection, statement)


def _another_order(told: list[str], *, mariadb: bool) -> str:
    """Three transactions of the one origin, and one of the other: the server had two of each."""
    if mariadb:
        newest = MariadbPosition.parse(told[2])
        further = [gtid for gtid in MariadbPosition.parse(told[4]).newest if gtid not in newest]
        return str(newest.behind(min(further)))
    ahead, back = (dict(GtidSet.parse(told[number]).parts) for number in (4, 1))
    changed = [origin for origin in ahead if dict(GtidSet.parse(told[2]).parts)[origin] != back[origin]]
    return str(GtidSet.of({**back, **{origin: ahead[origin] for origin in changed}}))


def _code(lake: Lake, position: str) -> str:
    with pytest.raises(HeadraceError) as refused:
        lake.at(position=position)
    return refused.value.code


@kinds("mysql")
def test_a_position_is_read_where_the_server_was_and_nowhere_else(mirror: Mirror, database: Database) -> None:
    server, name = database.server, str(mirror.place.table("t"))
    mariadb = server.flavour.is_mariadb
    executed = "gtid_binlog_pos" if mariadb else "gtid_executed"
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    mirror.once()
    told, other = [], str(uuid.uuid4())
    with database.connect() as connection:
        for number in range(6):
            foreign = "4000000000" if mariadb else f"{other}:{number // 2 + 1}"
            _insert(connection, number, foreign if number % 2 else None)
            told.append(str(server.execute(f"SELECT @@global.{executed}")[0][0]))
    lake = mirror.once()
    for number, text in enumerate(told):
        rows = lake.at(position=text).arrow(name)
        assert sorted(rows["id"].to_pylist()) == list(range(number + 1))
    assert _code(lake, _another_order(told, mariadb=mariadb)) == "LAKE_NO_MARK"
    counted = sum(gtid.number for gtid in MariadbPosition.parse(told[2]).newest) if mariadb else 0
    elsewhere = f"4000000001-1-{counted}" if mariadb else f"{other}:1-{GtidSet.parse(told[2]).count}"
    assert _code(lake, elsewhere) == "LAKE_NO_MARK"
