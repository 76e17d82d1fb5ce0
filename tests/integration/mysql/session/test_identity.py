"""A server is known again, and told from every other, from its copy beside it too."""

from __future__ import annotations

import shutil

import pytest

from headrace.core.errors import PositionDoubtful
from headrace.core.records import to_record
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity, identify, prove, verify
from headrace_testing.mysql import Server, mariadb, mysql

pytestmark = pytest.mark.server


def identity(server: Server, user: str = "app") -> MysqlIdentity:
    with connect(MysqlAddress.parse(server.url(user=user)), role="test") as session:
        return identify(session)


@pytest.mark.full
def test_a_server_is_known_again_after_a_restart(server: Server) -> None:
    server.start()
    before = identity(server)
    server.restart()
    after = identity(server)
    verify(after, before)
    prove(after, before.lasting_part())
    prove(after, to_record(before))


@pytest.mark.full
def test_another_server_is_refused_and_so_is_a_copy_beside_the_first(server: Server) -> None:
    server.start()
    expected = identity(server)
    kind = mariadb if server.flavour.is_mariadb else mysql
    with kind() as other:
        for record in (expected.lasting_part(), to_record(expected)):
            with pytest.raises(PositionDoubtful) as caught:
                prove(identity(other), record)
            assert caught.value.code == "MY_ANOTHER_SERVER"
        other.set(server_id=server.server_id)
        server.stop()
        other.stop()
        shutil.rmtree(other.process.data)
        shutil.copytree(server.process.data, other.process.data)
        server.start()
        other.start()
        copy = identity(other, "root")
        if not server.flavour.is_mariadb:
            assert copy.lasting_part() == expected.lasting_part()
        with pytest.raises(PositionDoubtful):
            verify(copy, expected)


def test_a_record_of_the_other_kind_is_no_proof(server: Server) -> None:
    server.start()
    found = identity(server)
    label = "mysql" if server.flavour.is_mariadb else "mariadb"
    with pytest.raises(PositionDoubtful):
        prove(found, {"flavour": label, "server": found.server})
