"""A run that only catches up, beside a table that somebody holds: it ends, and says who that is."""

from __future__ import annotations

import pytest

from headrace.core.errors import HeadraceError
from headrace.pipeline import completion, run
from headrace.pipeline.commands.ask import ask
from tests.integration.pipeline.conftest import Mirrors

pytestmark = pytest.mark.server


@pytest.mark.parametrize("copied", [False, True], ids=["followed", "copied"])
def test_it_ends_with_the_holder_and_all_other_tables_exact(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    monkeypatch.setattr(completion, "HELD_SECONDS", 0.5)
    monkeypatch.setattr(run, "ATTEMPTS_ONCE", 1)
    database = mirrors.database
    for name in ("t", "u"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)", user="app")
    mirrors.once()
    if copied:
        ask(str(mirrors.path), "resync", {"tables": ["public.t"]}, url=database.url(user="app"))
    with database.connect(user="app") as holder, holder.transaction():
        holder.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        database.execute("INSERT INTO u VALUES (1)", user="app")
        with pytest.raises(HeadraceError) as caught:
            mirrors.once()
        assert caught.value.code == "PG_TABLE_LOCKED"
        assert f"pid {holder.info.backend_pid}" in str(caught.value.detail)
        assert mirrors.lake.at().arrow("public.u").num_rows == 1
    database.execute("INSERT INTO t VALUES (1)", user="app")
    mirrors.once()
    assert mirrors.lake.at().arrow("public.t").num_rows == 1
