"""The next driver removes what a killed driver left in the lake's depot."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.lake.format import layout
from headrace.lake.store.open import open_store
from headrace.spark.depot import ABANDONED_SECONDS, LARGEST_NEARBY, Depot, receive, send

NOW = int(time.time())
HERE = socket.gethostname()
LONG_AGO = NOW - int(ABANDONED_SECONDS) - 60


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    return Depot.of(open_store(tmp_path))


def _ended() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_in_a_directory_what_is_large_goes_by_a_file(depot: Depot, tmp_path: Path) -> None:
    place, large = depot.job(), bytes(LARGEST_NEARBY + 1)
    assert send(place, large[1:]) == large[1:]
    name = send(place, large)
    assert len(name) < 1000
    assert receive(name) == large
    place.clear()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("job", "stays"),
    [
        pytest.param(f"{NOW}-{os.getppid()}-ab-cd-{HERE}", True, id="another process that runs"),
        pytest.param(f"{NOW}-{_ended()}-ab-cd-{HERE}", False, id="a process that has ended"),
        pytest.param(f"{NOW}-{os.getpid()}-ab-cd-{HERE}", False, id="one before us that had our number"),
        pytest.param(f"{NOW}-{_ended()}-ab-cd-else.where-{HERE}", True, id="one on another host"),
        pytest.param(f"{LONG_AGO}-{_ended()}-ab-cd-else.where", False, id="one on another host, long ago"),
        pytest.param("something else", True, id="nothing of ours"),
    ],
)
def test_jobs_whose_driver_has_ended_are_removed(depot: Depot, tmp_path: Path, job: str, stays: bool) -> None:
    key = f"{layout.DEPOT}/{layout.quote(job)}/blob"
    open_store(tmp_path).put(key, b"blob")
    depot.tidy()
    assert (tmp_path / key).exists() == stays


def test_a_job_of_this_process_stays(depot: Depot) -> None:
    name = send(depot.job(), bytes(LARGEST_NEARBY + 1))
    depot.tidy()
    assert len(receive(name)) == LARGEST_NEARBY + 1
