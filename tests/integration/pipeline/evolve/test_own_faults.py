"""Faults of ours amid DDL that is followed: wherever one is, its table alone stops or is copied.

    a       gets columns that are NULL in all rows      epochs "widen" and "stream": rows, history
    t       is written again in the lake                epochs "rewrite", "copy", "late"
    other   has no DDL, and is in the newest mark after each fault

A fault stands for ever where it was met first: the same step of the same folder fails for whoever tries
again, as an assertion of our own code would.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.core.errors import HeadraceError
from headrace.lake.format.plan import TableStep
from headrace.lake.log import table as lake_table
from headrace.pipeline import loop
from headrace.pipeline.commands import ask
from headrace.pipeline.state.table_state import State
from headrace.pipeline.tasks import convert
from headrace_testing import validators
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.evolve.three_tables import TABLES

pytestmark = pytest.mark.server


def alter(database: Database, number: int) -> None:
    """Both tables are altered amid rows of theirs; the third has another row."""
    database.execute(f"UPDATE t SET n{number} = 0 WHERE id = {number + 1}", user="app")
    database.execute(
        f"ALTER TABLE a ADD c{number} int; ALTER TABLE t RENAME n{number} TO n{number + 1};"
        f"UPDATE a SET c{number} = 1 WHERE id < 9; UPDATE t SET n{number + 1} = 7 WHERE id = {number + 10};"
        f"INSERT INTO other VALUES ({number})",
        user="app",
    )


Kind = tuple[str, bool, bool, bool]


@dataclass
class Fault:
    """A fault at the commit of one number, and from then on at all that are like it."""

    at: int
    before: Callable[..., bool]
    met: list[Kind] = field(default_factory=list)
    broken: Kind | None = None

    def __call__(self, table: Any, step: TableStep, stamp: Any) -> bool:
        kind = (step.path, step.schema is not None, bool(step.add), bool(step.remove))
        if not {"a", "t"} & set(step.path.split("/")):
            return self.before(table, step, stamp)
        self.met.append(kind)
        if len(self.met) - 1 == self.at:
            self.broken = kind
        if kind == self.broken:
            raise AssertionError("a fault of ours")
        return self.before(table, step, stamp)


@pytest.mark.parametrize(
    "steps", [(1,), pytest.param((0, 2, 3, 4, 5, 6), marks=pytest.mark.full)], ids=["one", "others"]
)
def test_a_fault_at_any_step_of_a_plan_stops_its_table_alone(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, steps: tuple[int, ...]
) -> None:
    mirrors.database.execute(TABLES, user="app")
    mirrors.once()
    for number, at in enumerate(steps):
        fault = Fault(at, lake_table._commit)
        alter(mirrors.database, number)
        with monkeypatch.context() as patch:
            patch.setattr(lake_table, "_commit", fault)
            with suppress(HeadraceError):
                mirrors.once()
        assert fault.broken is not None, "there are fewer steps"
        assert number in mirrors.lake.at().arrow("other").column("id").to_pylist()
        _comes_back(mirrors)


def _comes_back(mirrors: Mirrors) -> None:
    """Without the fault whoever stopped is copied anew, by itself or as it was told."""
    with suppress(HeadraceError):
        mirrors.once()
    for name in ("public.a", "public.t"):
        record = mirrors.record(name)
        if record.state is State.STOPPED:
            assert record.error is not None
            assert record.error.code == "LAKE_STEP_FAILED"
            ask.ask(str(mirrors.path), "resync", {"tables": [name]}, url=mirrors.database.url(user="app"))
    mirrors.once()
    _exact(mirrors)


def _exact(mirrors: Mirrors) -> None:
    assert validators.exact(mirrors.lake, mirrors.database.url(), values=True) == []
    assert validators.definite(mirrors.lake) == []


def test_a_fault_before_a_plan_or_in_its_work_has_the_table_copied(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrors.database.execute(TABLES, user="app")
    mirrors.once()
    alter(mirrors.database, 0)

    def fails(*_: Any) -> Any:
        raise AssertionError("a fault of ours")

    monkeypatch.setattr(loop, "widening", fails)
    monkeypatch.setattr(convert, "_convert", fails)
    since = {name: mirrors.record(name).since for name in ("public.a", "public.t")}
    mirrors.once()
    for name, before in since.items():
        record = mirrors.record(name)
        assert (record.state, record.error, record.alteration and record.alteration.way) == (
            State.LIVE,
            None,
            "copied",
        )
        assert record.since != before
    _exact(mirrors)
