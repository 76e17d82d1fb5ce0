"""A source that is no part of headrace, found by its entry point (docs/write-a-source.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.meta.tracked import ROOT

TOY = ROOT / "examples" / "toy_source"
# Kills, and tables that come and go: they take ten seconds and more.
QUICK = "not kill and not table"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A path on which the toy is as if it were installed."""
    project = tomllib.loads((TOY / "pyproject.toml").read_text())["project"]
    installed = tmp_path / "site" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    [(group, kinds)] = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{kind} = {package}" for kind, package in kinds.items())]
    (installed / "entry_points.txt").write_text("\n".join(lines))
    return os.pathsep.join([str(installed.parent), str(TOY), str(ROOT)])


def _run(path: str, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.spark
def test_a_source_from_outside_is_copied_followed_and_proved(path: str, tmp_path: Path) -> None:
    story = _run(path, "-m", "tests.integration.toy_story", str(tmp_path / "shop.db"), str(tmp_path / "lake"))
    assert story.returncode == 0, story.stderr
    *chapters, first, outcomes, stop = json.loads(story.stdout)
    assert [lake == source for source, lake in chapters] == [True, True, True]
    assert first == chapters[0][0], "the first mark is still what the source held"
    assert outcomes == {"main.item": "equal"}
    assert stop == "TABLE_CHANGED"


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(("-k", QUICK, "-m", "not full"), id="quick"),
        pytest.param((), id="all", marks=pytest.mark.full),
    ],
)
def test_it_passes_the_list_of_every_source_where_it_applies(path: str, chosen: tuple[str, ...]) -> None:
    """Its own test module runs the list: nothing of this repository but the two packages is on its path."""
    alone = path.removesuffix(f"{os.pathsep}{ROOT}")
    tried = _run(
        alone, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, "test_conformance.py", cwd=TOY
    )
    assert tried.returncode == 0, tried.stdout[-5000:] + tried.stderr
    assert " passed" in tried.stdout, tried.stdout


def test_a_kind_that_is_installed_is_one_of_the_kinds(path: str) -> None:
    asked = "from headrace.sources import registry; print(*registry.kinds(), registry.kind_of('toy:///x'))"
    said = _run(path, "-c", asked)
    assert said.stdout.split()[-2:] == ["toy", "toy"], said.stderr
