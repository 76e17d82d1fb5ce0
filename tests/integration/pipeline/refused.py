"""Helpers for tests of bad input: a run that must fail, and checks of what it left behind.

A run that is refused before anything is copied needs no Spark, so these runs start none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.core.errors import HeadraceError
from headrace.lake.format import layout
from headrace.lake.read.lake import Lake
from headrace_testing.postgres import Database
from headrace_testing.without_spark import jobs_in_process


def configuration(lake: Path, *tables: str, **source: Any) -> dict[str, Any]:
    """A configuration of one source."""
    main = {"tables": list(tables or ("public.*",)), "every": "0s", **source}
    return {"lake": {"path": str(lake)}, "source": {"main": main}}


def refusal(lake: Path, *tables: str, **source: Any) -> HeadraceError:
    """Run `--once`; the error with which the run ends. A hint is part of every error."""
    with pytest.MonkeyPatch.context() as patch:
        jobs_in_process(patch)
        with pytest.raises(HeadraceError) as caught:
            headrace.mirror(configuration(lake, *tables, **source), once=True)
    assert caught.value.hint
    return caught.value


def upstream(database: Database) -> tuple[set[str], set[str]]:
    """The publications and the slots that the database has."""
    publications = database.execute("SELECT pubname FROM pg_publication")
    slots = database.execute("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
    return {name for (name,) in publications}, {name for (name,) in slots}


def leaves_nothing(lake: Path) -> bool:
    """Tell whether the place is as if nobody had ever run there."""
    return not lake.exists()


def mirrors_nothing(lake: Path) -> bool:
    """Tell whether the place holds no more than the notes of a run that came to nothing."""
    if not (lake / layout.FORMAT).exists():
        return not lake.exists()
    found = Lake(lake)
    marks = found.marks() if found.sources() else []
    folders = {entry.name for entry in lake.iterdir()}
    return all(not mark.versions for mark in marks) and not folders & {"tables", "history", "errors"}
