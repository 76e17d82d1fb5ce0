"""What triggers cost their writers, and how fast a queue is read and decoded: beside the same without them.

    python bench/trigger_queue.py [--rows N] [--events N] [--repeat N] [--seconds N] [--peer DIR]

Writers are measured by the processor time of their own backend, since a machine is rarely quiet, with the
cases taking turns: INSERT ... SELECT of many rows, and UPDATEs of one row each in a loop at the server; by
pgbench, four clients that update single rows. A queue of events, in transactions of a thousand, is read by a
stream and decoded to Arrow, by the processor time of this process and by the clock.

The peer is Londiste, on the server of its own packages (Debian's postgresql-15, -pgq3, -pgq-node,
-londiste-sql, pgqd, python3-londiste and what they need), installed, or unpacked into DIR. All cases are run
on that server then: `pgq.logutriga` beside our triggers, and its bulk handler that drains the same events
into another database. Where they are not there, ours are measured alone, on the server of the tests.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
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
from headrace.testing.binaries import Binaries, tool
from headrace.testing.postgres import Database, Server, postgres
from headrace.testing.postmaster import wait_for

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


def emptied(connection: Session, queues: tuple[str, ...]) -> None:
    for table in ("public.t", *queues):
        connection.execute(f"TRUNCATE {table}".encode())


def written(connection: Session, rows: int, single: int) -> tuple[float, float]:
    """Seconds for the rows, and for each UPDATE of one row."""
    bulk = measured(connection, f"INSERT INTO public.t SELECT {VALUES} FROM generate_series(1, {rows}) i")
    return bulk, measured(connection, SINGLE.format(count=single)) / single


@dataclass(frozen=True, slots=True)
class Case:
    """Something that hangs on the table while it is written."""

    name: str
    begin: Callable[[], object]
    end: Callable[[], object]
    queues: tuple[str, ...] = ()  # tables that it writes to


def cases(connection: Session, upstream: Upstream, *, peer: bool) -> list[Case]:
    """Nothing, our triggers, and the peer's."""

    def run(*statements: str) -> Callable[[], object]:
        return lambda: [connection.execute(each.encode()) for each in statements]

    ours = Case(
        "captured",
        lambda: capture.capture(connection, upstream, [T]),
        lambda: capture.release(connection, upstream, [T]),
        OBJECTS.events,
    )
    found = [Case("no trigger", run(), run()), ours]
    if peer:
        made = "AFTER INSERT OR UPDATE OR DELETE ON public.t FOR EACH ROW EXECUTE FUNCTION pgq.logutriga('q')"
        name = "pgq.logutriga"
        tables = tuple(f"pgq.event_1_{number}" for number in range(3))
        found.append(
            Case(name, run(f"CREATE TRIGGER peer {made}"), run("DROP TRIGGER peer ON public.t"), tables)
        )
    return found


def cost(connection: Session, found: list[Case], rows: int, repeat: int) -> None:
    """The processor time of writers, in turn."""
    runs: dict[str, list[tuple[float, float]]] = {case.name: [] for case in found}
    for _ in range(repeat):
        for case in found:
            emptied(connection, case.queues)
            case.begin()
            runs[case.name].append(written(connection, rows, SINGLES))
            case.end()
    best = {name: tuple(min(part) for part in zip(*each, strict=True)) for name, each in runs.items()}
    bare = best["no trigger"]
    for name, (bulk, one) in best.items():
        print(
            f"  {name:14} {rows:,} rows in {bulk:.2f} s ({bulk / bare[0]:.1f} times)"
            f"   an UPDATE of one row {one * 1e6:.1f} µs ({one / bare[1]:.1f} times)",
            flush=True,
        )


def throughput(connection: Session, found: list[Case], url: str, seconds: int, repeat: int) -> None:
    """Transactions a second of four clients, by pgbench, in turn."""
    runs: dict[str, list[float]] = {case.name: [] for case in found}
    connection.execute(f"INSERT INTO public.t SELECT {VALUES} FROM generate_series(1, {SINGLES}) i".encode())
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(f"\\set id random(1, {SINGLES})\nUPDATE public.t SET n = n + 1 WHERE id = :id;\n")
        script.flush()
        command = [str(tool("pgbench")), "-n", "-c4", "-j1", f"-T{seconds}", "-f", script.name, url]
        for _ in range(repeat):
            for case in found:
                case.begin()
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                rate = re.search(r"tps = ([0-9.]+)", said)
                assert rate is not None, said
                runs[case.name].append(float(rate[1]))
                case.end()
    for name, rates in runs.items():
        listed = ", ".join(f"{rate:,.0f}" for rate in rates)
        print(f"  {name:14} pgbench: {statistics.median(rates):,.0f} tps ({listed})", flush=True)


def reading(database: Database, wanted_: argparse.Namespace, peer: Peer | None) -> None:
    """Read and decode a queue of so many events, each time from its beginning; then what writers pay."""
    events, repeat = wanted_.events, wanted_.repeat
    address = SOURCE.address(f"queue+{database.url()}")
    with closing(SOURCE.connect(address, role="bench")) as session:
        origin = session.establish(SOURCE.upstream("bench000", "main", {}), [T], ALONE)
        tables = session.tables(origin.upstream)
        table = tables.define(tables.examine([T]).fit_defs).defs[T]
        fill(database, events)
        orders = Orders(address.text, session.identity, origin.upstream, origin.start, origin.start)
        wanted = {table.number: Wanted(T, table.schema, 0, details=table.details)}
        end = session.end(origin.upstream)
        rates = [_read(orders, wanted, end, events) for _ in range(repeat)]
        for what, each in zip(("processor", "clock"), zip(*rates, strict=True), strict=True):
            listed = ", ".join(f"{rate / 1000:,.0f}" for rate in each)
            print(
                f"  read and decoded, by the {what}:"
                f" {statistics.median(each) / 1000:,.0f} thousand events a second ({listed})",
                flush=True,
            )
    with closing(connect(Address.parse(database.url(user="postgres")), role="bench")) as connection:
        upstream = Upstream.of(origin.upstream)
        capture.release(connection, upstream, [T])
        if peer is not None:
            connection.execute("CREATE EXTENSION pgq")
            connection.execute("SELECT pgq.create_queue('q')")
        found = cases(connection, upstream, peer=peer is not None)
        cost(connection, found, wanted_.rows, repeat)
        emptied(connection, OBJECTS.events)
        throughput(connection, found, database.url(user="postgres"), wanted_.seconds, repeat)


def fill(database: Database, events: int) -> None:
    with database.connect() as writer:
        for low in range(0, events, TRANSACTION):
            chosen = f"generate_series({low + 1}, {low + TRANSACTION}) i"
            writer.execute(f"INSERT INTO t SELECT {VALUES} FROM {chosen}".encode())


def _read(orders: Orders, wanted: Mapping[int, Wanted], end: Position, rows: int) -> tuple[float, float]:
    """Events a second, of this process's processor time and by the clock, from the connection to Arrow."""
    begun, stream, decoder = time.perf_counter(), STREAM_SOURCE.open_stream(orders), QueueDecoder()
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
    return rows / (time.process_time() - used), rows / (time.perf_counter() - begun)


# --- the peer -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peer:
    """Londiste's packages under a folder: "/" where they are installed."""

    root: Path

    @classmethod
    def find(cls, root: Path) -> Peer | None:
        found = cls(root)
        needed = (found.bin / "postgres", found.londiste, root / "usr/bin/pgqd", found.share / "pgq.control")
        return found if all(each.exists() for each in needed) else None

    @property
    def bin(self) -> Path:
        return self.root / "usr/lib/postgresql/15/bin"

    @property
    def share(self) -> Path:
        return self.root / "usr/share/postgresql/15/extension"

    @property
    def londiste(self) -> Path:
        return self.root / "usr/bin/londiste"

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.bin}:{self.root / 'usr/bin'}:/usr/bin:{os.environ['PATH']}",
            "PYTHONPATH": str(self.root / "usr/lib/python3/dist-packages"),
            "LD_LIBRARY_PATH": str(self.root / "usr/lib/x86_64-linux-gnu"),
        }

    def run(self, *command: str) -> None:
        subprocess.run(command, env=self.environment(), check=True, capture_output=True, timeout=300)

    @property
    def programs(self) -> Binaries:
        return Binaries("15", "debian", self.bin)


_NODE = """[londiste]
job_name = {name}_job
db = {db}
queue_name = replq
logfile = {folder}/{name}.log
pidfile = {folder}/{name}.pid
loop_delay = 0.1
parallel_copies = 1
handler_modules = londiste.handlers.bulk
"""
_TICKER = """[pgqd]
base_connstr = host=127.0.0.1 port={port} user=postgres
initial_database = postgres
database_list = l_src, l_dst
ticker_period = 0.2
syslog = 0
logfile = {folder}/pgqd.log
pidfile = {folder}/pgqd.pid
"""


def drained(peer: Peer, server: Server, events: int) -> float:
    """Events a second that Londiste's bulk handler drains into another database, by the clock."""
    with tempfile.TemporaryDirectory() as folder:
        databases = {
            name: f"host=127.0.0.1 port={server.port} user=postgres dbname={name}" for name in _NODES
        }
        for name, db in databases.items():
            server.execute(f"CREATE DATABASE {name}")
            server.execute(f"CREATE TABLE t ({COLUMNS})", database=name)
            Path(folder, f"{name}.ini").write_text(_NODE.format(name=name, db=db, folder=folder))
        ticker = Path(folder, "pgqd.ini")
        ticker.write_text(_TICKER.format(port=server.port, folder=folder))
        source, target = (str(Path(folder, f"{name}.ini")) for name in _NODES)

        def londiste(*words: str) -> None:
            peer.run("/usr/bin/python3", str(peer.londiste), *words)

        londiste(source, "create-root", "node1", databases["l_src"])
        londiste(target, "create-leaf", "node2", databases["l_dst"], f"--provider={databases['l_src']}")
        peer.run(str(peer.root / "usr/bin/pgqd"), "-d", str(ticker))
        try:
            londiste("-d", source, "worker")
            londiste("-d", target, "worker")
            _tick_often(server)
            londiste(source, "add-table", "public.t")
            londiste(target, "add-table", "public.t", "--handler=bulk")
            londiste(target, "wait-sync")
            londiste(target, "-s")
            fill(Database(server, "l_src"), events)
            time.sleep(4)  # for a last tick: without a worker nothing says when it was
            [(last,)] = server.execute("SELECT max(tick_id) FROM pgq.tick", database="l_src")
            begun = time.perf_counter()
            londiste("-d", target, "worker")
            reached = "SELECT last_tick_id FROM pgq_node.local_state WHERE consumer_name = 'l_dst_job'"
            wait_for(lambda: server.execute(reached, database="l_dst")[0][0] >= last, "drained", deadline=600)
            seconds = time.perf_counter() - begun
            assert server.execute("SELECT count(*) FROM t", database="l_dst") == [(events,)]
            return events / seconds
        finally:
            for node in (source, target):
                subprocess.run(
                    ["/usr/bin/python3", str(peer.londiste), node, "-s"],
                    env=peer.environment(), check=False, capture_output=True,
                )  # fmt: skip
            subprocess.run(
                [str(peer.root / "usr/bin/pgqd"), "-s", str(ticker)], env=peer.environment(), check=False
            )


_NODES = ("l_src", "l_dst")


def _tick_often(server: Server) -> None:
    for name, value in {"max_lag": "0.2 seconds", "idle_period": "1 second", "max_count": "5000"}.items():
        server.execute(f"SELECT pgq.set_queue_config('replq', 'ticker_{name}', '{value}')", database="l_src")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10, help="of pgbench, each time")
    parser.add_argument("--peer", type=Path, default=Path("/"), help="where Londiste's packages are unpacked")
    wanted = parser.parse_args()
    settings = {"wal_level": "replica", "max_wal_size": "4GB", "shared_buffers": "256MB"}
    peer = Peer.find(wanted.peer.resolve())
    with postgres(settings=settings, programs=None if peer is None else peer.programs) as server:
        with server.database() as database:
            database.execute(f"CREATE TABLE t ({COLUMNS})")
            beside = (
                "no PgQ is here to be measured beside it" if peer is None else "beside Londiste's packages"
            )
            print(f"{wanted.rows:,} rows, transactions of {TRANSACTION:,}; {beside}", flush=True)
            reading(database, wanted, peer)
        if peer is not None:
            rate = drained(peer, server, wanted.events) / 1000
            print(f"  Londiste's bulk handler drained {rate:,.0f} thousand events a second", flush=True)


if __name__ == "__main__":
    main()
