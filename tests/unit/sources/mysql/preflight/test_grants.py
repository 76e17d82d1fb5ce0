"""Lines of SHOW GRANTS, as both servers print them."""

from __future__ import annotations

import pytest

from headrace.core.names import TableName
from headrace.sources.mysql.preflight.grants import Grant, Rights, parse

ALL_OF_IT = TableName("shop", "items")


def rights(*lines: str, literal: bool = False) -> Rights:
    grants = tuple(grant for line in lines if (grant := parse(line)) is not None)
    return Rights("`u`@`%`", grants, literal, any(line.startswith("REVOKE") for line in lines))


def test_privileges_are_told_from_their_columns_and_targets() -> None:
    assert parse("GRANT SELECT, LOCK TABLES ON `a``b`.* TO `u`@`%`") == Grant(
        frozenset(("SELECT", "LOCK TABLES")), frozenset(), "a`b", None
    )
    line = "GRANT SELECT (`a, b`, `)`), INSERT, UPDATE (`x`) ON `shop`.`items ON ` TO `u`@`%`"
    assert parse(line) == Grant(frozenset(("INSERT",)), frozenset(("SELECT", "UPDATE")), "shop", "items ON ")


@pytest.mark.parametrize(
    "line",
    [
        "GRANT `role`@`%` TO `u`@`%`",
        "GRANT EXECUTE ON PROCEDURE `shop`.`p` TO `u`@`%`",
        "GRANT PROXY ON ``@`` TO `root`@`localhost` WITH GRANT OPTION",
        "SET DEFAULT ROLE `r1` FOR `g`@`%`",
        "REVOKE SELECT ON `shop`.* FROM `u`@`%`",
    ],
)
def test_what_is_no_privilege_on_tables_is_none(line: str) -> None:
    assert parse(line) is None


def test_everything_holds_each_privilege() -> None:
    hashed = (
        "GRANT ALL PRIVILEGES ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*B69027D44F6E5EDC07F1AEAD' WITH GRANT"
    )
    assert rights(hashed).everywhere("REPLICATION SLAVE")
    assert rights("GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `r`").everywhere(
        "REPLICATION SLAVE"
    )
    assert not rights("GRANT REPLICATION SLAVE ADMIN ON *.* TO `u`@`%`").everywhere("REPLICATION SLAVE")
    assert not rights("GRANT ALL PRIVILEGES ON `shop`.* TO `u`@`%`").everywhere("REPLICATION SLAVE")


PART = "GRANT SELECT (`id`) ON `shop`.`items` TO `u`@`%`"


@pytest.mark.parametrize(
    ("more", "in_part"),
    [
        ((), True),
        (("GRANT SELECT ON `shop`.`item_` TO `u`@`%`",), True),
        (("GRANT SELECT ON `shop`.* TO `u`@`%`",), False),
        (("GRANT SELECT ON *.* TO `u`@`%`",), False),
        (("GRANT SELECT ON *.* TO `u`@`%`", "REVOKE SELECT ON `shop`.* FROM `u`@`%`"), True),
    ],
)
def test_columns_are_all_that_may_be_read_unless_all_is_granted(
    more: tuple[str, ...], *, in_part: bool
) -> None:
    assert rights(PART, *more).in_part(ALL_OF_IT) is in_part
    assert not rights(*more).in_part(ALL_OF_IT)
    assert not rights("GRANT SELECT (`id`), SELECT ON `shop`.`items` TO `u`@`%`").in_part(ALL_OF_IT)


def test_the_name_of_a_database_is_a_pattern_in_a_grant_or_it_is_not() -> None:
    assert rights().database("a_b%\\`c") == "`a\\_b\\%\\\\``c`.*"
    assert rights(literal=True).database("a_b") == "`a_b`.*"
