"""The page of scenarios says where each is tested, and the tests that are marked as one stand on it.

So do the behaviours that every source passes, and what a source lacks of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from headrace_testing.conformance.cases import CASES
from headrace_testing.conformance.place import SourceUnderTest
from tests.conformance.sources import SOURCES
from tests.meta.tracked import ROOT, nodes, python_files, relative

PAGE = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
NUMBERS = [f"{number:03}" for number in (*range(1, 36), 100)]
OF_MYSQL = [*(f"T{number}" for number in range(1, 27)), *(f"F{number}" for number in range(27, 54))]
OF_SHAPES = [f"S{number}" for number in range(38, 59)]
WORKED_THROUGH = [f"{number:03}" for number in range(15, 24)]
TEST = re.compile(r"`((?:tests|testing)/[\w/]+\.py)::(test_\w+)`")
REASON = re.compile(r"\bnot (applicable|built)\b")


def _rows() -> Iterator[tuple[str, str]]:
    """The number and the last cell of each row that has one: PostgreSQL's, those of shapes, MySQL's."""
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if re.fullmatch(r"(\d{3}|[TFS]\d+)(, (\d{3}|[TFS]\d+))*", cells[0].strip("| ")):
            assert len(cells) == 3, line
            for number in cells[0].strip("| ").split(", "):
                yield number, cells[2]


ROWS = dict(_rows())


def _marked() -> Iterator[tuple[str, str]]:
    """The number and the place of each test that is marked as a scenario."""
    for path in python_files("tests"):
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.scenario":
                        for number in mark.args:
                            assert isinstance(number, ast.Constant)
                            yield str(number.value), f"{relative(path)}::{node.name}"


MARKED = sorted(_marked())


def test_every_scenario_has_its_row() -> None:
    assert sorted(ROWS) == sorted([*NUMBERS, *OF_SHAPES, *OF_MYSQL])


@pytest.mark.parametrize("place", sorted({f"{path}::{name}" for path, name in TEST.findall(PAGE)}))
def test_every_test_that_the_page_names_is_there(place: str) -> None:
    path, _, name = place.partition("::")
    assert (ROOT / path).is_file(), place
    named = {node.name for node in nodes(ROOT / path) if isinstance(node, ast.FunctionDef)}
    assert name in named, place


@pytest.mark.parametrize("number", [*NUMBERS, *OF_SHAPES, *OF_MYSQL])
def test_each_row_names_a_test_or_a_reason(number: str) -> None:
    assert TEST.search(ROWS[number]) or REASON.match(ROWS[number]), ROWS[number]


@pytest.mark.parametrize("number", WORKED_THROUGH)
def test_those_that_were_worked_through_have_a_test_that_says_so(number: str) -> None:
    assert number in {marked for marked, _ in MARKED}


@pytest.mark.parametrize(("number", "place"), MARKED)
def test_each_test_that_is_marked_stands_in_its_row(number: str, place: str) -> None:
    assert f"`{place}`" in ROWS[number]


BEHAVIOURS = {
    node.name: f"{relative(path)}::{node.name}"
    for path in python_files("testing/headrace_testing/conformance")
    for node in nodes(path)
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
}


@pytest.mark.parametrize("place", BEHAVIOURS.values(), ids=BEHAVIOURS)
def test_every_behaviour_of_the_list_stands_on_the_page(place: str) -> None:
    assert f"`{place}`" in PAGE.partition("## What every source passes")[2]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.kind)
def test_what_a_source_lacks_is_of_the_list_and_stands_on_the_page(source: SourceUnderTest) -> None:
    assert source.lacks.keys() <= BEHAVIOURS.keys() | {case.name for case in CASES}
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{source.kind}` | "))
    told = row.removeprefix(f"| `{source.kind}` | ").removesuffix(" |")
    expected = "; ".join(f"`{name}`: {reason}" for name, reason in source.lacks.items())
    assert told == (expected or "nothing")
