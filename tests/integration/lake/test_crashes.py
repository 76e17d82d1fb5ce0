"""A real process killed at each of the protocol's fail points, and the one that comes after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.core.failpoint import VARIABLE
from headrace.lake.store.open import open_store
from tests.integration.lake.owner import Owner
from tests.integration.lake.real import RealStage
from tests.laws.lake.writers import HISTORY, contents, folder

_ROOT = Path(__file__).resolve().parents[3]
_PLACES = [
    "lake.plan.before",
    "lake.plan.after",
    f"lake.table.before@{HISTORY}",
    f"lake.table.after@{HISTORY}",
    "lake.table.before@s.b",
    "lake.table.after@s.b",
    "lake.mark.before",
    "lake.mark.after",
    "lake.sync.before",
    "lake.sync.after",
]


def _owner(lake: Path, epochs: int, failpoint: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT}"}
    environment.pop(VARIABLE, None)
    if failpoint:
        environment[VARIABLE] = f"{failpoint}=kill"
    command = [sys.executable, "-m", "tests.integration.lake.owner", str(lake), str(epochs)]
    return subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("place", _PLACES)
def test_a_process_killed_at_any_durable_step_leaves_an_exact_lake(place: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    killed = _owner(lake, 3, place)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    store = open_store(lake)
    stage = RealStage(store)
    acknowledged = [line.split()[1] for line in killed.stdout.splitlines()]
    assert {mark.frontier for mark in stage.marks()} >= set(acknowledged)
    Owner(stage.bench, 3, []).work()
    marks = stage.marks()
    assert [mark.epoch for mark in marks] == list(range(1, len(marks) + 1))
    assert int(marks[-1].frontier) >= 3
    for mark in marks:
        for table, version in mark.versions.items():
            assert stage.rows(folder(table), version) == contents(table, int(mark.frontier))
    held = stage.rows(HISTORY, stage.bench.length(HISTORY) - 1)
    assert held == dict.fromkeys(range(int(marks[-1].frontier)), 1)
