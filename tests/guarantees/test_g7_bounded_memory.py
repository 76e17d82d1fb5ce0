"""G7: a table or a transaction of any size passes through with memory independent of its size.

The tests measure the proportional set size (PSS: shared pages counted once) of everything that is ours:
driver, receiver, JVM and Python workers, without the server. `make integration` compares a transaction with
one of four times its size; `make test` sees one pass through in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from headrace_testing import validators
from headrace_testing.memory import Peak
from headrace_testing.mirror_process import COMMAND, Mirrored, Program
from headrace_testing.postgres import Database
from headrace_testing.wholeness import balances
from tests import jvms

_ROWS = "SELECT i, i % 1000, md5(i::text), now() FROM generate_series({low}, {high}) i"


@pytest.fixture(autouse=True)
def users_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    jvms.as_users_have_it(monkeypatch)


def _one_transaction(database: Database, low: int, rows: int) -> None:
    """Inserts, updates of every second row and deletes of every third, all in one transaction."""
    with database.connect(user="app") as connection, connection.transaction():
        connection.execute("INSERT INTO t " + _ROWS.format(low=low, high=low + rows - 1))
        connection.execute("UPDATE t SET n = n + 1 WHERE id >= %s AND id %% 2 = 0", [low])
        connection.execute("DELETE FROM t WHERE id >= %s AND id %% 3 = 0", [low])


@contextmanager
def _mirrored(database: Database, tmp_path: Path, program: Program = COMMAND) -> Iterator[Mirrored]:
    database.execute("CREATE TABLE t (id bigint PRIMARY KEY, n int, s text, at timestamptz)", user="app")
    database.execute("CREATE TABLE small (id int PRIMARY KEY)", user="app")
    with Mirrored(tmp_path / "lake", database.url(user="app"), "public.*", program=program) as mirror:
        mirror.until_live()
        yield mirror


def _passes(mirror: Mirrored, database: Database, low: int, rows: int) -> int:
    """The peak while a transaction of so many rows goes from the source to a mark."""
    with Peak(mirror.pid) as peak:
        _one_transaction(database, low, rows)
        marker = low // 1000 + 1
        database.execute("INSERT INTO small VALUES (%s)", [marker], user="app")
        mirror.until(lambda: _holds(mirror, marker), "mark with the transaction", within=900)
    return peak.bytes


def _holds(mirror: Mirrored, marker: int) -> bool:
    return marker in mirror.lake.at().arrow("public.small")["id"].to_pylist()


def test_g7_a_transaction_larger_than_a_task_passes_in_pieces(
    database: Database, tmp_path: Path, program: Program
) -> None:
    with _mirrored(database, tmp_path, program) as mirror:
        _passes(mirror, database, 1, 100_000)
        assert mirror.stop() == 0
        assert validators.exact(mirror.lake, database.url()) == []
        assert validators.definite(mirror.lake) == []


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_g7_four_times_the_transaction_takes_no_more_memory(database: Database, tmp_path: Path) -> None:
    with _mirrored(database, tmp_path) as mirror:
        _passes(mirror, database, 1, 200_000)  # everything is loaded and warm
        quarter = _passes(mirror, database, 1_000_001, 1_000_000)
        whole = _passes(mirror, database, 3_000_001, 4_000_000)
        assert mirror.stop() == 0
        assert validators.exact(mirror.lake, database.url()) == []
    assert whole < 1.3 * quarter, f"{whole / 1e9:.2f} GB after {quarter / 1e9:.2f} GB"


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_g7_four_times_the_table_takes_no_more_memory(database: Database, tmp_path: Path) -> None:
    peaks = []
    for number, rows in enumerate((2_000_000, 8_000_000)):
        database.execute("DROP TABLE IF EXISTS t")
        database.execute("CREATE TABLE t (id bigint PRIMARY KEY, n int, s text, at timestamptz)", user="app")
        database.execute("INSERT INTO t " + _ROWS.format(low=1, high=rows), user="app")
        mirror = Mirrored(tmp_path / f"lake{number}", database.url(user="app"), "public.t")
        try:
            mirror.start("--once")
            with Peak(mirror.pid) as peak:
                assert mirror.wait(within=1200) == 0, mirror.log()
            peaks.append(peak.bytes)
            assert mirror.lake.at().arrow("public.t").num_rows == rows
        finally:
            mirror.close()
    assert peaks[1] < 1.3 * peaks[0], [f"{peak / 1e9:.2f} GB" for peak in peaks]


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_g7_a_change_of_all_keys_takes_no_more_than_its_files(database: Database, tmp_path: Path) -> None:
    """More than two gigabytes of values that are not sent, of which a task holds no more than a file's."""
    database.execute("CREATE TABLE docs (id int PRIMARY KEY, n int, body text)", user="app")
    # 3,200 characters that hardly compress, again and again: out of line at the source, and little there.
    piece = "(SELECT string_agg(md5(i::text || g), '') FROM generate_series(1, 100) g)"
    filled = f"SELECT i, 0, repeat({piece}, 31) FROM generate_series(1, 22500) i"
    database.execute(f"INSERT INTO docs {filled}", user="app")
    mirror = Mirrored(tmp_path / "lake", database.url(user="app"), "public.docs")
    try:
        assert mirror.once(within=1200) == 0, mirror.log()
        database.execute("UPDATE docs SET id = id + 1000000", user="app")
        mirror.start("--once")
        with Peak(mirror.pid) as peak:
            assert mirror.wait(within=1200) == 0, mirror.log()
        assert validators.exact(mirror.lake, database.url()) == []
    finally:
        mirror.close()
    assert peak.bytes < 6 << 30, f"{peak.bytes / 1e9:.2f} GB"


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("key", ["PRIMARY KEY (id)", "CHECK (id > 0)"], ids=["keyed", "bag"])
def test_g7_a_truncate_of_four_times_the_table_takes_no_more_memory(
    database: Database, tmp_path: Path, key: str
) -> None:
    """Emptied and filled again in one transaction, as such tables are, and then emptied for good."""
    columns = f"id bigint, n int, s text, at timestamptz, {key}"
    peaks = []
    for number, rows in enumerate((1_000_000, 4_000_000)):
        database.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t ({columns})", user="app")
        database.execute("ALTER TABLE t REPLICA IDENTITY " + ("FULL" if "CHECK" in key else "DEFAULT"))
        database.execute("INSERT INTO t " + _ROWS.format(low=1, high=rows), user="app")
        mirror = Mirrored(tmp_path / f"lake{number}", database.url(user="app"), "public.t")
        try:
            assert mirror.once(within=1200) == 0, mirror.log()
            reload = f"INSERT INTO t {_ROWS.format(low=rows // 2, high=rows + rows // 2)}"
            database.execute(f"TRUNCATE t; {reload}", user="app")
            mirror.start("--once")
            with Peak(mirror.pid) as peak:
                assert mirror.wait(within=1200) == 0, mirror.log()
            assert validators.exact(mirror.lake, database.url()) == []
            database.execute("TRUNCATE t", user="app")
            assert mirror.once(within=1200) == 0, mirror.log()
            assert mirror.lake.at().arrow("public.t").num_rows == 0
            assert validators.definite(mirror.lake) == []
            peaks.append(peak.bytes)
        finally:
            mirror.close()
    assert peaks[1] < 1.3 * peaks[0], [f"{peak / 1e9:.2f} GB" for peak in peaks]


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_g7_a_transaction_that_is_streamed_stays_whole_and_within_bounds(
    database: Database, tmp_path: Path
) -> None:
    database.pgbench_tables(1)
    with _mirrored(database, tmp_path) as mirror:
        with database.pgbench(clients=2, rate=50):
            _streamed(mirror, database, 1, 100_000)  # everything is loaded and warm
            quarter = _streamed(mirror, database, 1_000_001, 500_000)
            whole = _streamed(mirror, database, 3_000_001, 2_000_000)
        assert mirror.stop() == 0
        assert mirror.once() == 0, mirror.log()  # pgbench was quicker than we
        assert validators.exact(mirror.lake, database.url()) == []
        assert balances(mirror.lake, sample=20).violations == []
        contents = {
            _rows_of(mirror, mark.epoch) for mark in mirror.lake.marks() if "public.t" in mark.versions
        }
    kept = [rows - rows // 3 for rows in (100_000, 500_000, 2_000_000)]
    assert contents == {sum(kept[:count]) for count in range(4)}
    assert whole < 3 << 30
    assert whole < 1.2 * quarter, f"{whole / 1e9:.2f} GB after {quarter / 1e9:.2f} GB"


def _streamed(mirror: Mirrored, database: Database, low: int, rows: int) -> int:
    """The peak while a transaction with a rolled-back savepoint is streamed, and then published."""
    with Peak(mirror.pid) as peak:
        with database.connect(user="app") as connection, connection.transaction():
            connection.execute("INSERT INTO t " + _ROWS.format(low=low, high=low + rows - 1))
            connection.execute("SAVEPOINT s")
            connection.execute("UPDATE t SET n = -1 WHERE id >= %s AND id %% 5 = 0", [low])
            connection.execute("ROLLBACK TO SAVEPOINT s")
            connection.execute("UPDATE t SET n = n + 1 WHERE id >= %s AND id %% 2 = 0", [low])
            # Every third row, counted from the first.
            connection.execute("DELETE FROM t WHERE id >= %s AND (id - %s) %% 3 = 2", [low, low])
        marker = low // 1000 + 1
        database.execute("INSERT INTO small VALUES (%s)", [marker], user="app")
        mirror.until(lambda: _holds(mirror, marker), "mark with the transaction", within=900)
    return peak.bytes


def _rows_of(mirror: Mirrored, epoch: int) -> int:
    found = mirror.lake.at(epoch=epoch).polars("public.t").select(pl.len()).collect().item()
    return int(found)
