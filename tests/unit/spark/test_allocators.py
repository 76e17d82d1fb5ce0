"""Workers and the driver give back the memory that a task has freed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark import allocators

# A task that frees a quarter of a gigabyte below an object that it leaves behind.
TASKS = """
left = []

def nothing(item: bytes) -> bytes:
    return b""

def much(item: bytes) -> bytes:
    used = [bytes(2000) for _ in range(125_000)]
    left.append(bytes(2000))
    return b""
"""
WORKER = """
from headrace.spark.wire import RESULT, Row, to_batches
from headrace.spark.worker import perform, stage

def run(task) -> None:
    list(stage(perform, task)(to_batches([Row(RESULT, 0, 0, "", 0, 0, b"")])))
"""
DRIVER = """
from headrace.spark.jobs import DriverRunner

def run(task) -> None:
    DriverRunner().run(task, [b""])
"""
HELD = """
import psutil
import tasks

def held_behind(task) -> int:
    run(task)
    return psutil.Process().memory_info().rss

print((held_behind(tasks.nothing) - held_behind(tasks.much)) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries give back by themselves, or never")
@pytest.mark.parametrize("runs", [WORKER, DRIVER], ids=["worker", "driver"])
def test_what_a_task_freed_is_given_back(tmp_path: Path, runs: str) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    program = [sys.executable, "-c", runs + HELD]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert abs(int(done.stdout)) < 50


def test_a_c_library_that_cannot_trim_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    allocators._trim.cache_clear()
    try:
        allocators.give_back()
        assert allocators._trim()(0) is None
    finally:
        allocators._trim.cache_clear()
