"""Tables come and go while nobody runs the source: `headrace tables add` and `drop` on a lake at rest.

`tests/guarantees/test_g1_late_tables.py` proves the same beside a running source, under load and whatever is
killed.
"""

from __future__ import annotations

from contextlib import closing

import pytest

import headrace
from headrace.cli import main as cli
from headrace.core.errors import HeadraceError
from headrace.lake.format.status import SourceStatus
from headrace.lake.store.contract import Store
from headrace.pipeline.commands.ask import ask
from headrace.pipeline.state import last_config
from headrace.pipeline.state.ownership import living_owner
from headrace.pipeline.state.table_state import State
from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors

pytestmark = pytest.mark.server


@pytest.fixture
def mirrored(mirrors: Mirrors) -> Mirrors:
    """A mirror at rest of `t`; `late` and `later` are there and not mirrored."""
    for name in ("t", "late", "later"):
        mirrors.database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, s text)", user="app")
        mirrors.database.execute(f"INSERT INTO {name} SELECT i, 'x' FROM generate_series(1, 9) i", user="app")
    mirrors.database.execute("ALTER TABLE late REPLICA IDENTITY FULL", user="app")
    mirrors.once("public.t")
    return mirrors


def _tables(mirrors: Mirrors, action: str, *names: str) -> int:
    url = mirrors.database.url(user="app")
    return cli.main(["tables", action, *names, "--lake", str(mirrors.path), "--url", url])


def _refusal(mirrors: Mirrors, action: str, *names: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        ask(
            str(mirrors.path),
            f"tables.{action}",
            {"tables": names},
            url=mirrors.database.url(user="app"),
        )
    assert caught.value.hint
    return caught.value


def _published(database: Database) -> list[str]:
    return [name for (name,) in database.execute("SELECT tablename FROM pg_publication_tables ORDER BY 1")]


def test_tables_that_are_added_by_a_pattern_are_copied_and_exact(
    mirrored: Mirrors, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _tables(mirrored, "add", "public.late*", "public.t") == 0
    told = capsys.readouterr().out
    assert "public.late: chosen" in told
    assert "public.t: mirrored already, live" in told
    assert _published(mirrored.database) == ["late", "later", "t"]
    assert mirrored.record("public.late").state is State.PENDING
    mirrored.database.execute("UPDATE late SET s = 'y' WHERE id < 4", user="app")
    mirrored.once("public.t")
    assert sorted(mirrored.lake.marks()[-1].versions) == ["public.late", "public.later", "public.t"]
    assert validators.exact(mirrored.lake, mirrored.database.url()) == []


def test_a_run_that_begins_beside_a_command_keeps_the_source_and_carries_it_out(
    mirrored: Mirrors, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first status comes just after the command has found nobody."""
    url, judged = mirrored.database.url(user="app"), "headrace.pipeline.commands.ask.living_owner"
    rare = {"every": "1h"}  # so that its next epoch comes after the command's
    with closing(Mirrored(mirrored.path, url, "public.t", program=program, options=rare)) as mirror:

        def nobody_yet(store: Store, source: str) -> None:
            monkeypatch.setattr(judged, living_owner)
            mirror.start()
            mirror.until(lambda: mirror.status().status.state == "running", "its takeover")

        monkeypatch.setattr(judged, nobody_yet)
        assert _tables(mirrored, "add", "public.late") == 0
        mirror.until(lambda: "public.late" in mirrored.lake.at().tables(), "the table")
        assert mirror.stop() == 0, mirror.log()


def test_new_tables_are_added_by_a_run_that_is_told_to(mirrors: Mirrors) -> None:
    """One that was dropped stays away; one that cannot be mirrored keeps no other out."""
    database = mirrors.database
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE left_out (id int PRIMARY KEY)", user="app"
    )
    lake = mirrors.once(new_tables="add")
    assert _tables(mirrors, "drop", "public.left_out") == 0
    database.execute("CREATE TABLE ask (id int PRIMARY KEY)", user="app")
    mirrors.once()
    assert list(lake.marks()[-1].versions) == ["public.t"]
    database.execute(
        'CREATE TABLE "Odd *" (id int PRIMARY KEY); INSERT INTO "Odd *" VALUES (1); '
        "CREATE TABLE keyless (id int); CREATE TABLE other (id int PRIMARY KEY)",
        user="app",
    )
    said = list[SourceStatus]()
    source = {"url": database.url(user="app"), "tables": ["public.*", "!public.other"], "new_tables": "add"}
    config = {"lake": {"path": str(mirrors.path)}, "source": {"main": source}}
    headrace.mirror(config, spark=mirrors.spark, once=True, listener=said.append)
    told = {name for status in said for name in status.unmirrored_tables}
    assert told.isdisjoint({"public.ask", 'public."Odd *"'})  # nobody is to type anything
    assert "public.keyless" in told
    assert sorted(lake.marks()[-1].versions) == ['public."Odd *"', "public.ask", "public.t"]
    assert _published(database) == ["Odd *", "ask", "t"]
    assert lake.at().arrow('"Odd *"').num_rows == 1
    # Patterns are remembered as they were given.
    [(_, remembered)] = last_config.recall(lake.store).values()
    assert remembered.tables == ("public.*", "!public.other")
    assert validators.exact(lake, database.url()) == []


def test_a_table_that_is_dropped_stays_readable_at_its_marks_and_may_come_back(mirrored: Mirrors) -> None:
    """Between the two intervals it is not to be had; within each every mark and every time is."""
    database, lake = mirrored.database, mirrored.lake
    assert _tables(mirrored, "add", "late") == 0
    mirrored.once()
    database.execute("DELETE FROM late WHERE id = 1", user="app")
    mirrored.once()
    before = lake.marks()[-1]
    assert _tables(mirrored, "drop", "public.late") == 0
    assert _published(database) == ["t"]
    assert "public.late" not in lake.marks()[-1].versions
    database.execute("UPDATE late SET s = 'unseen'", user="app")
    mirrored.once()
    between = lake.marks()[-1]
    assert "public.late" not in between.versions
    assert _tables(mirrored, "add", "public.late") == 0
    assert lake.at(epoch=before.epoch).arrow("public.late").num_rows == 8
    mirrored.once()
    database.execute("INSERT INTO late VALUES (10, 'z')", user="app")
    mirrored.once()
    assert lake.at().arrow("public.late").num_rows == 9
    assert lake.at(epoch=before.epoch).arrow("public.late")["s"].unique().to_pylist() == ["x"]
    with pytest.raises(HeadraceError) as caught:
        lake.at(epoch=between.epoch).arrow("public.late")
    assert caught.value.code == "LAKE_TABLE_NOT_EXACT"
    assert validators.exact(lake, database.url()) == []
    assert validators.consistent(lake) == []


def test_a_cut_shows_the_history_of_the_columns_that_its_table_had(mirrored: Mirrors) -> None:
    """A table that went and came back under other columns has a history of its own for each life."""
    database, lake = mirrored.database, mirrored.lake
    database.execute("UPDATE t SET s = 'y' WHERE id = 1", user="app")
    mirrored.once("public.t")
    first = lake.at()
    assert _tables(mirrored, "drop", "public.t") == 0
    without = lake.at()
    database.execute("ALTER TABLE t RENAME COLUMN s TO u", user="app")
    assert _tables(mirrored, "add", "public.t") == 0
    mirrored.once("public.t")
    second = lake.at()
    with pytest.raises(HeadraceError) as unchanged:
        second.history("t")
    assert unchanged.value.code == "LAKE_NO_HISTORY"
    database.execute("UPDATE t SET u = 'z' WHERE id = 2", user="app")
    mirrored.once("public.t")
    for cut in (first, lake.at(epoch=first.epoch), without):
        assert sorted(cut.history("t").column("s").to_pylist()) == ["x", "y"]
        assert "u" not in cut.history("t").column_names
    assert sorted(lake.at().history("t").column("u").to_pylist()) == ["x", "z"]
    with pytest.raises(HeadraceError) as unchanged:
        second.history("t")
    assert unchanged.value.code == "LAKE_NO_HISTORY"


def test_no_time_of_a_second_interval_is_told_from_a_mark_of_the_first(mirrored: Mirrors) -> None:
    """Though all marks between the two are thinned out, and the mark of the first is nearer."""
    database, lake = mirrored.database, mirrored.lake
    database.execute("UPDATE t SET s = 'y' WHERE id = 1", user="app")
    mirrored.once("public.t")
    assert _tables(mirrored, "drop", "public.t") == 0
    database.execute("UPDATE t SET s = 'unseen'", user="app")
    assert _tables(mirrored, "add", "public.t") == 0
    mirrored.once("public.t")
    database.execute("INSERT INTO t VALUES (10, 'z')", user="app")
    mirrored.once("public.t")
    place = lake.at()
    want = place.arrow("t").sort_by("id")
    database.execute("SELECT pg_logical_emit_message(false, 'far', repeat('x', 8000000))")
    database.execute("INSERT INTO t VALUES (11, 'z')", user="app")
    mirrored.once("public.t")
    ask(str(mirrored.path), "maintain", {"marks": "0s", "grace": "0s"})

    assert place.epoch not in {mark.epoch for mark in lake.marks()}
    assert lake.at(position=place.mark.frontier).arrow("t").sort_by("id").equals(want)


REFUSED = [
    ("add", "public.nowhere", "PG_PATTERN_EMPTY"),
    ("add", "public.keyless", "PG_IDENTITY_MISSING"),
    ("add", 'public."LATE"', "PG_PATTERN_EMPTY"),
    ("drop", "public.late", "TABLE_NOT_MIRRORED"),
]


def test_what_cannot_be_is_refused_and_changes_nothing(mirrored: Mirrors) -> None:
    mirrored.database.execute("CREATE TABLE keyless (n int)", user="app")
    for action, name, code in REFUSED:
        assert _refusal(mirrored, action, name).code == code
    assert _published(mirrored.database) == ["t"]
    assert list(mirrored.lake.marks()[-1].versions) == ["public.t"]


def test_a_publication_of_the_users_is_not_altered_and_what_it_did_not_send_is_not_told(
    mirrors: Mirrors,
) -> None:
    """Their slot is not altered either: it is older than the membership of `t`, so its start is gone."""
    database = mirrors.database
    mirrors.options |= {"publication": "mine", "slot": "theirs"}
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE late (id int PRIMARY KEY);"
        " ALTER TABLE t REPLICA IDENTITY FULL; CREATE PUBLICATION mine",
        user="app",
    )
    database.execute("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')")
    database.execute("INSERT INTO t SELECT generate_series(1, 10)", user="app")
    [(before,)] = database.execute("SELECT pg_current_wal_insert_lsn()::text")
    database.execute("INSERT INTO t VALUES (77); DELETE FROM t WHERE id = 1", user="app")
    database.execute("ALTER PUBLICATION mine ADD TABLE t", user="app")
    lake = mirrors.once("public.*")
    with pytest.raises(HeadraceError) as caught:
        lake.at(position=before).arrow("public.t")
    assert caught.value.code == "LAKE_TABLE_NOT_EXACT"
    since = mirrors.record("public.t").since
    assert since is not None
    assert since <= lake.marks()[-1].time + 1
    error = _refusal(mirrors, "add", "public.late")
    assert (error.code, error.hint) == (
        "PG_TABLE_UNPUBLISHED",
        "ALTER PUBLICATION mine ADD TABLE ONLY public.late",
    )
    database.execute("ALTER PUBLICATION mine ADD TABLE late; DELETE FROM t WHERE id = 2", user="app")
    mirrors.once("public.*")
    assert validators.exact(lake, database.url()) == []
    assert validators.travelled(lake) == []
    assert list(mirrors.lake.marks()[-1].versions) == ["public.t"]  # nothing is taken by itself
    assert _tables(mirrors, "add", "public.late") == 0
    mirrors.once("public.*")
    assert sorted(mirrors.lake.marks()[-1].versions) == ["public.late", "public.t"]
    assert _tables(mirrors, "drop", "public.late") == 0
    assert _published(database) == ["late", "t"]
    last = max(mark.epoch for mark in mirrors.lake.marks() if "public.late" in mark.versions)
    database.execute("DELETE FROM t WHERE id = 3", user="app")
    mirrors.once("public.*")
    # It had no change since its copy, and so no history.
    with pytest.raises(HeadraceError) as caught:
        mirrors.lake.at().arrow("public.late")
    assert caught.value.code == "LAKE_TABLE_NOT_EXACT"
    assert f"headrace sql --at {last}" in caught.value.hint


def test_a_drop_that_was_ended_before_it_reached_the_publication_is_finished(mirrored: Mirrors) -> None:
    [(publication,)] = mirrored.database.execute("SELECT pubname FROM pg_publication")
    mirrored.database.execute(f'ALTER PUBLICATION "{publication}" ADD TABLE late', user="app")
    assert _tables(mirrored, "drop", "public.late") == 0
    assert _published(mirrored.database) == ["t"]
