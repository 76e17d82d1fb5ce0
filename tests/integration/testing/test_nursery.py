"""Processes of tests end with the pytest that started them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from headrace_testing.postmaster import wait_for
from tests.unit.web.lakes import a_lake
from tests.unit.web.scenes import healthy

_TESTS = """
import os, sys, time
from tests.nursery import Nursery
with open(sys.argv[1], "wb") as log:
    run = Nursery.started().run(sys.argv[2:], os.environ, log)
print(run.pid, flush=True)
time.sleep(600)
"""


def test_a_pytest_that_is_killed_leaves_no_run_behind(tmp_path: Path) -> None:
    lake, log = a_lake(tmp_path / "lake", healthy()), tmp_path / "log"
    command = ["serve", "--lake", lake, "--listen", "127.0.0.1:0"]
    tests = subprocess.Popen(
        [sys.executable, "-c", _TESTS, str(log), *command], stdout=subprocess.PIPE, text=True
    )
    with tests:
        assert tests.stdout is not None
        run = psutil.Process(int(tests.stdout.readline()))
        wait_for(lambda: "http://" in log.read_text(), "its page")
        tests.kill()
    wait_for(lambda: not run.is_running() or run.status() == psutil.STATUS_ZOMBIE, "its end")
