"""Straight from PostgreSQL: what ends a stream, what is refused, and that no batch holds half of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.sources.postgres.preflight import tables
from headrace.spark.source.direct.offsets import DirectOffset
from headrace.spark.source.direct.rows import read
from headrace_testing.binaries import tool
from headrace_testing.copies import Backup, branch_off
from headrace_testing.postgres import Database, postgres
from headrace_testing.postmaster import wait_for
from tests.integration.spark.source.direct import Query, direct_plan, held, refused


def test_an_identity_that_is_not_full_is_refused_with_its_statement(
    orders: Database, queries: Callable[..., Query], tmp_path: Path
) -> None:
    orders.execute("CREATE TABLE part (id int PRIMARY KEY, n int)")
    query = queries(direct_plan(orders.url(), tmp_path / "state"))
    with refused("PG_IDENTITY_NOT_FULL") as error:
        query.catch_up()
    assert error.value.hint == "ALTER TABLE public.part REPLICA IDENTITY FULL"
    assert orders.execute("SELECT count(*) FROM pg_publication") == [(0,)]
    orders.execute(error.value.hint)
    query.catch_up()
    orders.execute("INSERT INTO part VALUES (1, 1)")
    orders.execute("ALTER TABLE part REPLICA IDENTITY DEFAULT")
    orders.execute("UPDATE part SET n = 2")
    with refused("PG_IDENTITY_NOT_FULL"):
        query.catch_up()
    assert {row[1] for row in query.contents()} > {("1", "1")}  # all before it was offered


def test_a_truncation_ends_the_stream_unless_the_table_never_had_a_row(
    orders: Database, queries: Callable[..., Query], tmp_path: Path
) -> None:
    orders.execute("CREATE TABLE empty (n int)")
    orders.execute("ALTER TABLE empty REPLICA IDENTITY FULL")
    query = queries(direct_plan(orders.url(), tmp_path / "state"))
    query.catch_up()
    orders.execute("TRUNCATE empty")
    orders.execute("INSERT INTO empty VALUES (1)")
    query.catch_up()
    before = held(orders, "orders", "empty")
    assert query.contents() == before
    orders.execute("TRUNCATE empty")
    orders.execute("INSERT INTO orders VALUES (77, 'not offered')")
    with refused("DIRECT_TABLE_TRUNCATED"):
        query.catch_up()
    assert query.contents() == before


def test_a_table_that_is_dropped_ends_the_stream(
    orders: Database, queries: Callable[..., Query], tmp_path: Path
) -> None:
    query = queries(direct_plan(orders.url(), tmp_path / "state"))
    query.catch_up()
    orders.execute("DROP TABLE orders")

    with refused("DIRECT_TABLE_GONE"):
        wait_for(lambda: query.stream.latest(query.at) > query.at, "the drop is noticed")


@pytest.mark.parametrize(
    ("statements", "code"),
    [
        (["ALTER PUBLICATION {p} DROP TABLE orders"], "DIRECT_TABLE_UNCAPTURED"),
        (
            [
                "ALTER PUBLICATION {p} DROP TABLE orders",
                "DELETE FROM orders WHERE id = 1",
                "INSERT INTO other VALUES (1)",
                "ALTER PUBLICATION {p} ADD TABLE orders",
                "DELETE FROM orders WHERE id = 2",
            ],
            "DIRECT_TABLE_UNCAPTURED",
        ),
        (
            [
                "DROP PUBLICATION {p}",
                "CREATE PUBLICATION {p} FOR TABLE orders, other",
            ],
            "PG_PUBLICATION_REMADE",
        ),
        (["ALTER TABLE orders REPLICA IDENTITY NOTHING"], "DIRECT_TABLE_UNCAPTURED"),
    ],
    ids=["out", "out and in again", "publication made again", "no identity"],
)
def test_a_gap_in_the_capture_ends_a_raw_stream(
    orders: Database, queries: Callable[..., Query], tmp_path: Path, statements: list[str], code: str
) -> None:
    """Nothing in the stream shows it, and no batch holds half of what came with it."""
    orders.execute("CREATE TABLE other (n int)")
    orders.execute("ALTER TABLE other REPLICA IDENTITY FULL")
    query = queries(direct_plan(orders.url(), tmp_path / "state"))
    query.catch_up()
    before = held(orders, "orders", "other")
    [(publication,)] = orders.execute("SELECT quote_ident(pubname) FROM pg_publication")
    for statement in statements:
        orders.execute(statement.format(p=publication))
    with refused(code) as error:
        query.catch_up()
    assert str(error.value.hint).endswith("begin anew with a new state and a new checkpoint")
    assert query.contents() == before
    orders.execute("UPDATE orders SET note = NULL")  # the server takes it again


def test_a_partitioned_table_is_refused_and_its_partitions_are_streamed_one_by_one(
    orders: Database, queries: Callable[..., Query], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under its root's name no message says which rows went with a partition."""
    orders.execute("CREATE TABLE days (id int, n int) PARTITION BY RANGE (id)")
    orders.execute("CREATE TABLE day1 PARTITION OF days FOR VALUES FROM (0) TO (100)")
    orders.execute("ALTER TABLE days REPLICA IDENTITY FULL; ALTER TABLE day1 REPLICA IDENTITY FULL")
    orders.execute("INSERT INTO days VALUES (1, 1), (2, 2)")
    for number, patterns in enumerate(["public.*", "public.days"]):
        with refused("PG_ROOT_NEEDS_LAKE") as error:
            queries(direct_plan(orders.url(), tmp_path / f"state{number}", tables=patterns)).catch_up()
        assert "'!public.days'" in error.value.hint
    with refused("PG_ROOT_NEEDS_LAKE"):
        direct_plan(orders.url(), tmp_path / "typed", table="days")
    assert orders.execute("SELECT count(*) FROM pg_publication") == [(0,)]
    query = queries(direct_plan(orders.url(), tmp_path / "state", tables="public.*, !public.days"))
    query.catch_up()
    orders.execute("UPDATE days SET n = n + 1; DELETE FROM days WHERE id = 2")
    query.catch_up()
    before = held(orders, "orders", "day1")
    assert query.contents() == before
    orders.execute("ALTER TABLE days DETACH PARTITION day1")
    orders.execute("INSERT INTO day1 VALUES (3, 3)")
    with refused("DIRECT_TABLE_UNCAPTURED"):
        query.catch_up()
    assert query.contents() == before
    # A state from before roots were refused goes no further.
    monkeypatch.setattr(tables, "check_without_lake", lambda entry: ())
    with refused("DIRECT_TABLE_PARTITIONED"):
        queries(direct_plan(orders.url(), tmp_path / "older", tables="public.days")).catch_up()


def test_state_and_checkpoint_belong_together(
    orders: Database, queries: Callable[..., Query], tmp_path: Path
) -> None:
    plan = direct_plan(orders.url(), tmp_path / "state")
    query = queries(plan)
    begun = query.at
    query.catch_up(commit=False)
    [task] = query.stream.tasks(begun, query.at)
    with refused("DIRECT_BATCH_GONE") as error:
        next(read(replace(plan, state=str(tmp_path / "of this executor")), task))
    assert "let all executors share the folder" in error.value.hint
    orders.execute("DELETE FROM orders")
    query.catch_up()
    with refused("DIRECT_OTHER_STATE"):
        query.stream.latest(DirectOffset(1, "another"))
    with refused("DIRECT_STATE_OLDER"):
        query.stream.latest(DirectOffset(query.at.batch + 1, query.at.state))
    with refused("DIRECT_CHECKPOINT_OLDER"):
        query.stream.tasks(DirectOffset(0, query.at.state), query.at)
    query.close()
    with refused("DIRECT_CHECKPOINT_OLDER"):  # a new checkpoint
        queries(plan)
    with refused("DIRECT_STATE_DIFFERS"):
        queries(direct_plan(orders.url(), tmp_path / "state", tables="public.orders"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with refused("DIRECT_STATE_FOREIGN"):
        queries(direct_plan(orders.url(), tmp_path / "other"))


def test_a_state_that_lost_files_or_is_of_another_version_is_refused(
    orders: Database, queries: Callable[..., Query], tmp_path: Path
) -> None:
    """Nothing is acknowledged, and no batch comes of what is left."""
    state, backup, whole = tmp_path / "state", tmp_path / "backup", tmp_path / "whole"
    plan = direct_plan(orders.url(), state)
    query = queries(plan)
    begun = query.at
    query.catch_up(commit=False)
    shutil.copytree(state, backup)
    for number in (1, 2):
        orders.execute("DELETE FROM orders WHERE id = %s", [number])
        query.catch_up(commit=False)
    query.close()
    before = orders.execute(_CONFIRMED)
    state.rename(whole)

    def is_refused(code: str, pattern: str = "none", source: Path | None = whole) -> None:
        """Begin with a copy of a state that lacks some files, and read all that the checkpoint has."""
        shutil.rmtree(state, ignore_errors=True)
        if source is not None:
            shutil.copytree(source, state)
        for path in state.glob(pattern):
            path.unlink()
        with refused(code) as error:
            queries(plan, query.at).rows(begun, query.at)
        assert "a new checkpoint" in error.value.hint

    is_refused("DIRECT_OTHER_STATE", source=None)
    is_refused("DIRECT_STATE_OLDER", source=backup)
    is_refused("DIRECT_STATE_OLDER", "beginning.json")
    is_refused("DIRECT_BATCH_GONE", "batches/000002.json")
    is_refused("DIRECT_BATCH_GONE", "stream/*-000002.raw")
    is_refused("DIRECT_BATCH_GONE", "snapshot/*")
    record = json.loads((whole / "state.json").read_text())
    (whole / "state.json").write_text(json.dumps({**record, "format": record["format"] + 1, "new": []}))
    is_refused("DIRECT_STATE_FORMAT")
    assert orders.execute(_CONFIRMED) == before


@pytest.mark.full
def test_another_life_of_the_server_is_refused_and_its_slot_stays_where_it_is(
    orders: Database, queries: Callable[..., Query], tmp_path: Path
) -> None:
    """Restored from a backup, before and after it has written past us; promoted; replaced by another one."""
    with postgres() as server, server.database() as database:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
        database.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        state = tmp_path / "state"
        query = queries(direct_plan(database.url(), state))
        query.catch_up()
        backup = Backup.of(server)
        for number in range(3):
            database.execute("INSERT INTO orders VALUES (%s, 'of the first life')", [number])
            database.execute("SELECT pg_switch_wal()")
        query.close()
        query = queries(query.plan, query.at)
        query.catch_up(commit=False)
        query.close()
        files_before = files(state)

        def is_refused(code: str, url: str) -> None:
            before = database.execute(_CONFIRMED)
            with refused(code) as error:
                queries(direct_plan(url, state), query.at).catch_up()
            assert "begin anew with a new state and a new checkpoint" in error.value.hint
            assert "headrace run" not in error.value.hint
            assert files(state) == files_before
            assert database.execute(_CONFIRMED) == before

        is_refused("PG_ANOTHER_SERVER", orders.url())
        backup.restore()
        is_refused("PG_SERVER_BEHIND", database.url())
        for _ in range(5):
            database.execute("INSERT INTO orders SELECT count(*), 'of the second' FROM orders")
            database.execute("SELECT pg_switch_wal()")
        is_refused("PG_HISTORY_CHANGED", database.url())
        branch_off(server)
        is_refused("PG_TIMELINE_CHANGED", database.url())


def files(state: Path) -> set[str]:
    """All that the state has offered."""
    return {str(path) for path in state.rglob("*.*") if "owners" not in path.parts}


_CONFIRMED = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE database = current_database()"
_SLOT = "(SELECT slot_name FROM pg_replication_slots WHERE database = current_database())"


def test_a_place_that_was_lost_is_refused_with_the_sources_own_code(
    orders: Database, queries: Callable[..., Query], tmp_path: Path
) -> None:
    """The hint says how a query begins anew; and so does that of a state whose files are gone."""
    state = tmp_path / "state"
    query = queries(direct_plan(orders.url(), state))
    query.catch_up()
    begun = query.at
    orders.execute("DELETE FROM orders WHERE id = 1")
    query.catch_up(commit=False)
    query.close()

    def is_refused(code: str, hint: str, url: str = orders.url()) -> None:
        with refused(code) as error:
            queries(direct_plan(url, state), query.at).catch_up()
        assert hint in error.value.hint

    with orders.server.database() as other:
        is_refused("PG_ANOTHER_SERVER", "if the server was replaced: begin anew", other.url())
    with _reading(orders):
        is_refused("PG_SLOT_TAKEN", "stop that program")
    orders.execute("DELETE FROM orders WHERE id = 2")
    orders.execute(f"SELECT pg_replication_slot_advance({_SLOT}, pg_current_wal_lsn())")
    is_refused("PG_SLOT_AHEAD", "begin anew with a new state and a new checkpoint")
    orders.execute(f"SELECT pg_drop_replication_slot({_SLOT})")
    is_refused("PG_SLOT_MISSING", "begin anew with a new state and a new checkpoint")
    [path] = state.rglob("*.raw")
    path.write_bytes(bytes(len(path.read_bytes())))
    with refused("DIRECT_BATCH_DAMAGED"):
        query.rows(begun, query.at)
    for path in state.glob("batches/*"):
        path.unlink()
    with refused("DIRECT_STATE_OLDER"):
        queries(direct_plan(orders.url(), state), query.at).stream.latest(query.at)


def test_tables_of_a_source_without_texts_are_refused_before_it_is_asked(
    queries: Callable[..., Query], tmp_path: Path
) -> None:
    query = queries(direct_plan("mysql://app@nowhere.invalid/shop", tmp_path / "state"))
    with refused("DIRECT_NO_TEXTS"):
        query.catch_up()


@contextlib.contextmanager
def _reading(database: Database) -> Iterator[None]:
    """Another program, which reads the slot."""
    [(slot,)] = database.execute(f"SELECT {_SLOT}")
    options = ("-o", "proto_version=1", "-o", "publication_names=p", "--no-loop", "-f", os.devnull)
    command = [str(tool("pg_recvlogical")), "-d", database.url(), "-S", slot, "--start", *options]
    program = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    active = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = {_SLOT} AND active"
    try:
        wait_for(lambda: bool(database.execute(active)), "the other program reads the slot")
        yield
    finally:
        program.terminate()
        program.wait()
