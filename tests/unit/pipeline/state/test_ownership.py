"""An owner is alive while its record changes, and one failed write does not make anybody look dead."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import Misconfigured
from headrace.lake.format import statusfile
from headrace.lake.format.status import SourceStatus
from headrace.lake.store.local import LocalStore
from headrace.pipeline.commands import drop_source
from headrace.pipeline.state import ownership
from headrace.pipeline.status_report import Reporter
from headrace.spool.process import has_ended, this_process
from headrace_testing.postmaster import wait_for
from tests.background import repeat

ELSEWHERE = {"host": "elsewhere", "realm": "another machine", "pid": 1, "started_at": "then"}


def _write(store: LocalStore, owner: dict[str, Any], ago: timedelta, state: str = "running") -> None:
    now = datetime.now(UTC) - ago
    said = SourceStatus("main", state, owner, datetime.now(UTC).isoformat())
    statusfile.write(store, "main", said, now=now)


@contextmanager
def _alive(store: LocalStore, ago: timedelta) -> Iterator[None]:
    """An owner on a machine whose clock is off, as long as the block runs."""
    _write(store, ELSEWHERE, ago)
    with repeat(lambda: _write(store, ELSEWHERE, ago), every=0.3):
        yield


@pytest.mark.parametrize("ago", [timedelta(hours=1), timedelta(0), timedelta(hours=-1)])
def test_an_owner_whose_clock_is_off_is_alive_while_its_record_changes(
    tmp_path: Path, ago: timedelta
) -> None:
    store = LocalStore(str(tmp_path))
    with _alive(store, ago):
        assert ownership.living_owner(store, "main") == ELSEWHERE


@pytest.mark.parametrize("ago", [timedelta(hours=1), timedelta(hours=-1)])
def test_an_owner_whose_record_does_not_change_is_dead_whatever_the_clocks_say(
    tmp_path: Path, ago: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "FRESH_SECONDS", 0.5)
    store = LocalStore(str(tmp_path))
    _write(store, ELSEWHERE, ago)
    assert ownership.living_owner(store, "main") is None


def test_a_process_beside_us_is_told_at_once(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    parent = this_process("then") | {"pid": os.getppid()}
    begun = time.monotonic()
    _write(store, parent, timedelta(0))
    assert ownership.living_owner(store, "main") == parent
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(this_process("then") | {"pid": ended.pid}), "a zombie does not run"
    assert not has_ended(parent)
    assert not has_ended(ELSEWHERE)
    _write(store, parent | {"pid": 1 << 30}, timedelta(0))
    assert ownership.living_owner(store, "main") is None
    assert time.monotonic() - begun < ownership.FRESH_SECONDS / 2
    # The same number in another container is another process.
    with _alive(store, timedelta(0)):
        assert ownership.living_owner(store, "main", me=this_process("now")) == ELSEWHERE


def test_no_process_of_ours_is_ended_for_an_owner_in_another_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the host's network a container has the host's name, and numbers of its own."""
    store = LocalStore(str(tmp_path))
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    monkeypatch.setattr(ownership, "_moves", lambda *_: True)
    _write(store, this_process("then") | {"realm": "another container"}, timedelta(0))
    with pytest.raises(Misconfigured) as caught:
        drop_source._free(store, "main", stop=True)
    assert caught.value.code == "SOURCE_OWNED"
    assert killed == []


def test_a_status_that_cannot_be_written_is_written_again_as_soon_as_it_can_be(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    in_the_way = tmp_path / "_headrace" / "status"
    in_the_way.parent.mkdir()
    in_the_way.touch()  # no folder can be made here
    reporter = Reporter(store, "main")
    reporter.start()
    wait_for(lambda: reporter.unwritten >= 2, "failed writes")
    in_the_way.unlink()
    wait_for(lambda: statusfile.read(store, "main") is not None, "a status")
    assert reporter.tell()
    assert reporter.unwritten == 0
    reporter.settle("stopped")
    status = statusfile.read(store, "main")
    assert status is not None
    assert status.record.state == "stopped"
    assert status.record.warnings == {}


def test_half_a_status_is_none(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    _write(store, ELSEWHERE, timedelta(0))
    path = tmp_path / "_headrace" / "status" / "main.json"
    path.write_bytes(path.read_bytes()[:20])
    assert statusfile.read(store, "main") is None
