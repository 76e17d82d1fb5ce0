"""The names that users may build on, and what importing them costs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace import interpreter
from tests.meta.tracked import ROOT, SOURCE

PUBLIC = {
    "Definite",
    "HeadraceError",
    "Lake",
    "Misconfigured",
    "Transient",
    "__version__",
    "mirror",
    "verify",
}
HEAVY = {"deltalake", "duckdb", "numba", "numpy", "pandas", "polars", "psycopg", "pyarrow", "pyspark"}
READ_BY_ANY_PYTHON = [SOURCE / "__init__.py", SOURCE / "interpreter.py"]


def test_the_public_names_are_exactly_these() -> None:
    assert set(headrace.__all__) == PUBLIC
    assert len(headrace.__all__) == len(PUBLIC)
    assert set(dir(headrace)) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_each_public_name_can_be_had(name: str) -> None:
    assert getattr(headrace, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = headrace.nonsense


def test_importing_headrace_imports_nothing_heavy() -> None:
    program = "import sys, json, headrace; headrace.__version__; print(json.dumps(list(sys.modules)))"
    out = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout
    assert {module.partition(".")[0] for module in json.loads(out)} & HEAVY == set()


def test_an_old_python_is_refused_in_one_message() -> None:
    with pytest.raises(SystemExit) as refused:
        interpreter.refuse_old((3, 9, 18))
    code, detail, hint = str(refused.value).splitlines()
    assert code.startswith("PYTHON_TOO_OLD: ")
    assert "3.9" in detail
    assert hint.startswith("hint: ")
    interpreter.refuse_old(interpreter.OLDEST)


@pytest.mark.parametrize("path", READ_BY_ANY_PYTHON, ids=lambda path: path.name)
def test_an_old_python_can_read_what_refuses_it(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 7))


def test_the_oldest_python_is_the_one_that_the_wheel_asks_for() -> None:
    wanted = ".".join(str(part) for part in interpreter.OLDEST)
    assert f'requires-python = ">={wanted}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
