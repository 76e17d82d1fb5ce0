"""Tasks that step back: what stays behind of them in a worker, and where they may not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace.spark.worker import in_background
from tests.integration.spark import work

# A worker that was never warmed: its first task steps back, and is the first to use the libraries.
WORKER = """
import os
from headrace.spark.worker import in_background
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
    def forbid(by: int) -> int:
        raise PermissionError(f"seccomp: {by}")

    monkeypatch.setattr(os, "nice", forbid)
    assert in_background(work.echo, b"done") == b"done"
