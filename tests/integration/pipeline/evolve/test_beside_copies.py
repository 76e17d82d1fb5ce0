"""A table whose shape changes while others are copied, and on a source where nothing else happens.

big       ── being copied, and stands ──────────────────────────▶ one copy, read once
small     ── copied ── live ── altered ── copied ── live ────────▶
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.cli import main as cli
from headrace.core.names import TableName
from headrace.pipeline.commands.capture import SourcePlace
from headrace.sources.contract.mirror import CapturedTables
from headrace_testing import validators
from headrace_testing.postmaster import wait_for
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.holding import held_up
from tests.integration.pipeline.serving import serving

pytestmark = pytest.mark.server


def _make(mirrors: Mirrors, *tables: str, rows: int = 3) -> None:
    for table in tables:
        mirrors.database.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, n int);"
            f"INSERT INTO {table} SELECT i, i FROM generate_series(1, {rows}) i",
            user="app",
        )


def _columns(mirrors: Mirrors, table: str) -> list[str]:
    """The columns of a table at the newest mark; none where it is not in it."""
    if not mirrors.lake.marks():
        return []
    cut = mirrors.lake.at()
    return list(cut.schema(table).names) if table in cut.tables() else []


@pytest.mark.parametrize("handoff", ["slot", pytest.param("chunks", marks=pytest.mark.full)])
def test_a_table_that_is_altered_does_not_begin_the_copy_of_others_anew(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, handoff: str
) -> None:
    """It was copied with them; a copy of hours would never end beside a migration."""
    _make(mirrors, "big", rows=2000)
    _make(mirrors, "small")
    where = "copy.chunk.after" if handoff == "chunks" else "copy.range.after"
    with held_up(mirrors, where, "public.big", monkeypatch, handoff=handoff) as held:
        wait_for(lambda: _columns(mirrors, "public.small") == ["id", "n"], "the small one is live")
        mirrors.database.execute("ALTER TABLE small ADD more int; INSERT INTO small VALUES (9)", user="app")
        wait_for(lambda: _columns(mirrors, "public.small") == ["id", "n", "more"], "it is back")
        assert held.stands == 1
    assert held.stands == 1
    assert validators.exact(mirrors.lake, mirrors.database.url(), values=True) == []


def test_a_table_comes_back_at_once_where_no_other_mark_is_due(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log goes on, with what nobody mirrors: its copy begins behind the mark, and waits for that."""
    _make(mirrors, "t", "other")
    mirrors.database.execute("CREATE SCHEMA away; CREATE TABLE away.t (id int)", user="app")
    mirrors.once()
    capture = SourcePlace.capture_again

    def beside_writes(self: SourcePlace, names: Sequence[TableName]) -> CapturedTables:
        mirrors.database.execute("INSERT INTO away.t VALUES (1)", user="app")
        return capture(self, names)

    monkeypatch.setattr(SourcePlace, "capture_again", beside_writes)
    with serving(mirrors) as served:
        mirrors.database.execute("ALTER TABLE t ADD more int; INSERT INTO other VALUES (9)", user="app")
        served.until(lambda: _columns(mirrors, "public.t") == ["id", "n", "more"], "it is back")


_SWAP = "ALTER TABLE t RENAME a TO x; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME x TO b"


@pytest.mark.parametrize("handoff", ["xid", "chunks", pytest.param("slot", marks=pytest.mark.full)])
def test_columns_that_change_names_for_as_long_as_a_table_is_read_are_not_copied_under_them(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, handoff: str
) -> None:
    """Each look before and after shows the same table, and no row tells the stream of it."""
    mirrors.database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b int);"
        "INSERT INTO t SELECT i, i, -i FROM generate_series(1, 50) i",
        user="app",
    )
    swaps = {"copy.snapshot.before": 1, "copy.range.after": 1, "copy.chunk.after": 1}

    def swap(name: str, table: str = "") -> None:
        if swaps.pop(name, 0):
            mirrors.database.execute(_SWAP, user="app")

    for module in ("snapshot", "by_chunks"):
        monkeypatch.setattr(f"headrace.pipeline.copy.{module}.failpoint", swap)
    mirrors.once(handoff=handoff)
    assert len(swaps) == 1, "it was read in one of the two ways, between two swaps"
    assert validators.exact(mirrors.lake, mirrors.database.url(), values=True) == []


def test_a_table_that_comes_later_is_joined_to_a_stream_from_before_a_column(mirrors: Mirrors) -> None:
    """All that the stream has of the other table, before and after its column, came while nobody mirrored."""
    _make(mirrors, "one", rows=1)
    mirrors.once("public.one")
    mirrors.database.execute("INSERT INTO one VALUES (2)", user="app")
    mirrors.database.execute("ALTER TABLE one ADD more int; INSERT INTO one VALUES (3, 3, 3)", user="app")
    _make(mirrors, "two", rows=2)
    mirrors.database.execute("INSERT INTO two VALUES (3, 3)", user="app")
    url = mirrors.database.url(user="app")
    assert cli.main(["tables", "add", "public.two", "--lake", str(mirrors.path), "--url", url]) == 0
    cut = mirrors.once("public.one", "public.two").at()
    assert {tuple(row.values()) for row in cut.arrow("public.one").to_pylist()} == {
        (1, 1, None), (2, None, None), (3, 3, 3),
    }  # fmt: skip
    assert sorted(cut.arrow("public.two")["id"].to_pylist()) == [1, 2, 3]
    assert validators.exact(mirrors.lake, mirrors.database.url(), values=True) == []
