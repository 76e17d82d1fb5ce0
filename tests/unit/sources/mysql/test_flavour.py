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
        ("8.0.mysql_aurora.3.05.2", MYSQL_CAPABILITIES, Flavour.MYSQL, Number(8)),
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
