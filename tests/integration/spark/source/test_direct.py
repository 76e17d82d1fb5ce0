"""`readStream.format("headrace")` straight from PostgreSQL: every change once, over kills, and refusals."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace.cli.main import main
from headrace.spark.source.direct.beginning import SnapshotCopy
from headrace.spark.source.direct.state import StateFolder
from headrace_testing.gcs import gcs
from headrace_testing.postgres import Database, Server
from headrace_testing.postmaster import wait_for
from tests.integration.spark.source import direct
from tests.integration.spark.source.direct import Query, Sums, direct_plan, held, refused

PGBENCH = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")


def test_the_sum_of_all_batches_is_the_tables(
    orders: Database, queries: Callable[..., Query], tmp_path: Path
) -> None:
    """Every way in which a row changes, a type of each kind, NULL, and a value that no lake type can hold."""
    orders.execute(
        "CREATE TABLE odd (a int[], b numeric, c timestamptz, d jsonb, e bytea, f bool, g date, h float8)"
    )
    orders.execute("ALTER TABLE odd REPLICA IDENTITY FULL")
    orders.execute(
        "INSERT INTO odd VALUES ('{{1,2},{3,4}}', 'NaN', 'infinity', '{\"k\": 1}', '\\x00ff', true)"
    )
    query = queries(direct_plan(orders.url(), tmp_path / "state"))
    query.catch_up()
    assert query.contents() == held(orders, "orders", "odd")
    orders.execute("INSERT INTO odd (g, h) VALUES ('infinity', 'Infinity'), ('0044-03-15 BC', 1e-5)")
    orders.execute("INSERT INTO odd SELECT * FROM odd")
    orders.execute("UPDATE orders SET note = repeat(note, 5000) WHERE id < 4")
    orders.execute("UPDATE orders SET id = id + 100, note = NULL WHERE id > 7")
    orders.execute("DELETE FROM orders WHERE id = 5")
    query.catch_up()
    assert query.contents() == held(orders, "orders", "odd")


def test_a_batch_that_is_asked_for_again_is_the_same_and_the_slot_waits_for_commits(
    orders: Database, queries: Callable[..., Query], tmp_path: Path
) -> None:
    plan = direct_plan(orders.url(), tmp_path / "state", max_bytes=1)
    first = queries(plan)
    begun = first.at
    for step in range(3):
        orders.execute("UPDATE orders SET note = %s WHERE id = %s", [str(step), step])
        first.catch_up(commit=False)
    files = _contents(tmp_path / "state")
    at_first = _confirmed(orders)
    orders.execute("INSERT INTO orders VALUES (99, 'later')")
    first.catch_up(commit=False)
    [(end,)] = orders.execute("SELECT pg_current_wal_lsn()::text")
    wait_for(lambda: _written(orders, end), "the source has heard how much arrived")
    assert _confirmed(orders) == at_first
    every, end = first.rows(begun, first.at), first.at
    first.close()
    again = queries(plan, begun)
    assert again.rows(begun, end) == every
    assert files.items() <= _contents(tmp_path / "state").items()
    again.at = end
    assert again.catch_up() == []
    wait_for(lambda: _confirmed(orders) > at_first, "the slot follows the commit")
    assert _raw_files(tmp_path / "state") == []
    again.sums = every
    orders.execute("DELETE FROM orders WHERE id = 99")
    again.catch_up()
    assert again.contents() == held(orders, "orders")


def _contents(folder: Path) -> dict[str, bytes]:
    names = [path for path in folder.rglob("*") if path.is_file() and "owners" not in path.parts]
    return {str(path): path.read_bytes() for path in names}


def _raw_files(state: Path) -> list[Path]:
    return [*state.rglob("*.raw"), *state.rglob("*.arrow")]


def _written(database: Database, lsn: str) -> bool:
    """Tell whether the receiver has reported the arrival of all before this position."""
    statement = (
        "SELECT count(*) FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid"
    )
    found = database.execute(f"{statement} WHERE s.database = %s AND r.write_lsn >= %s", [database.name, lsn])
    return bool(found == [(1,)])


def _confirmed(database: Database) -> int:
    [(lsn,)] = database.execute(
        "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE database = %s",
        [database.name],
    )
    return int(lsn)


def test_what_the_snapshot_holds_of_the_stream_is_taken_back(
    orders: Database, queries: Callable[..., Query], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes between the stream's beginning and the snapshot are in both; their rows net to nothing."""
    copy = SnapshotCopy.run

    def later(self: SnapshotCopy, plan: Any) -> Any:
        orders.execute("UPDATE orders SET note = 'both' WHERE id < 6")
        orders.execute("DELETE FROM orders WHERE id = 10")
        return copy(self, plan)

    monkeypatch.setattr(SnapshotCopy, "run", later)
    before = held(orders, "orders")
    query = queries(direct_plan(orders.url(), tmp_path / "state"))
    first = query.stream.latest(query.at)
    assert +query.rows(query.at, first) == before
    query.catch_up()
    assert query.contents() == held(orders, "orders")


def test_the_next_batch_is_cut_while_spark_works_on_one(
    orders: Database, queries: Callable[..., Query], tmp_path: Path
) -> None:
    query = queries(direct_plan(orders.url(), tmp_path / "state", max_bytes=10_000))
    query.catch_up()
    for step in range(1, 5):
        rows = f"generate_series({100 * step}, {100 * step + 30}) g"
        orders.execute(f"INSERT INTO orders SELECT g, repeat('x', 500) FROM {rows}")
    query.stream.end_at_newest()
    first = query.stream.latest(query.at)
    assert query.state.newest == first.batch
    found = query.rows(query.at, first)
    wait_for(lambda: query.state.newest == first.batch + 1, "a batch that nobody has asked for")
    query.sums.update(found)
    query.at = first
    query.catch_up()
    assert query.state.newest == first.batch + 3
    assert query.contents() == held(orders, "orders")


def test_a_large_transaction_comes_whole_in_slices(
    orders: Database, queries: Callable[..., Query], tmp_path: Path
) -> None:
    query = queries(direct_plan(orders.url(), tmp_path / "state", max_bytes=1000))
    query.catch_up()
    orders.execute("INSERT INTO orders SELECT g, repeat('x', 900) FROM generate_series(11, 30000) g")
    start = query.at
    [batch] = query.catch_up(commit=False)
    assert sum(batch.values()) == 29_990
    assert len(query.stream.tasks(start, query.at)) > 2
    assert query.contents() == held(orders, "orders")


def test_a_table_that_was_altered_goes_on_with_its_new_columns(
    orders: Database, queries: Callable[..., Query], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = queries(direct_plan(orders.url(), tmp_path / "state"))
    query.catch_up()
    orders.execute("INSERT INTO orders VALUES (11, 'two')")
    orders.execute("ALTER TABLE orders ADD COLUMN more int")
    orders.execute("INSERT INTO orders VALUES (12, 'three', 3)")
    query.catch_up()
    assert {row[1] for row in query.contents()} > {("11", "two"), ("12", "three", "3")}
    assert "a table's columns changed" in caplog.text


@pytest.mark.parametrize("ignores", [True, False], ids=["unsafe", "safe"])
def test_a_state_in_a_bucket_needs_conditional_writes(
    orders: Database, queries: Callable[..., Query], monkeypatch: pytest.MonkeyPatch, ignores: bool
) -> None:
    with gcs(["states"], ignores_conditions=ignores) as server:
        for name, value in server.options.items():
            monkeypatch.setenv(name, value)
        plan = direct_plan(orders.url(), "gs://states/query")
        if ignores:
            with refused("LAKE_STORE_NOT_ATOMIC"):
                queries(plan)
            assert server.storage.buckets == {"states": {}}
            return
        query = queries(plan)
        query.catch_up()
        orders.execute("DELETE FROM orders WHERE id = 1")
        query.catch_up()
        assert query.contents() == held(orders, "orders")


def test_a_later_query_on_one_state_fences_the_earlier(
    orders: Database, queries: Callable[..., Query], tmp_path: Path
) -> None:
    plan = direct_plan(orders.url(), tmp_path / "state")
    earlier = queries(plan)
    earlier.catch_up(commit=False)
    later = queries(plan)
    orders.execute("DELETE FROM orders WHERE id = 1")
    with refused("DIRECT_STATE_TAKEN"):
        wait_for(lambda: earlier.stream.latest(earlier.at) > earlier.at, "the fence")
    earlier.close()
    later.catch_up()
    assert later.contents() == held(orders, "orders")


def test_the_slot_may_hold_no_more_than_max_wal(
    orders: Database, queries: Callable[..., Query], tmp_path: Path
) -> None:
    query = queries(direct_plan(orders.url(), tmp_path / "state", max_wal=1))
    with refused("PG_MAX_WAL"):
        query.catch_up()


def test_a_beginning_that_was_interrupted_begins_anew(
    orders: Database, queries: Callable[..., Query], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = direct_plan(orders.url(), tmp_path / "state")
    query = queries(plan)
    with monkeypatch.context() as patch:

        def fails(self: StateFolder, beginning: object) -> None:
            raise OSError("the disk is full")

        patch.setattr(StateFolder, "begin", fails)
        with pytest.raises(OSError, match="full"):
            query.catch_up()
    query.close()
    orders.execute("DELETE FROM orders WHERE id < 3")
    again = queries(plan)
    again.catch_up()
    assert again.contents() == held(orders, "orders")


def test_status_shows_and_drop_removes_what_a_query_left(
    orders: Database, queries: Callable[..., Query], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = str(tmp_path / "state")
    query = queries(direct_plan(orders.url(), state))
    query.catch_up()
    query.close()
    assert main(["status", "--state", state]) == 0
    shown = capsys.readouterr().out
    assert "public.orders" in shown
    assert "batches: 1 offered, 1 committed" in shown
    assert " retained" in shown
    assert main(["status", "--state", state, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["committed_batch"] == 1
    assert main(["drop", "--state", state, "--dry-run"]) == 0
    assert main(["drop", "--state", state, "--yes"]) == 0
    assert "dropped slot" in capsys.readouterr().out
    assert orders.execute("SELECT count(*) FROM pg_publication") == [(0,)]
    assert [path for path in Path(state).rglob("*") if path.is_file()] == []
    assert main(["drop", "--state", state, "--yes"]) == 2
    assert "DIRECT_STATE_NONE" in capsys.readouterr().err
    assert main(["drop", "--state", state, "--yes", "--stop"]) == 2
    assert main(["status", "--state", state, "--watch"]) == 2


def test_a_query_that_is_killed_at_a_durable_step_goes_on_with_each_change_once(
    orders: Database, tmp_path: Path
) -> None:
    state, logs = tmp_path / "state", tmp_path / "logs"
    command = [sys.executable, "-m", direct.__name__, orders.url(), str(state), str(logs)]
    steps = ("direct.batch.before", "direct.batch.after", "direct.commit.before", "direct.commit.after")
    query = direct.Checkpointed(direct_plan(orders.url(), state), logs)
    query.catch_up()
    for number, step in enumerate(steps):
        orders.execute("UPDATE orders SET note = note || 'x' WHERE id > %s", [number])
        orders.execute("INSERT INTO orders VALUES (%s, 'new')", [20 + number])
        ended = subprocess.run(
            command,
            env={**os.environ, "HEADRACE_FAILPOINT": f"{step}=kill"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert step in ended.stderr
    query.catch_up()
    assert query.sums() == held(orders, "orders")


# --- in Spark, over kills -------------------------------------------------------------------------


class Watch:
    """A query of Spark, started again whenever it fails, and what each of its batches brought."""

    def __init__(self, spark: Any, frame: Callable[[], Any], checkpoint: Path) -> None:
        self._frame = frame
        self._checkpoint = str(checkpoint)
        self._java = spark.sparkContext._gateway.proc.pid
        self.batches: dict[int, Sums] = {}
        self.repeated: list[bool] = []  # for each batch that came again, whether it was the same
        self.errors: list[str] = []
        self.query = self._start()

    def _start(self, **trigger: Any) -> Any:
        writer = self._frame().writeStream.foreachBatch(self._keep)
        trigger = trigger or {"processingTime": "0 seconds"}
        return writer.option("checkpointLocation", self._checkpoint).trigger(**trigger).start()

    def _keep(self, rows: Any, number: int) -> None:
        found = direct.collected(rows)
        if number in self.batches:
            self.repeated.append(found == self.batches[number])
        self.batches[number] = found

    def goes_on(self, batches: int = 2) -> None:
        """Wait for so many further batches."""
        wanted = len(self.batches) + batches

        def came() -> bool:
            if not self.query.isActive:
                self.errors.append(str(self.query.exception()))
                self.query = self._start()
            return len(self.batches) >= wanted

        try:
            wait_for(came, f"batch {wanted}", deadline=240)
        except TimeoutError as error:
            raise AssertionError(f"{len(self.errors)} errors: {self.errors[-1:]}") from error

    def end(self) -> None:
        """Read all there is, then end."""
        self.query.stop()
        self._start(availableNow=True).awaitTermination()

    def kill(self, part: str) -> None:
        """Kill the processes below Spark's that have this in their command line.

        Of Spark's workers all but the one that forks them: Spark itself fails once without that.
        """
        for process in psutil.Process(self._java).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                forks = "pyspark.daemon" in part and process.ppid() == self._java
                if not forks and any(part in word for word in process.cmdline()):
                    process.send_signal(signal.SIGKILL)


def _kills(watch: Watch, server: Server, database: Database) -> dict[str, Callable[[], object]]:
    def crash() -> None:
        server.crash()
        server.start()

    sessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND usename = 'app'"
    return {
        "reader": lambda: watch.kill("python_streaming_source_runner"),
        "connection": lambda: database.execute(sessions, [database.name]),
        "server": crash,
        "receiver": lambda: watch.kill("headrace.ingest.worker"),
        "executor": lambda: watch.kill("pyspark.daemon"),
    }


@pytest.mark.spark
@pytest.mark.parametrize(
    ("which", "count"),
    [
        ("tables", 3),
        pytest.param("table", 5, marks=pytest.mark.full),
        pytest.param("tables", 20, marks=[pytest.mark.full, pytest.mark.timeout(1800)]),
    ],
)
def test_every_change_comes_once_over_kills(
    which: str, count: int, spark: Any, database: Database, seed: int, tmp_path: Path
) -> None:
    """A batch that comes again is the same, raw ones keep pgbench's invariant, and no file has the password.

    A typed query is of one table.
    """
    server, password = database.server, tmp_path / "password"
    password.write_text(f"*:*:*:*:{server.password}\n")
    password.chmod(0o600)
    database.pgbench_tables(accounts=1000)
    for table in PGBENCH:
        database.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    url = f"postgresql://app@{server.host}:{server.port}/{database.name}?passfile={password}"
    tables = "public.*" if which == "tables" else "pgbench_tellers"
    options = {"url": url, "state": str(tmp_path / "state"), which: tables}
    checkpoint = tmp_path / "checkpoint"

    def frame() -> Any:
        return spark.readStream.format("headrace").options(**options).load()

    with database.pgbench(clients=2, rate=40, accounts=1000):
        watch = Watch(spark, frame, checkpoint)
        watch.goes_on(3)
        kills = _kills(watch, server, database)
        chosen = random.Random(seed).choices([*kills], k=count - 3)
        for name in ["reader", "server", "executor", *chosen]:
            kills[name]()
            watch.goes_on()
    watch.end()
    assert all(watch.repeated)
    _moves_the_tables(watch.batches, database, raw=which == "tables")
    assert not any(server.password in text for text in watch.errors)
    events = Path(spark.conf.get("spark.eventLog.dir"))
    assert any(b"SQLExecutionStart" in path.read_bytes() for path in events.rglob("*") if path.is_file())
    for folder in (checkpoint, tmp_path / "state", events):
        for path in folder.rglob("*"):
            assert path.is_dir() or server.password.encode() not in path.read_bytes()
    assert server.password not in frame()._jdf.queryExecution().toString()


# A driver of its own, since it is killed. A batch that comes again must be the same.
_DRIVER = """
import pickle, sys
from pathlib import Path
from headrace.spark.session import SparkConfig, open_session
from tests.integration.spark.source.direct import collected

url, folder, last = sys.argv[1], Path(sys.argv[2]), len(sys.argv) > 3

def keep(rows, number):
    found, path = collected(rows), folder / "out" / str(number)
    if path.exists():
        assert pickle.loads(path.read_bytes()) == found
    new = folder / "new"
    new.write_bytes(pickle.dumps(found))
    new.rename(path)

with open_session(SparkConfig(master="local[2]", conf={"spark.ui.enabled": "false"})) as session:
    options = {"url": url, "state": str(folder / "state"), "tables": "public.*"}
    writer = session.spark.readStream.format("headrace").options(**options).load().writeStream
    writer = writer.foreachBatch(keep).option("checkpointLocation", str(folder / "checkpoint"))
    trigger = {"availableNow": True} if last else {"processingTime": "0 seconds"}
    writer.trigger(**trigger).start().awaitTermination()
"""


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_driver_that_is_killed_goes_on_with_each_change_once(database: Database, tmp_path: Path) -> None:
    database.pgbench_tables(accounts=1000)
    for table in PGBENCH:
        database.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    out = tmp_path / "out"
    out.mkdir()
    command = [sys.executable, "-c", _DRIVER, database.url(), str(tmp_path)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with database.pgbench(clients=2, rate=40, accounts=1000):
        for _ in range(3):
            _kill_after_batches(command, environment, out)
    ended = subprocess.run(
        [*command, "last"], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    batches = {int(path.name): pickle.loads(path.read_bytes()) for path in out.iterdir()}
    _moves_the_tables(batches, database, raw=True)


def _kill_after_batches(command: list[str], environment: Mapping[str, str], out: Path) -> None:
    """Start a driver, and kill it in the middle of what it does behind its next batches."""
    wanted = len(list(out.iterdir())) + 3
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as driver:

        def is_over() -> bool:
            return driver.poll() is not None or len(list(out.iterdir())) >= wanted

        try:
            wait_for(is_over, f"batch {wanted}", deadline=600)
        finally:
            driver.kill()
        assert driver.wait() == -signal.SIGKILL, driver.communicate()[1][-3000:]


def _moves_the_tables(batches: Mapping[int, Sums], database: Database, *, raw: bool) -> None:
    """Batch by batch from a state that was there to another, up to what the tables hold now."""
    numbers = {table: database.execute("SELECT %s::regclass::oid::int8", [table])[0][0] for table in PGBENCH}
    state: Sums = Counter()
    for number in sorted(batches):
        state.update(batches[number])
        assert min(state.values()) >= 0
        assert not raw or len(set(_balances(+state, numbers))) == 1, f"batch {number}"
    last = held(database, *PGBENCH) if raw else Counter(database.execute("SELECT * FROM pgbench_tellers"))
    assert +state == last


def _balances(rows: Sums, numbers: dict[str, int]) -> Iterator[int]:
    """The sum that TPC-B keeps equal in all of its tables."""
    places = {"pgbench_accounts": 2, "pgbench_branches": 1, "pgbench_tellers": 2, "pgbench_history": 3}
    for table, place in places.items():
        yield sum(int(row[place] or 0) * count for (oid, row), count in rows.items() if oid == numbers[table])
