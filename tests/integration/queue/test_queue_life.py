"""The life of a queue under whole mirrors: two lakes, one of them dead; triggers disabled; the end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.cli import main as cli
from headrace.core.errors import HeadraceError
from headrace.lake.format import statusfile
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from headrace.pipeline.commands import drop_source
from headrace.testing.postgres import Database
from headrace.testing.postmaster import wait_for
from tests import without_spark
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

    def waits_for(self, code: str) -> bool:
        """The status of the run says that it waits for this."""
        status = statusfile.read(open_store(str(self.path)), "main")
        return status is not None and code in status.said.warnings

    def agrees(self, name: str) -> bool:
        """The newest mark holds what the table holds."""
        have = Lake(self.path).at().arrow(f"public.{name}").to_pylist()
        rows = self.database.execute(f"SELECT * FROM public.{name}")
        return sorted(tuple(row.values()) for row in have) == sorted(rows)


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
        one.once()
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
        assert cli.main(["drop", "--lake", str(mirror.path)]) == 0
    assert 'schema "headrace"' in capsys.readouterr().out
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
    executed(database, ["DELETE FROM t WHERE id = 2"])
    mirror.once(handoff=handoff)
    assert mirror.agrees("t")


def test_a_table_whose_shape_changes_goes_on_under_the_new_one(
    database: Database, mirrors: tuple[QueueMirror, QueueMirror]
) -> None:
    mirror, _ = mirrors
    mirror.once()
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


def test_a_queue_that_lost_a_table_is_refused_until_it_is_reconciled(
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
