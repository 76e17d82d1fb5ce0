"""Tasks that step back: what stays behind of them in a worker, and where they may not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace.spark import priority
from headrace.spark.priority import in_background, in_spare_time
from tests.integration.spark import work

# A worker that was never warmed: its first task steps back, and is the first to use the libraries.
WORKER = """
import os
from headrace.spark.priority import in_background
from tests.integration.spark import work

usual = os.getpriority(os.PRIO_PROCESS, 0)
in_background(work.use_libraries, b"")
work.wait_for(lambda: not [name for name, nice in work.threads() if nice > usual], 60.0)
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere niceness is a process's, and nobody steps back"
)
def test_a_first_task_that_steps_back_leaves_no_thread_behind_others() -> None:
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_where_nobody_may_step_back_the_task_runs_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*asked: object) -> None:
        raise PermissionError(f"seccomp: {asked}")

    monkeypatch.setattr(os, "nice", forbid)
    monkeypatch.setattr(os, "sched_setscheduler", forbid)
    assert in_background(work.echo, b"done") == b"done"
    assert in_spare_time(work.echo, b"done") == b"done"


def test_who_hardly_got_spare_time_waits_for_none_until_there_is_some() -> None:
    held_up, alone, io, quick = (12.0, 0.05), (12.0, 0.9), (12.0, 0.3), (2.0, 0.05)
    assert priority.is_crowded(False, *held_up)
    assert not priority.is_crowded(False, *alone)
    assert not priority.is_crowded(False, *quick)  # it waited for a file, or for less than anybody minds
    assert priority.is_crowded(True, *io)
    assert not priority.is_crowded(True, *alone)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody steps aside")
def test_a_task_after_one_that_was_held_up_has_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority, "_crowded", False)
    assert in_spare_time(work.policy, b"") == b"%d" % os.SCHED_IDLE
    monkeypatch.setattr(priority, "CROWDED", -1.0)
    monkeypatch.setattr(priority, "NEXT_TO_NOTHING", 2.0)
    assert in_spare_time(work.policy, b"") == b"%d" % os.SCHED_IDLE
    assert in_spare_time(work.policy, b"") == b"%d" % os.SCHED_OTHER
