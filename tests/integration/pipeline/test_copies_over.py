"""A copy may still bring rows of tables that it is no longer wanted for.

Tables stop while they are copied, because they lose their keys for a moment; then they are asked for again.
The old copy still reads them to its end, under its own folder and its own snapshot. It cannot take one of the
tables, because of a value that is gone by now.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.pipeline.commands import ask
from headrace.pipeline.state.table_state import State
from headrace_testing import validators
from headrace_testing.postmaster import wait_for
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.holding import held_up

pytestmark = pytest.mark.server

BY: dict[str, tuple[str, dict[str, Any]]] = {
    "slot": ("copy.range.after", {"handoff": "slot", "snapshot_connections": 1, "strict": True}),
    "chunks": ("copy.chunk.after", {"handoff": "chunks", "snapshot_connections": 1, "strict": True}),
}


@pytest.mark.parametrize("handoff", ["slot", pytest.param("chunks", marks=pytest.mark.full)])
def test_what_a_copy_brings_of_tables_that_are_copied_anew_meanwhile_is_left(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, handoff: str
) -> None:
    database = mirrors.database
    database.execute(
        "CREATE TABLE t (id int CONSTRAINT pk PRIMARY KEY, s text);"
        "INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 500) i;"
        "CREATE TABLE u (id int CONSTRAINT uk PRIMARY KEY, d date); INSERT INTO u VALUES (1, 'infinity');"
        "CREATE TABLE other (id int PRIMARY KEY)",
        user="app",
    )
    where, options = BY[handoff]
    asked: list[Any] = []

    def again() -> None:
        url = database.url(user="app")
        asked.append(ask.ask(str(mirrors.path), "resync", {"tables": ["public.t", "public.u"]}, url=url))

    with held_up(mirrors, where, "public.t", monkeypatch, on_ddl="stop", **options):
        database.execute("ALTER TABLE t DROP CONSTRAINT pk; ALTER TABLE u DROP CONSTRAINT uk", user="app")
        wait_for(lambda: _states(mirrors) == {State.STOPPED}, "the tables have stopped")
        database.execute("UPDATE u SET d = '2020-02-02'", user="app")
        database.execute("ALTER TABLE t ADD CONSTRAINT pk PRIMARY KEY (id)", user="app")
        database.execute("ALTER TABLE u ADD CONSTRAINT uk PRIMARY KEY (id)", user="app")
        thread = threading.Thread(target=again)
        thread.start()
        wait_for(lambda: _copied_anew(mirrors), "the tables are asked for again")
        thread.join()
        database.execute("UPDATE t SET s = 'later' WHERE id = 3", user="app")
    assert asked
    mirrors.once()
    assert _states(mirrors) == {State.LIVE}
    assert validators.exact(mirrors.lake, database.url()) == []


def _states(mirrors: Mirrors) -> set[State]:
    return {mirrors.record(f"public.{name}").state for name in "tu"}


def _copied_anew(mirrors: Mirrors) -> bool:
    return {"staged/public.t", "staged/public.u"} <= mirrors.lake.catalog().keys()
