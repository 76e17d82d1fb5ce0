"""Partitioned tables by their roots: the lake holds what a SELECT from the root shows, at every mark.

A table for each case, each with partitions of every kind, all in one database and one run: a partition whose
columns stand in another order, one that is partitioned itself, a default one. What happens to the tree
without a message has the root copied anew, by itself; what brings no row does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from headrace.lake.read.lake import Lake
from headrace.pipeline.state.table_state import State
from headrace.testing import validators
from headrace.testing.postgres import Database, Server
from tests import without_spark
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.parts.comparing import differing
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


def _make(database: Database, names: Mapping[str, str]) -> None:
    for name in names:
        database.execute(TREE.format(t=name), user="app")
    database.execute("CREATE SCHEMA oracle")
    _show(database, names)


def _show(database: Database, names: Mapping[str, str]) -> None:
    for name in names:
        database.execute(f"CREATE OR REPLACE VIEW oracle.{name} AS SELECT * FROM public.{name}")


@pytest.fixture(scope="module")
def scene(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch, postgres_server.database() as database:
        without_spark.jobs_in_process(patch)
        mirrors = Mirrors(database, tmp_path_factory.mktemp("roots") / "lake", None)
        _make(database, {name: "" for name in CASES if name != "rewritten"})
        database.execute(TREE.format(t="rewritten"), user="app")
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
        _show(database, CASES)
        yield Scene(mirrors, epoch, since)


def test_each_table_is_what_its_root_shows(scene: Scene) -> None:
    assert differing(scene.mirrors, CASES) == {}
    assert outcomes(verified(scene.mirrors)) == {f"public.{case}": "equal" for case in CASES}
    assert validators.definite(scene.lake, every=True, tables=[f"public.{name}" for name in SAME]) == []
    assert validators.travelled(scene.lake, tables=[f"public.{name}" for name in SAME]) == []


@pytest.mark.parametrize("case", COPIED)
def test_rows_that_came_or_went_without_a_message_are_copied_anew(scene: Scene, case: str) -> None:
    record = scene.mirrors.record(f"public.{case}")
    assert (record.state, record.error) == (State.LIVE, None)
    assert record.since is not None
    assert record.since > (scene.since[case] or 0)


@pytest.mark.parametrize("case", SAME)
def test_what_brings_no_row_leaves_a_root_in_its_marks(scene: Scene, case: str) -> None:
    record = scene.mirrors.record(f"public.{case}")
    assert (record.state, record.error, record.since) == (State.LIVE, None, scene.since[case])
    marks = [mark for mark in scene.lake.marks() if mark.epoch >= scene.epoch]
    assert all(f"public.{case}" in mark.versions for mark in marks)
