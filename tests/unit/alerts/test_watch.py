"""The threads of alerts: at least once, over restarts, whatever a hook does, and in no run's way."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.alerts import delivery, watch
from headrace.alerts.events import Event, KnownStates
from headrace.alerts.hooks import HookConfig, hooks_of
from headrace.alerts.watch import MOST_EVENTS, AlertWatch, Outbox, alerting
from headrace.core.errors import Transient
from headrace.lake.format import layout, prooffile
from headrace.lake.format.prooffile import TableProof
from headrace.lake.format.status import SourceStatus, TableStatus
from headrace.lake.store.open import open_store
from headrace_testing.postmaster import wait_for
from tests.hooks import CANARY, hook_server

REASON = {
    "code": "TABLE_CHANGED",
    "primary": "it changed",
    "detail": None,
    "hint": "headrace tables resync t",
}
SAID = SourceStatus("main", "running", owner={"started_at": "1"}, tables={"t": TableStatus("live")})
STOPPED = replace(SAID, tables={"t": TableStatus("stopped", error=REASON)})


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "WEBHOOK_SECONDS", 5.0)
    monkeypatch.setattr(watch, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(watch, "GRACE_SECONDS", 1.0)
    monkeypatch.setattr(watch, "PROOF_SECONDS", 0.1)


@contextmanager
def _watching(folder: Path, lake_id: str = "id", **hooks: str) -> Iterator[AlertWatch]:
    sections = {name: HookConfig(webhook=url) for name, url in hooks.items()}
    store = open_store(str(folder / "lake"))
    with alerting(store, "main", lake_id, hooks_of(sections, {}), folder / "spool") as found:
        assert found is not None
        yield found


def _files(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


def test_a_hook_that_was_down_hears_each_event_once_it_is_back(tmp_path: Path) -> None:
    with hook_server() as hook, _watching(tmp_path, oncall=hook.url) as alerts:
        hook.answers = 500
        for said in (SAID, STOPPED, SAID, STOPPED):
            alerts.on_status(said)
        wait_for(lambda: bool(alerts.warnings), "the warning")
        assert alerts.warnings == {
            "ALERT_HOOK_REFUSED": 'the webhook of "oncall" did not take an event: '
            "it answered 500 Internal Server Error"
        }
        hook.answers = 200
        kinds = ["run_started", "table_stopped", "table_live", "table_stopped"]
        hook.until(lambda: hook.kinds == kinds, "all events, in order")
        assert alerts.warnings == {}
        assert len({event["id"] for event in hook.events}) == 4
        assert hook.events[1]["lake"] == str(tmp_path / "lake")
        assert CANARY not in _files(tmp_path)


def test_an_event_that_a_hook_always_refuses_does_not_block_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LONGEST_PAUSE", 0.05)
    with hook_server() as hook, _watching(tmp_path, oncall=hook.url) as alerts:
        hook.refuses = "table_stopped"
        for said in (SAID, STOPPED, SAID):
            alerts.on_status(said)
        hook.until(lambda: hook.kinds == ["run_started", "table_live"], "the event behind it")
        # The one that it took cleared the warning; the next refusal of the other gives it again.
        wait_for(lambda: alerts.warnings.keys() == {"ALERT_HOOK_REFUSED"}, "its warning")
        hook.refuses = ""
        hook.until(lambda: hook.kinds[2:] == ["table_stopped"], "the event itself")


def test_an_outbox_is_synced_and_then_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, sync, path = list[tuple[bool, bool]](), os.fsync, tmp_path / "alerts" / "a.webhook.json"

    def fsync(file: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(file).st_mode), path.exists()))
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    box = Outbox(path, "id", "lake")
    box.add([_event(1)], KnownStates())
    box.save()
    assert synced == [(False, False), (True, True)]


def test_what_was_not_delivered_is_by_the_next_run_and_nothing_twice(tmp_path: Path) -> None:
    with hook_server() as hook:
        hook.answers = 503
        with _watching(tmp_path, oncall=hook.url) as alerts:
            alerts.on_status(STOPPED)
            hook.until(lambda: hook.asked > 0, "an attempt")
        hook.answers = 200
        again = replace(STOPPED, owner={"started_at": "2"})
        with _watching(tmp_path, oncall=hook.url) as alerts:
            alerts.on_status(again)
            hook.until(lambda: len(hook.events) == 4, "the events")
        assert hook.kinds == ["run_started", "table_stopped", "run_ended", "run_started"]
        with _watching(tmp_path, oncall=hook.url) as alerts:
            alerts.on_status(again)
            alerts.on_status(SAID)
            hook.until(lambda: "table_live" in hook.kinds, "the end of the stop")
        assert hook.kinds.count("table_stopped") == 1
        with _watching(tmp_path, lake_id="another", oncall=hook.url) as alerts:
            alerts.on_status(STOPPED)  # a copy of the lake, which has its own states
            hook.until(lambda: hook.kinds.count("table_stopped") == 2, "the other lake's event")


def test_a_hook_that_hangs_holds_up_neither_the_run_nor_other_hooks(tmp_path: Path) -> None:
    with hook_server() as silent, hook_server() as hook:
        silent.answers = "hang"
        with _watching(tmp_path, a=silent.url, b=hook.url) as alerts:
            alerts.on_status(SAID)
            hook.until(lambda: hook.kinds == ["run_started"], "the other hook's event")
            begun = time.monotonic()
            for _ in range(1000):
                alerts.on_status(STOPPED)
            assert time.monotonic() - begun < 0.5
            hook.until(lambda: "table_stopped" in hook.kinds, "the other hook's next event")
            begun = time.monotonic()
        assert time.monotonic() - begun < 3  # the end of a run waits for its hooks, but not long


def test_the_last_word_of_a_run_is_delivered_before_it_ends(tmp_path: Path) -> None:
    with hook_server() as hook:
        with _watching(tmp_path, oncall=hook.url) as alerts:
            alerts.on_status(SAID)
            alerts.on_status(replace(SAID, state="failed", error=REASON))
        assert hook.kinds == ["run_started", "run_ended", "source_stopped"]
        assert hook.of("run_ended")["code"] == "TABLE_CHANGED"


def test_a_lake_that_does_not_answer_holds_back_no_last_word(tmp_path: Path) -> None:
    (tmp_path / "lake" / layout.proof_key("main")).mkdir(parents=True)  # nobody can read that file
    with hook_server() as hook:
        with _watching(tmp_path, oncall=hook.url) as alerts:
            wait_for(lambda: bool(alerts.warnings), "the warning")
            alerts.on_status(replace(SAID, state="failed", error=REASON))
        assert hook.kinds == ["run_started", "run_ended", "source_stopped"]


def test_a_proof_that_differs_is_told(tmp_path: Path) -> None:
    with hook_server() as hook, _watching(tmp_path, oncall=hook.url) as alerts:
        alerts.on_status(SAID)
        prooffile.write(open_store(str(tmp_path / "lake")), "main", {"t": TableProof("different")})
        hook.until(lambda: "verify_differs" in hook.kinds, "the difference")


def test_a_fault_of_ours_is_a_warning_and_no_end(tmp_path: Path) -> None:
    with hook_server() as hook, _watching(tmp_path, oncall=hook.url) as alerts:
        alerts.on_status(replace(SAID, tables=7))  # type: ignore[arg-type]
        wait_for(lambda: "ALERT_FAULT" in alerts.warnings, "the warning")
        alerts.on_status(STOPPED)
        hook.until(lambda: "table_stopped" in hook.kinds, "the next event")


def _event(number: int) -> Event:
    return Event("test", "main", str(number))


def test_a_thousand_events_are_kept_and_the_next_says_how_many_were_not(tmp_path: Path) -> None:
    path = tmp_path / "alerts" / "a.webhook.json"
    box = Outbox(path, "id", "./lake")
    box.add(map(_event, range(MOST_EVENTS + 7)), KnownStates())
    box.save()
    assert path.stat().st_mode & 0o077 == 0
    again = Outbox(path, "id", "./lake")
    event = again.next()
    assert event is not None
    assert (event["text"], event["dropped"]) == ("7", 7)
    again.take(event)
    event = again.next()
    assert event is not None
    assert (event["text"], event["dropped"]) == ("8", 0)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"lake_id": "id", "events": 7, "known": {}}', b"null"])
def test_a_damaged_outbox_knows_nothing(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.webhook.json"
    path.write_bytes(data)
    box = Outbox(path, "id", "./lake")
    box.add([_event(1)], KnownStates(run="1"))
    box.save()
    assert json.loads(path.read_bytes())["known"]["run"] == "1"


def test_events_that_cannot_be_written_down_are_delivered_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file where the folder should be")
    box = Outbox(tmp_path / "spool" / "a.json", "id", "./lake")
    box.add([_event(1)], KnownStates())
    with pytest.raises(Transient) as raised:
        box.save()
    assert raised.value.code == "ALERT_UNSAVED"
    with hook_server() as hook, _watching(tmp_path, oncall=hook.url) as alerts:
        alerts.on_status(STOPPED)
        hook.until(lambda: "table_stopped" in hook.kinds, "the event")
        assert list(alerts.warnings) == ["ALERT_UNSAVED"]
