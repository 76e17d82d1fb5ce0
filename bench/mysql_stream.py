"""Rate at which a binlog is received and decoded into columns, beside others: one server, one log, one run.

    python -m bench.mysql_stream [--transactions N] [--rows N] [--repeat N]

    ours                        BinlogDump, and every row decoded into Arrow; one process, one after the other
    python-mysql-replication    its reader, iterated; nothing is done with a row
    Debezium                    its engine without a sink; from its first record to its last

Each transaction inserts rows, updates half of them and deletes a tenth. The peers take part where they are:
PEER_PYTHON is a Python that has `mysql-replication`, DEBEZIUM_LIBS as `peers.debezium` says. It says which
peer it leaves out. Seconds of ours and of the Python peer are from the connection to the last row;
CPU seconds are the reading process's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.peers.debezium import LIBS, Engine, Run
from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.decode.kernel import Bytes
from headrace.sources.contract.decoder import TableChanges, TableFilter
from headrace.sources.mysql.catalog.table_def import table_number
from headrace.sources.mysql.decode.context import MysqlStreamContext
from headrace.sources.mysql.decode.decoder import MysqlDecoder
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.position import MysqlTimeline, parse
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.stream import dump
from headrace.sources.mysql.types.columns import column_of
from headrace_testing.figures import keep
from headrace_testing.mysql import Database, Server, mysql

TYPES = (
    *(("id", "bigint"), ("a", "int"), ("b", "varchar(40)"), ("c", "varchar(80)")),
    *(("d", "decimal(12,2)"), ("e", "datetime(6)"), ("g", "double")),
)
VALUES = "i, i % 1000, CONCAT('text ', i), SHA2(i, 256), i / 7, NOW(6), i / 3"
PIECE = 8 << 20
FIGURES = {"headrace": "itself", "python-mysql-replication": "python", "Debezium's engine": "debezium"}
PEER_PYTHON = os.environ.get("PEER_PYTHON", sys.executable)
ITERATE = """
import json, sys, time
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent
port, file, wanted = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
begun, used, count = time.perf_counter(), time.process_time(), 0
stream = BinLogStreamReader(
    connection_settings={"host": "127.0.0.1", "port": port, "user": "root", "passwd": ""}, server_id=4711,
    log_file=file, log_pos=4, resume_stream=True, blocking=True,
    only_events=[DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent], only_tables=["t"],
)
for event in stream:
    for _ in event.rows:
        count += 1
    if count >= wanted:
        break
print(json.dumps([count, time.perf_counter() - begun, time.process_time() - used]))
"""


def write(database: Database, transactions: int, rows: int) -> int:
    """Write the log; the row changes in it."""
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION cte_max_recursion_depth = {rows + 1}")
        for low in range(0, transactions * rows, rows):
            cursor.execute(
                "INSERT INTO t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n"
                f" WHERE i < {rows}) SELECT {VALUES.replace('i, ', f'i + {low}, ', 1)} FROM n"
            )
            cursor.execute(f"UPDATE t SET a = a + 1 WHERE id BETWEEN {low + 1} AND {low + rows // 2}")
            cursor.execute(f"DELETE FROM t WHERE id BETWEEN {low + 1} AND {low + rows // 10}")
            connection.commit()
    return transactions * (rows + rows // 2 + rows // 10)


class Decoding:
    """The decoder over what is received, in pieces of some megabytes."""

    def __init__(self, name: TableName) -> None:
        columns = tuple(column_of(column, kind, "utf8mb4") for column, kind in TYPES)
        schema = TableSchema(columns, ("id",), full=True, transaction=TransactionId.GTID)
        self.rows = 0
        self._tables = {table_number(name): TableFilter(name, schema, 0)}
        self._decoder = MysqlDecoder(Flavour.MYSQL)
        self._context = MysqlStreamContext()
        self._held: list[bytes] = []
        self._size = 0

    def take(self, data: bytes) -> None:
        self._held.append(data)
        self._size += len(data)
        if self._size >= PIECE:
            self.decode()

    def decode(self) -> None:
        data: Bytes = np.frombuffer(b"".join(self._held), np.uint8)
        length, behind = self._decoder.split(data, self._context)
        for found in self._decoder.decode(data[:length], self._context, self._tables):
            assert isinstance(found, TableChanges), found
            self.rows += found.batch.num_rows
        self._context, self._held, self._size = behind, [data[length:].tobytes()], 0


def ours(database: Database, start: str, end: str, changes: int) -> Run:
    """A dump, and its rows in columns."""
    name = TableName(database.name, "t")
    log, decoding = MysqlTimeline(), Decoding(name)
    at, last = log.position(start), log.time(parse(end).count)
    used, begun = time.process_time(), time.perf_counter()
    wanted = dump.DumpRequest(((name.schema, name.name),), frontier=at, received_until=at, log=log)
    reading = dump.BinlogDump.open(MysqlAddress.parse(f"{database.server.url()}?ssl-mode=DISABLED"), wanted)
    reached = at.time
    while reached < last:
        received = reading.read(1.0)
        if received is not None:
            reached = received.complete
            decoding.take(bytes(memoryview(received.data)))  # type: ignore[arg-type]
    decoding.decode()
    reading.close()
    assert decoding.rows >= changes, (decoding.rows, changes)
    return Run(time.perf_counter() - begun, time.process_time() - used)


def python_peer(server: Server, file: str, changes: int) -> Run:
    """python-mysql-replication, in a Python that has it."""
    words = [PEER_PYTHON, "-c", ITERATE, str(server.port), file, str(changes)]
    count, seconds, cpu = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert count >= changes, (count, changes)
    return Run(seconds, cpu)


class Debezium:
    """The engine, whose place in the log is behind the table's making: then the log is written."""

    def __init__(self, database: Database, folder: Path) -> None:
        settings = {
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": folder / "history",
            "database.hostname": "127.0.0.1",
            "database.port": database.server.port,
            "database.user": "root",
            "database.password": "",
            "database.server.id": "4712",
            "database.ssl.mode": "disabled",
            "database.include.list": database.name,
            "driver.allowPublicKeyRetrieval": "true",
            "include.schema.changes": "false",
        }
        self.engine = Engine(folder, settings)
        self.folder = folder
        database.execute("INSERT INTO t (id) VALUES (-1)")

        def begun() -> None:
            _until_dumped(database.server)
            database.execute("INSERT INTO t (id) VALUES (-2)")

        self.engine.read(1, begun)

    def read(self, changes: int) -> Run:
        """Read the log from the place that was left, again each time."""
        with tempfile.TemporaryDirectory() as kept:
            for name in ("offsets", "history"):
                shutil.copy(self.folder / name, kept)
            found = self.engine.read(changes)
            for name in ("offsets", "history"):
                shutil.copy(Path(kept) / name, self.folder)
        return found


def _until_dumped(server: Server) -> None:
    """Wait until somebody reads the server's log."""
    while not server.execute(
        "SELECT 1 FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    ):
        time.sleep(0.2)


def has_python_peer() -> bool:
    return (
        subprocess.run([PEER_PYTHON, "-c", "import pymysqlreplication"], capture_output=True).returncode == 0
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="a binlog received and decoded, beside others")
    parser.add_argument("--transactions", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    runs: dict[str, list[Run]] = {"headrace": []}
    if has_python_peer():
        runs["python-mysql-replication"] = []
    else:
        print("python-mysql-replication is left out: set PEER_PYTHON to a Python that has it")
    if LIBS:
        runs["Debezium's engine"] = []
    else:
        print("Debezium is left out: set DEBEZIUM_LIBS to the folder of its jars")
    with (
        mysql({"sync_binlog": 0}) as server,
        server.database() as database,
        tempfile.TemporaryDirectory() as folder,
    ):
        database.execute(f"CREATE TABLE t ({', '.join(map(' '.join, TYPES))}, PRIMARY KEY (id))")
        debezium = Debezium(database, Path(folder)) if LIBS else None
        server.execute("FLUSH BINARY LOGS")
        file = str(server.execute("SHOW BINARY LOGS")[-1][0])
        start = str(server.execute("SELECT @@global.gtid_executed")[0][0])
        changes = write(database, args.transactions, args.rows)
        end = str(server.execute("SELECT @@global.gtid_executed")[0][0])
        for _ in range(args.repeat):
            runs["headrace"].append(ours(database, start, end, changes))
            if "python-mysql-replication" in runs:
                runs["python-mysql-replication"].append(python_peer(server, file, changes))
            if debezium:
                runs["Debezium's engine"].append(debezium.read(changes))
    print(f"{changes:,} changes of rows in {args.transactions:,} transactions, median of {args.repeat}")
    mine = statistics.median(run.seconds for run in runs["headrace"])
    for name, found in runs.items():
        seconds = statistics.median(run.seconds for run in found)
        cpu = statistics.median(run.cpu for run in found)
        print(
            f"  {name:26} {changes / seconds:>10,.0f} changes/s   CPU {cpu:5.1f} s"
            f"   ours has {seconds / mine:.1f} times its rate"
        )
        keep(**{f"of_{FIGURES[name]}": seconds / mine})


if __name__ == "__main__":
    main()
