"""Fail points stop the program where, and only where, the environment asks for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.core import failpoint as module
from headrace.core.errors import Misconfigured, Transient
from headrace.core.failpoint import RELEASE, VARIABLE, Setting, failpoint
from headrace_testing.postmaster import wait_for

_PROGRAM = """
from headrace.core.failpoint import failpoint
failpoint("before")
print("between", flush=True)
failpoint("here", 'public."a=b"')
print("after", flush=True)
"""


def _start(setting: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, VARIABLE: setting, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(autouse=True)
def nothing_fired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_fired", set())


def test_nothing_happens_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    failpoint("anywhere")


def test_error_is_raised_once_at_the_named_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "here=error")
    failpoint("elsewhere")
    with pytest.raises(Transient) as caught:
        failpoint("here")
    assert caught.value.code == "FAILPOINT"
    failpoint("here")


def test_a_point_with_a_table_fires_for_that_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "here@public.a=error")
    failpoint("here", "public.b")
    failpoint("here")
    with pytest.raises(Transient):
        failpoint("here", "public.a")


def test_a_point_without_a_table_fires_for_any() -> None:
    assert Setting.parse("here=kill").matches("here", "public.a")


def test_a_table_may_hold_the_separators() -> None:
    assert Setting.parse('here@public."a=b@c"=kill') == Setting("here", 'public."a=b@c"', "kill")


@pytest.mark.parametrize("text", ["", "here", "here=", "=kill", "here=stop", "@public.a=kill"])
def test_a_malformed_setting_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(Misconfigured) as caught:
        failpoint("here")
    assert caught.value.code == "FAILPOINT_MALFORMED"


def test_kill_ends_the_process_as_sigkill_does() -> None:
    with _start('here@public."a=b"=kill') as process:
        out, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert out == "between\n"
    assert err == 'headrace: fail point here@public."a=b": kill\n'


def test_pause_waits_for_the_release_file(tmp_path: Path) -> None:
    release = tmp_path / "go"
    with _start("here=pause", **{RELEASE: str(release)}) as process:
        assert process.stderr is not None
        assert process.stderr.readline().endswith(": pause\n")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
        release.touch()
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out == "between\nafter\n"


def test_pause_without_a_release_file_stops_until_sigcont() -> None:
    with _start("here=pause") as process:
        stat = Path(f"/proc/{process.pid}/stat")
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the process stops")
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out == "between\nafter\n"
