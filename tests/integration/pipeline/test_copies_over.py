"""What a copy still brings of a table that it is no longer wanted for.

A table stops while it is copied, because its key is lost for a moment, and is asked for again. The copy that
was under way reads it to its end all the same: under the folder, and the snapshot, of the one that is over.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.pipeline.commands import ask
from headrace.pipeline.state.table_state import State
from headrace.testing import validators
from headrace.testing.postmaster import wait_for
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.holding import held_up

pytestmark = pytest.mark.server

BY: dict[str, tuple[str, dict[str, Any]]] = {
    "slot": ("copy.range.after", {"handoff": "slot", "snapshot_connections": 1}),
    "chunks": ("copy.chunk.after", {"handoff": "chunks", "snapshot_connections": 1}),
}


@pytest.mark.parametrize("handoff", ["slot", pytest.param("chunks", marks=pytest.mark.full)])
def test_what_a_copy_brings_of_a_table_that_is_copied_anew_meanwhile_is_left(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, handoff: str
) -> None:
    database = mirrors.database
    database.execute(
        "CREATE TABLE t (id int CONSTRAINT pk PRIMARY KEY, s text);"
        "INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 500) i;"
        "CREATE TABLE other (id int PRIMARY KEY)",
        user="app",
    )
    where, options = BY[handoff]
    asked: list[Any] = []

    def again() -> None:
        url = database.url(user="app")
        asked.append(ask.ask(str(mirrors.path), "resync", {"tables": ["public.t"]}, url=url))

    with held_up(mirrors, where, "public.t", monkeypatch, **options):
        database.execute("ALTER TABLE t DROP CONSTRAINT pk", user="app")
        wait_for(lambda: mirrors.record("public.t").state is State.STOPPED, "the table has stopped")
        database.execute("ALTER TABLE t ADD CONSTRAINT pk PRIMARY KEY (id)", user="app")
        thread = threading.Thread(target=again)
        thread.start()
        wait_for(lambda: "staged/public.t" in mirrors.lake.catalog(), "the table is asked for again")
        thread.join()
        database.execute("UPDATE t SET s = 'later' WHERE id = 3", user="app")
    assert asked
    mirrors.once()
    assert mirrors.record("public.t").state is State.LIVE
    assert validators.exact(mirrors.lake, database.url()) == []
