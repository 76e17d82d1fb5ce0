"""A primary that fails over: the mirror goes on at the promoted standby, and copies nothing.

A mark that the new primary cannot have is never built upon: the source stops, as after any log that is lost.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import make_conninfo

from headrace.core.errors import HeadraceError
from headrace.lake.read.lake import Lake
from headrace.pipeline.state.records import source_of, tables_of
from headrace.sources.postgres.source import SOURCE
from headrace_testing import validators, workload
from headrace_testing.cluster import HOLDS, Cluster, cluster
from headrace_testing.copies import caught_up, promote
from headrace_testing.mirror_process import Mirrored, interpreter
from headrace_testing.names import Names
from headrace_testing.postgres import Database, Server, Setting
from headrace_testing.postmaster import wait_for
from headrace_testing.proxy import Proxy
from headrace_testing.wholeness import transfers
from tests.integration.pipeline.lost.losing import SETTINGS, TABLES, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.nursery import Nursery

pytestmark = pytest.mark.server

VERSIONS = ["18", pytest.param("17", marks=pytest.mark.full)]


@contextmanager
def mirrored(
    tmp_path: Path,
    engine: SparkSession | None,
    version: str = "18",
    settings: Mapping[str, Setting] | None = None,
) -> Iterator[tuple[Cluster, Source]]:
    """A mirror of a primary whose standby has a copy of the slot."""
    with cluster(version, settings={**SETTINGS, **(settings or {})}) as pair:
        made = Database(pair.primary, "shop")
        pair.primary.execute("CREATE DATABASE shop OWNER app")
        made.execute(TABLES, user="app")
        source = Source(tmp_path / "lake", engine, made)
        pair.join(database=made.name)
        source.begin()
        pair.await_slot(source.slot, source.once)
        yield pair, source


def follow(source: Source, pair: Cluster) -> None:
    """Let the address name both servers: the mirror goes on at the new primary, and no table is copied."""
    copied, last, left = copies(source.lake), source.lake.marks()[-1], source.database.server
    source.database = Database(pair.primary, source.database.name)
    source.change()
    source.once(url=of_both(left, source.database))
    source.proved()
    assert copies(source.lake) == copied
    assert source.lake.marks()[-1].time > last.time
    for name in last.versions:
        assert source.lake.at(epoch=last.epoch).arrow(name).num_rows > 0


def of_both(other: Server, database: Database) -> str:
    """The address of a database that names two servers, and asks for the primary."""
    return make_conninfo(
        database.url(user="app"),
        host=f"{other.host},{database.server.host}",
        port=f"{other.port},{database.server.port}",
        target_session_attrs="read-write",
    )


def refused_at(server: Server, source: Source) -> str:
    """Ask a server whether the mirror may go on there; the code of its refusal."""
    record = source_of(source.lake.catalog())
    assert record is not None
    address = SOURCE.address(Database(server, source.database.name).url(user="app"))
    with closing(SOURCE.connect(address, role="test")) as connection, pytest.raises(HeadraceError) as caught:
        connection.mirror(record.upstream).confirm(record.identity, source.lake.marks()[-1].position)
    return caught.value.code


def copies(lake: Lake) -> Any:
    """All that a copy would change: its mark, and since when a table is exact."""
    made = [mark.epoch for mark in lake.marks() if mark.kind in ("copy", "lost")]
    return made, {name: record.since for name, record in tables_of(lake.catalog()).items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_failovers_are_followed_without_a_copy(
    tmp_path: Path, engine: SparkSession | None, version: str
) -> None:
    """A switch-over, then a crash of the new primary; then others than the primary answer."""
    with mirrored(tmp_path, engine, version) as (pair, source):
        name, successor = source.database.name, pair.standby
        apart = pair.join(database=name, primary_slot_name="", sync_replication_slots=False)
        promote(apart)
        pair.standby = successor
        assert successor is not None
        assert refused_at(successor, source) == "PG_STANDBY_STILL"
        source.change()
        first = pair.fail_over(clean=True)
        follow(source, pair)
        # Its timeline has the same number, and left the first one earlier.
        second, source.database = source.database, Database(apart, name)
        error = source.stops("PG_TIMELINE_CHANGED")
        assert "another history" in (error.detail or "")
        source.database = second
        pair.join(database=name)
        pair.await_slot(source.slot, source.once)
        source.change()
        pair.fail_over()
        follow(source, pair)
        # The old primary is back as it was: only a person may say that it shall be followed.
        first.start()
        source.database = Database(first, name)
        source.options["reconcile"] = "auto"
        error = source.stops("PG_TIMELINE_LEFT")
        assert "timeline 1, was 3" in (error.detail or "")


def test_a_mark_that_the_new_primary_lacks_is_never_built_upon(
    tmp_path: Path, engine: SparkSession | None
) -> None:
    """Nothing made the stream wait for the standby, and the old primary took what the lake has with it."""
    with mirrored(tmp_path, engine) as (pair, source):
        pair.line.refuse()
        pair.line.cut()
        source.change()
        source.once()
        pair.fail_over()
        source.database = Database(pair.primary, source.database.name)
        # The new primary writes past what the lake has, and its slot is old enough.
        for _ in range(3):
            source.change()
            source.database.execute("SELECT pg_switch_wal()")
        source.heal("PG_TIMELINE_CHANGED")


@pytest.mark.full
def test_a_stream_that_waits_for_the_standby_has_nothing_that_it_lacks(
    tmp_path: Path, engine: SparkSession | None
) -> None:
    """With `synchronized_standby_slots` no mark has what no standby has."""
    with mirrored(tmp_path, engine, settings=HOLDS) as (pair, source):
        source.change()
        source.once()
        pair.line.refuse()
        pair.line.cut()
        last = source.lake.marks()[-1]
        source.change()
        pair.fail_over()
        assert source.lake.marks()[-1] == last
        pair.join(database=source.database.name)
        follow(source, pair)


@pytest.mark.full
@pytest.mark.parametrize(
    ("hosts", "options"),
    [("db.test", {}), ("first.test,second.test", {"target_session_attrs": "read-write"})],
    ids=["moves", "two"],
)
def test_a_run_follows_a_name_that_moves_and_a_list_of_hosts(
    tmp_path: Path, hosts: str, options: dict[str, str]
) -> None:
    """Each server has an address of its own, and the port of the other one."""
    with mirrored(tmp_path, None) as (pair, source), ExitStack() as stack:
        old, new = pair.primary, pair.standby
        assert new is not None
        here = stack.enter_context(Proxy(old.host, old.port))
        there = stack.enter_context(Proxy(new.host, new.port, at=("127.0.0.2", here.port)))
        places = {"db.test": here.host, "first.test": here.host, "second.test": there.host}
        names = Names(tmp_path, places)
        ports = ",".join([str(here.port)] * len(hosts.split(",")))
        url = make_conninfo(source.database.url(user="app"), host=hosts, port=ports, **options)
        program = interpreter("headrace_testing.without_spark")
        copied = copies(source.lake)
        mirror = Mirrored(source.path, url, "public.*", environment=names.environment, program=program)
        with mirror:
            source.change()
            beyond(pair, mirror)
            wait_for(lambda: caught_up(old, new), "the standby has it")
            pair.fail_over()
            here.cut()
            here.refuse()
            names.lead("db.test", there.host)
            source.database = Database(new, source.database.name)
            source.change()
            beyond(pair, mirror)
            assert mirror.stop() == 0, mirror.log()
        source.proved()
        assert copies(source.lake) == copied
        assert [mark.kind for mark in source.lake.marks()].count("switch") == 1


KINDS = ("clean", "crash", "crash behind")
TIMES = 20


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", ["17", "18"])
def test_seeded_failovers_under_load_leave_every_mark_exact(
    tmp_path: Path, nursery: Nursery, seed: int, version: str
) -> None:
    """Each standby takes over in its turn, at a moment of chance, and the mirror runs all the while."""
    dice, recordings = random.Random(seed), []
    with ExitStack() as stack:
        pair = stack.enter_context(cluster(version, settings={**SETTINGS, **HOLDS}))
        pair.primary.execute("CREATE DATABASE shop OWNER app")
        pair.join(database="shop")
        url = pair.primary.url("shop", user="app", port=pair.door.port)
        marks = {"HEADRACE_LAKE__MARKS": "1h"}  # all of them are looked at in the end
        mirror = Mirrored(tmp_path / "lake", url, "public.*", environment=marks, program=nursery.run)
        stack.callback(mirror.close)
        with ExitStack() as writers:
            kinds: tuple[workload.Workload, ...] = (
                workload.Transfers(),
                workload.Keyed(rows=40),
                workload.Bag(),
            )
            work = [
                writers.enter_context(workload.running(kind, url, seed=seed + number, writers=1, pause=0.02))
                for number, kind in enumerate(kinds)
            ]
            mirror.start()
            mirror.until_live()
            copied = copies(mirror.lake)
            for _ in range(TIMES):
                recordings.append(a_failover(pair, mirror, work, dice))
        assert mirror.stop() == 0, mirror.log()
        assert mirror.once() == 0, mirror.log()
        assert copies(mirror.lake) == copied
        assert [m.kind for m in mirror.lake.marks()].count("switch") == TIMES
        assert validators.exact(mirror.lake, url) == []
        assert validators.exact_at(mirror.lake, recordings) == []
        assert validators.definite(mirror.lake, sample=6) == []
        verdict = transfers(mirror.lake, sample=6)
        assert verdict.violations == []
        assert verdict.times > 10 * TIMES


def a_failover(
    pair: Cluster, mirror: Mirrored, work: list[workload.Running], dice: random.Random
) -> validators.Recording:
    """Wait until the standby can take over, let it, and wait until the mirror is past that.

    Returns what the old primary held at a position that the lake had by then.
    """
    database = Database(pair.primary, "shop")
    [(slot,)] = database.execute("SELECT slot_name FROM pg_replication_slots WHERE slot_type = 'logical'")
    pair.await_slot(slot, lambda: None)
    tables = [f"public.{name}" for name in ("transfer_in", "transfer_out", "keyed", "bag")]
    recorded = validators.record(database.url(), tables)
    beyond(pair, mirror)
    kind = dice.choice(KINDS)
    if kind == "crash behind":
        pair.line.stall()
    wanted = [running.committed + dice.randint(1, 40) for running in work]
    wait_for(lambda: all(r.committed >= n for r, n in zip(work, wanted, strict=True)), "writers write")
    pair.fail_over(clean=kind == "clean").postmaster.close()
    pair.join(database="shop")
    beyond(pair, mirror)
    return recorded


def beyond(pair: Cluster, mirror: Mirrored) -> None:
    """Return when the lake has what the primary holds now."""
    [(end,)] = pair.primary.execute("SELECT pg_current_wal_insert_lsn() - '0/0'")
    mirror.until(lambda: mirror.lake.at().mark.time >= int(end), "mark behind what is written")
