"""What triggers cost their writers, and how fast a queue is read and decoded: beside the same without them.

    python bench/trigger_queue.py [--rows N] [--repeat N]

Writers are measured by the processor time of their own backend, since a machine is rarely quiet, with the
cases taking turns: INSERT ... SELECT of many rows, and UPDATEs of one row each in a loop at the server. A
queue of as many events as rows, in transactions of a thousand, is read by a stream and decoded to Arrow, by
the processor time of this process. Londiste, the peer, is not run here.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.sources.contract.decoder import TableChanges, Wanted
from headrace.sources.contract.stream import Orders
from headrace.sources.contract.waiting import ALONE
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.statements import Session
from headrace.sources.queue import capture
from headrace.sources.queue.decoder import QueueDecoder
from headrace.sources.queue.objects import Upstream
from headrace.sources.queue.source import SOURCE
from headrace.sources.queue.stream_source import STREAM_SOURCE
from headrace.testing.postgres import Database, postgres

T = TableName("public", "t")
COLUMNS = "id bigint PRIMARY KEY, n int, name text, note text, amount numeric(12,2), at timestamptz"
VALUES = "i, i % 1000, 'customer ' || i, repeat('x', 40), i / 7.0, now()"
SINGLE = "DO $$ BEGIN FOR i IN 1..{count} LOOP UPDATE public.t SET n = n + 1 WHERE id = i; END LOOP; END $$"
OBJECTS = Upstream("headrace", "main", "bench").objects
TRANSACTION = 1000  # rows
SINGLES = 10_000  # UPDATEs of one row


def processor_seconds(connection: Session) -> float:
    """What the backend has used of a processor."""
    fields = Path(f"/proc/{connection.info.backend_pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def measured(connection: Session, statement: str) -> float:
    before = processor_seconds(connection)
    connection.execute(statement.encode())
    return processor_seconds(connection) - before


def emptied(connection: Session) -> None:
    for table in ("public.t", *OBJECTS.events):
        connection.execute(f"TRUNCATE {table}".encode())


def written(connection: Session, rows: int, single: int) -> tuple[float, float]:
    """Seconds for the rows, and for each UPDATE of one row."""
    emptied(connection)
    bulk = measured(connection, f"INSERT INTO public.t SELECT {VALUES} FROM generate_series(1, {rows}) i")
    return bulk, measured(connection, SINGLE.format(count=single)) / single


def cost(connection: Session, upstream: Upstream, rows: int, single: int, repeat: int) -> None:
    """With triggers and without, in turn."""
    runs: Mapping[str, list[tuple[float, float]]] = {"no trigger": [], "captured": []}
    for _ in range(repeat):
        capture.release(connection, upstream, [T])
        runs["no trigger"].append(written(connection, rows, single))
        capture.capture(connection, upstream, [T])
        runs["captured"].append(written(connection, rows, single))
    best = {name: tuple(min(part) for part in zip(*each, strict=True)) for name, each in runs.items()}
    for name, (bulk, one) in best.items():
        print(f"  {name:12} {rows:,} rows in {bulk:.2f} s   an UPDATE of one row {one * 1e6:.1f} µs")
    ratios = [
        with_it / without for with_it, without in zip(best["captured"], best["no trigger"], strict=True)
    ]
    print(f"  {'':12} {ratios[0]:.1f} times, {ratios[1]:.1f} times")


def reading(database: Database, rows: int, repeat: int) -> None:
    """Read and decode a queue of so many events, each time from its beginning."""
    address = SOURCE.address(f"queue+{database.url()}")
    with closing(SOURCE.connect(address, role="bench")) as session:
        origin = session.establish(SOURCE.upstream("bench000", "main", {}), [T], ALONE)
        tables = session.tables(origin.upstream)
        table = tables.define(tables.examine([T]).fit_defs).defs[T]
        with database.connect() as writer:
            for low in range(0, rows, TRANSACTION):
                chosen = f"generate_series({low + 1}, {low + TRANSACTION}) i"
                writer.execute(f"INSERT INTO t SELECT {VALUES} FROM {chosen}".encode())
        orders = Orders(address.text, session.identity, origin.upstream, origin.start, origin.start)
        wanted = {table.number: Wanted(T, table.schema, 0, details=table.details)}
        end = session.end(origin.upstream)
        rates = [_read(orders, wanted, end, rows) / 1000 for _ in range(repeat)]
        each = ", ".join(f"{rate:,.0f}" for rate in rates)
        print(f"  read and decoded: {statistics.median(rates):,.0f} thousand events a second ({each})")
    with closing(connect(Address.parse(database.url()), role="bench")) as connection:
        cost(connection, Upstream.of(origin.upstream), rows, SINGLES, repeat)


def _read(orders: Orders, wanted: Mapping[int, Wanted], end: Position, rows: int) -> float:
    """Events a second of this process's processor time, from the connection to Arrow."""
    stream, decoder = STREAM_SOURCE.open_stream(orders), QueueDecoder()
    used, reached, parts = time.process_time(), 0, []
    while reached < end.time:
        received = stream.read(1.0)
        if received is not None:
            parts.append(np.array(received.data, copy=True))
            reached = max([reached, *(position.time for position in received.positions)])
    stream.close()
    found = 0
    for changes in decoder.decode(np.concatenate(parts), decoder.between([]), wanted):
        assert isinstance(changes, TableChanges), changes
        found += len(changes.batch)
    assert found == rows, (found, rows)
    return rows / (time.process_time() - used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    wanted = parser.parse_args()
    settings = {"wal_level": "replica", "max_wal_size": "4GB", "shared_buffers": "256MB"}
    with postgres(settings=settings) as server, server.database() as database:
        database.execute(f"CREATE TABLE t ({COLUMNS})")
        print(f"{wanted.rows:,} rows, transactions of {TRANSACTION:,}; no PgQ is measured beside it")
        reading(database, wanted.rows, wanted.repeat)


if __name__ == "__main__":
    main()
