"""DDL on tables of a queue: followed where it is proven what rows hold and under which columns each was
written, else copied anew.

A table for each case, beside a session that writes by plans older than the DDL, all in one database and one
run. TICK cuts what the next mark brings: rows before it and behind it are told apart by their ticks.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headrace.lake.read.lake import Lake
from headrace.pipeline import run as pipeline
from headrace.pipeline.state.records import TableRecord, Way, tables_of
from headrace.pipeline.state.table_state import State
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.queue import tick
from headrace_testing import validators
from headrace_testing.postgres import Server
from headrace_testing.postmaster import wait_for
from headrace_testing.wholeness import transfers
from headrace_testing.workload import Transfers, make_tables, running
from tests import without_spark
from tests.integration.pipeline.evolve.author import Author
from tests.integration.queue.capturing import LAKE
from tests.integration.queue.test_partitions import QueueMirrors

pytestmark = pytest.mark.server

# What is done to `{t} (id int PRIMARY KEY, n int, s varchar(20), e mood, d numeric(10, 2),
# r regclass)`, by case.
SAME = {
    "longer": "ALTER TABLE {t} ALTER s TYPE varchar(50); UPDATE {t} SET s = repeat('x', 40) WHERE id = 5",
    "vacuumed": "UPDATE {t} SET n = 0 WHERE id = 5; VACUUM FULL {t}",
    "taken_back": "BEGIN; UPDATE {t} SET n = 1 WHERE id = 5; SAVEPOINT a;"
    " ALTER TABLE {t} ADD more int DEFAULT 7; UPDATE {t} SET more = 9 WHERE id = 6; ROLLBACK TO a;"
    " ALTER TABLE {t} DROP n; UPDATE {t} SET s = 'never' WHERE id = 7; ROLLBACK TO a;"
    " UPDATE {t} SET n = 2 WHERE id = 8; COMMIT",
    # Nothing is left of it but the number that it had, and rows with a field more.
    "added_for_a_while": "UPDATE {t} SET n = 1 WHERE id = 5; ALTER TABLE {t} ADD more int DEFAULT 7;"
    " UPDATE {t} SET n = 2 WHERE id = 6; ALTER TABLE {t} DROP more; UPDATE {t} SET n = 3 WHERE id = 7",
}
ADDED = {
    "added": "ALTER TABLE {t} ADD more int",
    "added_amid": "UPDATE {t} SET n = 1 WHERE id = 5; ALTER TABLE {t} ADD a jsonb;"
    " UPDATE {t} SET a = '[\"a, b\"]' WHERE id < 7; ALTER TABLE {t} ADD b mood, ADD c int[];"
    " UPDATE {t} SET b = 'bad', c = '{{1,2}}' WHERE id BETWEEN 6 AND 8; DELETE FROM {t} WHERE id = 9",
    "added_within": "BEGIN; UPDATE {t} SET n = 0 WHERE id > 9; ALTER TABLE {t} ADD more int;"
    " UPDATE {t} SET more = id WHERE id < 12; INSERT INTO {t} (id, more) VALUES (100, 5); COMMIT",
    "added_in_part": "BEGIN; ALTER TABLE {t} ADD even jsonb; SAVEPOINT a; ALTER TABLE {t} ADD never int;"
    " INSERT INTO {t} (id, never) VALUES (100, 1); ROLLBACK TO a;"
    " INSERT INTO {t} (id, even) VALUES (101, '\"e\"'); COMMIT; ALTER TABLE {t} ADD really date",
    # No row before the look has them, but one whose catalog row is the statement's own.
    "added_texts": "ALTER TABLE {t} ADD a text, ADD b oid, ADD c varchar(9); TICK;"
    " ALTER TABLE {t} ADD more text; UPDATE {t} SET more = '<a/>' WHERE id = 9",
    # As migrations do, beside rows of others and of its own behind it.
    "added_texts_amid": "ALTER TABLE {t} ADD has_a_toast_table text; UPDATE {t} SET n = 1 WHERE id = 5;"
    " ALTER TABLE {t} ADD a text, ADD b oid, ADD c text;"
    " UPDATE {t} SET a = '<a/>', b = 7, c = 'c' WHERE id = 9",
    "added_texts_within": "ALTER TABLE {t} ADD has_a_toast_table text; BEGIN; DELETE FROM {t} WHERE id = 5;"
    " ALTER TABLE {t} ADD a text; ALTER TABLE {t} ADD b text;"
    " UPDATE {t} SET a = '<a/>', b = 'b' WHERE id = 9; COMMIT",
    "added_with_types": "CREATE TYPE {t}_e AS ENUM ('a', 'b'); CREATE TYPE {t}_c AS (x int, y {t}_e);"
    " ALTER TABLE {t} ADD more {t}_c[]; UPDATE {t} SET more = '{{\"(1,a)\"}}' WHERE id = 9",
}
REWRITTEN = {
    "constant": "UPDATE {t} SET n = 3 WHERE id < 3; BEGIN; DELETE FROM {t} WHERE id = 7;"
    " UPDATE {t} SET n = 0 WHERE id > 15; ALTER TABLE {t} ADD more numeric(10, 2) NOT NULL DEFAULT 7.5;"
    " UPDATE {t} SET more = id WHERE id < 12; INSERT INTO {t} (id) VALUES (100); COMMIT;"
    " UPDATE {t} SET s = 'later' WHERE id = 100",
    "constant_text": "ALTER TABLE {t} ADD more text NOT NULL DEFAULT '<a/>';"
    " UPDATE {t} SET more = 'x' WHERE id = 9",
    "constants": "DELETE FROM {t} WHERE id = 5; ALTER TABLE {t} ADD a int[] DEFAULT '{{1,NULL}}';"
    " INSERT INTO {t} (id) VALUES (100); ALTER TABLE {t} ADD b timestamptz DEFAULT '20000-01-01 00:00+02';"
    " UPDATE {t} SET n = 5 WHERE id IN (6, 100)",
    "dropped": "UPDATE {t} SET n = 7 WHERE id = 5; ALTER TABLE {t} DROP n;"
    " UPDATE {t} SET s = 'x' WHERE id = 6",
    "dropped_within": "BEGIN; UPDATE {t} SET n = 9 WHERE id = 9; ALTER TABLE {t} DROP s;"
    " DELETE FROM {t} WHERE id = 8; INSERT INTO {t} (id, n) VALUES (100, 5); COMMIT",
    "dropped_two": "DELETE FROM {t} WHERE id = 5; ALTER TABLE {t} DROP n, DROP s;"
    " DELETE FROM {t} WHERE id = 6",
    "dropped_in_turn": "DELETE FROM {t} WHERE id = 5; ALTER TABLE {t} DROP s; TICK;"
    " UPDATE {t} SET n = 7 WHERE id = 6; TICK; ALTER TABLE {t} DROP n; UPDATE {t} SET e = 'bad' WHERE id = 7",
    "renamed": "UPDATE {t} SET n = 7 WHERE id = 5; ALTER TABLE {t} RENAME n TO number;"
    " UPDATE {t} SET number = 8 WHERE id = 6",
    "swapped": "UPDATE {t} SET n = 900 WHERE id = 5; ALTER TABLE {t} RENAME n TO x;"
    " ALTER TABLE {t} RENAME id TO n; ALTER TABLE {t} RENAME x TO id; UPDATE {t} SET id = 901 WHERE n = 6",
    "wider": "UPDATE {t} SET d = 7.25 WHERE id = 5; ALTER TABLE {t} ALTER d TYPE numeric(14, 2);"
    " UPDATE {t} SET d = 123456789012.25 WHERE id = 6",
    "again": "ALTER TABLE {t} DROP n; ALTER TABLE {t} ADD n text DEFAULT 'new'",
    "again_between_ticks": "UPDATE {t} SET n = 7 WHERE id = 5; TICK; ALTER TABLE {t} DROP n, ADD n int; TICK;"
    " UPDATE {t} SET n = 8 WHERE id = 6",
    "exchanged": "ALTER TABLE {t} DROP s; TICK; ALTER TABLE {t} ADD more int DEFAULT 3, ADD most int;"
    " UPDATE {t} SET more = 5 WHERE id = 7; ALTER TABLE {t} RENAME more TO s",
    # Rows of one that has no key are found by all of their columns.
    "keyless": "DELETE FROM {t} WHERE id = 5; ALTER TABLE {t} ADD more int; DELETE FROM {t} WHERE id = 6;"
    " UPDATE {t} SET more = 1 WHERE id = 7; INSERT INTO {t} (id, n, s, e) SELECT id, n, s, e FROM {t}",
}
COPIED = {
    # Rows of both, with as many fields, in one tick.
    "again_amid": "UPDATE {t} SET n = 7 WHERE id = 5; ALTER TABLE {t} DROP n, ADD n int;"
    " UPDATE {t} SET n = 8 WHERE id = 6",
    "again_within": "BEGIN; DELETE FROM {t} WHERE id = 5; ALTER TABLE {t} DROP n, ADD n int;"
    " DELETE FROM {t} WHERE id = 6; COMMIT",
    "dropped_one_by_one": "ALTER TABLE {t} DROP n; DELETE FROM {t} WHERE id = 5; ALTER TABLE {t} DROP s",
    # Rows of the stream are as their types printed them then.
    "relabelled": "CREATE TYPE {t}_e AS ENUM ('a', 'b'); ALTER TABLE {t} ADD more {t}_e;"
    " UPDATE {t} SET more = 'a' WHERE id = 9; ALTER TYPE {t}_e RENAME VALUE 'a' TO 'c'",
    "attribute": "CREATE TYPE {t}_c AS (x int); ALTER TABLE {t} ADD more {t}_c;"
    " UPDATE {t} SET more = '(1)' WHERE id = 9; ALTER TYPE {t}_c ADD ATTRIBUTE y int",
    "into_oid": "ALTER TABLE {t} ADD more int; UPDATE {t} SET more = -1 WHERE id = 9;"
    " ALTER TABLE {t} ALTER more TYPE oid",
    "into_inet": "ALTER TABLE {t} ADD more cidr; UPDATE {t} SET more = '10.0.0.1/32' WHERE id = 9;"
    " ALTER TABLE {t} ALTER more TYPE inet",
    # As xml a text prints without its declaration; these servers are built without xml, so it is NULL here.
    "into_text": "ALTER TABLE {t} ADD more xml; UPDATE {t} SET n = 5 WHERE id = 9;"
    " ALTER TABLE {t} ALTER more TYPE text",
    "into_domain": "ALTER TABLE {t} ADD more xml DEFAULT NULL; INSERT INTO {t} (id) VALUES (100);"
    " CREATE DOMAIN {t}_d AS varchar; ALTER TABLE {t} ALTER more TYPE {t}_d",
    "by_a_cast": "ALTER TABLE {t} ADD more bytea; UPDATE {t} SET more = '[1]' WHERE id = 9;"
    " ALTER TABLE {t} ALTER more TYPE json",
    # Its rows of before the next column have as many fields as that one's would.
    "into_text_ahead": "BEGIN; ALTER TABLE {t} ADD more xml; UPDATE {t} SET n = 5 WHERE id = 9;"
    " ALTER TABLE {t} ALTER more TYPE text; ALTER TABLE {t} ADD most text; COMMIT",
    "into_oid_behind": "BEGIN; ALTER TABLE {t} ADD more int; ALTER TABLE {t} ADD most text;"
    " UPDATE {t} SET more = -1 WHERE id = 9; ALTER TABLE {t} ALTER more TYPE oid; COMMIT",
    "to_and_fro": "ALTER TABLE {t} ALTER r TYPE oid; UPDATE {t} SET r = 'pg_class'::regclass WHERE id = 9;"
    " ALTER TABLE {t} ALTER r TYPE regclass",
    "moved": "ALTER TABLE {t} ADD more int DEFAULT 5; VACUUM FULL {t}",
    "negated": "ALTER TABLE {t} ALTER n TYPE int USING -n",
    "bigger": "ALTER TABLE {t} ALTER n TYPE bigint",
    "volatile": "ALTER TABLE {t} ADD more uuid DEFAULT gen_random_uuid()",
    "another_key": "ALTER TABLE {t} ADD more int;"
    " ALTER TABLE {t} DROP CONSTRAINT {t}_pkey, ADD PRIMARY KEY (n, id)",
    "silenced": "ALTER TABLE {t} ADD more int; ALTER TABLE {t} DISABLE TRIGGER ALL; UPDATE {t} SET more = 1;"
    " ALTER TABLE {t} ENABLE TRIGGER ALL",
}
CASES = {**SAME, **ADDED, **REWRITTEN, **COPIED}
KEYS = {"swapped": "n"}  # as it is called in the end
BEFORE = 20  # rows of each table


@dataclass
class Scene:
    """The lake before anything changed, and the outcome of the changes."""

    mirrors: QueueMirrors
    epoch: int
    before: Mapping[str, pa.Table]
    since: Mapping[str, int | None]
    records: Mapping[str, TableRecord]

    @property
    def lake(self) -> Lake:
        return self.mirrors.lake


def _records(mirrors: QueueMirrors) -> dict[str, TableRecord]:
    return {name.name: record for name, record in tables_of(mirrors.lake.catalog()).items()}


@dataclass
class Cases:
    """Two sessions, one of which writes by plans that are older than any DDL."""

    server: psycopg.Connection[Any]
    writer: psycopg.Connection[Any]
    ticks: psycopg.Connection[Any]

    def make(self) -> None:
        self.server.execute("CREATE TYPE mood AS ENUM ('good', 'bad')")
        for name in [*CASES, "sound"]:
            key = "" if name == "keyless" else "PRIMARY KEY"
            self._run(
                f"CREATE TABLE {name}"
                f" (id int {key}, n int, s varchar(20), e mood, d numeric(10, 2), r regclass);"
                f"INSERT INTO {name} SELECT i, i * 10, 'row ' || i, 'good', i"
                f" FROM generate_series(1, {BEFORE}) i"
            )

    def alter(self) -> None:
        for name, statements in CASES.items():
            for statement in statements.format(t=name).split("; "):
                if statement == "TICK":
                    tick.take(self.ticks, LAKE.objects)
                else:
                    self._run(statement)

    def write(self, number: int, keys: Mapping[str, str]) -> None:
        for name in [*CASES, "sound"]:
            key = keys.get(name, "id")
            for text in (
                f"DELETE FROM {name} WHERE {key} = {number}",
                f"UPDATE {name} SET {key} = {key} WHERE {key} % 7 = {number}",
            ):
                self.writer.execute(text.encode(), prepare=key == "id")

    def _run(self, statement: str) -> None:
        self.server.execute(statement.encode())


@pytest.fixture(scope="module")
def scene(queue_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with (
        pytest.MonkeyPatch.context() as patch,
        queue_server.database() as database,
        database.connect(user="app") as server,
        database.connect(user="app") as writer,
        closing(connect(PostgresAddress.parse(database.url(user="app")), role="test")) as ticks,
    ):
        without_spark.jobs_in_process(patch)
        mirrors = QueueMirrors(database, tmp_path_factory.mktemp("followed") / "lake", None)
        database.execute("CREATE CAST (bytea AS json) WITHOUT FUNCTION AS ASSIGNMENT")
        cases = Cases(server, writer, ticks)
        cases.make()
        mark = mirrors.once().marks()[-1]
        before = {name: mirrors.lake.at().arrow(name) for name in mark.versions}
        since = {name: record.since for name, record in _records(mirrors).items()}
        cases.write(1, {})
        tick.take(ticks, LAKE.objects)
        cases.alter()
        mirrors.once()
        cases.write(2, KEYS)
        mirrors.once()
        yield Scene(mirrors, mark.epoch, before, since, _records(mirrors))


def test_every_table_equals_its_source(scene: Scene) -> None:
    names = [f"public.{case}" for case in (*CASES, "sound")]
    assert set(scene.lake.at().mark.versions) == set(names)
    assert validators.exact(scene.lake, scene.mirrors.database.url(), values=True) == []
    # The validators see by the names that an interval ends; some have the same ones.
    alike = {"public.swapped", "public.again_between_ticks", "public.again_amid", "public.again_within"}
    told = [name for name in names if name not in alike]
    assert validators.consistent(scene.lake, tables=told, sample=2, of_many=True) == []


@pytest.mark.parametrize("case", CASES)
def test_the_marks_from_before_show_what_was_there(scene: Scene, case: str) -> None:
    assert scene.lake.at(epoch=scene.epoch).arrow(f"public.{case}") == scene.before[f"public.{case}"]


@pytest.mark.parametrize("case", CASES)
def test_a_table_is_copied_only_where_nothing_is_proven(scene: Scene, case: str) -> None:
    record = scene.records[case]
    assert (record.state, record.error, record.old_rows) == (State.LIVE, None, None)
    ways = {**dict.fromkeys(ADDED, Way.ADDED), **dict.fromkeys(REWRITTEN, Way.REWRITTEN)}
    if case in SAME:
        assert (record.since, record.alteration) == (scene.since[case], None)
        return
    assert record.alteration is not None
    assert record.alteration.way == ways.get(case, Way.COPIED), record.alteration.what
    if case in COPIED:  # at the look, before anything was written again
        assert "is not what was copied" in record.alteration.what, record.alteration.what
    else:
        assert record.since == scene.lake.at(epoch=scene.epoch).mark.time + 1


def test_other_tables_and_those_that_keep_their_files_are_in_every_mark(scene: Scene) -> None:
    marks = [mark for mark in scene.lake.marks() if mark.epoch >= scene.epoch]
    for case in (*SAME, *ADDED, "sound"):
        assert all(f"public.{case}" in mark.versions for mark in marks), case


# --- beside writers, and at random ----------------------------------------------------------------

MIGRATIONS = (
    "ALTER TABLE transfer_in ADD note varchar(20) DEFAULT 'none' NOT NULL",
    "BEGIN; UPDATE transfer_out SET amount = amount; ALTER TABLE transfer_out ADD more int;"
    " UPDATE transfer_out SET more = part; COMMIT",
    "ALTER TABLE transfer_in DROP note, ADD remark int DEFAULT 5",
    "ALTER TABLE transfer_out RENAME more TO less",
    "ALTER TABLE transfer_out DROP less; ALTER TABLE transfer_in ADD last text",
)


@pytest.mark.full
def test_ddl_beside_writers_leaves_every_mark_whole(
    queue_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    without_spark.jobs_in_process(monkeypatch)
    stop = threading.Event()
    with queue_server.database() as database:
        url = database.url(user="app")
        make_tables(url, Transfers())
        mirrors = QueueMirrors(database, tmp_path / "lake", None)
        mirrors.once()
        tables = ("public.transfer_in", "public.transfer_out")

        def followed() -> bool:
            """Both are in the newest mark, under the columns that they have by now."""
            assert not live.done(), live.exception()
            cut, records = mirrors.lake.at(), tables_of(mirrors.lake.catalog())
            there = dict(
                database.execute(
                    "SELECT 'public.' || table_name, array_agg(column_name::text)"
                    " FROM information_schema.columns WHERE table_name LIKE 'transfer\\_%' GROUP BY 1"
                )
            )
            known = {str(name): record.schema.names for name, record in records.items()}
            return set(tables) <= set(cut.mark.versions) and all(
                set(known[name]) == set(there[name]) for name in tables
            )

        with ThreadPoolExecutor(1) as pool, running(Transfers(), url, seed=seed, prepare=False) as work:
            live = pool.submit(pipeline.mirror, mirrors.config(), stop=stop)
            try:
                for statements in MIGRATIONS:
                    database.execute(statements, user="app")
                    enough = work.committed + 40
                    wait_for(lambda: followed() and work.committed > enough, statements)  # noqa: B023
            finally:
                stop.set()
        live.result()
        lake = mirrors.once()
        assert validators.exact(lake, database.url(), values=True) == []
        found = {str(name): each.alteration for name, each in tables_of(lake.catalog()).items()}
        ways = [None if (entry := found[name]) is None else entry.way for name in tables]
        assert ways == [Way.ADDED, Way.REWRITTEN]
        verdict = transfers(lake, sample=None)
        assert verdict.violations == []
        assert verdict.marks > 5


TABLES = ("one", "two", "three")


@pytest.mark.full
@pytest.mark.parametrize("number", range(20))
def test_every_mark_is_exact_whatever_was_altered_before_it(
    queue_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, number: int
) -> None:
    """Ticks fall anywhere between the statements of three authors, as they do beside a live mirror."""
    without_spark.jobs_in_process(monkeypatch)
    rolls = random.Random(1000 * seed + number)
    with queue_server.database() as database, ExitStack() as stack:
        connections = [stack.enter_context(database.connect(user="app")) for _ in TABLES]
        authors = [
            Author(connection, name, rolls.randrange(1 << 30))
            for connection, name in zip(connections, TABLES, strict=True)
        ]
        ticks = stack.enter_context(
            closing(connect(PostgresAddress.parse(database.url(user="app")), role="test"))
        )
        mirrors = QueueMirrors(database, tmp_path / "lake", None)
        mirrors.once()
        ways: Counter[Way] = Counter()
        for _ in range(8):
            for _ in range(rolls.randrange(2, 9)):
                rolls.choice(authors).step()
                if rolls.random() < 0.4:
                    tick.take(ticks, LAKE.objects)
            mirrors.once()
            wrong = validators.exact(mirrors.lake, database.url(), values=True)
            assert wrong == [], "\n".join(line for each in authors for line in ["", *each.script])
            assert set(mirrors.lake.at().mark.versions) == {f"public.{name}" for name in TABLES}
            records = _records(mirrors).values()
            ways.update(each.alteration.way for each in records if each.alteration is not None)
        assert validators.consistent(mirrors.lake, of_many=True) == []
        assert ways[Way.REWRITTEN]
