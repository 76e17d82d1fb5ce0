"""docs/fail-points.md lists the fail points that the source has, and no other."""

from __future__ import annotations

import ast
import re

from headrace_testing.conformance.faults import STEPS
from tests.meta.tracked import ROOT, SOURCE, calls, python_files, relative

PAGE = ROOT / "docs" / "fail-points.md"
_ITEM = re.compile(r"^- `([a-z0-9_.-]+)`: \S.*$", re.MULTILINE)
_DEFINED = SOURCE / "core" / "failpoint.py"


def _in_the_source() -> list[str]:
    names = []
    for path in python_files("src", "testing"):
        for call in calls(path, "failpoint") if path != _DEFINED else ():
            name = call.args[0] if call.args else None
            place = f"{relative(path)}:{call.lineno}"
            assert isinstance(name, ast.Constant), f"{place}: a fail point's name is a literal"
            assert isinstance(name.value, str), f"{place}: a fail point's name is a literal"
            names.append(name.value)
    return names


def _on_the_page() -> list[str]:
    return _ITEM.findall(PAGE.read_text(encoding="utf-8"))


def test_the_page_lists_exactly_the_fail_points_of_the_source() -> None:
    assert sorted(_on_the_page()) == sorted(set(_in_the_source()))


def test_a_kill_is_tried_at_each_durable_step() -> None:
    durable = re.compile(r"(lake\.(plan|table|mark|sync)|acknowledge|copy\.(snapshot|range))\.[a-z.]+")
    assert sorted(STEPS) == sorted(filter(durable.fullmatch, _on_the_page()))


def test_a_fail_point_stands_in_one_place() -> None:
    names = _in_the_source()
    assert sorted(names) == sorted(set(names))
