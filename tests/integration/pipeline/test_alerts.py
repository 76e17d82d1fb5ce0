"""Alerts of a real mirror: what happens to it arrives at a real web server, once, and its address nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from headrace.alerts.hooks import KINDS
from headrace.lake.read.lake import Lake
from headrace.pipeline.commands import ask
from headrace.web.server import serving as listening
from headrace.web.settings import settings
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.background import repeat
from tests.hooks import CANARY, HookServer, hook_server
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.serving import serving
from tests.integration.pipeline.verifying import rewrite, setting, verified
from tests.unit.web.lakes import get

pytestmark = pytest.mark.server


@pytest.fixture
def hook() -> Iterator[HookServer]:
    with hook_server() as found:
        yield found


@pytest.fixture
def mirrors(mirrors: Mirrors, database: Database, monkeypatch: pytest.MonkeyPatch) -> Mirrors:
    """A mirror of tables of which one can stop."""
    for name, kind in (("a", "int"), ("ends", "date"), ("still", "int")):
        database.execute(f"CREATE TABLE {name} (id {kind} PRIMARY KEY, n int)", user="app")
    for name in ("a", "still"):
        database.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 9) i", user="app")
    mirrors.once()
    monkeypatch.setattr("headrace.pipeline.loop.WATCH_SECONDS", 0.5)
    monkeypatch.setattr("headrace.alerts.watch.FIRST_PAUSE", 0.1)
    monkeypatch.setattr("headrace.alerts.watch.PROOF_SECONDS", 0.5)
    return mirrors


def test_all_that_happens_to_a_mirror_is_told_once(
    mirrors: Mirrors, database: Database, hook: HookServer, tmp_path: Path
) -> None:
    secret = tmp_path / "hook"
    secret.write_text(hook.url)
    mirrors.options |= {"every": "3s", "max_wal": 1}
    alerts: dict[str, Any] = {"lag": "1s", "oncall": {"webhook_file": str(secret)}}
    with serving(mirrors, alerts=alerts) as served:
        database.execute("INSERT INTO ends VALUES ('infinity', 1)", user="app")
        with repeat(lambda: database.execute("UPDATE a SET n = n + 1", user="app"), every=0.2):
            hook.until(lambda: hook.has("run_started", "table_stopped", "lag_over", "log_over"), "all of it")
        stopped = hook.of("table_stopped")
        assert (stopped["source"], stopped["table"]) == ("main", "public.ends")
        assert stopped["code"] == "KEY_WITHOUT_LAKE_FORM"
        assert stopped["hint"] in stopped["text"]
        assert stopped["mark"] <= Lake(mirrors.path).marks()[-1].epoch
        database.execute("DELETE FROM ends; ALTER TABLE a ADD COLUMN more text", user="app")
        database.execute("INSERT INTO a VALUES (10, 0, 'new')", user="app")
        ask.ask(str(mirrors.path), "resync", {"tables": ["public.ends"]}, source="main")
        hook.until(lambda: hook.has("ddl_followed", "table_live", "lag_under"), "the mending")
        assert hook.of("table_live")["table"] == "public.ends"
        assert hook.of("ddl_followed")["table"] == "public.a"
        served.until(lambda: served.holds("public.a", 10), "the new row")
        rewrite(mirrors.path, "still", setting("n", 7, where=3))
        verified(mirrors, "public.still")
        hook.until(lambda: "verify_differs" in hook.kinds, "the difference")
        assert hook.of("verify_differs")["table"] == "public.still"
    assert hook.of("run_ended")["code"] is None
    once = [kind for kind in KINDS if kind not in ("lag_over", "lag_under")]  # each transaction waits 3 s
    assert {kind: hook.kinds.count(kind) for kind in once} == {
        kind: int(not kind.startswith("source_")) for kind in once
    }


def test_a_source_that_stopped_is_told_of_though_the_hook_was_down_and_then_that_it_recovered(
    mirrors: Mirrors, database: Database, hook: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.alerts.watch.GRACE_SECONDS", 1.0)
    monkeypatch.setenv("HEADRACE_ALERTS_WEBHOOK", hook.url)
    hook.answers = 500
    with serving(mirrors, ends_with="PG_SLOT_MISSING") as served:
        lose_the_slot(database)
        wait_for(lambda: bool(served.ended), "the end of the run")
    assert hook.events == []
    hook.answers = 200
    mirrors.options["reconcile"] = "auto"
    with serving(mirrors):
        hook.until(lambda: "source_recovered" in hook.kinds, "the recovery")
    assert hook.kinds == [
        "run_started",
        "run_ended",
        "source_stopped",
        "run_started",
        "source_recovered",
        "run_ended",
    ]
    assert hook.events[1]["code"] == hook.events[2]["code"] == "PG_SLOT_MISSING"
    assert "headrace run --reconcile" in hook.events[2]["hint"]


def lose_the_slot(database: Database) -> None:
    """Somebody ends the receiver's session and drops its slot."""

    def drop() -> bool:
        database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                         " WHERE active_pid IS NOT NULL AND database = current_database()")  # fmt: skip
        with suppress(psycopg.errors.ObjectInUse):
            database.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                             " WHERE database = current_database()")  # fmt: skip
            return True
        return False

    wait_for(drop, "the slot's end")


def test_the_address_of_a_hook_is_nowhere_and_a_killed_run_is_told_of(
    database: Database, hook: HookServer, tmp_path: Path, program: Program
) -> None:
    database.execute("CREATE TABLE a (id int PRIMARY KEY)", user="app")
    secret = {"HEADRACE_ALERTS_WEBHOOK": hook.url}
    hook.answers = 500
    lake = tmp_path / "lake"
    with Mirrored(lake, database.url(user="app"), "public.*", environment=secret, program=program) as mirror:
        mirror.until_live()
        mirror.until(lambda: "ALERT_HOOK_REFUSED" in mirror.status().warnings, "the warning")
        lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        with listening(settings("127.0.0.1:0"), [str(lake)]) as url:
            pages = {path: get(url, path).text for path in ("/", "/api/status", "/metrics", "/readyz")}
        assert "ALERT_HOOK_REFUSED" in pages["/"]
        hook.answers = 200
        hook.until(lambda: hook.kinds == ["run_started"], "the beginning")
        mirror.kill()
        mirror.start()
        mirror.until(lambda: hook.kinds == ["run_started", "run_ended", "run_started"], "the kill", 60)
        assert mirror.stop() == 0
        said = mirror.log()
    assert hook.kinds[-1] == "run_ended"
    assert [text for text in (said, *pages.values(), *lines) if CANARY in text] == []
    files = [path for path in lake.rglob("*") if path.is_file()]
    assert any(path.parent.name == "alerts" for path in files)
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
