"""The demo on MySQL and MariaDB: a snapshot under load, a crash, and every mark whole."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from headrace.cli import main as cli
from headrace.cli.run import INTERRUPTED
from headrace_testing.postmaster import wait_for

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.full]


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_the_demo_proves_its_mirror_on_every_kind(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = cli.main(["demo", "--source", kind, "--scale", "1", "--lake", str(tmp_path / "lake")])
    assert (done, "at the end every table equals its source" in capsys.readouterr().out) == (0, True)


def _is_mirror(process: psutil.Process) -> bool:
    try:
        return "headrace.cli.main" in process.cmdline()
    except psutil.Error:
        return False  # it has ended


def test_a_demo_that_is_ended_takes_its_server_and_its_mirror_along(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "headrace.cli.main",
        "demo",
        "--scale",
        "1",
        "--lake",
        str(tmp_path / "l"),
    ]
    demo = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def started() -> list[psutil.Process]:
        return [each for each in demo.children(recursive=True) if each.is_running()]

    def mirrors() -> bool:
        assert demo.poll() is None, "it has ended"
        return any(_is_mirror(each) for each in started())

    wait_for(mirrors, "its mirror")
    left = started()
    demo.send_signal(signal.SIGTERM)
    assert demo.wait(60) == INTERRUPTED
    _, alive = psutil.wait_procs(left, 30)
    assert alive == []
