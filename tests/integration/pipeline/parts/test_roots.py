"""Partitioned tables by their roots: the lake holds what a SELECT from the root shows, at every mark.

A table for each case, each with partitions of every kind, all in one database and one run: a partition whose
columns stand in another order, one that is partitioned itself, a default one. A change to the
tree without a message has the root copied anew, by itself; one that brings no row does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from headrace.core.errors import HeadraceError
from headrace.lake.read.lake import Lake
from headrace.pipeline import loop
from headrace.pipeline.state import schema_check
from headrace.pipeline.state.records import Way
from headrace.pipeline.state.table_state import State
from headrace.pipeline.stream import cadence
from headrace.pipeline.stream.cadence import Cadence
from headrace.sources.postgres.position import Lsn
from headrace_testing import validators
from headrace_testing.postgres import Database, Server
from headrace_testing.postmaster import wait_for
from headrace_testing.timeline import Remembered
from tests import without_spark
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.holding import held_up
from tests.integration.pipeline.parts.comparing import differing
from tests.integration.pipeline.serving import serving
from tests.integration.pipeline.verifying import outcomes, verified

pytestmark = pytest.mark.server

TREE = """
CREATE TABLE {t} (id int, k int, v text, big text, PRIMARY KEY (id, k)) PARTITION BY RANGE (k);
ALTER TABLE {t} ALTER COLUMN big SET STORAGE EXTERNAL;
CREATE TABLE {t}_low PARTITION OF {t} FOR VALUES FROM (0) TO (10);
CREATE TABLE {t}_mid (gone int, big text, v text, k int, id int, PRIMARY KEY (id, k));
ALTER TABLE {t}_mid DROP COLUMN gone;
ALTER TABLE {t} ATTACH PARTITION {t}_mid FOR VALUES FROM (10) TO (20);
CREATE TABLE {t}_deep PARTITION OF {t} FOR VALUES FROM (20) TO (40) PARTITION BY LIST (k);
CREATE TABLE {t}_deep_20 PARTITION OF {t}_deep FOR VALUES IN (20);
CREATE TABLE {t}_deep_rest PARTITION OF {t}_deep DEFAULT;
INSERT INTO {t} SELECT i, i % 40, 'v' || i, repeat(md5(i::text), 99) FROM generate_series(1, 60) i;
"""
LIKE = "CREATE TABLE {t}_new (LIKE {t} INCLUDING ALL)"
ROWS = "INSERT INTO {t}_new SELECT i, 41, 'new', 'n' FROM generate_series(100, 110) i"
ATTACH = "ALTER TABLE {t} ATTACH PARTITION {t}_new FOR VALUES FROM (40) TO (50)"
MADE = "CREATE TABLE {t}_new PARTITION OF {t} FOR VALUES FROM (40) TO (50)"
INTO = "INSERT INTO {t} SELECT i, 42, 'into', 'i' FROM generate_series(200, 205) i"

# What is done to the tree, statement by statement, or in one transaction where it says so.
SAME: Mapping[str, str] = {
    "moved": "UPDATE {t} SET k = (k + 13) % 40; UPDATE {t} SET id = id + 500, k = 39 - k WHERE id % 3 = 0",
    "moved_amid": "BEGIN; UPDATE {t} SET k = 15 WHERE k < 5; UPDATE {t} SET k = 25, v = 'x' WHERE k = 15;"
    " UPDATE {t} SET k = 3 WHERE k = 25 AND id < 20; COMMIT",
    "undone": "BEGIN; SAVEPOINT a; UPDATE {t} SET k = 15 WHERE k < 5; ROLLBACK TO a;"
    " DELETE FROM {t} WHERE k = 7; COMMIT",
    "by_leaf": "UPDATE {t}_mid SET v = 'leaf'; DELETE FROM {t}_low WHERE id = 3; INSERT INTO {t}_deep"
    " VALUES (99, 33, 'd', 'd')",
    "made": f"{MADE}; {INTO}; UPDATE {{t}} SET k = 45 WHERE k = 4",
    "made_below": "CREATE TABLE {t}_deep_21 PARTITION OF {t}_deep FOR VALUES IN (51);"
    " CREATE TABLE {t}_new PARTITION OF {t} FOR VALUES FROM (50) TO (60) PARTITION BY RANGE (k);"
    " CREATE TABLE {t}_new_low PARTITION OF {t}_new FOR VALUES FROM (50) TO (55);"
    " INSERT INTO {t} VALUES (300, 52, 'n', 'n'); UPDATE {t} SET k = 53 WHERE k = 13",
    "attached_empty": f"{LIKE}; {ATTACH}",
    "whole_leaf": "ALTER TABLE {t}_mid REPLICA IDENTITY FULL; UPDATE {t} SET v = 'f'"
    " WHERE k BETWEEN 8 AND 12; UPDATE {t} SET k = 9 WHERE k = 14; DELETE FROM {t} WHERE k = 16",
    "leaf_renamed": "ALTER TABLE {t}_mid RENAME TO {t}_middle; UPDATE {t} SET v = 'r' WHERE k = 11",
    "leaf_away": "CREATE SCHEMA {t}_away; ALTER TABLE {t}_low RENAME TO {t}_x; "
    "ALTER TABLE {t}_x SET SCHEMA {t}_away; ALTER TABLE {t}_away.{t}_x RENAME TO {t};"
    " UPDATE {t} SET v = 'a' WHERE k = 2",
    "maintained": "VACUUM (ANALYZE) {t}; CREATE INDEX ON {t} (v); COMMENT ON TABLE {t}_low IS 'c';"
    " ANALYZE {t}_low",
    "added": "ALTER TABLE {t} ADD COLUMN more int; UPDATE {t} SET more = 1 WHERE k = 22",
}
COPIED: Mapping[str, str] = {
    "attached": f"{LIKE}; {ROWS}; {ATTACH}",
    "attached_amid": f"BEGIN; {LIKE}; {ROWS}; {ATTACH}; {INTO}; COMMIT",
    # Its columns' rows in the catalog look as those of a table that was made a partition.
    "attached_and_nearly_dropped": f"BEGIN; {LIKE}; {ROWS}; {ATTACH}; COMMIT;"
    " BEGIN; DROP TABLE {t}_new; ROLLBACK",
    "attached_whole": "CREATE TABLE {t}_new (LIKE {t}) PARTITION BY LIST (k); "
    "CREATE TABLE {t}_new_41 PARTITION OF {t}_new FOR VALUES IN (41); " + f"{ROWS}; {ATTACH}",
    "attached_and_back": f"{LIKE}; {ROWS}; {ATTACH}; {INTO}; ALTER TABLE {{t}} DETACH PARTITION {{t}}_new",
    "came_and_went": f"{MADE}; {INTO}; DROP TABLE {{t}}_new",
    "made_and_emptied": f"{MADE}; {INTO}; TRUNCATE {{t}}_new",
    # One file node: in the transaction that made it a table is truncated in its place.
    "made_and_emptied_amid": f"BEGIN; {MADE}; {INTO}; TRUNCATE {{t}}_new;"
    " INSERT INTO {t} VALUES (9, 43); COMMIT",
    "made_in_savepoint": f"BEGIN; SAVEPOINT a; {MADE}; RELEASE a; {INTO}; TRUNCATE {{t}}_new; COMMIT",
    "detached": "ALTER TABLE {t} DETACH PARTITION {t}_mid; UPDATE {t}_mid SET v = 'apart'",
    "detached_for_a_while": "ALTER TABLE {t} DETACH PARTITION {t}_mid; DELETE FROM {t}_mid WHERE id = 11;"
    " ALTER TABLE {t} ATTACH PARTITION {t}_mid FOR VALUES FROM (10) TO (20)",
    "detached_concurrently": "ALTER TABLE {t} DETACH PARTITION {t}_low CONCURRENTLY",
    "lost_branch": "ALTER TABLE {t} DETACH PARTITION {t}_deep; INSERT INTO {t}_deep VALUES (1, 20)",
    "dropped": "DROP TABLE {t}_deep_20",
    "truncated": "TRUNCATE {t}_low; INSERT INTO {t} VALUES (400, 4, 'again', 'a')",
    "emptied_branch": "UPDATE {t} SET v = 'gone' WHERE k > 19; TRUNCATE {t}_deep",
    "truncated_whole": "INSERT INTO {t} VALUES (401, 1), (402, 21); TRUNCATE {t};"
    " INSERT INTO {t} VALUES (403, 1)",
    "rewritten": "ALTER TABLE {t} ALTER COLUMN v TYPE varchar(99) USING v || '?'",
    "unlogged_for_a_while": "ALTER TABLE {t}_mid SET UNLOGGED; UPDATE {t}_mid SET v = 'silent';"
    " ALTER TABLE {t}_mid SET LOGGED",
    "identity_for_a_while": "ALTER TABLE {t}_low REPLICA IDENTITY USING INDEX {t}_low_pkey;"
    " ALTER TABLE {t} REPLICA IDENTITY FULL; UPDATE {t} SET v = 'half' WHERE k = 3;"
    " DELETE FROM {t} WHERE k = 5; ALTER TABLE {t} REPLICA IDENTITY DEFAULT",
}
CASES = {**SAME, **COPIED}


def do(database: Database, statements: str, name: str) -> None:
    """Run statements one by one, or as the one transaction that they are."""
    for statement in [statements] if statements.startswith("BEGIN") else statements.split("; "):
        database.execute(statement.format(t=name), user="app")


@dataclass
class Scene:
    """The mirror when all is done, and the intervals from before."""

    mirrors: Mirrors
    epoch: int
    since: Mapping[str, int | None]

    @property
    def lake(self) -> Lake:
        return self.mirrors.lake


def make(database: Database, names: Iterable[str]) -> None:
    for name in names:
        database.execute(TREE.format(t=name), user="app")
    database.execute("CREATE SCHEMA oracle")


def ways(mirrors: Mirrors, names: Iterable[str]) -> dict[str, Way]:
    """The ways in which tables followed what became of their columns, of those that had to."""
    entries = {name: mirrors.record(f"public.{name}").alteration for name in names}
    return {name: entry.way for name, entry in entries.items() if entry is not None}


def show(database: Database, names: Iterable[str]) -> None:
    """Views of what the roots show by now: one that stood there before would keep DDL from them."""
    for name in names:
        database.execute(f"CREATE VIEW oracle.{name} AS SELECT * FROM public.{name}")


@pytest.fixture(scope="module")
def scene(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch, postgres_server.database() as database:
        without_spark.jobs_in_process(patch)
        mirrors = Mirrors(database, tmp_path_factory.mktemp("roots") / "lake", None)
        make(database, CASES)
        mirrors.once()
        epoch = mirrors.lake.marks()[-1].epoch
        since = {name: mirrors.record(f"public.{name}").since for name in CASES}
        for name, statements in CASES.items():
            database.execute(f"UPDATE {name} SET v = 'before' WHERE id % 3 = 0", user="app")
            do(database, statements, name)
            database.execute(f"UPDATE {name} SET v = 'after' WHERE id % 4 = 0", user="app")
        mirrors.once()
        for name in CASES:
            database.execute(
                f"DELETE FROM {name} WHERE id % 11 = 2; UPDATE {name} SET k = k WHERE id = 8", user="app"
            )
        mirrors.once()
        show(database, CASES)
        yield Scene(mirrors, epoch, since)


def test_each_table_is_what_its_root_shows(scene: Scene) -> None:
    assert differing(scene.mirrors, CASES) == {}
    assert outcomes(verified(scene.mirrors)) == {f"public.{case}": "equal" for case in CASES}
    lake, same = Remembered(scene.lake), [f"public.{name}" for name in SAME]
    assert validators.definite(lake, every=True, tables=same) == []
    assert validators.travelled(lake, tables=same) == []


@pytest.mark.parametrize("case", COPIED)
def test_rows_that_came_or_went_without_a_message_are_copied_anew(scene: Scene, case: str) -> None:
    record = scene.mirrors.record(f"public.{case}")
    assert (record.state, record.error) == (State.LIVE, None)
    assert record.since is not None
    assert record.since > (scene.since[case] or 0)


@pytest.mark.parametrize("case", SAME)
def test_what_brings_no_row_leaves_a_root_in_its_marks(scene: Scene, case: str) -> None:
    record = scene.mirrors.record(f"public.{case}")
    marks = [mark for mark in scene.lake.marks() if mark.epoch >= scene.epoch]
    # A column that came opens an interval of the table's own where the last mark before it stands: that is
    # behind the copy if the server wrote anything meanwhile (autovacuum does).
    since = marks[0].time + 1 if case == "added" else scene.since[case]
    assert (record.state, record.error, record.since) == (State.LIVE, None, since)
    assert ways(scene.mirrors, [case]) == ({case: Way.ADDED} if case == "added" else {})
    assert all(f"public.{case}" in mark.versions for mark in marks)


# --- a publication of the user's, and what cannot be followed -------------------------------------

PARTS = {
    "filtered": "SELECT * FROM filtered WHERE k < 30",
    "listed": "SELECT id, k, v FROM listed",
    "halved": "SELECT id, k FROM halved WHERE id % 2 = 0",
}


def test_a_publication_of_roots_sends_parts_of_them(mirrors: Mirrors, database: Database) -> None:
    make(database, PARTS)
    for name, holds in PARTS.items():
        database.execute(f"CREATE VIEW oracle.{name} AS {holds}")
    database.execute(
        "CREATE PUBLICATION p FOR TABLE filtered WHERE (k < 30), listed (id, v, k),"
        " halved (k, id) WHERE (id % 2 = 0) WITH (publish_via_partition_root)",
        user="app",
    )
    mirrors.options = {"publication": "p"}
    mirrors.once()
    assert differing(mirrors, PARTS) == {}
    since = [mirrors.record(f"public.{name}").since for name in PARTS]
    for name in PARTS:
        do(database, MADE, name)
        do(
            database,
            f"{SAME['moved']}; UPDATE {{t}} SET id = id + 1001, v = 'x', big = 'b' WHERE k < 9",
            name,
        )
    mirrors.once()
    assert differing(mirrors, PARTS) == {}
    assert [mirrors.record(f"public.{name}").since for name in PARTS] == since
    do(database, "TRUNCATE filtered_mid; UPDATE filtered SET k = 1 WHERE k > 30", "filtered")
    # What a partition is published by does not count where its root is in the publication.
    part = "filtered WHERE (k < 30), halved (k, id) WHERE (id % 3 = 0), listed, listed_low WHERE (k < 3)"
    do(database, f"ALTER PUBLICATION p SET TABLE {part}; UPDATE listed SET big = 'w', id = id + 3000", "")
    for name, holds in (("listed", "TABLE listed"), ("halved", "SELECT id, k FROM halved WHERE id % 3 = 0")):
        database.execute(f"DROP VIEW oracle.{name}; CREATE VIEW oracle.{name} AS {holds}")
    mirrors.once()
    assert differing(mirrors, PARTS) == {}
    assert outcomes(verified(mirrors)) == {f"public.{name}": "equal" for name in PARTS}
    do(
        database,
        "ALTER PUBLICATION p SET TABLE filtered, listed, halved;"
        " ALTER PUBLICATION p SET (publish_via_partition_root = false)",
        "",
    )
    with pytest.raises(HeadraceError, match="PG_PUBLICATION_ROOT"):
        mirrors.once()
    assert {mirrors.record(f"public.{name}").state for name in PARTS} == {State.STOPPED}


UNFIT = {
    "unlogged": (f"{LIKE}; ALTER TABLE {{t}}_new SET UNLOGGED; {ATTACH}", "ALTER TABLE {t}_new SET LOGGED"),
    "anonymous": (
        "ALTER TABLE {t}_mid REPLICA IDENTITY NOTHING; INSERT INTO {t} VALUES (500, 12)",
        "ALTER TABLE {t}_mid REPLICA IDENTITY DEFAULT",
    ),
}


def test_a_partition_that_cannot_be_followed_stops_its_root_until_it_is_mended(
    mirrors: Mirrors, database: Database
) -> None:
    make(database, [*UNFIT, "sound"])
    mirrors.once()
    for name, (statements, _) in UNFIT.items():
        do(database, statements, name)
    with pytest.raises(HeadraceError):
        mirrors.once()
    assert set(mirrors.lake.at().mark.versions) == {"public.sound"}
    for name, (_, mend) in UNFIT.items():
        do(database, mend, name)
    mirrors.once()
    show(database, UNFIT)
    assert differing(mirrors, UNFIT) == {}


def test_a_mirrored_table_that_becomes_a_partition_gives_its_rows_to_the_root(
    mirrors: Mirrors, database: Database
) -> None:
    make(database, ["t"])
    do(database, f"{LIKE}; {ROWS}", "t")
    mirrors.once()
    assert set(mirrors.lake.at().mark.versions) == {"public.t", "public.t_new"}
    do(database, f"{ATTACH}; {INTO}; UPDATE {{t}} SET v = 'of the root' WHERE k = 41", "t")
    with pytest.raises(HeadraceError) as stopped:
        mirrors.once()
    assert "PG_PARTITION_INSIDE" in str(stopped.value.detail)
    show(database, ["t"])
    assert differing(mirrors, ["t"]) == {}
    assert mirrors.record("public.t_new").state is State.STOPPED


def test_who_mirrors_partitions_by_themselves_goes_on_to_do_so(mirrors: Mirrors, database: Database) -> None:
    make(database, ["t"])
    patterns = ("public.*", "!public.t", "!public.t_deep")
    mirrors.once(*patterns)
    leaves = {f"public.t_{name}" for name in ("low", "mid", "deep_20", "deep_rest")}
    assert set(mirrors.lake.at().mark.versions) == leaves
    do(database, f"TRUNCATE {{t}}_low; UPDATE {{t}} SET k = 12 WHERE k > 20; {MADE}; {INTO}", "t")
    for chosen in (patterns, ("public.*",)):
        mirrors.once(*chosen)
        assert set(mirrors.lake.at().mark.versions) == leaves
    assert validators.exact(mirrors.lake, database.url(), values=True) == []
    with pytest.raises(HeadraceError) as refused:
        mirrors.once("public.*", "public.t")
    assert refused.value.code == "TABLE_NOT_ADDED"


def test_a_partition_that_passes_while_its_root_is_copied_is_in_no_mark_without_its_rows(
    mirrors: Mirrors, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes with rows behind the copy, and goes behind the newest mark: no message says either."""
    monkeypatch.setattr("headrace.pipeline.stream.cadence.KEEP_SECONDS", 0.0)
    database.execute(
        "CREATE TABLE r (k int PRIMARY KEY, v text) PARTITION BY RANGE (k);"
        "CREATE TABLE p (LIKE r INCLUDING ALL);"
        "CREATE TABLE r_0 PARTITION OF r FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (20, 'passes')",
        user="app",
    )
    passed = list[int]()

    def detach(name: str, table: str = "") -> None:
        if name == "late.replay.before" and not passed:
            database.execute("ALTER TABLE r DETACH PARTITION p", user="app")
            passed.append(mirrors.lake.marks()[-1].time)

    mirrors.options |= {"tables": ["public.r"], "handoff": "xid"}
    with held_up(mirrors, "copy.range.after", "public.r", monkeypatch):
        known = len(mirrors.lake.marks())
        database.execute("ALTER TABLE r ATTACH PARTITION p FOR VALUES FROM (20) TO (30)", user="app")
        database.execute("INSERT INTO r VALUES (1, 'kept')", user="app")
        wait_for(lambda: len(mirrors.lake.marks()) > known, "a mark that has the partition")
        monkeypatch.setattr(loop, "failpoint", detach)
    assert passed
    assert validators.exact(mirrors.lake, database.url(), values=True) == []
    assert all(mark.time > passed[0] for mark in mirrors.lake.marks() if "public.r" in mark.versions)


def test_a_partition_that_passes_between_two_looks_is_in_no_mark_without_its_rows(
    mirrors: Mirrors, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes right before the look, when the stream is behind it: both looks show one tree."""
    database.execute(
        "CREATE TABLE r (k int PRIMARY KEY, v text) PARTITION BY RANGE (k);"
        "CREATE TABLE r_0 PARTITION OF r FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (k);"
        "CREATE TABLE r_00 PARTITION OF r_0 FOR VALUES FROM (0) TO (5);"
        "CREATE TABLE p (LIKE r INCLUDING ALL); INSERT INTO p VALUES (7, 'passes');"
        "CREATE TABLE other (k int PRIMARY KEY)",
        user="app",
    )
    mirrors.options |= {"tables": ["public.r", "public.other"]}
    mirrors.once()
    since = mirrors.record("public.r").since
    attached, gone, look = list[Lsn](), list[Lsn](), schema_check.check_records

    def end() -> Lsn:
        return Lsn.parse(database.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])

    def look_late(*arguments: Any, **options: Any) -> schema_check.RecordsCheck:
        if attached and not gone:
            gone.append(end())
            database.execute("ALTER TABLE r_0 DETACH PARTITION p", user="app")
        return look(*arguments, **options)

    with serving(mirrors) as served:
        database.execute("INSERT INTO other VALUES (1)", user="app")
        served.until(partial(served.holds, "public.other", 1), "a mark by a look of this run")
        monkeypatch.setattr(schema_check, "check_records", look_late)
        with monkeypatch.context() as held:
            held.setattr(Cadence, "rests", lambda *_: True)
            begun = end()
            database.execute("ALTER TABLE r_0 ATTACH PARTITION p FOR VALUES FROM (5) TO (10)", user="app")
            database.execute("INSERT INTO other VALUES (2)", user="app")
            attached.append(end())
            served.until(lambda: served.received(attached[0]), "the commit behind it")
        served.until(partial(served.holds, "public.other", 2), "that commit")
        served.until(partial(served.holds, "public.r", 0), "the root")
        assert mirrors.record("public.r").since == since, "nothing was copied"
        # The log of a quiet server moves on, and no message says why.
        monkeypatch.setattr(cadence, "LOOK_SECONDS", 0.2)
        monkeypatch.setattr(cadence, "IDLE_SECONDS", 3600.0)
        database.execute("INSERT INTO r VALUES (1, 'goes')", user="app")
        served.until(partial(served.holds, "public.r", 1), "the row")
        database.execute("TRUNCATE r_00", user="app")
        served.until(partial(served.holds, "public.r", 0), "the truncation")
    passing = [m for m in mirrors.lake.marks() if int(begun) < m.time < int(gone[0])]
    assert [mark for mark in passing if "public.r" in mark.versions] == []
    assert validators.exact(mirrors.lake, database.url(), values=True) == []
