"""A server that fails over under a running query: the query ends with a code, at a state that was there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from headrace_testing.cluster import cluster
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.background import repeat
from tests.integration.spark.source.direct import Query, direct_plan, held, refused

TABLES = """
CREATE TABLE counter (n int);
CREATE TABLE orders (n int);
ALTER TABLE counter REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO counter VALUES (0)
"""
STEP = "WITH c AS (UPDATE counter SET n = n + 1 RETURNING n) INSERT INTO orders SELECT n FROM c"


@pytest.mark.full
@pytest.mark.parametrize("version", ["17", "18"])
@pytest.mark.parametrize("synced", [True, False], ids=["with its slot", "without"])
def test_a_running_query_ends_at_a_promoted_standby_and_begins_anew_there(
    queries: Callable[..., Query], tmp_path: Path, version: str, synced: bool
) -> None:
    """Its address comes to lead to the standby, while somebody writes before, between and after."""
    with cluster(version, settings={"max_wal_size": "64MB"}) as pair, pair.primary.database() as made:
        made.execute(TABLES)
        door = pair.primary.url(made.name, port=pair.door.port)
        query = queries(direct_plan(door, tmp_path / "state"))
        query.catch_up()
        pair.join(database=made.name, sync_replication_slots=synced)
        if synced:
            [(slot,)] = made.execute("SELECT slot_name FROM pg_replication_slots WHERE slot_type = 'logical'")

            def acknowledge() -> None:
                made.execute(STEP)
                query.catch_up()

            pair.await_slot(slot, acknowledge)

        def write() -> None:
            with suppress(psycopg.OperationalError), psycopg.connect(door) as connection:
                connection.execute(STEP)

        before = steps(query)
        with repeat(write, every=0.01):
            go_on(query, lambda: steps(query) > before + 20)
            pair.fail_over()
            with refused("PG_TIMELINE_CHANGED") as error:
                go_on(query, lambda: False)
        assert "begin anew with a new state and a new checkpoint" in error.value.hint
        assert "headrace run" not in error.value.hint
        assert steps(query) > before + 20
        query.close()
        with refused("PG_TIMELINE_CHANGED"):
            queries(query.plan, query.at).catch_up()
        again = queries(direct_plan(door, tmp_path / "new"))
        again.catch_up()
        promoted = Database(pair.primary, made.name)
        promoted.execute(STEP)
        again.catch_up()
        assert again.contents() == held(promoted, "counter", "orders")


def go_on(query: Query, is_over: Callable[[], bool]) -> None:
    """Read and commit batch after batch, as they come."""

    def step() -> bool:
        end = query.stream.latest(query.at)
        if end != query.at:
            query.sums.update(query.rows(query.at, end))
            query.stream.commit(query.at)
            query.at = end
        return is_over()

    wait_for(step, "the query went on", deadline=120)


def steps(query: Query) -> int:
    """Count the steps that the query has; raises unless it has all of them, once each."""
    numbers = sorted(int(texts[0] or 0) for _, texts in query.contents().elements())
    assert numbers[:-1] == [*range(1, len(numbers))] or numbers == [0], numbers
    assert numbers[-1] == len(numbers) - 1
    return len(numbers) - 1
