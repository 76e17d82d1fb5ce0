"""The cache of servers' programs: an entry is made once, whole or not at all, and anew when it is broken."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace_testing.cache import cached

# Whether the folder is reachable for root's servers is no question here: pytest's own folder is not.
FOLDER = """
import pathlib, sys
from headrace_testing import cache
cache.cache_folder = lambda: pathlib.Path(sys.argv[1])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("headrace_testing.cache.cache_folder", lambda: tmp_path)
    return tmp_path


def _write(into: Path) -> None:
    (into / "file").write_text("whole")


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_entry_is_made_once(folder: Path) -> None:
    made: list[Path] = []

    def make(into: Path) -> None:
        made.append(into)
        _write(into)

    entries = {cached("e", make), cached("e", make)}
    assert entries == {folder / "e"}
    assert len(made) == 1
    assert (folder / "e").stat().st_mode & 0o777 == 0o755
    assert _names(folder) == {"e", "e.lock"}


def test_an_entry_that_is_no_longer_whole_is_made_anew(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_whole(entry: Path) -> bool:
        return (entry / "file").read_text() == "whole"

    entry = cached("e", _write, is_whole=is_whole)
    assert capsys.readouterr().err == ""
    (entry / "file").write_text("torn")
    assert (cached("e", _write, is_whole=is_whole) / "file").read_text() == "whole"
    assert "making it anew" in capsys.readouterr().err
    assert _names(folder) == {"e", "e.lock"}


def test_one_that_fails_to_make_an_entry_leaves_nothing(folder: Path) -> None:
    def make(into: Path) -> None:
        _write(into)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        cached("e", make)
    assert _names(folder) == {"e.lock"}


KILLED = """
import os, signal
def make(into):
    (into / "file").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
cache.cached("e", make)
"""


def test_one_that_is_killed_leaves_no_entry_and_the_next_clears_up(folder: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", FOLDER + KILLED, str(folder)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not (folder / "e").exists()
    cached("e", _write)
    assert _names(folder) == {"e", "e.lock"}
    assert (folder / "e/file").read_text() == "whole"


BOTH = """
def make(into):
    print("made", flush=True)
    (into / "file").write_text("whole")
sys.stdin.read()
cache.cached("e", make)
"""


def test_two_at_one_moment_make_an_entry_once(folder: Path) -> None:
    command = [sys.executable, "-c", FOLDER + BOTH, str(folder)]
    both = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for each in both:
        assert each.stdin is not None
        each.stdin.close()
    said = [each.stdout.read() for each in both if each.stdout is not None]
    assert [each.wait() for each in both] == [0, 0]
    assert sorted(said) == ["", "made\n"]
