"""A place in the stream that was lost: noticed, named with our position, left on request in one mark."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.core.errors import HeadraceError, Misconfigured
from headrace.pipeline import recovery
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import source_of
from headrace.pipeline.stream import batches
from headrace.spool.layout import erase
from headrace_testing import validators
from headrace_testing.copies import Backup, caught_up, promote, standby
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database, postgres
from headrace_testing.postmaster import wait_for
from headrace_testing.powercut import Disk
from tests.integration.pipeline.lost.losing import (
    CHANGE,
    TABLES,
    Source,
    drop_slots,
    spool_ahead,
    write_log,
)
from tests.records import upstream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.server

IDLE = "SELECT NOT bool_or(active) FROM pg_replication_slots WHERE database = current_database()"


def test_each_loss_stops_the_source_and_nothing_is_made_anew(source: Source) -> None:
    """A new slot or publication would hide the gap."""
    database = source.database
    with database.server.database() as other:
        other.execute(TABLES, user="app")
        # By itself it is never followed there: the address may be wrong.
        source.options["reconcile"] = "auto"
        source.stops("PG_ANOTHER_SERVER", url=other.url(user="app"))
        del source.options["reconcile"]
    name = source.publication
    database.execute(f"ALTER PUBLICATION {name} RENAME TO elsewhere")
    assert name in (source.stops("PG_PUBLICATION_MISSING").detail or "")
    database.execute(f"ALTER PUBLICATION elsewhere RENAME TO {name}")
    source.change()
    database.execute(
        "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_flush_lsn())"
        " FROM pg_replication_slots WHERE database = current_database()"
    )
    source.stops("PG_SLOT_AHEAD")


def test_a_lost_source_leaves_the_other_sources_of_its_process_alone(source: Source) -> None:
    """A run goes on with those that are left, restart after restart; its end tells which is lost."""
    with source.database.server.database() as other:
        other.execute(TABLES, user="app")
        urls = {"main": source.database.url(user="app"), "two": other.url(user="app")}
        config: dict[str, Any] = {"lake": {"path": str(source.path)}, "source": {}}
        for name, url in urls.items():
            config["source"][name] = {"url": url, "tables": ["public.*"]}
        headrace.mirror(config, spark=source.spark, once=True)
        drop_slots(other)
        for _ in range(2):
            source.change()
            with pytest.raises(HeadraceError) as caught:
                headrace.mirror(config, spark=source.spark, once=True)
            assert caught.value.code == "PG_SLOT_MISSING"
            assert 'of source "two"' in (caught.value.detail or "")
            rows = source.lake.at(source="main").arrow("public.whole")
            assert f"change {source.number}" in rows["s"].to_pylist()


def test_a_table_that_lost_its_key_does_not_keep_the_others_from_being_healed(source: Source) -> None:
    """It stops, as it would have alone; the others are copied anew, in one mark."""
    source.change()
    drop_slots(source.database)
    source.database.execute("ALTER TABLE plain DROP CONSTRAINT plain_pkey", user="app")
    source.stops("PG_SLOT_MISSING")
    with pytest.raises(HeadraceError) as caught:
        source.once(reconcile=True)
    assert caught.value.code == "PG_IDENTITY_MISSING"
    assert set(source.lake.marks()[-1].versions) == {"public.whole"}
    assert source.database.execute("SELECT tablename FROM pg_publication_tables") == [("whole",)]
    source.database.execute("UPDATE plain SET s = 'x'; DELETE FROM whole WHERE id < 5", user="app")
    with pytest.raises(HeadraceError):
        source.once()
    source.proved()


@pytest.mark.full
def test_a_slot_that_was_dropped(source: Source) -> None:
    source.change()
    drop_slots(source.database)
    source.heal("PG_SLOT_MISSING")


@pytest.mark.full
def test_a_slot_whose_log_was_removed(source: Source) -> None:
    server = source.database.server
    server.set(max_slot_wal_keep_size="1MB")
    source.change()
    write_log(server)
    server.set(max_slot_wal_keep_size=None)
    source.heal("PG_SLOT_LOST")


@pytest.mark.full
def test_a_slot_that_was_read_by_somebody_else(source: Source) -> None:
    source.change()
    source.database.execute(f"SELECT pg_replication_slot_advance('{source.slot}', pg_current_wal_lsn())")
    source.heal("PG_SLOT_AHEAD")


def test_a_publication_that_was_made_again(source: Source) -> None:
    database = source.database
    name = source.publication
    database.execute(f"DROP PUBLICATION {name}")
    source.change()
    database.execute(f"CREATE PUBLICATION {name} FOR TABLE plain, whole", user="app")
    source.heal("PG_PUBLICATION_REMADE")


def test_a_server_that_was_restored_from_a_backup(source: Source) -> None:
    """Its log begins again at positions that have been: ours go on growing."""
    backup = Backup.of(source.database.server)
    for _ in range(3):
        source.change()
        source.database.execute("SELECT pg_switch_wal()")
    source.once()
    backup.restore()
    source.change()
    source.heal("PG_SERVER_BEHIND")
    record = source_of(source.lake.catalog())
    assert record is not None
    assert upstream_of(record).base > 0
    assert record.incarnation == 2
    times = [mark.time for mark in source.lake.marks()]
    assert times == sorted(times)
    for handoff in ("xid", "chunks"):
        drop_slots(source.database)
        source.change()
        with source.writing():
            source.once(reconcile=True, handoff=handoff)
        source.once()
        source.proved()


@pytest.mark.full
def test_a_server_that_was_set_back_and_wrote_past_us(source: Source) -> None:
    """On its own timeline, with all the log that is asked for: what it had before is not there again."""
    backup = Backup.of(source.database.server)
    source.change()
    source.once()
    backup.restore()
    source.change()
    source.database.execute("SELECT pg_switch_wal()")
    source.change()
    erase(source.path / "_headrace" / "spool" / "main")
    source.heal("PG_HISTORY_CHANGED")


def test_what_a_spool_has_before_the_lake_is_published_once_it_has_come_again(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was set back never sends it again, and no mark has it, however long that takes."""
    source.change()
    spool_ahead(source)
    source.once()
    source.proved()
    backup = Backup.of(source.database.server)
    source.change()
    spool_ahead(source)
    backup.restore()
    source.change()
    source.change()
    monkeypatch.setenv("HEADRACE_FAILPOINT", "receive.before=pause")
    monkeypatch.setenv("HEADRACE_FAILPOINT_RELEASE", str(tmp_path / "release"))
    turns = itertools.count()
    next_batch = batches.next_batch

    def counted(*told: Any) -> batches.EpochBatch | None:
        if next(turns) == 5:
            (tmp_path / "release").touch()
        return next_batch(*told)

    monkeypatch.setattr(batches, "next_batch", counted)
    source.stops("PG_HISTORY_CHANGED")


def test_a_standby_that_was_promoted(tmp_path: Path, engine: SparkSession | None, database: Database) -> None:
    source = Source(tmp_path / "lake", engine, database)
    source.begin()
    with standby(database.server) as other:
        source.change()
        wait_for(lambda: caught_up(database.server, other), "the standby has it")
        other.execute(f"SELECT pg_drop_replication_slot('{source.slot}')")  # a base backup has no slots
        database.server.stop()
        promote(other)
        source.database = Database(other, database.name)
        source.change()
        source.heal("PG_SLOT_MISSING")


@pytest.mark.full
@pytest.mark.parametrize("version", ["15", "16"])
def test_a_slot_that_another_program_copied_to_the_standby(
    tmp_path: Path, engine: SparkSession | None, version: str
) -> None:
    """A copy of the data folder has it; only from PostgreSQL 16 on a standby keeps what the slot needs."""
    with postgres(version, settings={"wal_sender_timeout": "10s"}) as server, server.database() as database:
        database.execute(TABLES, user="app")
        source = Source(tmp_path / "lake", engine, database)
        source.begin()
        with standby(server) as other:
            source.change()
            wait_for(lambda: caught_up(server, other), "the standby has it")
            server.stop()
            promote(other)
            source.database = Database(other, database.name)
            source.change()
            if version == "15":
                source.heal("PG_SLOT_UNPROTECTED")
                return
            last = source.lake.marks()[-1]
            source.once()
            source.proved()
            source.goes_on(last.time)
            assert "lost" not in {mark.kind for mark in source.lake.marks()}


@pytest.mark.full
def test_a_slot_of_the_user_that_outlived_a_promotion(
    tmp_path: Path, engine: SparkSession | None, database: Database
) -> None:
    """The mirror goes on there, and so do its positions."""
    server = database.server
    database.execute("CREATE PUBLICATION theirs FOR TABLE plain, whole", user="app")
    database.execute("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput', false, false, true)")
    server.execute("SELECT pg_create_physical_replication_slot('theirs_too')")
    source = Source(tmp_path / "lake", engine, database, publication="theirs", slot="theirs")
    try:
        source.begin()
        settings: dict[str, Any] = {"sync_replication_slots": True, "primary_slot_name": "theirs_too"}
        with standby(server, database=database.name, **settings) as other:
            source.change()
            source.once()
            kept = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'theirs' AND NOT temporary"
            wait_for(lambda: other.execute(kept) == [(1,)], "the standby keeps the slot")
            wait_for(lambda: caught_up(server, other), "the standby has it")
            server.stop()
            promote(other)
            source.database = Database(other, database.name)
            source.change()
            last = source.lake.marks()[-1]
            source.once()
            source.goes_on(last.time)
            assert "lost" not in {mark.kind for mark in source.lake.marks()}
            record = source_of(source.lake.catalog())
            assert record is not None
            assert (upstream_of(record).base, record.incarnation) == (0, 1)
    finally:
        server.start()
        server.execute("SELECT pg_drop_replication_slot('theirs_too')")


@pytest.mark.full
def test_a_slot_that_was_idle_for_too_long(source: Source) -> None:
    server = source.database.server
    server.set(idle_replication_slot_timeout="1s")
    source.change()
    write_log(server)
    server.set(idle_replication_slot_timeout=None)
    source.heal("PG_SLOT_LOST")


@pytest.mark.full
def test_a_publication_that_is_gone(source: Source) -> None:
    source.database.execute(f"DROP PUBLICATION {source.publication}")
    source.change()
    source.heal("PG_PUBLICATION_MISSING")


@pytest.mark.full
def test_a_server_that_was_replaced(source: Source) -> None:
    """By a dump that was restored elsewhere: the tables are found by their names."""
    with postgres() as other, other.database(source.database.name) as there:
        there.execute(TABLES, user="app")
        source.database = there
        source.change()
        source.heal("PG_ANOTHER_SERVER")


@pytest.mark.full
def test_a_limit_on_the_log_is_left_on_request(source: Source) -> None:
    """Not by itself: raising the limit may be what is wanted."""
    source.change()
    source.options["reconcile"] = "auto"
    limit: dict[str, Any] = {"max_wal": 40 << 20, "on_max_wal": "stop"}
    for _ in range(4):
        source.database.execute(
            "SELECT pg_switch_wal() FROM (SELECT pg_logical_emit_message(true, 'x', 'y')) x"
        )
    with pytest.raises(HeadraceError) as caught:
        source.once(**limit)
    assert caught.value.code == "PG_MAX_WAL"
    source.once(reconcile=True, **limit)
    source.proved()


def test_by_itself_where_the_configuration_says_so(source: Source) -> None:
    """And a table that is gone meanwhile stops alone."""
    last = source.lake.marks()[-1]
    drop_slots(source.database)
    source.change()
    source.database.execute("DROP TABLE whole")
    source.options["reconcile"] = "auto"
    with pytest.raises(HeadraceError) as caught:
        source.once()
    assert caught.value.code == "RESYNC_TABLE_GONE"
    newest = source.lake.marks()[-1]
    assert set(newest.versions) == {"public.plain"}
    assert newest.time > last.time
    assert validators.exact(source.lake, source.database.url(), ["public.plain"], values=True) == []
    assert source.lake.at(epoch=last.epoch).arrow("public.whole").num_rows == 51


@pytest.mark.parametrize(
    "step", ["slot", *(pytest.param(step, marks=pytest.mark.full) for step in ("mark", "sync"))]
)
def test_what_a_power_cut_takes_of_a_reconcile_need_not_be_asked_for_again(
    tmp_path: Path,
    engine: SparkSession | None,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    """The new slot is there, and the lake knows nothing of it: neither of its making nor of its purpose."""
    disk = Disk(tmp_path / "lake", tmp_path / "journal")
    ends = {
        "slot": (recovery, "renew"),
        "mark": (Ledger, "sync"),
        "sync": (recovery.RecoveryPolicy, "use_up"),
    }

    def ended(*_: object) -> None:
        raise Misconfigured("POWER_CUT", "the power went", hint="none")

    with disk.watched():
        source = Source(disk.root, engine, database)
        source.begin()
        wait_for(lambda: database.execute(IDLE) == [(True,)], "the slot to be free")
        drop_slots(database)
        source.change()
        with monkeypatch.context() as patch:
            patch.setattr(*ends[step], ended)
            with pytest.raises(Misconfigured) as cut:
                source.once(reconcile=True)
        assert cut.value.code == "POWER_CUT"
        disk.cut(random.Random(3))
        source.change()
        source.once()
        source.proved()
        source.goes_on(source.lake.marks()[-1].time - 1)
        # Only that one: the next loss is a matter of its own.
        wait_for(lambda: database.execute(IDLE) == [(True,)], "the slot to be free")
        drop_slots(database)
        source.stops("PG_SLOT_MISSING")


def test_killed_while_it_heals_it_goes_on(tmp_path: Path, database: Database, program: Program) -> None:
    mirror = Mirrored(tmp_path / "lake", database.url(user="app"), "public.*", program=program)
    try:
        assert mirror.once() == 0, mirror.log()
        last = mirror.lake.marks()[-1]
        drop_slots(database)
        database.execute(CHANGE.format("meanwhile", 3), user="app")
        mirror.start("--reconcile", environment={"HEADRACE_FAILPOINT": "copy.range.after@public.whole=kill"})
        mirror.wait()
        assert mirror.lake.at().arrow("public.plain").num_rows == 50
        assert mirror.once() == 0, mirror.log()
        assert validators.exact(mirror.lake, database.url(), values=True) == []
        assert validators.definite(mirror.lake) == []
        assert [m.time for m in mirror.lake.marks()].count(last.time) > 2
    finally:
        mirror.close()
