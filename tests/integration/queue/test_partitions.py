"""Partitioned tables through the queue: the lake holds what a SELECT from the root shows, at every mark.

A table for each case of the pipeline's own list, and for what triggers alone can tell, all in one database
and one run. A change that brings no unrecorded row leaves a root in its marks.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

import headrace
from headrace.core.change_batch import Op
from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.decode.queue import framing
from headrace.lake.read.lake import Lake
from headrace.pipeline.state.records import Way
from headrace.pipeline.state.table_state import State
from headrace.sources.contract.decoder import TableChanges, TableFilter
from headrace.sources.contract.values import TableDef
from headrace.sources.queue import capture, readers, tick
from headrace.sources.queue.catalog.definitions import find_tables
from headrace.sources.queue.ddl.schema_check import check
from headrace.sources.queue.decode.decoder import QueueDecoder
from headrace.sources.queue.stream import retention
from headrace_testing import validators
from headrace_testing.postgres import Server
from tests import without_spark
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.parts import test_roots as roots
from tests.integration.pipeline.parts.comparing import differing
from tests.integration.pipeline.parts.test_roots import ATTACH, INTO, LIKE, MADE, ROWS, do, make, show
from tests.integration.pipeline.verifying import outcomes
from tests.integration.queue.capturing import LAKE, Capturing, capturing, executed

pytestmark = pytest.mark.server

# Where triggers tell, or hide, what a log does not.
SAME: Mapping[str, str] = {
    **{name: statements for name, statements in roots.SAME.items() if name != "added"},
    "identity_for_a_while": roots.COPIED["identity_for_a_while"],
    # Rows that a MERGE moves are shown to no trigger on statements, unless it inserts and deletes, too.
    "merged": "MERGE INTO {t} t USING (SELECT * FROM {t} WHERE id % 2 = 0) s ON t.id = s.id"
    " WHEN MATCHED THEN UPDATE SET k = (s.k + 17) % 40; MERGE INTO {t}_deep t USING (VALUES (20), (21)) s(k)"
    " ON t.k = s.k WHEN MATCHED AND t.k = 20 THEN UPDATE SET k = 33 WHEN MATCHED THEN DELETE",
    "together": "WITH a AS (INSERT INTO {t}_mid (id, k, v) VALUES (700, 15, 'w') RETURNING id), b AS"
    " (UPDATE {t} SET k = k + 10 WHERE k BETWEEN 3 AND 14) DELETE FROM {t}_deep WHERE k > 30",
    "upserted": "INSERT INTO {t} VALUES (1, 1, 'c'), (800, 5, 'd') ON CONFLICT (id, k) DO UPDATE SET v = 'u'",
    "written_by_triggers": "CREATE TRIGGER again AFTER UPDATE ON {t} FOR EACH STATEMENT"
    " EXECUTE FUNCTION again(); UPDATE {t} SET k = (k + 3) % 40 WHERE id % 5 = 1; DROP TRIGGER again ON {t}",
    "under_hostile_settings": "BEGIN; SET LOCAL search_path = pg_temp; CREATE DOMAIN pg_temp.oid AS text"
    " CHECK (false); CREATE TEMP TABLE queue (name text, current int); UPDATE public.{t} SET k = 15; COMMIT",
}
COPIED: Mapping[str, str] = {
    **{name: statements for name, statements in roots.COPIED.items() if name != "identity_for_a_while"},
    "silenced": "ALTER TABLE {t}_mid DISABLE TRIGGER ALL; UPDATE {t} SET v = 'silent';"
    " ALTER TABLE {t}_mid ENABLE TRIGGER ALL",
    "new_and_silenced": f"{MADE}; ALTER TABLE {{t}}_new DISABLE TRIGGER ALL; {INTO};"
    " ALTER TABLE {t}_new ENABLE TRIGGER ALL",
    "new_and_silenced_amid": f"BEGIN; {MADE}; ALTER TABLE {{t}}_new DISABLE TRIGGER ALL; {INTO};"
    " ALTER TABLE {t}_new ENABLE TRIGGER ALL; COMMIT",
    # Its rows are gone again, and were there in between.
    "attached_and_emptied": f"{LIKE}; {ROWS}; {ATTACH}; DELETE FROM {{t}} WHERE k = 41; VACUUM {{t}}_new",
}
# Columns of a root: its partitions have them in an order each, and rows of before stand in that.
FOLLOWED: Mapping[str, str] = {
    "added": roots.SAME["added"],
    "added_within": "BEGIN; UPDATE {t} SET v = 'x' WHERE k IN (11, 21);"
    " ALTER TABLE {t} ADD more int DEFAULT 7, ADD less text;"
    " UPDATE {t} SET more = 8, less = 'y' WHERE k IN (11, 22); COMMIT",
    "dropped_column": "UPDATE {t} SET v = 'x' WHERE k = 11; ALTER TABLE {t} DROP big; "
    f"{MADE}; INSERT INTO {{t}} VALUES (200, 42, 'into'); UPDATE {{t}} SET v = 'y' WHERE k IN (12, 33)",
    "renamed": "UPDATE {t} SET big = 'before' WHERE k IN (11, 22); ALTER TABLE {t} RENAME big TO large;"
    " UPDATE {t} SET large = 'short' WHERE k IN (12, 22)",
}
CASES = {**SAME, **FOLLOWED, **COPIED}
# Those in which triggers are unlike a log; the others are of the long run.
OWN = (
    *("moved", "by_leaf", "made", "attached_empty", "identity_for_a_while", "merged", "written_by_triggers"),
    *("under_hostile_settings", "attached", "came_and_went", "made_and_emptied_amid", "made_in_savepoint"),
    *("truncated", "detached_for_a_while", "silenced", "new_and_silenced", "attached_and_emptied"),
    *FOLLOWED,
    "new_and_silenced_amid",
)
AGAIN = """
CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF pg_trigger_depth() < 4 THEN
        EXECUTE format(
            'UPDATE %s SET k = (k + 9) %% 40, v = v || ''!'' WHERE id %% 5 < 2', TG_RELID::regclass);
    END IF;
    RETURN NULL;
END $$
"""


class QueueMirrors(Mirrors):
    """Mirrors that read a queue."""

    def config(self, *tables: str) -> dict[str, Any]:
        url = f"queue+{self.database.url(user='app')}"
        source = {"url": url, "tables": list(tables or ("public.*",)), "every": "0s", **self.options}
        return {"lake": {"path": str(self.path)}, "source": {"main": source}}

    def once(self, *tables: str, **options: Any) -> Lake:
        headrace.mirror(self.config(*tables), once=True)
        return self.lake


@dataclass
class Scene:
    """The mirror when all is done, and the intervals from before."""

    mirrors: QueueMirrors
    cases: Sequence[str]
    epoch: int
    since: Mapping[str, int | None]

    @property
    def lake(self) -> Lake:
        return self.mirrors.lake


@pytest.fixture(
    scope="module", params=[OWN, pytest.param(tuple(CASES), marks=pytest.mark.full)], ids=["own", "all"]
)
def scene(
    request: pytest.FixtureRequest, queue_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch, queue_server.database() as database:
        without_spark.jobs_in_process(patch)
        cases: Sequence[str] = request.param
        mirrors = QueueMirrors(database, tmp_path_factory.mktemp("partitions") / "lake", None)
        make(database, cases)
        database.execute(AGAIN)
        mirrors.once()
        epoch = mirrors.lake.marks()[-1].epoch
        since = {name: mirrors.record(f"public.{name}").since for name in cases}
        for name in cases:
            database.execute(f"UPDATE {name} SET v = 'before' WHERE id % 3 = 0", user="app")
            do(database, CASES[name], name)
            database.execute(f"UPDATE {name} SET v = 'after' WHERE id % 4 = 0", user="app")
        mirrors.once()
        for name in cases:
            database.execute(
                f"DELETE FROM {name} WHERE id % 11 = 2; UPDATE {name} SET k = k WHERE id = 8", user="app"
            )
        mirrors.once()
        show(database, cases)
        yield Scene(mirrors, cases, epoch, since)


def test_each_table_is_what_its_root_shows(scene: Scene) -> None:
    assert differing(scene.mirrors, scene.cases) == {}
    [verdict] = headrace.verify(scene.mirrors.config())
    assert outcomes(verdict) == {f"public.{case}": "equal" for case in scene.cases}
    same = [f"public.{name}" for name in scene.cases if name in SAME]
    assert validators.consistent(scene.lake, tables=same, of_many=True) == []


def test_rows_that_nobody_wrote_down_are_copied_anew(scene: Scene) -> None:
    for case in COPIED.keys() & set(scene.cases):
        record = scene.mirrors.record(f"public.{case}")
        assert (record.state, record.error) == (State.LIVE, None), case
        assert record.since is not None
        assert record.since > (scene.since[case] or 0), case


def test_what_brings_no_row_leaves_a_root_in_its_marks(scene: Scene) -> None:
    marks = [mark for mark in scene.lake.marks() if mark.epoch >= scene.epoch]
    for case in SAME.keys() & set(scene.cases):
        record = scene.mirrors.record(f"public.{case}")
        assert (record.state, record.error, record.since) == (State.LIVE, None, scene.since[case]), case
        assert all(f"public.{case}" in mark.versions for mark in marks), case


def test_what_becomes_of_columns_is_followed_without_a_copy(scene: Scene) -> None:
    for case in FOLLOWED:
        record = scene.mirrors.record(f"public.{case}")
        assert (record.state, record.error) == (State.LIVE, None), case
        assert record.alteration is not None, case
        assert record.alteration.way == (Way.ADDED if case == "added" else Way.REWRITTEN), case
        assert record.since == scene.lake.at(epoch=scene.epoch).mark.time + 1, case


# --- partitions by themselves, and as somebody's part ----------------------------------------------


@pytest.fixture
def mirrors(queue_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueMirrors]:
    without_spark.jobs_in_process(monkeypatch)
    with queue_server.database() as database:
        yield QueueMirrors(database, tmp_path / "lake", None)


def test_partitions_are_mirrored_by_themselves_and_what_becomes_one_goes_to_its_root(
    mirrors: QueueMirrors,
) -> None:
    database = mirrors.database
    make(database, ["t", "u"])
    do(database, f"{LIKE}; {ROWS}", "u")
    patterns = ("public.*", "!public.t", "!public.t_deep")
    leaves = {f"public.t_{name}" for name in ("low", "mid", "deep_20", "deep_rest")}
    mirrors.once(*patterns)
    assert set(mirrors.lake.at().mark.versions) == {*leaves, "public.u", "public.u_new"}
    since = {name: mirrors.record(name).since for name in leaves}
    do(
        database,
        f"{SAME['moved']}; {SAME['merged']}; TRUNCATE {{t}}_low; INSERT INTO {{t}} VALUES (1, 1)",
        "t",
    )
    do(database, f"{ATTACH}; {INTO}; UPDATE {{t}} SET v = 'of the root' WHERE k = 41", "u")
    with pytest.raises(HeadraceError) as stopped:
        mirrors.once(*patterns)
    assert "PG_PARTITION_INSIDE" in str(stopped.value.detail)
    assert set(mirrors.lake.at().mark.versions) == {*leaves, "public.u"}
    assert {name: mirrors.record(name).since for name in leaves} == since
    shown = sorted(name.removeprefix("public.") for name in (*leaves, "public.u"))
    show(database, shown)
    assert differing(mirrors, shown) == {}


# Who owns a table may say how its rows become text; a trigger that asked would run his function as us.
CAST = """
CREATE FUNCTION spelled(p) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN current_user; END $$;
CREATE CAST (p AS text) WITH FUNCTION spelled(p);
"""


def lives(queue: Capturing) -> str:
    """The lives of triggers and function, by which every lake tells whether they were altered."""
    [table] = find_tables(queue.session, LAKE.objects, [TableName("public", "u")])
    return table.triggers.life


def test_partitions_of_others_are_captured_and_tables_of_others_are_not_taken_for_them(
    queue_server: Server,
) -> None:
    with queue_server.database() as database, capturing(database) as queue:
        executed(database, [TREE, "GRANT CREATE ON SCHEMA public TO PUBLIC", "CREATE TABLE u (id int)"])
        queue.capture("u")
        before = lives(queue)
        queue.capture("r")
        assert lives(queue) == before
        # What is put right beside it takes nothing from whoever makes partitions.
        executed(database, ["ALTER FUNCTION headrace.capture_main() SET work_mem = '1MB'"])
        queue.capture("u")
        other = f"other_{database.name}"
        database.execute(f"CREATE ROLE {other}; ALTER TABLE r OWNER TO {other}")
        try:
            [(oid,)] = database.execute("SELECT 'r'::regclass::oid")
            forged = "FOR EACH ROW EXECUTE FUNCTION headrace.capture_main()"
            database.execute(
                f"SET ROLE {other}; CREATE TABLE p PARTITION OF r FOR VALUES FROM (30) TO (40); {CAST}"
                " INSERT INTO p VALUES (1, 30, 'its own')"
            )
            database.execute(
                f"GRANT USAGE ON SCHEMA headrace TO {other}; SET ROLE {other}; CREATE TABLE aside (LIKE r);"
                f" CREATE TRIGGER headrace_main_tree_{oid} AFTER INSERT ON aside {forged};"
                f" CREATE TRIGGER again AFTER INSERT ON p {forged};"
                " INSERT INTO aside VALUES (2, 30, 'forged'); INSERT INTO r VALUES (3, 31, 'once')"
            )
            assert [row for _, _, row in queue.events("r")] == ['(1,30,"its own")', "(3,31,once)"]
        finally:
            database.execute(f"DROP OWNED BY {other} CASCADE; DROP ROLE {other}")


def test_a_mirrored_tree_may_become_part_of_another(queue_server: Server) -> None:
    with queue_server.database() as database, capturing(database) as queue:
        executed(database, [TREE, "CREATE TABLE whole (id int, k int, v text) PARTITION BY LIST (k)"])
        queue.capture("r", "whole")
        executed(
            database,
            [
                "ALTER TABLE r DETACH PARTITION r_rest",
                "ALTER TABLE whole ATTACH PARTITION r FOR VALUES IN (1, 2, 12)",
                "INSERT INTO r_0 VALUES (1, 2, 'one event')",
            ],
        )
        assert [row for _, _, row in queue.events("whole")] == ['(1,2,"one event")']
        assert queue.events("r") == []


# --- trees at random -------------------------------------------------------------------------------

TREE = """
CREATE TABLE r (id int, k int, v text) PARTITION BY RANGE (k);
CREATE TABLE r_0 PARTITION OF r FOR VALUES FROM (0) TO (10);
CREATE TABLE r_b (v text, k int, id int) PARTITION BY RANGE (k);
CREATE TABLE r_b_0 PARTITION OF r_b FOR VALUES FROM (10) TO (15);
CREATE TABLE r_b_1 (gone int, k int, id int, v text);
ALTER TABLE r_b_1 DROP gone;
ALTER TABLE r_b ATTACH PARTITION r_b_1 FOR VALUES FROM (15) TO (20);
ALTER TABLE r ATTACH PARTITION r_b FOR VALUES FROM (10) TO (20);
CREATE TABLE r_rest PARTITION OF r DEFAULT;
"""
R = TableName("public", "r")
SLOTS = ((30, "(v text, gone int, id int, k int); ALTER TABLE {p} DROP gone"), (40, "(LIKE r)"))


@dataclass
class Fuzz:
    """Statements at random on a tree; two of its partitions come and go."""

    random: random.Random

    def statement(self) -> str:
        named = self.random.choice(["r", "r", "r", "r_0", "r_b", "r_b_1", "r_rest", "p_30", "p_40"])
        low = {"r_0": 0, "r_b": 10, "r_b_1": 15, "r_rest": 50, "p_30": 30, "p_40": 40}.get(named)
        k = self.random.randrange(50) if low is None else low + self.random.randrange(5)
        at = f"id % {self.random.randrange(2, 6)} = 0"
        return self.random.choice(
            [
                f"INSERT INTO {named} (id, k, v) SELECT i, {k}, 'v' || i FROM generate_series(1, 9) i",
                f"UPDATE {named} SET v = v || '+' WHERE {at}",
                f"UPDATE r SET k = (k + {k}) % 50 WHERE {at}",
                f"DELETE FROM {named} WHERE {at}",
                f"MERGE INTO r USING (VALUES ({k}), (3)) s(i) ON r.id = s.i"
                f" WHEN MATCHED THEN UPDATE SET k = {self.random.randrange(50)}",
                f"MERGE INTO r USING generate_series(1, 3) s(i) ON r.id = s.i"
                f" WHEN MATCHED AND k > 20 THEN DELETE WHEN MATCHED THEN UPDATE SET k = {k}"
                f" WHEN NOT MATCHED THEN INSERT VALUES (s.i, {k}, 'm')",
                f"WITH d AS (DELETE FROM r WHERE {at} RETURNING *) INSERT INTO r SELECT id, {k}, v FROM d",
            ]
        )

    def ddl(self) -> str:
        slot, columns = self.random.choice(SLOTS)
        bound = f"FOR VALUES FROM ({slot}) TO ({slot + 10})"
        return self.random.choice(
            [
                f"CREATE TABLE p_{slot} PARTITION OF r {bound}",
                f"CREATE TABLE p_{slot} {columns}; ALTER TABLE r ATTACH PARTITION p_{slot} {bound}",
                f"CREATE TABLE p_{slot} {columns};"
                f" INSERT INTO p_{slot} (id, k, v) VALUES (7, {slot}, 'brought');"
                f" ALTER TABLE r ATTACH PARTITION p_{slot} {bound}",
                f"ALTER TABLE r DETACH PARTITION p_{slot}",
                f"ALTER TABLE r ATTACH PARTITION p_{slot} {bound}",
                f"DROP TABLE p_{slot}",
                f"TRUNCATE {self.random.choice(['r', 'r_b', 'r_rest', f'p_{slot}'])}",
                f"ALTER TABLE p_{slot} RENAME TO p_x; ALTER TABLE p_x RENAME TO p_{slot}",
            ]
        ).replace("{p}", f"p_{slot}")

    def transaction(self) -> list[str]:
        """Statements of one transaction; of a savepoint that is given up, if one is."""
        several = [
            self.ddl() if self.random.random() < 0.25 else self.statement()
            for _ in range(self.random.randrange(1, 4))
        ]
        if self.random.random() < 0.3:
            several.insert(self.random.randrange(len(several) + 1), "SAVEPOINT s")
            several.append("ROLLBACK TO s" if self.random.random() < 0.5 else "RELEASE s")
            several.append(self.statement())
        return several


@dataclass
class Followed:
    """The root as a lake would have it: by what looks and events say, copied anew where they say so."""

    queue: Capturing
    table: TableDef
    held: Counter[tuple[Any, ...]]
    copied: int = 0

    def look(self) -> None:
        tick.take(self.queue.session, LAKE.objects)
        looked = check(self.queue.session, LAKE, {"r": self.table})
        assert looked.locked_tables == frozenset()
        self.table = looked.news.get("r", self.table)
        net = None if "r" in looked.changes else self.net(looked.end.time)
        if net is None:
            self.copied += 1
            self.table, self.held = defined(self.queue), self.contents()
        else:
            for row, count in net.items():
                self.held[row] += count
        self.forget()

    def net(self, time: int) -> Counter[tuple[Any, ...]] | None:
        """Add up the events of a tick; None if they are of another table than was recorded."""
        wanted = {self.table.number: TableFilter(R, self.table.schema, 0, 0, self.table.details)}
        data = np.frombuffer(framing.head(time, 0, 1) + self.events(), np.uint8)
        net: Counter[tuple[Any, ...]] = Counter()
        for each in QueueDecoder().decode(data, QueueDecoder().between(()), wanted):
            if not isinstance(each, TableChanges):
                return None
            came = np.asarray(each.batch["_op"]) == Op.INSERT
            values = zip(*(column.to_pylist() for column in each.batch.columns[-6:]), strict=True)
            for new, row in zip(came.tolist(), values, strict=True):
                net[row[:3] if new else row[3:]] += 1 if new else -1
        return net

    def events(self) -> bytes:
        columns = "e.id, e.tx, e.relation, coalesce(e.leaf, e.relation), e.diff, e.row"
        union = " UNION ALL ".join(f"SELECT {columns} FROM {table} e" for table in LAKE.objects.events)
        with (
            self.queue.session.cursor() as cursor,
            cursor.copy(f"COPY ({union}) TO STDOUT (FORMAT binary)".encode()) as copy,
        ):
            whole = b"".join(bytes(each) for each in copy)
        return whole[len(framing.COPY_HEADER) : -len(framing.COPY_END)]

    def contents(self) -> Counter[tuple[Any, ...]]:
        return Counter(self.queue.session.execute("SELECT id, k, v FROM public.r").fetchall())

    def forget(self) -> None:
        for table in LAKE.objects.events:
            self.queue.session.execute(f"TRUNCATE {table}".encode())


def defined(queue: Capturing) -> TableDef:
    """The table, captured, as the lake records it."""
    return defined_all(queue, {"r": R})["r"]


def defined_all(queue: Capturing, names: dict[str, TableName]) -> dict[str, TableDef]:
    """Tables, captured, as the lake records them."""
    found = capture.capture(queue.session, LAKE, list(names.values()))
    assert found.errors == {}
    defs = {key: found.defs[name] for key, name in names.items()}
    return {key: replace(each, details=json.loads(json.dumps(each.details))) for key, each in defs.items()}


def test_rows_that_were_deleted_behind_the_newest_tick_are_not_taken_for_none(queue_server: Server) -> None:
    with queue_server.database() as database, capturing(database) as queue:
        executed(database, [TREE])
        followed = Followed(queue, defined(queue), Counter())
        tick.take(queue.session, LAKE.objects)
        executed(
            database,
            [
                "CREATE TABLE p (LIKE r)",
                "INSERT INTO p VALUES (1, 40, 'brought')",
                "ALTER TABLE r ATTACH PARTITION p FOR VALUES FROM (40) TO (50)",
                "DELETE FROM r WHERE k = 40",
                "VACUUM p",
            ],
        )
        looked = check(queue.session, LAKE, {"r": followed.table})
        followed.table = looked.news["r"]
        assert followed.net(looked.end.time) is None
        followed.forget()
        executed(database, ["INSERT INTO p VALUES (2, 40, 'later')"])
        assert followed.net(looked.end.time) == {(2, 40, "later"): 1}


WITH_ROWS = "CREATE TABLE {t}_p (LIKE {t}); INSERT INTO {t}_p VALUES (1, 40, 'brought')"
JOIN = "ALTER TABLE {t} ATTACH PARTITION {t}_p FOR VALUES FROM (40) TO (50)"
# What happens to a tree before a tick, and behind it before a look; {t} is the root. True: the tick shows
# rows, or may, of which nothing is there any more.
PASSING: dict[str, tuple[str, str, bool]] = {
    "detached": (f"{WITH_ROWS}; {JOIN}", "ALTER TABLE {t} DETACH PARTITION {t}_p", True),
    "dropped": (f"{WITH_ROWS}; {JOIN}", "DROP TABLE {t}_p", True),
    "truncated": (f"{WITH_ROWS}; {JOIN}", "TRUNCATE {t}_p; ALTER TABLE {t} DETACH PARTITION {t}_p", True),
    "in_savepoint": (
        f"BEGIN; SAVEPOINT s; {WITH_ROWS}; {JOIN}; RELEASE s; COMMIT",
        "ALTER TABLE {t} DETACH PARTITION {t}_p",
        True,
    ),
    "another_in_its_place": (
        f"{WITH_ROWS}; {JOIN}",
        f"DROP TABLE {{t}}_p; CREATE TABLE {{t}}_p (LIKE {{t}}); {JOIN}",
        True,
    ),
    "leaf_of_what_came": (
        f"{WITH_ROWS}; CREATE TABLE {{t}}_m (LIKE {{t}}) PARTITION BY RANGE (k);"
        f" {JOIN.replace('TABLE {t} ', 'TABLE {t}_m ')}; {JOIN.replace('_p', '_m')}",
        "ALTER TABLE {t}_m DETACH PARTITION {t}_p",
        True,
    ),
    "born_and_dropped": (
        "CREATE TABLE {t}_p PARTITION OF {t} FOR VALUES FROM (40) TO (50)",
        "DROP TABLE {t}_p",
        True,
    ),
    "within_one_transaction": (
        f"BEGIN; {WITH_ROWS}; {JOIN}; ALTER TABLE {{t}} DETACH PARTITION {{t}}_p; COMMIT",
        "SELECT",
        False,
    ),
    "before_the_tick": (f"{WITH_ROWS}; {JOIN}; DROP TABLE {{t}}_p", "SELECT", False),
    "rolled_back": (f"BEGIN; {WITH_ROWS}; {JOIN}; ROLLBACK", "SELECT", False),
    "behind_the_tick": ("SELECT", f"{WITH_ROWS}; {JOIN}; DROP TABLE {{t}}_p", False),
    "born_and_there": ("CREATE TABLE {t}_p PARTITION OF {t} FOR VALUES FROM (40) TO (50)", "SELECT", False),
    "of_another_tree": (
        "CREATE TABLE {t}_w (LIKE {t}) PARTITION BY LIST (k);"
        " ALTER TABLE {t}_w ATTACH PARTITION {t} FOR VALUES IN (1, 2)",
        "INSERT INTO {t}_0 VALUES (1, 2, 'to no root'); ALTER TABLE {t}_w DETACH PARTITION {t}",
        True,
    ),
    "detached_for_a_while": (
        "ALTER TABLE {t} DETACH PARTITION {t}_0",
        "ALTER TABLE {t} ATTACH PARTITION {t}_0 FOR VALUES FROM (0) TO (10)",
        True,
    ),
}


def test_a_partition_that_a_tick_shows_and_no_look_is_not_passed_over(queue_server: Server) -> None:
    with queue_server.database() as database, capturing(database) as queue:
        tables = {case: f"r_{number}" for number, case in enumerate(PASSING)}
        for table in tables.values():
            tree = "CREATE TABLE {t} (id int, k int, v text) PARTITION BY RANGE (k)"
            leaf = "CREATE TABLE {t}_0 PARTITION OF {t} FOR VALUES FROM (0) TO (10)"
            executed(database, [each.format(t=table) for each in (tree, leaf)])
        names = {case: TableName("public", table) for case, table in tables.items()}
        known = defined_all(queue, names)
        before = tick.take(queue.session, LAKE.objects)
        for case, (amid, _, _) in PASSING.items():
            executed(database, amid.format(t=tables[case]).split("; "))
        tick.take(queue.session, LAKE.objects)
        for case, (_, behind, _) in PASSING.items():
            executed(database, behind.format(t=tables[case]).split("; "))
        looked = check(queue.session, LAKE, known)
        assert looked.end.time > LAKE.log.time(before.number)
        assert {case: case in looked.changes for case in PASSING} == {
            case: copied for case, (_, _, copied) in PASSING.items()
        }
        # Whoever is copied anew is not told of it once more, nor are the others.
        known = {**known, **looked.news, **defined_all(queue, {case: names[case] for case in looked.changes})}
        tick.take(queue.session, LAKE.objects)
        again = check(queue.session, LAKE, known)
        assert (again.changes, again.news) == ({}, {})
        readers.register(queue.session, LAKE, before)
        assert changed_while_held(queue, tables, known) == {
            case: copied for case, (_, _, copied) in HELD.items()
        }


# The same, of a partition that somebody holds from the tick on, while marks go on without its root and the
# tick is forgotten; by roots of the cases above, whose trees are as they were made.
HELD: dict[str, tuple[str, str, bool]] = {
    "rolled_back": (f"{WITH_ROWS}; {JOIN}", "DROP TABLE {t}_p", True),
    "before_the_tick": (f"CREATE TABLE {{t}}_p (LIKE {{t}}); {JOIN}", "LOCK TABLE {t}_p", False),
}


def changed_while_held(
    queue: Capturing, tables: Mapping[str, str], known: dict[str, TableDef]
) -> dict[str, bool]:
    """Tell of each such root whether a look finds it changed, once nobody holds anything any more."""
    known = {case: known[case] for case in HELD}
    with queue.database.connect(user="app") as holder, holder.transaction():
        for case, (amid, behind, _) in HELD.items():
            executed(queue.database, amid.format(t=tables[case]).split("; "))
            holder.execute(behind.format(t=tables[case]).encode())
        for _ in range(2):
            passed = tick.take(queue.session, LAKE.objects)
            looked = check(queue.session, LAKE, known)
            assert (looked.locked_tables, looked.changes) == (frozenset(HELD), {})
            known |= looked.news
            readers.advance(queue.session, LAKE, passed.place)
            retention.tend(queue.session, LAKE.objects)
            assert tick.find(queue.session, LAKE.objects, passed.number - 1) is None
    tick.take(queue.session, LAKE.objects)
    stored = {
        case: replace(table, details=json.loads(json.dumps(table.details))) for case, table in known.items()
    }
    looked = check(queue.session, LAKE, stored)
    assert looked.news.keys() == HELD.keys() - looked.changes.keys()
    known |= looked.news
    assert check(queue.session, LAKE, {case: known[case] for case in looked.news}).news == {}
    return {case: case in looked.changes for case in HELD}


ROUNDS = [30, pytest.param(600, marks=pytest.mark.full)]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_trees_at_random_are_exact_or_copied_anew(queue_server: Server, rounds: int, seed: int) -> None:
    fuzz = Fuzz(random.Random(seed))
    with queue_server.database() as database, capturing(database) as queue:
        executed(database, [TREE, "INSERT INTO r SELECT i, i, 'v' FROM generate_series(0, 29) i"])
        followed = Followed(queue, defined(queue), Counter())
        followed.held = followed.contents()
        followed.forget()
        for _ in range(rounds):
            done = []
            for _ in range(fuzz.random.randrange(1, 4)):
                statements = fuzz.transaction()
                with suppress(psycopg.Error), database.connect(user="app") as connection:
                    with connection.transaction():
                        for statement in statements:
                            connection.execute(statement.encode())
                    done.append(statements)
            followed.look()
            held = Counter({row: count for row, count in followed.held.items() if count})
            assert held == followed.contents(), done
        assert rounds / 20 < followed.copied < rounds / 1.5
