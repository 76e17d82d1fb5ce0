"""A worker gives back the memory that a task has freed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.spark import allocators

# A task that frees a quarter of a gigabyte below an object that it leaves behind.
WORKER = """
import psutil

from headrace.spark.wire import RESULT, Row, to_batches
from headrace.spark.worker import perform, stage

left = []

def nothing(item: bytes) -> bytes:
    return b""

def much(item: bytes) -> bytes:
    used = [bytes(2000) for _ in range(125_000)]
    left.append(bytes(2000))
    return b""

def held_behind(task) -> int:
    list(stage(perform, task)(to_batches([Row(RESULT, 0, 0, "", 0, 0, b"")])))
    return psutil.Process().memory_info().rss

print((held_behind(nothing) - held_behind(much)) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries give back by themselves, or never")
def test_a_worker_gives_back_what_a_task_freed() -> None:
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=False)
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
