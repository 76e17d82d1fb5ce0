"""A server's greeting tells its kind and its release."""

from __future__ import annotations

import pytest

from headrace.sources.mysql.flavour import Flavour, Number, Release

MYSQL_CAPABILITIES, MARIADB_CAPABILITIES = 0xDFFFFFFF, 0x81BFF7FE


@pytest.mark.parametrize(
    ("greeting", "capabilities", "flavour", "number"),
    [
        ("9.7.4", MYSQL_CAPABILITIES, Flavour.MYSQL, Number(9, 7, 4)),
        ("8.0.36-28", MYSQL_CAPABILITIES, Flavour.MYSQL, Number(8, 0, 36)),
        ("8.0.mysql_aurora.3.05.2", MYSQL_CAPABILITIES, Flavour.MYSQL, Number(8, 0, 23)),
        ("5.5.5-10.11.18-MariaDB-0+deb12u1-log", MARIADB_CAPABILITIES, Flavour.MARIADB, Number(10, 11, 18)),
        ("11.4.2-MariaDB", MARIADB_CAPABILITIES, Flavour.MARIADB, Number(11, 4, 2)),
        # Its owner has it give another version.
        ("8.0.30", MARIADB_CAPABILITIES, Flavour.MARIADB, Number(8, 0, 30)),
    ],
)
def test_a_greeting_tells_flavour_and_number(
    greeting: str, capabilities: int, flavour: Flavour, number: Number
) -> None:
    release = Release.of_greeting(greeting, capabilities)
    assert (release.flavour, release.number) == (flavour, number)


def test_a_release_is_compared_with_those_of_its_own_kind() -> None:
    release = Release.of_greeting("5.5.5-10.11.18-MariaDB", MARIADB_CAPABILITIES)
    assert release.at_least(mariadb=Number(10, 6))
    assert not release.at_least(mysql=Number(8), mariadb=Number(11))
    assert not release.at_least(mysql=Number(8))


@pytest.mark.parametrize(
    ("version", "log", "replicas", "status", "order"),
    [
        ("8.0.15", "SHOW MASTER STATUS", "SHOW SLAVE HOSTS", "SHOW SLAVE STATUS", "slave_"),
        ("8.0.22", "SHOW MASTER STATUS", "SHOW REPLICAS", "SHOW REPLICA STATUS", "slave_"),
        ("8.0.44", "SHOW MASTER STATUS", "SHOW REPLICAS", "SHOW REPLICA STATUS", "replica_"),
        ("8.4.0", "SHOW BINARY LOG STATUS", "SHOW REPLICAS", "SHOW REPLICA STATUS", "replica_"),
    ],
)
def test_each_release_of_mysql_is_asked_in_words_that_it_knows(
    version: str, log: str, replicas: str, status: str, order: str
) -> None:
    words = Release.of_greeting(version, MYSQL_CAPABILITIES).words
    assert (words.log_status, words.replicas, words.replica_status) == (log, replicas, status)
    assert words.replica_variables == order


@pytest.mark.parametrize(
    ("version", "stranger", "unusual"),
    [
        ("8.0.11-TiDB-v7.5.0", "TiDB", ("tidb",)),
        ("8.0.30-Vitess", "Vitess", ("vitess",)),
        ("8.0.30-txsql-debug", None, ("txsql",)),
        ("8.0.36-28", None, ()),
        ("8.0.37-azure", None, ()),
        ("8.0.31-google", None, ()),
        ("8.0.mysql_aurora.3.05.2", None, ()),
        ("8.0.45-0ubuntu0.24.04.1", None, ()),
        ("5.5.5-10.11.18-MariaDB-0+deb12u1-log", None, ()),
        ("10.6.16-11-MariaDB-enterprise-log", None, ()),
    ],
)
def test_a_version_tells_a_server_that_only_speaks_the_protocol(
    version: str, stranger: str | None, unusual: tuple[str, ...]
) -> None:
    release = Release.of_greeting(version, MYSQL_CAPABILITIES)
    assert (release.stranger, release.unusual_words) == (stranger, unusual)
