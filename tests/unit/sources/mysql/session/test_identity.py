"""Two connections reach one server, or two: the facts by which a session tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.core.errors import PositionDoubtful
from headrace.core.records import to_record
from headrace.sources.mysql.session.identity import MysqlIdentity, prove, verify

SERVER = MysqlIdentity("mysql", "8a94f357-aab4-11df-86ab-c80aa9429562", 7, "db1", 3306, "/data/", "9.7.4")


def test_what_lasts_is_the_servers_own_mark() -> None:
    moved = replace(SERVER, host="db2", port=3307, server_id=8, folder="/new/", version="9.8.0")
    prove(moved, SERVER.lasting_part())
    prove(SERVER, to_record(SERVER))
    with pytest.raises(PositionDoubtful):
        prove(moved, to_record(SERVER))


@pytest.mark.parametrize(
    "other",
    [
        replace(SERVER, server="3e11fa47-71ca-11e1-9e33-c80aa9429562"),
        replace(SERVER, flavour="mariadb"),
        replace(SERVER, host="db2"),
        replace(SERVER, port=3307),
        replace(SERVER, server_id=8),
        replace(SERVER, folder="/new/"),
    ],
)
def test_connections_of_one_moment_reach_the_same_process(other: MysqlIdentity) -> None:
    with pytest.raises(PositionDoubtful) as caught:
        verify(other, SERVER)
    assert caught.value.code == "MY_ANOTHER_SERVER"


def test_an_upgrade_between_two_connections_is_the_same_server() -> None:
    verify(replace(SERVER, version="9.7.5"), SERVER)
