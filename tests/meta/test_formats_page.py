"""docs/formats.md names the columns and keys that are written, and no other."""

from __future__ import annotations

import dataclasses
import re

import pytest

from headrace.core.history import own_fields
from headrace.lake.format.plan import Plan, TableStep
from headrace.lake.log.errors_table import ERRORS
from headrace.lake.log.marks import MARKS
from tests.meta.tracked import ROOT

PAGE = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")


def _rows(heading: str, table: int = 0) -> list[str]:
    """The backticked names in the first column of a table of a section."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    bodies = re.findall(r"(?m)^\|---.*\n((?:\|.*\n)+)", section)
    return [name for row in bodies[table].splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]


OURS = [field.name for field in own_fields().values()]


@pytest.mark.parametrize(
    ("heading", "names"), [("Marks", MARKS.names), ("History", OURS), ("Errors", ERRORS.names)]
)
def test_the_columns_are_those_that_are_written(heading: str, names: list[str]) -> None:
    assert sorted(_rows(heading)) == sorted(names)


@pytest.mark.parametrize(("table", "kind"), [(0, Plan), (1, TableStep)])
def test_the_keys_of_a_plan_are_those_that_are_written(table: int, kind: type[Plan | TableStep]) -> None:
    assert sorted(_rows("Plans", table)) == sorted(field.name for field in dataclasses.fields(kind))
