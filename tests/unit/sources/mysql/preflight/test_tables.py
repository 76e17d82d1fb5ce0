"""Patterns where names have no case, names that make one number, and the order of a script."""

from __future__ import annotations

import pytest

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName
from headrace.sources.contract.findings import Finding, Level
from headrace.sources.mysql.catalog.candidates import MysqlCandidate
from headrace.sources.mysql.flavour import Flavour, Number, Release
from headrace.sources.mysql.preflight import script, tables
from headrace.sources.mysql.preflight.binlog import NAMES, check_binlog
from headrace.sources.mysql.preflight.server import as_integer, check_version
from headrace.sources.mysql.preflight.tables import check_numbers, choose

GOOD_MARIADB = dict.fromkeys(NAMES, "") | {
    "log_bin": "ON",
    "server_id": "1",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_checksum": "CRC32",
    "gtid_strict_mode": "ON",
    "binlog_order_commits": "ON",
    "wsrep_on": "OFF",
}


def table(schema: str, name: str) -> MysqlCandidate:
    return MysqlCandidate(TableName(schema, name), "BASE TABLE", "InnoDB")


def test_names_that_a_server_compares_in_lower_case_are_found_in_any() -> None:
    among = [table("Shop", "Orders"), table("shop", "log")]  # as one on macOS keeps them
    chosen = choose(["SHOP.orders", "sHop.*", "!shop.LOG"], among, lower=True)
    assert chosen.names == (TableName("Shop", "Orders"),)
    assert chosen.named_tables == {TableName("Shop", "Orders")}
    assert choose(["SHOP.orders"], among, lower=False).names == ()


def test_tables_whose_names_make_one_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [TableName("a", "x"), TableName("a", "y"), TableName("b", "z")]
    assert list(check_numbers(names)) == []
    monkeypatch.setattr(tables, "table_number", lambda name: ord(name.schema))
    [finding] = check_numbers(names)
    assert (finding.code, finding.tables) == ("MY_TABLES_ALIKE", (names[0], names[1]))


def test_a_node_of_a_cluster_is_refused() -> None:
    assert list(check_binlog(Flavour.MARIADB, GOOD_MARIADB)) == []
    [finding] = check_binlog(Flavour.MARIADB, GOOD_MARIADB | {"wsrep_on": "ON"})
    assert (finding.code, finding.level) == ("MY_CLUSTER", Level.ERROR)


@pytest.mark.parametrize(
    ("flavour", "number", "codes"),
    [
        (Flavour.MYSQL, Number(8, 0, 15), []),
        (Flavour.MYSQL, Number(8, 0, 36), ["MY_VERSION_UNTRIED"]),
        (Flavour.MYSQL, Number(8, 4, 9), ["MY_VERSION_UNTRIED"]),
        (Flavour.MYSQL, Number(9, 7, 4), []),
        (Flavour.MYSQL, Number(10, 0, 0), ["MY_VERSION_NEW"]),
        (Flavour.MARIADB, Number(10, 6, 2), ["MY_VERSION_UNTRIED"]),
        (Flavour.MARIADB, Number(10, 11, 18), []),
        (Flavour.MARIADB, Number(11, 4, 1), []),
        (Flavour.MARIADB, Number(12, 0, 2), ["MY_VERSION_NEW"]),
    ],
)
def test_a_release_that_was_not_tried_is_said(flavour: Flavour, number: Number, codes: list[str]) -> None:
    assert [finding.code for finding in check_version(Release(flavour, number, ""))] == codes
    assert as_integer(Number(9, 7, 4)) == 90704


def test_a_script_sets_then_grants_then_waits_for_the_restart() -> None:
    error = Misconfigured("MY_PATTERN_EMPTY", "x", hint="x")
    mends = [
        Finding(Level.ERROR, error, mend=("GRANT SELECT ON a TO b",)),
        Finding(Level.ERROR, error, mend=("SET PERSIST_ONLY c = ON",), restart=True),
        Finding(Level.ERROR, error, mend=("STOP REPLICA", "SET PERSIST d = 1", "START REPLICA")),
        Finding(Level.ERROR, error, mend=("GRANT SELECT ON a TO b",), then=("SELECT 1",)),
    ]
    assert script(mends) == [
        "STOP REPLICA",
        "SET PERSIST d = 1",
        "START REPLICA",
        "GRANT SELECT ON a TO b",
        "SET PERSIST_ONLY c = ON",
        "-- restart the server",
        "SELECT 1",
    ]
    assert script([]) == []
