"""The memory of a mirror of MySQL: a large table copied, large transactions, each beside a quarter of itself.

    python bench/mysql_memory.py [--rows N] [--transaction N] [--kinds mysql mariadb]

The figure is the peak of memory (PSS) over the driver, the receiver, the JVM and its workers, without
the server. The table is copied by a run of its own; the transactions insert so many rows, update half of
them, and come to a run that is live, plain and compressed (MySQL: `binlog_transaction_compression`; MariaDB:
`log_bin_compress`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from headrace.sources.mysql.position import MysqlTimeline
from headrace_testing.figures import keep
from headrace_testing.memory import Peak
from headrace_testing.mirror_process import Mirrored
from headrace_testing.mysql import Database, mariadb, mysql

SERVERS = {"mysql": mysql, "mariadb": mariadb}
COMPRESSED = {
    "mysql": "SET SESSION binlog_transaction_compression = 1",
    "mariadb": "SET GLOBAL log_bin_compress = 1",
}
COLUMNS = (
    "(id bigint PRIMARY KEY, a int, b varchar(40), c varchar(80), d decimal(12,2), e datetime(6), f bit(1))"
)
VALUES = "i, i % 1000, CONCAT('text ', i), LEFT(SHA2(i, 256), 32), i / 7, NOW(6), i % 2 = 0"
PORTION = 100_000
DEADLINE = 1800.0


def fill(database: Database, table: str, rows: int, *before: str) -> None:
    """Insert so many rows, in portions, within one transaction."""
    with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for statement in (*before, f"SET SESSION {database.server.flavour.recursion} = {PORTION}"):
            cursor.execute(statement)
        for low in range(1, rows + 1, PORTION):
            cursor.execute(
                f"INSERT INTO {table} WITH RECURSIVE s (i) AS (SELECT {low} UNION ALL SELECT i + 1 FROM s"
                f" WHERE i < {min(rows, low + PORTION - 1)}) SELECT {VALUES} FROM s"
            )
        if before:
            cursor.execute(f"UPDATE {table} SET a = a + 1 WHERE id % 2 = 0")
        connection.commit()


def copied(database: Database, table: str, folder: Path) -> tuple[int, float]:
    """The peak of a run that copies the table, and its seconds."""
    lake = folder / f"copy-{table}"
    begun = time.perf_counter()
    with Mirrored(lake, database.url(user="mirror"), f"{database.name}.{table}") as mirror:
        with Peak(mirror.pid) as peak:
            mirror.until_live(within=DEADLINE)
        return peak.bytes, time.perf_counter() - begun


def streamed(mirror: Mirrored, database: Database, table: str, rows: int, *before: str) -> tuple[int, float]:
    """The peak of a run while a transaction comes to it; the seconds from its COMMIT to its mark."""
    with Peak(mirror.pid) as peak:
        fill(database, table, rows, *(before or ("SELECT 1",)))
        begun = time.perf_counter()
        words = database.server.flavour
        executed = "gtid_binlog_pos" if words.is_mariadb else "gtid_executed"
        [(text,)] = database.server.execute(f"SELECT @@global.{executed}")
        behind = MysqlTimeline().position(str(text)).time
        mirror.until(lambda: mirror.lake.marks()[-1].time >= behind - 1, "mark behind it", within=DEADLINE)
        return peak.bytes, time.perf_counter() - begun


def show(key: str, what: str, rows: int, measure: Callable[[int], tuple[int, float]]) -> None:
    """The peak of all rows beside that of a quarter."""
    quarter, _ = measure(rows // 4)
    whole, seconds = measure(rows)
    print(
        f"  {what:36} {rows:>11,} rows  {seconds:6.1f} s  peak {whole / 2**20:6,.0f} MB,"
        f" {whole / quarter:.2f} times a quarter's",
        flush=True,
    )
    keep(**{f"{key}_gb": whole / 1e9, f"{key}_of_quarter": whole / quarter})


def main() -> None:
    parser = argparse.ArgumentParser(description="the memory of a mirror of MySQL")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--transaction", type=int, default=5_000_000)
    parser.add_argument("--kinds", nargs="+", choices=tuple(SERVERS), default=list(SERVERS))
    args = parser.parse_args()
    for kind in args.kinds:
        print(kind)
        with ExitStack() as stack:
            database = stack.enter_context(stack.enter_context(SERVERS[kind]({"sync_binlog": 0})).database())
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            show(f"{kind}_copied", "a table copied", args.rows, partial(_copy, database, folder))
            for table in ("copy_quarter", "copy_whole"):
                database.execute(f"DROP TABLE IF EXISTS {table}")
            mirror = Mirrored(folder / "stream", database.url(user="mirror"), f"{database.name}.*")
            with closing(mirror):
                for way in ("plain", "compressed"):
                    for size in ("quarter", "whole"):
                        database.execute(f"CREATE TABLE {way}_{size} {COLUMNS}")
                mirror.start()
                mirror.until_live(within=DEADLINE)
                for way, before in {"plain": (), "compressed": (COMPRESSED[kind],)}.items():
                    show(
                        f"{kind}_{way}",
                        f"a transaction, {way}",
                        args.transaction,
                        partial(_stream, mirror, database, way, before),
                    )


def _copy(database: Database, folder: Path, rows: int) -> tuple[int, float]:
    table = "copy_whole" if (folder / "copy-copy_quarter").exists() else "copy_quarter"
    database.execute(f"CREATE TABLE {table} {COLUMNS}")
    fill(database, table, rows)
    return copied(database, table, folder)


def _stream(
    mirror: Mirrored, database: Database, way: str, before: tuple[str, ...], rows: int
) -> tuple[int, float]:
    [(there,)] = database.execute(f"SELECT COUNT(*) FROM {way}_quarter")
    return streamed(mirror, database, f"{way}_{'whole' if there else 'quarter'}", rows, *before)


if __name__ == "__main__":
    main()
