"""The commands that our pages tell people to type exist, and CI types the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.meta.tracked import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"(?m)^([a-z]+):", MAKEFILE))
PROMISED = {
    "help",
    "demo",
    "test",
    "check",
    "integration",
    "bench",
    "wheel",
    "docs",
    "site",
    "notebooks",
    "lock",
}
_TYPED = re.compile(r"(?m)(?:^|`)make(?: [A-Z]+=\S+)* ([a-z]+)")


def test_the_promised_targets_are_there_and_set_themselves_up() -> None:
    assert TARGETS >= PROMISED
    rules = re.findall(r"(?m)^([a-z]+):([^#\n]*)##", MAKEFILE)
    assert {name for name, needs in rules if "venv" not in needs} == {"help", "venv"}


def test_pages_name_only_targets_that_are_there() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    typed = {name for page in pages for name in _TYPED.findall(page.read_text(encoding="utf-8"))}
    assert "test" in typed
    assert typed - TARGETS == set()


def test_ci_types_what_the_readme_says() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [line for line in ci if line.startswith("make ")]
    assert commands == ["make test BARE=1"]  # on fewer things than a user's machine may have
    assert "setup/check static" in ci  # the rest of `make check` is in the tests
    assert "make test " in readme


def test_the_report_tells_what_ran_and_what_was_missing(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(
        "import pytest\n"
        "def test_fine(): pass\n"
        "def test_wrong(): assert 'a row of somebody' == ''\n"
        "def test_absent(): pytest.skip('no server | in ' + '/some' + '/folder')\n"
    )
    report = tmp_path / "docs" / "report.md"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.reporting", "--report", report, tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HEADRACE_SEED": "77"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout
    text = report.read_text()
    assert "seed 77 · 1 failed, 1 passed, 1 skipped" in text
    assert re.search(r"\| test_sample.py::test_wrong \| failed \| \d+\.\d \|  \|", text)
    assert "| Skipped: no server / in … |" in text
    assert "somebody" not in text
