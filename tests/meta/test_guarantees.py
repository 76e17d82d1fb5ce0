"""Each guarantee has its paragraph, and tests that name it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.meta.tracked import ROOT, python_files, tree

PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
GUARANTEES = [f"G{number}" for number in range(1, 9)]
TESTS = python_files("tests/guarantees")


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_each_guarantee_has_a_paragraph(guarantee: str) -> None:
    assert re.search(rf"(?m)^## {guarantee}: \w+", PAGE)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_each_guarantee_has_a_test_that_names_it(guarantee: str) -> None:
    named = [path for path in TESTS if re.search(rf"\b{guarantee}\b", _essay(path))]
    assert named, f"no file of tests/guarantees/ says in its essay that it proves {guarantee}"


def _essay(path: Path) -> str:
    return ast.get_docstring(tree(path)) or ""
