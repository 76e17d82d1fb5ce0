"""A copy beside the lives of its tables: what is true of one concerns no other. No Spark is needed for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.lake.store.open import open_store
from headrace.pipeline.copy.context import ChunkCopied, CopiedTable, CopyLost, CopyRefused, Room
from headrace.pipeline.copy.scheduler import CopyScheduler
from headrace.pipeline.copy.snapshot import Copying
from headrace.pipeline.state import choice
from headrace.pipeline.state.config import SourceConfig
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import SourceRecord
from headrace.pipeline.tasks.table_task import LakeAddress
from headrace.sources.postgres import slot
from headrace.sources.postgres.catalog import locks
from headrace.sources.postgres.catalog.definitions import read_entries_by_name
from headrace.sources.postgres.catalog.table_def import definition
from headrace.sources.postgres.position import PostgresTimeline
from headrace.sources.postgres.session import statements
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import PINS, connect
from headrace.sources.postgres.session.identity import identify
from headrace.sources.postgres.session.log_end import wal_end
from headrace.sources.postgres.upstream import PostgresUpstream
from headrace.spark.jobs import DriverRunner
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.clocks import clock_of
from tests.records import source_record

pytestmark = pytest.mark.server

HANDOFFS = ("slot", "xid", "chunks")
NAMES = ("a", "b", "c")


@dataclass
class Scene:
    """Three tables that are published and chosen, and copies of them."""

    database: Database
    lake: Path
    handoff: str
    chunk_bytes: int = 50_000
    came: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in NAMES:
            self.database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)", user="app")
            self.database.execute(
                f"INSERT INTO {name} SELECT g, repeat('x', 50) FROM generate_series(1, 3000) g", user="app"
            )
        self.database.execute(f"CREATE PUBLICATION mine FOR TABLE {', '.join(NAMES)}", user="app")
        self.address = PostgresAddress.parse(self.database.url(user="app"))
        with closing(connect(self.address, role="test")) as connection:
            self.identity = identify(connection)
            names = [TableName("public", name) for name in NAMES]
            entries = read_entries_by_name(connection, names, ["mine"]).values()
            start = PostgresTimeline().position(wal_end(connection))
            self.source = replace(_source(self), start=start)
            self.records = [choice.new_record(definition(entry), start) for entry in entries]
        self.store = open_store(str(self.lake))

    def copying(self, *names: str, connections: int = 2) -> Copying:
        ledger = Ledger.__new__(Ledger)
        ledger.name, ledger._strict = "main", False
        return Copying(
            self.address,
            to_record(self.identity),
            self.source,
            [record for record in self.records if record.name.name in (names or NAMES)],
            ledger.outline,
            LakeAddress(self.store.url),
            DriverRunner(),
            SourceConfig(url="", options={"handoff": self.handoff}, chunk_bytes=self.chunk_bytes),
            1,
            Room(connections),
            self.source.start,
        )

    def run(self, copying: Copying, meanwhile: Callable[[], None] = lambda: None) -> CopyScheduler:
        """Run it to its end; what came stands in `came`."""
        underway = CopyScheduler(2)
        underway.begin(copying)
        meanwhile()
        wait_for(lambda: self._take(underway) or not copying._thread.is_alive(), "the copy has ended")
        self._take(underway)
        return underway

    def _take(self, underway: CopyScheduler) -> bool:
        self.came += underway.events()
        return False

    def complete(self) -> set[str]:
        """The tables of which all rows came."""
        rows = dict.fromkeys(NAMES, 0)
        for event in self.came:
            if isinstance(event, CopiedTable):
                rows[event.name.name] += event.rows
            elif isinstance(event, ChunkCopied):
                rows[event.name.name] += event.range_done.rows
        return {name for name, count in rows.items() if count == 3000}

    def refused(self) -> dict[str, str]:
        assert not [event for event in self.came if isinstance(event, CopyLost)]
        return {e.name.name: e.error.code for e in self.came if isinstance(e, CopyRefused)}


def _source(scene: Scene) -> SourceRecord:
    return source_record(identity=scene.identity, upstream=PostgresUpstream("mine", "mine", False, False))


@pytest.fixture(params=HANDOFFS)
def scene(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Scene:
    return Scene(database, tmp_path / "lake", request.param)


def test_a_table_that_may_not_be_read_waits_for_another_copy_and_the_others_are_copied(scene: Scene) -> None:
    scene.database.execute("REVOKE ALL ON b FROM app; GRANT SELECT (id) ON b TO app")
    underway = scene.run(scene.copying())
    assert (scene.complete(), scene.refused()) == ({"a", "c"}, {})
    assert [error.code for error in underway.waits_for] == ["PG_PRIVILEGE_MISSING"]
    scene.database.execute("GRANT SELECT ON b TO app")
    scene.run(scene.copying("b"))
    assert scene.complete() == {"a", "b", "c"}


# By slot a copy waits for every transaction that writes, and who holds a table exclusively is one.
NOT_BY_SLOT = pytest.mark.parametrize("scene", ["xid", "chunks"], indirect=True)


@NOT_BY_SLOT
def test_a_table_that_somebody_holds_waits_for_another_copy_and_the_others_do_not(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.pipeline.copy.scheduler.AGAIN_SECONDS", 3600.0)
    with scene.database.connect(user="app") as holder:
        holder.execute("BEGIN; LOCK TABLE b IN ACCESS EXCLUSIVE MODE")
        underway = scene.run(scene.copying())
        assert scene.complete() == {"a", "c"}
        assert scene.refused() == {}
        assert [error.code for error in underway.waits_for] == ["PG_TABLE_LOCKED"]
        assert f"pid {holder.info.backend_pid}" in str(underway.waits_for[0].detail)
        assert underway.names == {TableName("public", "b")}, "it is left alone for a moment"
        holder.execute("ROLLBACK")
    underway = scene.run(scene.copying("b"))
    assert scene.complete() == {"a", "b", "c"}
    assert underway.waits_for == []


@pytest.mark.parametrize("scene", ["slot"], indirect=True)
def test_one_attempt_to_take_a_snapshot_outlasts_writers_that_overlap(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for those that run, and then for those that run by then; another would begin anew."""
    monkeypatch.setattr(slot, "TELL_SECONDS", 0.1)
    monkeypatch.setitem(cast("dict[str, str]", PINS), "lock_timeout", "50ms")  # of all others
    clock = clock_of(statements, monkeypatch)
    copying = scene.copying()
    with scene.database.connect(user="app") as one, scene.database.connect(user="app") as other:
        one.execute("BEGIN; SELECT pg_current_xact_id()")

        def overlap() -> None:
            attempts = [_waits_for(scene, copying, one)]
            other.execute("BEGIN; SELECT pg_current_xact_id()")
            clock.ahead = 1200.0
            one.execute("COMMIT")
            attempts.append(_waits_for(scene, copying, other))
            assert attempts[0] == attempts[1]
            other.execute("COMMIT")

        scene.run(copying, overlap)
    assert scene.complete() == {"a", "b", "c"}


def _waits_for(scene: Scene, copying: Copying, writer: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """The backends that make the slot of the copy, which says that it waits for this writer."""
    named = f"pid {writer.info.backend_pid} "
    wait_for(lambda: named in str(copying.site.waits_for and copying.site.waits_for.detail), named)
    return scene.database.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'headrace snapshot'"
    )


@NOT_BY_SLOT
def test_a_table_that_is_dropped_while_its_copy_begins_is_refused(scene: Scene) -> None:
    with scene.database.connect(user="app") as owner:
        owner.execute("BEGIN; DROP TABLE b")
        scene.run(scene.copying())
        owner.execute("COMMIT")
    assert (scene.complete(), scene.refused()) == ({"a", "c"}, {})
    scene.run(scene.copying("b"))
    assert scene.refused() == {"b": "TABLE_CHANGED"}


@NOT_BY_SLOT
def test_a_table_that_is_dropped_between_the_look_and_its_size_is_left_for_another_copy(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*asked: Any) -> locks.PostgresTableSizes:
        scene.database.execute("DROP TABLE IF EXISTS b", user="app")
        return measure(*asked)

    measure = locks.measure
    monkeypatch.setattr(locks, "measure", measured)
    underway = scene.run(scene.copying())
    assert (scene.complete(), scene.refused()) == ({"a", "c"}, {})
    assert [error.code for error in underway.waits_for] == ["PG_COPY_OVERTAKEN"]


def test_a_table_whose_name_was_given_to_another_is_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renamed away after the look, which would have seen it: the rows of the other are never copied."""
    scene.database.execute("CREATE TABLE other (LIKE b INCLUDING ALL)", user="app")

    def swap() -> None:
        scene.database.execute("ALTER TABLE b RENAME TO b_old; ALTER TABLE other RENAME TO b", user="app")

    _before_reading(monkeypatch, swap)
    underway = scene.run(scene.copying())
    assert scene.complete() == {"a", "c"}
    assert [error.code for error in underway.waits_for] == ["PG_COPY_OVERTAKEN"]
    scene.run(scene.copying("b"))
    assert scene.refused() == {"b": "TABLE_CHANGED"}


@pytest.mark.parametrize("change", ["DROP TABLE b", "ALTER TABLE b RENAME COLUMN v TO w"])
def test_a_table_that_is_altered_after_the_look_is_looked_at_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """An error of its own would stop it for good, and nobody would hear that its shape changed."""
    _before_reading(monkeypatch, lambda: scene.database.execute(change, user="app"))
    underway = scene.run(scene.copying())
    assert (scene.complete(), scene.refused()) == ({"a", "c"}, {})
    assert [error.code for error in underway.waits_for] == ["PG_COPY_OVERTAKEN"]
    scene.run(scene.copying("b"))
    assert scene.refused() == {"b": "TABLE_CHANGED"}


def test_what_is_copied_with_a_table_that_leaves_goes_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left because its shape changed, say; the others may have been read for hours."""
    stands, goes_on = threading.Event(), threading.Event()

    def stand(name: str, table: str = "") -> None:
        if name == "copy.snapshot.before":
            stands.set()
            assert goes_on.wait(30)

    monkeypatch.setattr("headrace.pipeline.copy.snapshot.failpoint", stand)
    underway = CopyScheduler(2)
    underway.begin(scene.copying())
    assert stands.wait(30)
    underway.forget({TableName("public", "b")})
    assert underway.names == {TableName("public", "a"), TableName("public", "c")}
    goes_on.set()
    wait_for(lambda: scene._take(underway) or underway.over, "the copy has ended")
    scene._take(underway)
    assert scene.complete() == {"a", "c"}
    assert not [event for event in scene.came if event.name.name == "b"]


@pytest.mark.parametrize("scene", ["xid"], indirect=True)
def test_no_more_than_a_few_copies_hold_a_snapshot_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a migration alters one table after the other, the later ones are copied together."""
    monkeypatch.setattr("headrace.pipeline.copy.scheduler.COPIES_AT_ONCE", 2)
    goes_on = threading.Event()
    monkeypatch.setattr("headrace.pipeline.copy.snapshot.failpoint", lambda *_: goes_on.wait(30))
    underway = CopyScheduler(2)
    for name in ("a", "b"):
        assert not underway.full
        underway.begin(scene.copying(name))
    assert underway.full
    underway.forget({TableName("public", "b")})
    assert underway.full, "one that is given up holds what it has until it has ended"
    goes_on.set()
    wait_for(lambda: not underway.full, "the copies have ended")


def test_a_privilege_that_is_revoked_while_tables_are_copied_keeps_its_table_alone_waiting(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    _before_reading(monkeypatch, lambda: scene.database.execute("REVOKE ALL ON b FROM app CASCADE"))
    scene.database.execute("ALTER TABLE b OWNER TO postgres; GRANT SELECT ON b TO app")
    underway = scene.run(scene.copying())
    assert (scene.complete(), scene.refused()) == ({"a", "c"}, {})
    assert [error.code for error in underway.waits_for] == ["PG_PRIVILEGE_MISSING"]


def _before_reading(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Do it once, after all was looked at and before the first range or chunk is read."""
    todo = [act]

    def once(name: str, table: str = "") -> None:
        if name == "copy.snapshot.before" and todo:
            todo.pop()()

    monkeypatch.setattr("headrace.pipeline.copy.snapshot.failpoint", once)
