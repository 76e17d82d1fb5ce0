"""A mirror copied in chunks: where rows move from one chunk to another, and across kills.

The run is held up at a fail point between two chunks, one connection copying: so it is known which chunk was
read before a change and which after it.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headrace.core import chunks
from headrace.core.handoff import ByXid
from headrace_testing import validators, workload
from headrace_testing.mirror_process import Mirrored
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.copied_chunks import ever, unfinished
from tests.integration.pipeline.conftest import Mirrors

pytestmark = pytest.mark.server

CHUNKS: dict[str, Any] = {"handoff": "chunks", "chunk_bytes": 50_000, "snapshot_connections": 1}

HeldUp = Callable[..., Any]


@pytest.fixture
def held_up(
    mirrors: Mirrors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> HeldUp:
    """A run that stands, while the block runs, where a first chunk of the table has been read."""

    @contextmanager
    def hold(table: str, **options: Any) -> Iterator[None]:
        release = tmp_path / "release"
        monkeypatch.setenv("HEADRACE_FAILPOINT", f"copy.chunk.after@{table}=pause")
        monkeypatch.setenv("HEADRACE_FAILPOINT_RELEASE", str(release))
        errors: list[BaseException] = []

        def run() -> None:
            try:
                mirrors.once(**CHUNKS | options)
            except BaseException as error:
                errors.append(error)
                raise

        thread = threading.Thread(target=run)
        thread.start()
        said: list[str] = []

        def stands() -> bool:
            said.append(capfd.readouterr().err)
            return bool(errors) or "fail point" in "".join(said)

        try:
            wait_for(stands, "the fail point")
            yield
        finally:
            release.touch()
            thread.join()
        assert not errors

    return hold


def _move_about(database: Database, table: str) -> None:
    """Rows go from the chunks that will be read into the one that was, the other way, and through both."""
    with database.connect(user="app") as connection:
        for old, new in ((200, -1), (199, 0), (1, 300), (2, 301), (0, 302), (150, 151000)):
            connection.execute(f"UPDATE {table} SET id = {new}, n = {old} WHERE id = {old}".encode())
        connection.execute(f"DELETE FROM {table} WHERE id IN (3, 198)".encode())
        connection.execute(f"INSERT INTO {table} VALUES (3, 1, 'again'), (198, 1, 'again')".encode())
        connection.execute(f"UPDATE {table} SET note = 'left' WHERE id IN (-1, 4, 197)".encode())


def _errors(lake: Path) -> dict[tuple[str, str], int]:
    """Add up the rows of errors/, by key and raw text."""
    sums: Counter[tuple[str, str]] = Counter()
    rows: Any = pa.table(DeltaTable(lake / "errors" / "main").scan())
    for row in rows.to_pylist():
        sums[row["key"], row["raw"]] += row["diff"]
    return {value: count for value, count in sums.items() if count}


def _open_transactions(database: Database) -> int:
    [(count,)] = database.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'headrace%'"
        " AND backend_type = 'client backend' AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL)"
    )
    return int(count)


def _rounds(lake: Path, table: str) -> int:
    """Count how often the copy turned out to lack values, by the plans that recorded it."""
    plans = [json.loads(path.read_text()) for path in (lake / "_headrace/epochs").rglob("*.json")]
    handoffs = [plan["state"].get(f"table/{table}", {}).get("handoff") or {} for plan in plans]
    return max(int(handoff.get("rounds", 0)) for handoff in handoffs)


def test_rows_that_move_between_chunks_lose_nothing(mirrors: Mirrors, held_up: HeldUp) -> None:
    """Chunks are read from the lowest key on; the first one is read when the rows move, the others are not.

    A long value that the update leaves alone is not sent. If a row moves from a later chunk into the
    first, that value is in no copy: its new key has to be read again. Between two chunks nothing of ours is
    open.
    """
    database, names = mirrors.database, ["public.keyed", "public.whole"]
    workload.make_tables(database.url(user="app"), workload.Keyed("keyed"), workload.Keyed("whole", "full"))
    start = validators.record(database.url(), ["public.whole"])
    with held_up("public.keyed"):
        wait_for(lambda: _open_transactions(database) == 0, "the end of every transaction")
        _move_about(database, "keyed")
        middle = validators.record(database.url(), ["public.whole"])
        _move_about(database, "whole")
    assert validators.exact(mirrors.lake, database.url()) == []
    assert validators.definite(mirrors.lake) == []
    assert [_rounds(mirrors.path, name) for name in names] == [1, 0]
    assert mirrors.record("public.whole").join == "rewind"
    since = mirrors.record("public.whole").since
    assert since is not None
    recordings = [each for each in (start, middle) if each.position.time >= since]
    assert recordings
    assert validators.exact_at(mirrors.lake, recordings) == []
    assert mirrors.record("public.keyed").handoff is None, "past its position a handoff is forgotten"


@pytest.mark.parametrize("identity", ["default", "full"])
def test_rows_that_cross_a_row_filter_between_chunks_lose_nothing(
    mirrors: Mirrors, held_up: HeldUp, identity: str
) -> None:
    """An update that moves a row into the filter, and into a chunk that was read, is told as an INSERT."""
    database, table = mirrors.database, f"crossing_{identity}"
    database.execute(
        f"CREATE TABLE {table} (id int PRIMARY KEY, n int, big text);"
        f" ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL, REPLICA IDENTITY {identity};"
        f" INSERT INTO {table} SELECT i, 0, repeat(i || '.', 700) FROM generate_series(1, 200) i;"
        f" CREATE PUBLICATION p FOR TABLE {table} WHERE (id % 3 <> 0)",
        user="app",
    )
    database.execute(f"ANALYZE {table}", user="app")  # so that it is known how many rows make a chunk
    moves = ((200, -1), (199, 0), (198, -2), (3, 301), (1, 300), (2, 302), (150, 151000), (0, 304))
    with held_up(f"public.{table}", publication="p"), database.connect(user="app") as connection:
        for old, new in moves:
            connection.execute(f"UPDATE {table} SET id = {new}, n = {old} WHERE id = {old}".encode())
        connection.execute(f"DELETE FROM {table} WHERE id IN (4, 6, 196)".encode())
        connection.execute(f"INSERT INTO {table} VALUES (3, 1, 'out'), (4, 1, 'in')".encode())
    cut = mirrors.lake.at().arrow(f"public.{table}")
    held = sorted(zip(*(cut[name].to_pylist() for name in ("id", "n", "big")), strict=True))
    assert held == sorted(database.execute(f"SELECT id, n, big FROM {table} WHERE id % 3 <> 0"))
    assert validators.definite(mirrors.lake) == []
    assert _rounds(mirrors.path, f"public.{table}") == (identity == "default")


@pytest.mark.parametrize("identity", ["default", "full"])
def test_values_without_a_lake_form_follow_their_rows_between_chunks(
    mirrors: Mirrors, held_up: HeldUp, identity: str
) -> None:
    database, table = mirrors.database, f"odd_{identity}"
    database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, at timestamp, big text)", user="app")
    database.execute(f"ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL", user="app")
    database.execute(f"ALTER TABLE {table} REPLICA IDENTITY {identity}", user="app")
    database.execute(
        f"INSERT INTO {table} SELECT i, CASE i % 2 WHEN 0 THEN 'infinity' ELSE now() END::timestamp,"
        " repeat(i || '.', 1500) FROM generate_series(1, 60) i",
        user="app",
    )
    with held_up(f"public.{table}"), database.connect(user="app") as connection:
        connection.execute(f"DELETE FROM {table} WHERE id IN (6, 10)".encode())
        for change in (
            "id = 6 WHERE id = 58",  # to where such a value was
            "id = 300 WHERE id = 4",
            "id = 301, at = now() WHERE id = 12",
            "at = now() WHERE id IN (8, 56)",
            "at = '-infinity' WHERE id IN (1, 55)",
        ):
            connection.execute(f"UPDATE {table} SET {change}".encode())
    wanted = database.execute(f"SELECT id, at::text FROM {table} WHERE NOT isfinite(at)")
    assert _errors(mirrors.path) == {(f'{{"id":{key}}}', raw): 1 for key, raw in wanted}
    cut = mirrors.lake.at().arrow(f"public.{table}")
    assert sorted(zip(*(cut[name].to_pylist() for name in ("id", "big")), strict=True)) == sorted(
        database.execute(f"SELECT id, big FROM {table}")
    )
    assert _rounds(mirrors.path, f"public.{table}") == (identity == "default")


@pytest.mark.parametrize(
    ("identity", "chunk_bytes"), [("default", 50_000), ("full", 50_000), ("full", 10**9)]
)
def test_a_truncation_that_some_chunks_show_or_none_is_data(
    mirrors: Mirrors, held_up: HeldUp, identity: str, chunk_bytes: int
) -> None:
    database, table = mirrors.database, f"emptied_{identity}_{chunk_bytes}"
    database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, at timestamp, v text)", user="app")
    database.execute(f"ALTER TABLE {table} REPLICA IDENTITY {identity}", user="app")
    fill = f"INSERT INTO {table} SELECT i, 'infinity', repeat('x', 1000) FROM generate_series(%s::int, %s) i"
    database.execute(fill, [1, 300], user="app")
    database.execute(f"ANALYZE {table}", user="app")  # so that it is known how many rows make a chunk
    with held_up(f"public.{table}", chunk_bytes=chunk_bytes):
        database.execute(f"UPDATE {table} SET v = 'before' WHERE id IN (2, 299)", user="app")
        database.execute(f"TRUNCATE {table}", user="app")
        database.execute(fill, [5, 8], user="app")
        database.execute(fill, [290, 310], user="app")
        database.execute(f"DELETE FROM {table} WHERE id IN (6, 295)", user="app")
    wanted = sorted(database.execute(f"SELECT id, v FROM {table}"))
    mirrors.once()  # the run that stood may have begun its last look amid these statements
    cut = mirrors.lake.at().arrow(f"public.{table}")
    assert sorted(zip(cut["id"].to_pylist(), cut["v"].to_pylist(), strict=True)) == wanted
    assert _errors(mirrors.path) == {(f'{{"id":{key}}}', "infinity"): 1 for key, _ in wanted}
    assert validators.definite(mirrors.lake) == []
    assert _rounds(mirrors.path, f"public.{table}") == (chunk_bytes == 50_000)


def test_a_copy_that_lacks_values_too_often_is_made_in_one_snapshot(
    mirrors: Mirrors, held_up: HeldUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "MOST_ROUNDS", 0)
    workload.make_tables(mirrors.database.url(user="app"), workload.Keyed("restless"))
    with held_up("public.restless"):
        _move_about(mirrors.database, "restless")
    assert validators.exact(mirrors.lake, mirrors.database.url()) == []
    assert validators.definite(mirrors.lake) == []
    assert isinstance(mirrors.record("public.restless").handoff, ByXid)


@pytest.mark.spark
@pytest.mark.full
def test_a_copy_that_was_killed_goes_on_at_its_chunks(database: Database, tmp_path: Path, seed: int) -> None:
    url = database.url(user="app")
    workload.make_tables(url, workload.Keyed("keyed"), workload.Keyed("whole", "full"), workload.Bag())
    database.execute("INSERT INTO bag SELECT i % 9, 'first' FROM generate_series(1, 99) i", user="app")
    with Mirrored(tmp_path / "lake", url, "public.*", options=CHUNKS) as mirror:
        with (
            workload.running(workload.Keyed("keyed"), url, seed=seed, writers=2, prepare=False, pause=0.02),
            workload.running(workload.Keyed("whole", "full"), url, seed=seed + 1, prepare=False, pause=0.05),
            workload.running(workload.Bag(), url, seed=seed + 2, prepare=False, pause=0.05),
        ):
            mirror.until(lambda: len(unfinished(mirror.lake)) >= 3, "some chunks in the lake")
            mirror.kill()
            known = unfinished(mirror.lake)
            mirror.start()
            mirror.until_live()
            assert mirror.stop() == 0, mirror.log()
        assert known <= ever(mirror.lake_path), "what was copied before the kill was not copied again"
        assert mirror.once() == 0, mirror.log()
        assert validators.exact(mirror.lake, database.url()) == []
        assert validators.definite(mirror.lake) == []
