"""The life of a queue under whole mirrors: two lakes, one of them dead; triggers disabled; the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

import headrace
from headrace.cli import main as cli
from headrace.core.errors import HeadraceError
from headrace.lake.format import statusfile
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from headrace.pipeline import loop
from headrace.pipeline import run as pipeline
from headrace.pipeline.commands import drop_source
from headrace.pipeline.stream import cadence
from headrace.sources.postgres.session import connection
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests import without_spark
from tests.integration.pipeline.holding import held_up
from tests.integration.queue.capturing import executed
from tests.integration.queue.test_removal import catalogs

pytestmark = pytest.mark.server


@dataclass
class QueueMirror:
    """Runs of `headrace run --once` from a database's queue into one lake."""

    database: Database
    path: Path

    def once(self, *, heal: bool = False, **options: Any) -> Lake:
        url = f"queue+{self.database.url(user='app')}"
        source = {"url": url, "tables": ["public.*"], "every": "0s", **options}
        config = {"lake": {"path": str(self.path)}, "source": {"main": source}}
        headrace.mirror(config, once=True, reconcile=heal)
        return Lake(self.path)

    @contextmanager
    def live(self) -> Iterator[Future[None]]:
        """A run that goes on by itself, past its first mark."""
        stop = threading.Event()
        url = f"queue+{self.database.url(user='app')}"
        source = {"url": url, "tables": ["public.*"], "every": "0s"}
        config = {"lake": {"path": str(self.path)}, "source": {"main": source}}
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(pipeline.mirror, config, stop=stop)
            try:
                known = len(Lake(self.path).marks())
                executed(self.database, ["UPDATE t SET v = v || '.'"])
                wait_for(lambda: running.done() or len(Lake(self.path).marks()) > known, "a further mark")
                yield running
            finally:
                stop.set()

    def waits_for(self, code: str) -> bool:
        """The status of the run says that it waits for this."""
        status = statusfile.read(open_store(str(self.path)), "main")
        return status is not None and code in status.record.warnings

    def error(self) -> str | None:
        """The code of what the run waits for as a whole, by its status."""
        status = statusfile.read(open_store(str(self.path)), "main")
        return None if status is None or status.record.error is None else status.record.error["code"]

    def lines(self) -> tuple[str, ...]:
        """Read what the run's status says of the queue."""
        status = statusfile.read(open_store(str(self.path)), "main")
        return () if status is None or status.record.upstream is None else tuple(status.record.upstream.lines)

    def agrees(self, name: str) -> bool:
        """The newest mark holds what the table holds."""
        have = Lake(self.path).at().arrow(f"public.{name}").to_pylist()
        rows = self.database.execute(f"SELECT * FROM public.{name}")
        return sorted(tuple(row.values()) for row in have) == sorted(rows)

    def agrees_by_now(self, name: str) -> bool:
        """Tell whether the table agrees; one that is out of the marks for a while does not yet."""
        try:
            return self.agrees(name)
        except HeadraceError:
            return False


@pytest.fixture
def mirrors(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[QueueMirror, QueueMirror]:
    without_spark.jobs_in_process(monkeypatch)
    executed(database, ["CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'one')"])
    monkeypatch.setenv("PGPASSWORD", database.server.password)
    return QueueMirror(database, tmp_path / "one"), QueueMirror(database, tmp_path / "two")


def held(database: Database) -> int:
    [(rows,)] = database.execute(
        "SELECT (SELECT count(*) FROM headrace.event_main_0) + (SELECT count(*) FROM headrace.event_main_1)"
        " + (SELECT count(*) FROM headrace.event_main_2)"
    )
    return int(rows)


def test_a_lake_that_died_holds_the_queue_until_it_is_dropped(
    database: Database, mirrors: tuple[QueueMirror, QueueMirror], capsys: pytest.CaptureFixture[str]
) -> None:
    before = catalogs(database)
    one, two = mirrors
    for mirror in mirrors:
        mirror.once()
    for number in range(2, 5):
        executed(database, [f"INSERT INTO t SELECT n, 'v' FROM generate_series({number}00, {number}99) n"])
        one.once(tick=f"0.0{number}")  # each run may have another pause
    assert one.agrees("t")
    assert held(database) >= 300, "the other lake has not read them"
    [dead] = [lake for (lake,) in database.execute("SELECT lake FROM headrace.reader ORDER BY tick LIMIT 1")]
    # Too few to be let go by themselves.
    database.execute("UPDATE headrace.queue SET switched = switched - interval '1 hour'")
    for line in drop_source.drop_reader(str(one.path), dead):
        assert dead in line or "triggers" in line
    with pytest.raises(HeadraceError) as refused:
        list(drop_source.drop_reader(str(one.path), dead))
    assert refused.value.code == "QUEUE_READER_UNKNOWN"
    own = database.execute("SELECT lake FROM headrace.reader")[0][0]
    with pytest.raises(HeadraceError) as refused:
        list(drop_source.drop_reader(str(one.path), own))
    assert refused.value.code == "QUEUE_READER_OWN"
    for number in range(5, 8):
        executed(database, [f"INSERT INTO t VALUES ({number}, 'behind')"])
        one.once()
    assert one.agrees("t")
    assert held(database) < 300
    with pytest.raises(HeadraceError) as refused:
        two.once()
    assert refused.value.code == "QUEUE_READER_GONE"
    two.once(heal=True)
    assert two.agrees("t")
    for mirror in mirrors:
        capsys.readouterr()
        assert cli.main(["drop", "--lake", str(mirror.path), "--dry-run"]) == 0
        *told, _ = capsys.readouterr().out.splitlines()
        assert cli.main(["drop", "--lake", str(mirror.path), "--yes"]) == 0
        said = capsys.readouterr().out
        announced = [line.removeprefix("main: ").partition(":")[0].partition(",")[0] for line in told]
        assert all(f"dropped {thing}" in said for thing in announced)
    assert len(announced) == 3
    assert 'schema "headrace"' in said
    assert not catalogs(database) - before
    assert not before - catalogs(database)


def test_what_was_not_captured_for_a_while_is_copied_anew(
    database: Database, mirrors: tuple[QueueMirror, QueueMirror]
) -> None:
    mirror, _ = mirrors
    mirror.once()
    executed(
        database,
        [
            "INSERT INTO t VALUES (2, 'captured')",
            "ALTER TABLE t DISABLE TRIGGER ALL",
            "INSERT INTO t VALUES (3, 'unseen')",
            "UPDATE t SET v = 'unseen' WHERE id = 1",
            "ALTER TABLE t ENABLE TRIGGER ALL",
            "INSERT INTO t VALUES (4, 'captured')",
        ],
    )
    lake = mirror.once()
    assert mirror.agrees("t")
    executed(database, ["UPDATE t SET id = id + 10", "DELETE FROM t WHERE id = 13"])
    mirror.once()
    assert mirror.agrees("t")
    assert len(lake.marks()) > 2


@pytest.mark.parametrize("handoff", ["xid", "chunks"])
def test_a_type_that_is_altered_beside_an_open_writer_is_copied_behind_it(
    database: Database, mirrors: tuple[QueueMirror, QueueMirror], handoff: str
) -> None:
    mirror, _ = mirrors
    executed(
        database, ["CREATE TYPE mood AS ENUM ('sad', 'glad')", "ALTER TABLE t ADD m mood DEFAULT 'glad'"]
    )
    mirror.once(handoff=handoff)
    with database.connect(user="app") as writer, ThreadPoolExecutor(1) as pool:
        writer.execute("BEGIN")
        writer.execute("INSERT INTO t VALUES (2, 'printed', 'sad')")
        executed(database, ["ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"])
        running = pool.submit(mirror.once, handoff=handoff)
        try:
            wait_for(lambda: mirror.waits_for("PG_SNAPSHOT_BARRED") or running.done(), "it waits for him")
            assert not running.done(), "a copy that did not wait for the writer"
        finally:
            writer.execute("COMMIT")
        running.result(60)
    assert mirror.agrees("t")
    # A label that is neither known to the look before nor to the one behind.
    executed(
        database,
        [
            "DELETE FROM t WHERE id = 2",
            "ALTER TYPE mood ADD VALUE 'new'",
            "INSERT INTO t VALUES (3, 'printed', 'new')",
            "ALTER TYPE mood RENAME VALUE 'new' TO 'mad'",
        ],
    )
    mirror.once(handoff=handoff)
    assert mirror.agrees("t")


def test_a_table_whose_shape_changes_goes_on_under_the_new_one(
    database: Database, mirrors: tuple[QueueMirror, QueueMirror]
) -> None:
    mirror, stopped = mirrors
    mirror.once()
    stopped.once()
    executed(
        database,
        [
            "UPDATE t SET v = 'before'",
            "BEGIN",
            "INSERT INTO t VALUES (2, 'amid')",
            "ALTER TABLE t ADD w int DEFAULT 7, DROP v",
            "INSERT INTO t VALUES (3, 8)",
            "COMMIT",
            "UPDATE t SET w = w + 1 WHERE id = 1",
        ],
    )
    mirror.once()
    assert mirror.agrees("t")
    executed(database, ["INSERT INTO t VALUES (4, 9)"])
    mirror.once()
    assert mirror.agrees("t")
    # No row is written anew, and no look shows that one was printed as 4294967290.
    executed(
        database,
        [
            "ALTER TABLE t ALTER w TYPE oid",
            "INSERT INTO t VALUES (5, 4294967290)",
            "ALTER TABLE t ALTER w TYPE int",
        ],
    )
    mirror.once()
    assert mirror.agrees("t")
    # All of it is one tick to the other lake; event tables took turns meanwhile, as far as it lets them.
    for number in range(6, 9):
        executed(database, [f"INSERT INTO t VALUES ({number}, 1)"])
        database.execute("UPDATE headrace.queue SET switched = switched - interval '1 hour'")
        mirror.once()
    assert mirror.agrees("t")
    stopped.once()
    assert stopped.agrees("t")


def test_a_queue_that_lost_a_table_is_refused_until_that_is_mended(
    database: Database, mirrors: tuple[QueueMirror, QueueMirror]
) -> None:
    mirror, _ = mirrors
    mirror.once()
    executed(database, ["INSERT INTO t VALUES (2, 'two')", "DROP TABLE headrace.event_main_0"])
    with pytest.raises(HeadraceError) as refused:
        mirror.once()
    assert refused.value.code == "QUEUE_REMADE"
    mirror.once(heal=True)
    assert mirror.agrees("t")
    executed(database, ["INSERT INTO t VALUES (3, 'three')"])
    mirror.once()
    assert mirror.agrees("t")


@pytest.mark.full
def test_who_holds_the_queues_row_is_in_the_status_and_restarts_nothing(
    database: Database, mirrors: tuple[QueueMirror, QueueMirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.PINS, "lock_timeout", "300ms")
    mirror, _ = mirrors
    mirror.once()
    with mirror.live() as running, database.connect(user="app") as holder:
        holder.execute("BEGIN; SELECT 1 FROM headrace.queue FOR UPDATE")
        executed(database, ["INSERT INTO t VALUES (2, 'no tick shows it')"])
        pid = f"no tick can be taken: pid {holder.info.backend_pid}"
        wait_for(lambda: running.done() or any(line.startswith(pid) for line in mirror.lines()), "it says so")
        assert mirror.error() is None
        assert not running.done(), running.exception()
        holder.execute("COMMIT")
        wait_for(lambda: running.done() or mirror.agrees_by_now("t"), "a further mark")
        assert not running.done(), running.exception()
        wait_for(lambda: running.done() or not any("no tick" in line for line in mirror.lines()), "no more")


# What somebody does by hand beside a run that goes on, and how that run ends.
SABOTAGE = {
    "DROP TABLE headrace.event_main_1": "QUEUE_REMADE",
    "DELETE FROM headrace.event_main_0": "QUEUE_REMADE",
    "TRUNCATE headrace.tick": "QUEUE_TICK_UNKNOWN",
    "TRUNCATE headrace.event_main_2": "QUEUE_REMADE",
    "DELETE FROM headrace.reader": "QUEUE_READER_GONE",
    "DELETE FROM headrace.queue": "QUEUE_GONE",
    "DROP SCHEMA headrace CASCADE": "QUEUE_GONE",
    "DROP SEQUENCE headrace.current_main": "QUEUE_REMADE",
    "ALTER SEQUENCE headrace.current_main RENAME TO other": "QUEUE_REMADE",
    "CREATE RULE r AS ON INSERT TO headrace.tick DO ALSO SELECT 1": "QUEUE_UNTRUSTED",
}
_QUICK = 1  # so many of them in `make test`


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param(each, marks=[] if number < _QUICK else pytest.mark.full)
        for number, each in enumerate(SABOTAGE)
    ],
)
def test_a_queue_that_is_damaged_under_a_live_run_ends_it_with_its_own_code(
    database: Database, mirrors: tuple[QueueMirror, QueueMirror], statement: str
) -> None:
    mirror, _ = mirrors
    mirror.once()
    with mirror.live() as running:
        # In one transaction with a change that would be missing, and another one behind it.
        database.execute(f"BEGIN; INSERT INTO t VALUES (2, 'amid'); {statement}; COMMIT")
        with suppress(psycopg.Error):  # where the trigger lost its table
            database.execute("UPDATE t SET v = v || '!'")
        with pytest.raises(HeadraceError) as ended:
            running.result(60)
    assert ended.value.code == SABOTAGE[statement]
    if "RULE" in statement:
        database.execute("DROP RULE r ON headrace.tick")
    mirror.once(heal=True)
    assert mirror.agrees("t"), statement


@pytest.mark.full
def test_what_is_damaged_of_one_table_under_a_live_run_is_copied_anew(
    database: Database, mirrors: tuple[QueueMirror, QueueMirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cadence, "IDLE_SECONDS", 1.0)
    mirror, _ = mirrors
    mirror.once()
    with mirror.live() as running:
        for number, (statement, told) in enumerate(
            {
                "ALTER TABLE t DISABLE TRIGGER headrace_main_insert": "UPDATE t SET v = v || '!'",
                "DROP TRIGGER headrace_main_insert ON t": "UPDATE t SET v = v || '!'",
                "ALTER TABLE t DISABLE TRIGGER ALL": "UPDATE t SET v = 'quiet'",  # which brings no event
            }.items(),
            2,
        ):
            unseen = f"INSERT INTO t VALUES ({number}, 'unseen')"
            database.execute(f"{statement}; {unseen}; {told}")
            wait_for(lambda: running.done() or mirror.agrees_by_now("t"), statement)
            assert not running.done(), running.exception()


def test_a_partition_that_passes_while_its_root_is_copied_is_in_no_mark_without_its_rows(
    database: Database, mirrors: tuple[QueueMirror, QueueMirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes behind the copy, the tick that says so is forgotten, and it goes behind the newest mark."""
    mirror, _ = mirrors
    monkeypatch.setattr(cadence, "KEEP_SECONDS", 0.0)
    executed(database, ["CREATE TABLE r (k int, v text) PARTITION BY RANGE (k)"])
    executed(database, ["CREATE TABLE r_0 PARTITION OF r FOR VALUES FROM (0) TO (10)"])
    passed = list[int]()

    def detach(name: str, table: str = "") -> None:
        if name == "late.replay.before" and not passed:
            executed(database, ["ALTER TABLE r DETACH PARTITION p"])
            passed.append(Lake(mirror.path).marks()[-1].time)

    with held_up(mirror, "copy.range.after", "public.r", monkeypatch, handoff="xid"):
        executed(
            database,
            [
                "INSERT INTO r VALUES (1, 'kept')",
                "CREATE TABLE p (LIKE r)",
                "INSERT INTO p VALUES (20, 'passes')",
                "ALTER TABLE r ATTACH PARTITION p FOR VALUES FROM (20) TO (30)",
            ],
        )
        shows = "SELECT count(*) FROM headrace.tick WHERE attached::text LIKE '%[%[%'"
        written = count(1)

        def is_forgotten() -> bool:
            executed(database, [f"INSERT INTO r VALUES (2, '{next(written)}')"])
            return next(written) > 4 and database.execute(shows) == [(0,)]

        wait_for(is_forgotten, "the end of the tick that shows the partition")
        monkeypatch.setattr(loop, "failpoint", detach)
    assert passed
    assert mirror.agrees("r")
    assert all(mark.time > passed[0] for mark in Lake(mirror.path).marks() if "public.r" in mark.versions)
