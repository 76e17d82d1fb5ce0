"""`headrace maintain` killed at each of its durable steps, and begun again."""

from __future__ import annotations

import json
import re
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.cli import main as cli
from headrace.core.failpoint import VARIABLE
from headrace.lake.log import horizon
from headrace.lake.store.open import open_store
from tests.integration.lake.household import Household
from tests.integration.pipeline.typed import Typed, typed
from tests.nursery import Nursery, nursery

__all__ = ["nursery"]

_ROOT = Path(__file__).resolve().parents[3]
_LISTED = re.findall(
    r"^- `((?:lake\.(?:plan|table|mark|sync)|maintain)[a-z.]*)`",
    (_ROOT / "docs/fail-points.md").read_text(),
    re.M,
)
_IN_EVERY_RUN = "maintain.files.after"


def _maintain(nursery: Nursery, lake: Path, *arguments: str, failpoint: str | None = None) -> Typed:
    point = {VARIABLE: f"{failpoint}=kill"} if failpoint else {}
    return typed(nursery.run, nursery, "maintain", "--lake", str(lake), *arguments, environment=point)


def test_the_page_lists_the_steps_of_maintenance() -> None:
    assert _IN_EVERY_RUN in _LISTED
    assert len([name for name in _LISTED if name.startswith("maintain.")]) > 8


@pytest.mark.parametrize(
    "place",
    [name if name == _IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.full) for name in _LISTED],
)
def test_maintenance_that_is_killed_anywhere_loses_nothing_and_is_begun_again(
    tmp_path: Path, seed: int, nursery: Nursery, place: str
) -> None:
    household = Household(tmp_path / "lake", seed)
    household.live(6, ago=timedelta(days=9), every=timedelta(hours=9))
    household.live(6, ago=timedelta(hours=3), every=timedelta(minutes=15))
    words = ("--marks", "0s", "--grace", "0s", "--retention", "2d")
    killed = _maintain(nursery, household.path, *words, failpoint=place)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    found = horizon.read(open_store(household.path), "main")
    assert household.wrong(since=0 if found is None else found.time, most=5) == []
    household.again()
    again = _maintain(nursery, household.path, *words, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["main"]["left_alone"] == {}
    found = horizon.read(open_store(household.path), "main")
    assert found is not None
    assert found.gone_before == found.time
    household.again()
    household.live(2)
    assert household.wrong(since=found.time, most=5) == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--retention=-3d",), "DURATION_MALFORMED"),
        (("--grace", "7d"), "KEEPING_TOO_LONG"),
        (("--source", "other"), "LAKE_SOURCE_UNKNOWN"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(
    tmp_path: Path, arguments: tuple[str, ...], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    household = Household(tmp_path / "lake")
    before = household.place.store.list("")
    assert cli.main(["maintain", "--lake", str(household.path), *arguments]) == 2
    assert code in capsys.readouterr().err
    assert household.place.store.list("") == before


def test_the_command_says_in_plain_words_what_it_did(tmp_path: Path, nursery: Nursery) -> None:
    household = Household(tmp_path / "lake")
    household.live(4)
    said = _maintain(nursery, household.path, "--marks", "0s", "--grace", "0s")
    assert said.returncode == 0, said.stderr
    assert re.search(r"main: \d+ small files put together into \d+", said.stdout)
    assert "marks thinned out" in said.stdout
    assert "deleted:" in said.stdout
