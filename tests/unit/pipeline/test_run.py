"""A run of several sources: an error ends one of them, and is told at the end."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from headrace.alerts.hooks import HookConfig, hooks_of
from headrace.core.errors import Definite, Misconfigured
from headrace.lake.format import formatfile, statusfile
from headrace.lake.format.status import SourceStatus, moment_text
from headrace.lake.log.durable import fenced_error
from headrace.lake.store.open import open_store
from headrace.pipeline import run
from headrace.pipeline.run import Control
from headrace.pipeline.state.config import LakeConfig, SourceConfig
from headrace.pipeline.state.owner import RunContext
from headrace.pipeline.status_report import Reporter
from headrace.spool.process import this_process


def _ends_of(monkeypatch: pytest.MonkeyPatch, errors: Mapping[str, Exception]) -> BaseException:
    """The error of a run of three sources, two of which end before the first is done."""
    begun, over = threading.Barrier(len(errors) + 1), list[str]()

    def keep(place: RunContext, control: Control) -> None:
        begun.wait(60)
        if place.name in errors:
            raise errors[place.name]
        for thread in threading.enumerate():
            if thread.name.removeprefix("headrace-") in errors:
                thread.join(60)
        if not control.stop.is_set():
            over.append(place.name)

    monkeypatch.setattr(run, "keep", keep)
    places = [cast("RunContext", SimpleNamespace(name=name)) for name in ("one", *errors)]
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the caller says which
        run._keep_all(places, Control(once=True, stop=threading.Event()))
    assert over == ["one"]
    return raised.value


def test_an_error_ends_its_source_alone_and_is_raised_when_all_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that says 0 has every source caught up."""
    errors = {"two": Definite("TEST", "ended", hint="none"), "three": Definite("OTHER", "too", hint="none")}
    error = _ends_of(monkeypatch, errors)
    assert isinstance(error, Definite)
    named = f"{error.code} {error.detail}"
    assert all(f'source "{name}"' in named and each.code in named for name, each in errors.items())


def test_a_fault_of_ours_goes_before_errors_with_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = RuntimeError("no more threads")
    errors = {"two": Definite("TEST", "ended", hint="none"), "three": fault}
    assert _ends_of(monkeypatch, errors) is fault


def test_an_end_without_a_code_says_where_it_came_from_and_no_value(tmp_path: Path) -> None:
    reporter = Reporter(open_store(str(tmp_path)), "main")
    try:
        int("a value of a row")
    except ValueError as fault:
        run._end(reporter, fault)
    assert reporter.error is not None
    assert reporter.error.code == "RUN_ENDED"
    assert "ValueError in test_an_end_without_a_code" in str(reporter.error.detail)
    assert "a value" not in str(reporter.error)


@pytest.fixture
def place(tmp_path: Path) -> RunContext:
    """A source of a new lake."""
    store = open_store(str(tmp_path / "lake"))
    formatfile.create_lake(store)
    config = SourceConfig("postgresql://x")
    spool = tmp_path / "spool"
    found = SimpleNamespace(
        name="main",
        store=store,
        spark=None,
        config=config,
        lake_id="id",
        spool=spool,
        lake=LakeConfig("lake"),
        iceberg=None,
    )
    return cast("RunContext", found)


def _has_another_owner(place: RunContext) -> None:
    other = {**this_process("then"), "pid": os.getppid()}
    now = moment_text(time.time())
    statusfile.write(place.store, "main", SourceStatus("main", "running", owner=other, updated_at=now))


def test_a_run_that_loses_its_source_as_it_begins_names_who_has_it(
    place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two first runs began at once; each saw nobody."""

    def lost(*_: object, **__: object) -> None:
        _has_another_owner(place)
        raise fenced_error("main", "epoch 1 is not ours")

    monkeypatch.setattr(run, "_attempt", lost)
    with pytest.raises(Misconfigured) as refused:
        run.keep(place, Control(once=True, stop=threading.Event()))
    assert refused.value.code == "SOURCE_OWNED"
    assert f"pid {os.getppid()} on " in str(refused.value.detail)


def test_a_run_that_is_refused_leaves_the_owner_its_alerts(place: RunContext, tmp_path: Path) -> None:
    _has_another_owner(place)
    told, outbox = tmp_path / "told", place.spool / "alerts" / "default.command.json"
    outbox.parent.mkdir(parents=True)
    outbox.write_text(
        json.dumps({"lake_id": "id", "known": {}, "events": [{"id": "1", "kind": "run_ended"}]})
    )
    before = outbox.read_bytes()
    [hook] = hooks_of({"default": HookConfig(command=("touch", str(told)))}, {})
    with pytest.raises(Misconfigured) as refused:
        run.keep(place, Control(once=True, stop=threading.Event(), hooks=(hook,)))
    assert refused.value.code == "SOURCE_OWNED"
    assert not told.exists()
    assert outbox.read_bytes() == before


@pytest.mark.parametrize(
    ("lake", "module", "code"),
    [("s3://bucket/lake", "pyiceberg", "ICEBERG_LAKE_AFAR"), ("lake", "not_installed", "ICEBERG_EXTRA")],
)
def test_an_export_that_cannot_be_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: str, module: str, code: str
) -> None:
    monkeypatch.setattr("headrace.iceberg.catalog.find_spec", lambda _: find_spec(module))
    path = lake if "://" in lake else str(tmp_path / lake)
    config = {"lake": {"path": path}, "source": {"main": {"url": "postgresql://x"}}, "iceberg": {}}
    with pytest.raises(Misconfigured, match=code):
        run.mirror(config)
    assert list(tmp_path.iterdir()) == []
