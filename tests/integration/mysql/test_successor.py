"""Another server in the place of the one that was followed: it goes on, or a person is asked to look."""

from __future__ import annotations

import pytest

from headrace.core.errors import PositionDoubtful
from headrace.core.position import Position
from headrace.sources.contract.mirror import Successor
from headrace.sources.contract.values import Json
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import identify
from headrace.sources.mysql.successor import successor
from headrace.sources.mysql.upstream import MysqlUpstream
from headrace_testing.mysql import Server, mariadb, mysql, replica
from headrace_testing.mysql.server import run
from tests.integration.mysql.stream.reading import reading

pytestmark = pytest.mark.server

TABLE = [("shop", "t")]


def known(server: Server) -> Json:
    with connect(MysqlAddress.parse(server.url(user="mirror")), role="test") as session:
        return identify(session).lasting_part()


def asked(server: Server, of: Json, reached: Position) -> Successor | None:
    address = MysqlAddress.parse(server.url(user="mirror"))
    with connect(address, role="test") as session:
        return successor(session, address, identify(session), of, MysqlUpstream(base=1 << 33), reached)


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_stream_goes_on_at_a_server_that_has_all_that_was_read_and_what_follows(kind: str) -> None:
    with (mysql if kind == "mysql" else mariadb)() as first, replica(first) as second:
        first.execute("CREATE DATABASE shop")
        first.execute("CREATE TABLE shop.t (id int PRIMARY KEY)")
        with reading(first, TABLE) as reader:
            first.execute("INSERT INTO shop.t VALUES (1)")
            reader.catch_up()
            reached = reader.position
            second.catch_up()
            first.execute("INSERT INTO shop.t VALUES (2)")
            second.catch_up()
            follows = reader.catch_up()[3:]
            further = reader.position
        there, here = known(second.server), known(first)
        assert asked(first, here, reached) is None
        found = asked(second.server, here, reached)
        assert found is not None
        assert (found.identity, MysqlUpstream.of(found.upstream)) == (there, MysqlUpstream(base=1 << 33))
        with reading(second.server, TABLE, reached.text) as other:
            assert other.catch_up() == follows
            assert other.position == further
            back = other.position
        assert asked(first, there, back) is not None
        errant = write_apart(second.server)
        assert asked(second.server, here, back) is not None  # it stands before nothing that was read
        with reading(first, TABLE, back.text) as reader:
            first.execute("INSERT INTO shop.t VALUES (50)")
            reader.catch_up()
            back = reader.position
        second.catch_up()
        with pytest.raises(PositionDoubtful) as refused:
            asked(second.server, here, back)
        assert refused.value.code == "MY_ERRANT_TRANSACTIONS"
        assert (refused.value.detail or "").endswith(f": {errant}")
        second.stop()
        with reading(first, TABLE, back.text) as reader:
            first.execute("INSERT INTO shop.t VALUES (3)")
            reader.catch_up()
            lacking = reader.position
        with pytest.raises(PositionDoubtful) as behind:
            asked(second.server, here, lacking)
        assert behind.value.code == "MY_ANOTHER_SERVER"
        first.purge()
        with pytest.raises(PositionDoubtful) as purged:
            asked(first, there, back)
        assert purged.value.code == "MY_ANOTHER_SERVER"


def write_apart(server: Server) -> str:
    """Write on a replica, as nobody should; return the transaction's name."""
    with server.connect() as connection:
        if server.flavour.is_mariadb:
            run(connection, "SET SESSION gtid_domain_id = 9")  # in one domain replication would stop
        run(connection, "INSERT INTO shop.t VALUES (100)")
    if server.flavour.is_mariadb:
        [(executed,)] = server.execute("SELECT @@global.gtid_binlog_pos")
        return next(gtid for gtid in str(executed).split(",") if gtid.startswith("9-"))
    [(name,)] = server.execute("SELECT CONCAT(@@server_uuid, ':1')")
    return str(name)


def test_a_server_that_was_restored_from_a_dump_past_our_place_is_no_successor() -> None:
    """It says that it has executed what was read; what follows came in the dump, and is in no log of it."""
    with mariadb() as first, mariadb({"server_id": 77}) as second:
        for server in (first, second):
            server.execute("CREATE DATABASE shop")
            server.execute("CREATE TABLE shop.t (id int PRIMARY KEY)")
        with reading(first, TABLE) as reader:
            first.execute("INSERT INTO shop.t VALUES (1)")
            reader.catch_up()
            reached = reader.position
        first.execute("INSERT INTO shop.t VALUES (2)")
        [(dumped,)] = first.execute("SELECT @@global.gtid_binlog_pos")
        second.execute("RESET MASTER")
        second.execute("SET GLOBAL gtid_slave_pos = %s", [dumped])
        second.execute("INSERT INTO shop.t VALUES (1), (2)")
        with pytest.raises(PositionDoubtful) as refused:
            asked(second, known(first), reached)
        assert refused.value.code == "MY_ANOTHER_SERVER"
        assert "--reconcile" in refused.value.hint
