"""Cost of triggers for their writers, speed of reading a queue, and delay until its marks: beside a peer.

    python bench/trigger_queue.py [--rows N] [--events N] [--repeat N] [--seconds N] [--memory N]
                                  [--peer DIR] [--only PART ...]

    writers    by the processor time of their own backend, since a machine is rarely quiet, with the cases
               taking turns: INSERT ... SELECT of many rows, and UPDATEs of one row each in a loop at the
               server; by pgbench, four clients that update single rows
    reading    a queue of events, in transactions of a thousand, by a stream and decoded to Arrow: the
               processor time of this process, and the clock
    published  the same events to marks: from the call of `mirror(once=True)`, in a Spark that is up and warm,
               to its return
    latency    200 transactions a second, of a row each: from the return of COMMIT to the mark that has it;
               the same of a mirror by logical replication, which is the pipeline's own floor
    memory     so many queued events, and one transaction of half as many: the peak (PSS) of a run that
               publishes them, over all its processes and without the server, beside a quarter of them

The peer is Londiste, on the server of its own packages (Debian's postgresql-15, -pgq3, -pgq-node,
-londiste-sql, pgqd, python3-londiste and what they need), installed, or unpacked into DIR. All cases are run
on that server then: `pgq.logutriga` beside our triggers, and its bulk handler that drains the same events
into another database, and is asked every hundredth of a second for the rows of the paced ones. Without
those packages ours are measured alone, on the server of the tests.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.sources.contract.decoder import TableChanges, TableFilter
from headrace.sources.contract.mirror import StreamOrder
from headrace.sources.contract.stream import Orders
from headrace.sources.contract.values import ALONE
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.statements import Session
from headrace.sources.queue import capture
from headrace.sources.queue.decode.decoder import QueueDecoder
from headrace.sources.queue.source import SOURCE
from headrace.sources.queue.stream_source import STREAM_SOURCE
from headrace.sources.queue.upstream import QueueUpstream
from headrace.spark.session import RunningSpark as SparkSession
from headrace.spark.session import SparkConfig, open_session
from headrace_testing.binaries import Binaries, tool
from headrace_testing.memory import Peak
from headrace_testing.mirror_process import Mirrored
from headrace_testing.postgres import Database, Server, postgres
from headrace_testing.postmaster import wait_for

T = TableName("public", "t")
COLUMNS = "id bigint PRIMARY KEY, n int, name text, note text, amount numeric(12,2), at timestamptz"
VALUES = "i, i % 1000, 'customer ' || i, repeat('x', 40), i / 7.0, now()"
SINGLE = "DO $$ BEGIN FOR i IN 1..{count} LOOP UPDATE public.t SET n = n + 1 WHERE id = i; END LOOP; END $$"
OBJECTS = QueueUpstream("headrace", "main", "bench").objects
TRANSACTION = 1000  # rows
SINGLES = 10_000  # UPDATEs of one row
PARTS = ("writers", "reading", "published", "latency", "memory")
RATE = 200  # transactions a second
WARM = 5.0  # seconds of them that do not count
DEADLINE = 3600.0


def processor_seconds(connection: Session) -> float:
    """Processor seconds that the backend has used."""
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


def cases(connection: Session, upstream: QueueUpstream, *, peer: bool) -> list[Case]:
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


def reading(database: Database, events: int, repeat: int) -> Mapping[str, Any]:
    """Read and decode a queue of so many events, each time from its beginning; its record."""
    address = SOURCE.address(f"queue+{database.url()}")
    with closing(SOURCE.connect(address, role="bench")) as session:
        mirror = session.mirror(SOURCE.plan("bench000", "main", {}))
        origin = mirror.establish(StreamOrder(mirror.examine([T]).fit_defs), ALONE)
        if repeat:
            table = origin.tables.defs[T]
            fill(database, events)
            orders = Orders(address.text, session.identity, origin.upstream, origin.start, origin.start)
            wanted = {table.number: TableFilter(T, table.schema, 0, details=table.details)}
            end = session.mirror(origin.upstream).end()
            rates = [_read(orders, wanted, end, events) for _ in range(repeat)]
            for what, each in zip(("processor", "clock"), zip(*rates, strict=True), strict=True):
                _show(f"read and decoded, by the {what}", each)
    return origin.upstream


def _show(what: str, rates: Sequence[float]) -> None:
    listed = ", ".join(f"{rate / 1000:,.0f}" for rate in rates)
    print(f"  {what}: {statistics.median(rates) / 1000:,.0f} thousand events a second ({listed})", flush=True)


def writing(
    database: Database, upstream: QueueUpstream, wanted: argparse.Namespace, peer: Peer | None
) -> None:
    """Measure what writers pay."""
    with closing(connect(PostgresAddress.parse(database.url(user="postgres")), role="bench")) as connection:
        capture.release(connection, upstream, [T])
        if peer is not None:
            connection.execute("CREATE EXTENSION pgq")
            connection.execute("SELECT pgq.create_queue('q')")
        found = cases(connection, upstream, peer=peer is not None)
        cost(connection, found, wanted.rows, wanted.repeat)
        emptied(connection, OBJECTS.events)
        throughput(connection, found, database.url(user="postgres"), wanted.seconds, wanted.repeat)


def fill(database: Database, events: int, first: int = 1, *, transaction: int = TRANSACTION) -> None:
    """Insert so many rows, from a key on."""
    with database.connect() as writer:
        for low in range(first, first + events, transaction):
            chosen = f"generate_series({low}, {min(low + transaction, first + events) - 1}) i"
            writer.execute(f"INSERT INTO t SELECT {VALUES} FROM {chosen}".encode())


def _read(orders: Orders, wanted: Mapping[int, TableFilter], end: Position, rows: int) -> tuple[float, float]:
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


# --- to marks -------------------------------------------------------------------------------------


def published(server: Server, events: int, repeat: int) -> None:
    """Show how many queued events a second become marks."""
    with ExitStack() as stack:
        session = stack.enter_context(open_session(SparkConfig(master="local[2]")))
        rates = []
        for _ in range(repeat + 1):
            database = stack.enter_context(server.database())
            database.execute(f"CREATE TABLE t ({COLUMNS})")
            lake = Path(stack.enter_context(tempfile.TemporaryDirectory()), "lake")
            _once(database, lake, session)
            fill(database, events)
            rates.append(events / _once(database, lake, session))
        _show("to published marks", rates[1:])  # the first one warms Spark


def _once(database: Database, lake: Path, session: SparkSession) -> float:
    source = {"url": f"queue+{database.url()}", "tables": ["public.t"]}
    begun = time.perf_counter()
    headrace.mirror({"lake": {"path": str(lake)}, "source": {"main": source}}, spark=session.spark, once=True)
    return time.perf_counter() - begun


def paced(database: Database, seconds: float, committed: dict[int, float]) -> None:
    """Insert rows, each in a transaction of its own; when each COMMIT had returned, by the key."""
    with database.connect() as writer:
        begun, first = time.monotonic(), len(committed)
        for number in range(int(seconds * RATE)):
            time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
            key = first + number + 1
            writer.execute("INSERT INTO t VALUES (%s, 1, 'customer', 'note', 1, now())", [key])
            committed[key] = time.time()


def latencies(database: Database, scheme: str, seconds: float) -> list[float]:
    """From the return of a COMMIT to the mark that has its row, of each transaction."""
    committed: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder, "lake")
        with Mirrored(lake, f"{scheme}{database.url()}", "public.t") as mirror:
            mirror.until_live()
            paced(database, WARM + seconds, committed)
            mirror.until(lambda: len(mirror.lake.history("public.t")) == len(committed), "all of the rows")
            rows = mirror.lake.history("public.t").select(["id", "_time"]).to_pylist()
            marks = mirror.lake.marks()
    times = [mark.time for mark in marks]
    marked = {row["id"]: marks[bisect_left(times, row["_time"])].published_at.timestamp() for row in rows}
    return [marked[key] - at for key, at in committed.items() if key > WARM * RATE]


def _show_latency(what: str, found: Sequence[float]) -> None:
    cut = statistics.quantiles(found, n=100)
    print(
        f"  {what:28} p50 {cut[49]:.3f} s, p95 {cut[94]:.3f} s, p99 {cut[98]:.3f} s, most {max(found):.3f} s",
        flush=True,
    )


def latency(server: Server, seconds: float, repeat: int, peer: Peer | None) -> None:
    """Show how soon a paced application's commits are in marks, in turns."""
    ways = {"by the queue": "queue+", "by logical replication": ""}
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeat):
        for way, scheme in ways.items():
            with server.database() as database:
                database.execute(f"CREATE TABLE t ({COLUMNS})")
                found[way] += latencies(database, scheme, seconds)
    for way, each in found.items():
        _show_latency(way, each)
    if peer is not None:
        _show_latency("Londiste, a tick of 0.2 s", applied(peer, server, seconds))


def memory(server: Server, events: int) -> None:
    """Show the peak of a run that publishes queued events, and one large transaction."""
    for what, rows, transaction in (
        ("queued events", events, TRANSACTION),
        ("of one transaction", events // 2, 0),
    ):
        peaks = []
        for count in (rows // 4, rows):
            with server.database() as database, tempfile.TemporaryDirectory() as folder:
                database.execute(f"CREATE TABLE t ({COLUMNS})")
                mirror = Mirrored(Path(folder, "lake"), f"queue+{database.url()}", "public.t")
                with closing(mirror):
                    assert mirror.once() == 0, mirror.log()
                    fill(database, count, transaction=transaction or count)
                    begun = time.perf_counter()
                    mirror.start("--once")
                    with Peak(mirror.pid) as peak:
                        assert mirror.wait(DEADLINE) == 0, mirror.log()
                    peaks.append(peak.bytes)
                    assert sum(mark.changes for mark in mirror.lake.marks()) == count
        print(
            f"  {rows:,} {what}: peak {peaks[1] / 2**20:,.0f} MB,"
            f" {peaks[1] / peaks[0]:.2f} times a quarter's, {time.perf_counter() - begun:.0f} s",
            flush=True,
        )


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


@contextmanager
def replicating(peer: Peer, server: Server) -> Iterator[Callable[..., None]]:
    """Have Londiste replicate a table into another database; yields it, for the target's node, as TARGET."""
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
            yield lambda *words: londiste(*(target if word == TARGET else word for word in words))
        finally:
            for node in (source, target):
                subprocess.run(
                    ["/usr/bin/python3", str(peer.londiste), node, "-s"],
                    env=peer.environment(), check=False, capture_output=True,
                )  # fmt: skip
            subprocess.run(
                [str(peer.root / "usr/bin/pgqd"), "-s", str(ticker)], env=peer.environment(), check=False
            )
    for name in _NODES:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def drained(peer: Peer, server: Server, events: int) -> float:
    """Events a second that Londiste's bulk handler drains into another database, by the clock."""
    with replicating(peer, server) as londiste:
        londiste(TARGET, "-s")
        fill(Database(server, "l_src"), events)
        time.sleep(4)  # for a last tick: without a worker nothing says when it was
        [(last,)] = server.execute("SELECT max(tick_id) FROM pgq.tick", database="l_src")
        begun = time.perf_counter()
        londiste("-d", TARGET, "worker")
        reached = "SELECT last_tick_id FROM pgq_node.local_state WHERE consumer_name = 'l_dst_job'"
        wait_for(lambda: server.execute(reached, database="l_dst")[0][0] >= last, "drained", deadline=600)
        seconds = time.perf_counter() - begun
        assert server.execute("SELECT count(*) FROM t", database="l_dst") == [(events,)]
        return events / seconds


def applied(peer: Peer, server: Server, seconds: float) -> list[float]:
    """From the return of a COMMIT until its row is in the other database, of each transaction."""
    committed: dict[int, float] = {}
    there: dict[int, float] = {}
    over = threading.Event()

    def watch() -> None:
        with Database(server, "l_dst").connect() as reader:
            newest = 0
            while not (over.is_set() and newest == len(committed)):
                [(now,)] = reader.execute("SELECT coalesce(max(id), 0) FROM t").fetchall()
                there.update(dict.fromkeys(range(newest + 1, now + 1), time.time()))
                newest = now
                time.sleep(0.01)

    with replicating(peer, server):
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        paced(Database(server, "l_src"), WARM + seconds, committed)
        over.set()
        watcher.join(60)
    return [there[key] - at for key, at in committed.items() if key > WARM * RATE]


_NODES = ("l_src", "l_dst")
TARGET = "the target"


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
    parser.add_argument("--memory", type=int, default=10_000_000, help="events whose peak is measured")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    wanted = parser.parse_args()
    peer = Peer.find(wanted.peer.resolve())
    beside = "no PgQ is here to be measured beside it" if peer is None else "beside Londiste's packages"
    print(f"{wanted.rows:,} rows, transactions of {TRANSACTION:,}; {beside}", flush=True)
    # Logical replication, where it is the floor of what a mirror can do.
    level = "logical" if "latency" in wanted.only else "replica"
    settings = {"wal_level": level, "max_wal_size": "4GB", "shared_buffers": "256MB"}
    with postgres(settings=settings, programs=None if peer is None else peer.programs) as server:
        measure(server, wanted, peer)


def measure(server: Server, wanted: argparse.Namespace, peer: Peer | None) -> None:
    """Measure the parts that are wanted."""
    if not {"reading", "writers"}.isdisjoint(wanted.only):
        with server.database() as database:
            database.execute(f"CREATE TABLE t ({COLUMNS})")
            record = reading(database, wanted.events, wanted.repeat if "reading" in wanted.only else 0)
            if "writers" in wanted.only:
                writing(database, QueueUpstream.of(record), wanted, peer)
    if "published" in wanted.only:
        published(server, wanted.events, wanted.repeat)
    if peer is not None and not {"reading", "published"}.isdisjoint(wanted.only):
        _show("Londiste's bulk handler drained", [drained(peer, server, wanted.events)])
    if "latency" in wanted.only:
        latency(server, wanted.seconds, wanted.repeat, peer)
    if "memory" in wanted.only:
        memory(server, wanted.memory)


if __name__ == "__main__":
    main()
