"""A run of several sources: what ends one of them ends all, and is told."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from headrace.core.errors import Definite
from headrace.lake.store.open import open_store
from headrace.pipeline import mirror
from headrace.pipeline.mirror import Control
from headrace.pipeline.state.place import Place
from headrace.pipeline.status_report import Reporter


@pytest.mark.parametrize("error", [Definite("TEST", "ended", hint="none"), RuntimeError("no more threads")])
def test_whatever_ends_one_source_ends_the_others_and_is_raised(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """What has no code as well: a run that says 0 has every source caught up."""
    ended = list[str]()

    def keep(place: Place, control: Control) -> None:
        if place.name == "two":
            raise error
        assert control.stop.wait(60)
        ended.append(place.name)

    monkeypatch.setattr(mirror, "keep", keep)
    places = [cast("Place", SimpleNamespace(name=name)) for name in ("one", "two", "three")]
    with pytest.raises(type(error)) as raised:
        mirror._keep_all(places, Control(once=True, stop=threading.Event()))
    assert raised.value is error
    assert sorted(ended) == ["one", "three"]


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
