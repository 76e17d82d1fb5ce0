"""Statements for other engines: two tables are never one view."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.cli.main import main
from headrace.core.errors import Misconfigured
from headrace.lake.read.lake import Lake
from headrace.lake.read.views import statements
from tests.laws.lake.chronicle import AWKWARD, Chronicle

ROW = (1, *[None] * (len(AWKWARD) - 1))


def _lake(folder: Path, *tables: str) -> Lake:
    made = Chronicle(str(folder / "lake"))
    made.copy({table: [ROW] for table in tables}, 1000)
    return Lake(made.path)


@pytest.mark.parametrize("names", [("public.orders", 'public."Orders"'), ('a."b.c"', '"a.b".c')])
def test_two_tables_of_one_name_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    cut = _lake(tmp_path, *names).at()
    for engine in ("spark", "duckdb"):
        with pytest.raises(Misconfigured) as raised:
            statements(cut, engine)
        assert raised.value.code == "VIEWS_NAMES_ALIKE"
    if names[0] == "public.orders":
        assert "tables['public.Orders']" in "".join(statements(cut, "polars"))


def test_a_short_name_replaces_no_other_view(tmp_path: Path) -> None:
    lake = _lake(tmp_path, "main.orders", 'shop."main.orders"')
    assert len([line for line in statements(lake.at(), "spark") if "`main.orders`" in line]) == 2
    views = [line.split(" AS ")[0] for line in statements(lake.at(), "duckdb") if " VIEW " in line]
    assert views == ['CREATE OR REPLACE VIEW "main"."orders"', 'CREATE OR REPLACE VIEW "shop"."main.orders"']


def test_a_terminal_obeys_no_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = _lake(tmp_path, 'public."a\x1b[2J"')

    def printed() -> str:
        assert main(["views", "--lake", lake.store.url, "--engine", "duckdb"]) == 0
        return capsys.readouterr().out

    assert '"public"."a\x1b[2J"' in printed()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert '"public"."a\\x1b[2J"' in printed()
