"""A run of several sources: an error ends one of them, and is told at the end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from headrace.core.errors import Definite
from headrace.lake.store.open import open_store
from headrace.pipeline import mirror
from headrace.pipeline.mirror import Control
from headrace.pipeline.state.place import RunContext
from headrace.pipeline.status_report import Reporter


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

    monkeypatch.setattr(mirror, "keep", keep)
    places = [cast("RunContext", SimpleNamespace(name=name)) for name in ("one", *errors)]
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the caller says which
        mirror._keep_all(places, Control(once=True, stop=threading.Event()))
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
        mirror._end(reporter, fault)
    assert reporter.error is not None
    assert reporter.error.code == "RUN_ENDED"
    assert "ValueError in test_an_end_without_a_code" in str(reporter.error.detail)
    assert "a value" not in str(reporter.error)
