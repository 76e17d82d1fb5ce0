"""Verify brings both sides to the same transactions, or says why it cannot."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

import headrace
from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient
from headrace.lake.log import horizon
from headrace.lake.log.horizon import Reach
from headrace.lake.log.marks import Marks
from headrace.pipeline.state.owner import open_contexts
from headrace.pipeline.state.records import source_of, tables_of
from headrace.pipeline.state.table_state import State
from headrace.pipeline.verify.proof import SourceComparison, VerifyRequest, choose
from headrace.pipeline.verify.verdicts import objection
from headrace.sources import registry
from headrace.sources.postgres.catalog import locks
from headrace_testing.postgres import Database, Server
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.verifying import config_of, outcomes, verified

pytestmark = pytest.mark.server

NAMES = ("by_image", "by_key")


@pytest.fixture
def tables(mirrors: Mirrors, database: Database) -> Mirrors:
    """A table whose stream carries old keys, one with whole old rows, and one without a key."""
    for name in (*NAMES, "bag"):
        key = "" if name == "bag" else "PRIMARY KEY"
        database.execute(f"CREATE TABLE {name} (id int {key}, n int, t timestamptz)", user="app")
        if name != "by_key":
            database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL", user="app")
        database.execute(f"INSERT INTO {name} SELECT i, i, NULL FROM generate_series(1, 100) i")
    mirrors.once()
    return mirrors


def _refused(mirrors: Mirrors, *tables: str, **source: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        headrace.verify(config_of(mirrors, **source), tables=tables, wait=1, spark=mirrors.spark)
    return caught.value


def test_what_a_snapshot_does_not_show_is_taken_away_again(tables: Mirrors, database: Database) -> None:
    """Transactions that were open when the snapshot was taken, and later ones, are in the lake by now."""
    config = config_of(tables)
    newest = Marks(tables.lake.store, "main").newest()
    assert newest is not None
    catalog = tables.lake.catalog()
    source = source_of(catalog)
    assert source is not None
    postgres = registry.by_kind(source.kind)
    with (
        open_contexts(config, tables.spark) as [place],
        database.connect(user="app") as early,
        closing(postgres.connect(postgres.address(place.config.url), role="test")) as session,
    ):
        with early.transaction():
            for name in (*NAMES, "bag"):
                early.execute(f"UPDATE {name} SET n = -n, t = 'infinity' WHERE id <= 10".encode())
            mirror = session.mirror(source.upstream)
            snapshot = mirror.snapshot((), 2, seconds=30)
        with snapshot:
            for name in (*NAMES, "bag"):
                database.execute(f"DELETE FROM {name} WHERE id BETWEEN 5 AND 15")
                database.execute(f"INSERT INTO {name} VALUES (1000, 1, '-infinity')")
                database.execute(f"UPDATE {name} SET id = id + 5000 WHERE id > 90 AND id < 1000")
            tables.once()
            comparison = SourceComparison(place, source, mirror, snapshot, newest)
            comparison.compare(choose(tables_of(catalog), ()), VerifyRequest())
            found = list(comparison.verdicts(VerifyRequest()))
    assert {each.name: each.outcome for each in found} == dict.fromkeys(
        ("public.bag", "public.by_image", "public.by_key"), "equal"
    )
    assert {(each.rows, each.lake_rows, each.texts) for each in found} == {(100, 100, 0)}
    # As it is now: other rows, and texts in errors/.
    verdict = verified(tables)
    assert set(outcomes(verdict).values()) == {"equal"}
    assert {(each.rows, each.texts) for each in verdict.tables} == {(90, 5)}


def test_a_mirror_at_rest_is_verified_while_nothing_was_committed_that_it_lacks(
    tables: Mirrors, database: Database
) -> None:
    database.execute("CREATE TABLE elsewhere (id int)", user="app")
    database.execute("INSERT INTO elsewhere SELECT generate_series(1, 1000)")
    frontier = tables.lake.marks()[-1].frontier
    verdict = verified(tables)
    assert set(outcomes(verdict).values()) == {"equal"}
    assert verdict.position > frontier
    assert tables.lake.marks()[-1].frontier == frontier
    database.execute("UPDATE by_key SET n = 0 WHERE id = 1")
    error = _refused(tables)
    assert isinstance(error, Transient)
    assert error.code == "VERIFY_BEHIND"
    tables.once()
    assert set(outcomes(verified(tables)).values()) == {"equal"}
    # History is gone up to where nobody has been yet.
    gone = tables.lake.marks()[-1].time + 1
    horizon.write(tables.lake.store, "main", Reach(gone, datetime.now(UTC), gone))
    assert {each.error and each.error.code for each in verified(tables).tables} == {"VERIFY_NO_HISTORY"}


def test_a_table_that_is_not_what_was_copied_is_not_compared(
    tables: Mirrors, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("ALTER TABLE by_key ADD COLUMN more int", user="app")
    verdict = verified(tables)
    assert outcomes(verdict) == {
        "public.bag": "equal",
        "public.by_image": "equal",
        "public.by_key": "not compared",
    }
    error = verdict.tables[2].error
    assert error is not None
    assert (error.code, "headrace run follows it" in error.hint) == ("TABLE_CHANGED", True)
    said = objection([verdict])
    assert isinstance(said, Misconfigured)
    assert said.code == "VERIFY_INCOMPLETE"
    database.execute("INSERT INTO by_key VALUES (2000, 1, NULL, 1)")
    with pytest.raises(Definite):
        tables.once(on_ddl="stop")
    assert tables.record("public.by_key").state is State.STOPPED
    [stopped] = verified(tables, "by_key").tables
    assert (stopped.outcome, stopped.error and stopped.error.family) == ("not compared", "definite")
    with database.connect(user="app") as holder, holder.transaction():
        holder.execute("LOCK TABLE bag IN ACCESS EXCLUSIVE MODE")
        [locked] = verified(tables, "bag").tables
        assert (locked.outcome, locked.error and locked.error.code) == ("not compared", "VERIFY_LOCKED")

    def measured(*asked: Any) -> locks.PostgresTableSizes:
        database.execute("DROP TABLE IF EXISTS bag", user="app")
        return measure(*asked)

    measure = locks.measure
    monkeypatch.setattr(locks, "measure", measured)
    [gone] = verified(tables, "bag").tables
    assert (gone.outcome, gone.error and gone.error.code) == ("not compared", "PG_COPY_OVERTAKEN")


def test_what_cannot_be_meant_is_refused(
    tables: Mirrors, database: Database, postgres_server: Server
) -> None:
    assert _refused(tables, "public.nothing").code == "VERIFY_TABLE_UNKNOWN"
    assert _refused(tables, "no.*").code == "VERIFY_TABLE_UNKNOWN"
    assert _refused(tables, 'a"b').code == "PATTERN_MALFORMED"
    with postgres_server.database() as other:
        assert _refused(tables, url=other.url(user="app")).code == "PG_ANOTHER_SERVER"
    with pytest.raises(Misconfigured) as caught:
        headrace.verify(config_of(tables), source="nobody", spark=tables.spark)
    assert caught.value.code == "LAKE_SOURCE_UNKNOWN"
    assert database.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name ~ 'headrace'") == [
        (0,)
    ]
