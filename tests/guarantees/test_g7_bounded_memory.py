"""G7: a table or a transaction of any size passes through with memory independent of its size.

What is measured is the proportional set size (PSS: shared pages counted once) of everything that is ours:
driver, receiver, JVM and Python workers; the server is not. `make integration` compares a transaction with
one of four times its size; `make test` sees one pass through in pieces.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from headrace.testing import validators
from headrace.testing.mirrored import Mirrored
from headrace.testing.postgres import Database

_ROWS = "SELECT i, i % 1000, md5(i::text), now() FROM generate_series({low}, {high}) i"


@contextmanager
def _peak(pid: int) -> Iterator[list[int]]:
    """The largest PSS of a process and all that it started, in bytes, while the block runs."""
    most = [0]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.25):
            most[0] = max(most[0], _pss(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def _pss(pid: int) -> int:
    total = 0
    try:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in processes:
        try:
            total += int(process.memory_full_info().pss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def _one_transaction(database: Database, low: int, rows: int) -> None:
    """Inserts, updates of every second row and deletes of every third, all in one transaction."""
    with database.connect(user="app") as connection, connection.transaction():
        connection.execute("INSERT INTO t " + _ROWS.format(low=low, high=low + rows - 1))
        connection.execute("UPDATE t SET n = n + 1 WHERE id >= %s AND id %% 2 = 0", [low])
        connection.execute("DELETE FROM t WHERE id >= %s AND id %% 3 = 0", [low])


@contextmanager
def _mirrored(database: Database, tmp_path: Path) -> Iterator[Mirrored]:
    database.execute("CREATE TABLE t (id bigint PRIMARY KEY, n int, s text, at timestamptz)", user="app")
    database.execute("CREATE TABLE small (id int PRIMARY KEY)", user="app")
    with Mirrored(tmp_path / "lake", database.url(user="app"), "public.*") as mirror:
        mirror.until_live()
        yield mirror


def _passes(mirror: Mirrored, database: Database, low: int, rows: int) -> int:
    """The peak while a transaction of so many rows goes from the source to a mark."""
    with _peak(mirror.pid) as peak:
        _one_transaction(database, low, rows)
        marker = low // 1000 + 1
        database.execute("INSERT INTO small VALUES (%s)", [marker], user="app")
        mirror.until(lambda: _holds(mirror, marker), "mark with the transaction", within=900)
    return peak[0]


def _holds(mirror: Mirrored, marker: int) -> bool:
    return marker in mirror.lake.at().arrow("public.small")["id"].to_pylist()


def test_g7_a_transaction_larger_than_a_task_passes_in_pieces(database: Database, tmp_path: Path) -> None:
    with _mirrored(database, tmp_path) as mirror:
        _passes(mirror, database, 1, 150_000)
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
            with _peak(mirror.pid) as peak:
                assert mirror.wait(within=1200) == 0, mirror.log()
            peaks.append(peak[0])
            assert mirror.lake.at().arrow("public.t").num_rows == rows
        finally:
            mirror.close()
    assert peaks[1] < 1.3 * peaks[0], [f"{peak / 1e9:.2f} GB" for peak in peaks]
