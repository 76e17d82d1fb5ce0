"""The page in a terminal: what is wrong comes first, and every line fits, whatever the terminal's size."""

from __future__ import annotations

import shlex
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from headrace.cli.layout import GridColumn, Sheet
from headrace.cli.overview import overview
from headrace.core.errors import Transient
from headrace.lake.format.status import CopyStatus, SourceStatus, TableStatus
from headrace.status.pace import Rates
from headrace.status.picture import SourcePicture, pictures
from headrace.status.watch import View
from tests.unit.web.lakes import many_tables
from tests.unit.web.scenes import REASON, SCENES, copying, differing, healthy, scene, stopped_table

SIZES = [(100, 30), (80, 24), (40, 15), (20, 8), (8, 3), (1, 1)]
RATES = {"shop": Rates({"public.big": 24_100_000.0}, 48.0, 1234.0)}


def seen(*sources: SourceStatus, lake: str = "/lake") -> View:
    return View(lake, time.monotonic(), [SourcePicture(said, 0.5, 48) for said in sources])


def page(view: View, width: int = 100, height: int | None = None, **known: bool) -> list[str]:
    return [line.plain for line in overview(view, RATES, Sheet(width, **known), height)]


@pytest.mark.parametrize("name", [*SCENES, "differing"])
def test_every_scene_fits_every_terminal(name: str, tmp_path: Path) -> None:
    lake = differing(tmp_path) if name == "differing" else scene(tmp_path, name)
    view = View(lake, time.monotonic(), pictures(lake))
    for width, height in SIZES:
        for known in ({}, {"ascii": True}):
            lines = page(view, width, height, **known)
            assert len(lines) <= height
            assert max(map(cell_len, lines)) <= width
            assert not known or all(map(str.isascii, lines))
    whole = "\n".join(page(view))
    for table in view.sources[0].tables:
        assert table in whole


def test_what_is_wrong_comes_first_with_its_code_and_what_to_type() -> None:
    lines = page(seen(stopped_table()), 100, 30)
    assert lines[0] == "✕ table public.invoices: stopped"
    at = lines.index("    headrace tables resync --lake /lake public.invoices")
    assert at < 10
    assert any("(TABLE_CHANGED)" in line for line in lines[:at])
    assert any('column "total" became text' in line for line in lines[:at])
    [head] = [line for line in lines if line.startswith("source ")]
    assert lines.index(head) > at
    first = lines[lines.index(next(line for line in lines if line.startswith("table "))) + 1]
    assert first.startswith("public.invoices     ✕ stopped")


def test_a_line_a_source_has_its_figures_in_a_hundred_columns_and_all_of_them_in_fewer() -> None:
    [row] = [line for line in page(seen(healthy()), 100, 30) if line.startswith("shop ")]
    for figure in ("✓ running", "1.8 MB", "48 marks, 1,234 changes", "1.2 GB of 10.0 GB"):
        assert figure in row
    narrow = " ".join(line.strip() for line in page(seen(healthy()), 40))
    for figure in (
        "✓ running",
        "1.8 MB",
        "a minute: 48 marks, 1,234 changes",
        "held back: 1.2 GB of 10.0 GB",
    ):
        assert figure in narrow


def test_copies_have_a_bar_a_rate_and_a_time_left_and_those_that_wait_are_counted() -> None:
    lines = page(seen(copying()), 100, 40)
    [row] = [line for line in lines if line.startswith("public.big ") and "%" in line]
    for figure in ("██░░", "22% of 9.7 GB", "12,000,000 of about 50,000,000", "24.1 MB/s", "5 min"):
        assert figure in row
    assert "2 wait for their turn" in lines


@pytest.mark.parametrize(("width", "height"), [(100, 30), (80, 24)])
def test_a_thousand_tables_are_counted_where_they_have_no_room(width: int, height: int) -> None:
    tables = many_tables(1000).tables
    assert tables is not None
    stopped = TableStatus("stopped", error=REASON)
    some = dict.fromkeys([f"public.table_{number:04d}" for number in range(30)], stopped)
    copies = {f"public.new_{at}": TableStatus("copying", copy=CopyStatus(9, 1, 9, 1)) for at in range(100)}
    begun = time.monotonic()
    lines = page(seen(replace(healthy(), tables={**tables, **copies, **some})), width, height)
    assert time.monotonic() - begun < 5
    assert lines[0] == "✕ 30 problems"
    assert sum("what to do" in line or "headrace tables resync" in line for line in lines) >= 1
    assert any("more problems" in line for line in lines)
    assert any(line.endswith("more are copied") for line in lines)
    [more] = [line for line in lines if "970 live" in line]
    assert "100 copying" in more


def test_a_lake_that_cannot_be_read_says_so_and_shows_what_was_seen() -> None:
    error = Transient("LAKE_GONE", "the lake is gone", hint="headrace run --lake makes one")
    lines = page(replace(seen(healthy()), error=error, looked_at=time.monotonic() - 90), 100, 30)
    assert any("the lake is gone (LAKE_GONE)" in line for line in lines)
    assert "last looked at 90 s ago" in lines[-1]
    assert page(View("/lake", time.monotonic()), 80, 24)[0] == "… Nothing can be read yet"


def test_two_sources_are_told_apart() -> None:
    other = replace(healthy(), source="crm", tables={"public.people": TableStatus("live")})
    lines = page(seen(healthy(), other))
    assert any(line.startswith("public.people") and " crm " in line for line in lines)
    assert any(line.startswith("  crm: mark at ") for line in lines)


# --- what lines are made of -----------------------------------------------------------------------


def test_a_text_is_cut_by_the_cells_that_it_takes() -> None:
    sheet = Sheet(10)
    assert sheet.fit("public.orders", 10) == "public.or…"
    assert sheet.fit("public.orders", 10, keep_end=True) == "…ic.orders"
    assert sheet.fit("表表表表", 5) == "表表…"
    assert sheet.fit("x", 0) == ""
    assert sheet.line("a\x1b[31m\n\tb").plain == r"a\x1b[31m…"


def test_a_command_on_several_lines_is_one_to_a_shell() -> None:
    text = "headrace tables resync --lake /a/long/path/to/the/lake public.invoices"
    for width in range(8, 80):
        lines = [line.plain for line in Sheet(width).command(text, 4)]
        assert max(map(cell_len, lines)) <= width
        joined = "\n".join(lines).replace("\\\n", "")
        assert joined.split() == text.split()


def test_a_shell_takes_names_in_quotes_from_several_lines() -> None:
    words = ["--lake", "/my lakes/it's  here", 'public."Order  Items"', "表 x"]
    text = shlex.join(words)
    joined = []
    for width in range(16, 80):
        lines = [line.plain for line in Sheet(width).command(text, 4)]
        assert max(map(cell_len, lines)) <= width
        joined.append("printf '%s\\n' " + "\n".join(lines).lstrip())
    done = subprocess.run(["sh", "-c", "\n".join(joined)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == words * len(joined)


@pytest.mark.parametrize("text", ["one two three", "a" * 50, "", "表 " * 9])
def test_a_sentence_is_wrapped_and_loses_no_letter(text: str) -> None:
    for width in range(2, 30):
        lines = [line.plain for line in Sheet(width + 2).wrap(text, 2)]
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_columns_that_matter_least_go_first_and_the_first_one_stays() -> None:
    columns = [GridColumn("name", least=6), GridColumn("state"), GridColumn("rows", 2, is_number=True)]
    row = [("public.long_name", ""), ("live", ""), ("1,234", "")]

    def shown(width: int) -> list[str]:
        return [line.plain for line in Sheet(width).grid(columns, [row])[0]]

    assert shown(40) == ["name              state   rows", "public.long_name  live   1,234"]
    assert shown(20) == ["name    state   rows", "…_name  live   1,234"]
    assert shown(14) == ["name     state", "…g_name  live"]
    assert shown(3) == ["na…", "…me"]
    assert Sheet(14).grid(columns, [row])[1] == [2]
