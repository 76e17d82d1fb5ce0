"""The experiment with which PostgreSQL 14's streaming of running transactions was shown to the world.

Its tables, its setting, its statements; what it saw on a subscriber we see in the lake.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.pipeline.state.records import source_of
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.records import upstream_of

_STATEMENTS = (
    "INSERT INTO test_tab SELECT i, md5(i::text) FROM generate_series(3, 5000) s(i)",
    "UPDATE test_tab SET b = md5(b) WHERE mod(a, 2) = 0",
    "DELETE FROM test_tab WHERE mod(a, 3) = 0",
)


def test_the_seeds_experiment_streams_and_shows_nothing_before_the_commit(
    database: Database, tmp_path: Path, program: Program
) -> None:
    database.execute("CREATE TABLE test_tab (a int PRIMARY KEY, b varchar)", user="app")
    database.execute("INSERT INTO test_tab VALUES (1, 'foo'), (2, 'bar')", user="app")
    database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'")
    with Mirrored(tmp_path / "lake", database.url(user="app"), "public.*", program=program) as mirror:
        mirror.until_live()
        source = source_of(mirror.lake.catalog())
        assert source is not None
        slot = upstream_of(source).slot
        assert _streamed(database, slot) == (0, 0, 0)
        with database.connect(user="app") as connection:
            connection.execute("BEGIN")
            for statement in _STATEMENTS:
                connection.execute(statement)
            # Somebody else's commit: it brings the log to the decoder, and the lake a mark.
            database.execute("SELECT pg_logical_emit_message(true, 'nudge', '')")
            # The seed saw 22 blocks and 1,444,410 bytes.
            wait_for(lambda: _streamed(database, slot)[2] > 1_000_000, "streaming", deadline=60)
            transactions, blocks, size = _streamed(database, slot)
            assert transactions == 1
            assert 10 <= blocks <= 40
            assert size < 2_000_000
            mirror.until(lambda: _told(mirror)["open"] == 1, "word of the open transaction")
            assert _told(mirror)["open_bytes"] > 500_000
            assert _rows(mirror) == [(1, "foo"), (2, "bar")]
            connection.execute("COMMIT")
        mirror.until(lambda: len(_rows(mirror)) == 3334, "mark with the transaction")
        assert _rows(mirror) == database.execute("SELECT a, b FROM test_tab ORDER BY a")
        mirror.until(lambda: _told(mirror)["open"] == 0, "word of its end")


def _streamed(database: Database, slot: str) -> tuple[Any, ...]:
    [found] = database.execute(
        "SELECT stream_txns, stream_count, stream_bytes FROM pg_stat_replication_slots WHERE slot_name = %s",
        [slot],
    )
    return found


def _told(mirror: Mirrored) -> dict[str, int]:
    streamed = mirror.status().status.running
    return {"open": 0} if streamed is None else asdict(streamed)


def _rows(mirror: Mirrored) -> list[tuple[Any, ...]]:
    table = mirror.lake.at().arrow("public.test_tab").sort_by("a")
    return list(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True))
