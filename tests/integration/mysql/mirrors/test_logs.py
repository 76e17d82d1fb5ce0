"""A server whose log begins anew, or forgets a domain, behind all that the lake holds: nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.core.errors import Transient
from headrace.sources.mysql.position import MysqlTimeline
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.log_end import position as executed
from headrace_testing.mysql import mariadb, mysql
from tests.conformance.conftest import Mirror
from tests.conformance.sources import MysqlPlace, execute
from tests.integration.mysql.mirrors.judging import assert_exact

pytestmark = pytest.mark.server


def test_a_log_under_another_name_is_followed_once_all_of_the_old_one_is_in_the_lake(tmp_path: Path) -> None:
    with mysql() as server, server.database() as database:
        mirror = Mirror(MysqlPlace(database), tmp_path / "lake")
        execute(mirror.place, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
        mirror.once()
        execute(mirror.place, "UPDATE t SET id = 3 WHERE id = 1")
        before = mirror.once().at().mark
        server.set(log_bin="another")
        execute(mirror.place, "INSERT INTO t VALUES (4)")
        lake = mirror.once()
        assert_exact(lake, mirror.place.url)
        assert lake.at().mark.time > before.time
        server.purge()
        execute(mirror.place, "DELETE FROM t WHERE id = 2")
        assert_exact(mirror.once(), mirror.place.url)
        execute(mirror.place, "INSERT INTO t VALUES (5)")  # what the lake has not is lost with its name
        server.set(log_bin="third")
        assert mirror.stops().code in ("MY_GTIDS_UNLOGGED", "MY_HISTORY_CHANGED")


def test_a_domain_that_the_log_forgot_is_remembered_once_all_of_it_is_in_the_lake(tmp_path: Path) -> None:
    with mariadb() as server, server.database() as database:
        mirror = Mirror(MysqlPlace(database), tmp_path / "lake")
        execute(mirror.place, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
        mirror.once()
        server.execute(
            f"SET STATEMENT gtid_domain_id = 9 FOR UPDATE {database.name}.t SET id = 3 WHERE id = 1"
        )
        execute(mirror.place, "INSERT INTO t VALUES (4)")
        before = mirror.once().at().mark
        server.purge()
        with connect(MysqlAddress.parse(mirror.place.url), role="test") as session:
            executed(session, MysqlTimeline())
            server.execute("FLUSH BINARY LOGS DELETE_DOMAIN_ID = (9)")
            with pytest.raises(Transient) as caught:
                executed(session, MysqlTimeline())
        assert caught.value.code == "MY_DOMAIN_FORGOTTEN"
        execute(mirror.place, "INSERT INTO t VALUES (5)")
        lake = mirror.once()
        assert_exact(lake, mirror.place.url)
        assert lake.at().mark.time > before.time
        execute(mirror.place, "DELETE FROM t WHERE id = 2")
        assert_exact(mirror.once(), mirror.place.url)
        assert set(mirror.verify().values()) == {"equal"}


def test_a_log_that_begins_behind_transactions_of_several_servers_is_followed(tmp_path: Path) -> None:
    """Each server that ever wrote in a domain is in the list at the head of a file, as after a failover."""
    with mariadb() as server, server.database() as database:
        mirror = Mirror(MysqlPlace(database), tmp_path / "lake")
        execute(mirror.place, "CREATE TABLE t (id int PRIMARY KEY)")
        mirror.once()
        server.execute(f"SET STATEMENT server_id = 77 FOR INSERT INTO {database.name}.t VALUES (1)")
        mirror.once()
        server.purge()
        execute(mirror.place, "INSERT INTO t VALUES (2)")
        assert_exact(mirror.once(), mirror.place.url)


def test_a_forgotten_domain_of_which_nothing_proves_the_end_stops_the_source(tmp_path: Path) -> None:
    """The transaction behind it that the lake holds is purged, and with it what followed in the domain."""
    with mariadb() as server, server.database() as database:
        mirror = Mirror(MysqlPlace(database), tmp_path / "lake")
        execute(mirror.place, "CREATE TABLE t (id int PRIMARY KEY)")
        mirror.once()
        for row, domain in ((1, 9), (2, 0)):
            write = f"INSERT INTO {database.name}.t VALUES ({row})"
            server.execute(f"SET STATEMENT gtid_domain_id = {domain} FOR {write}")
        mirror.once()
        server.execute(f"SET STATEMENT gtid_domain_id = 9 FOR INSERT INTO {database.name}.t VALUES (3)")
        server.purge()
        server.execute("FLUSH BINARY LOGS DELETE_DOMAIN_ID = (9)")
        assert mirror.stops().code == "MY_SERVER_BEHIND"


def test_a_domain_that_begins_anew_stops_the_source(tmp_path: Path) -> None:
    """Its numbers come again, for other transactions, and the server would send only those beyond them."""
    with mariadb() as server, server.database() as database:
        mirror = Mirror(MysqlPlace(database), tmp_path / "lake")
        execute(mirror.place, "CREATE TABLE t (id int PRIMARY KEY)")
        mirror.once()

        def write(row: int, domain: int) -> None:
            insert = f"INSERT INTO {database.name}.t VALUES ({row})"
            server.execute(f"SET STATEMENT gtid_domain_id = {domain} FOR {insert}")

        for row, domain in ((1, 9), (2, 0)):
            write(row, domain)
        mirror.once()
        server.purge()
        server.execute("FLUSH BINARY LOGS DELETE_DOMAIN_ID = (9)")
        assert_exact(mirror.once(), mirror.place.url)
        write(3, 9)
        assert mirror.stops().code == "MY_HISTORY_CHANGED"
