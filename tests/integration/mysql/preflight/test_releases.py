"""Releases and forks: the words of an older one mend it, and what cannot be mirrored is refused at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.core.errors import Misconfigured
from headrace.sources.contract.findings import Level
from headrace_testing.mysql import Server, mariadb
from headrace_testing.mysql.flavours import MARIADB_10_5
from tests.integration.mysql.preflight.scene import Scene, scene, serious, the

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def of_tidb() -> Iterator[Server]:
    """A server that greets as TiDB does."""
    with mariadb({"version": "8.0.11-TiDB-v7.5.0"}) as server:
        yield server


@pytest.fixture
def older(mysql_8_0_server: Server) -> Iterator[Scene]:
    with scene(mysql_8_0_server) as made:
        yield made


def test_a_server_that_only_speaks_the_protocol_is_refused(of_tidb: Server) -> None:
    with scene(of_tidb) as stage, pytest.raises(Misconfigured) as refused:
        stage.check()
    assert (refused.value.code, refused.value.hint != "") == ("MY_FORK_UNSUPPORTED", True)


@pytest.mark.full
def test_a_release_that_is_too_old_is_refused() -> None:
    with (
        mariadb(flavour=MARIADB_10_5) as server,
        scene(server) as stage,
        pytest.raises(Misconfigured) as refused,
    ):
        stage.check()
    assert (refused.value.code, refused.value.hint != "") == ("MY_VERSION_UNSUPPORTED", True)


@pytest.mark.full
def test_a_good_older_server_has_no_findings(older: Scene) -> None:
    assert serious(older.check()) == []


@pytest.mark.full
def test_an_older_server_is_mended_in_its_own_words(older: Scene) -> None:
    older.execute(
        "SET GLOBAL slave_preserve_commit_order = OFF", "SET GLOBAL slave_parallel_type = 'DATABASE'"
    )
    try:
        finding = the(older.check(), "MY_REPLICA_ORDER")
        assert finding.level is Level.ERROR
        assert finding.mend == (
            "SET PERSIST slave_parallel_type = LOGICAL_CLOCK",
            "SET PERSIST slave_preserve_commit_order = ON",
        )
        older.mend(finding.mend)
        assert serious(older.check()) == []
    finally:
        older.server.execute("RESET PERSIST")
