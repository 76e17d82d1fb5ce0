"""The tables of figures are those of the newest results in bench/results/, and each row's bench is there."""

from __future__ import annotations

from bench.__main__ import scripts
from setup.assemble_figures import PAGE, README, page, readme, rows


def test_pages_are_made_of_the_newest_results() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "run `make docs`"
    assert readme() == README.read_text(encoding="utf-8"), "run `make docs`"


def test_each_row_names_a_bench() -> None:
    assert {row["bench"] for row in rows()} <= set(scripts())
