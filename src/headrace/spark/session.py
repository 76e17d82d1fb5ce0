"""The Spark that we run on, and its settings: the user's, if there is one, else our own.

    an active session ──► config.remote / SPARK_REMOTE ──► config.master ──► spark-submit, spark-defaults
         borrowed                                 started by us, and stopped by us        │ none of these
                                                                                          ▼
                                                                              local[*], with our settings

Two sessions come out of it. `RunningSpark.spark` is the one in which users see DataFrames: of a borrowed one
nothing is ever changed. `RunningSpark.jobs` is a second session over the same engine, whose SQL settings are
ours alone: epochs run there without adaptive execution (it would make two jobs of one, and may split
what a merge must see whole) and in small Arrow batches (a batch of Spark's default 10,000 rows would
be gigabytes of blobs). Only Connect before 4.1 has no second session: there `jobs` is `spark`, those
settings are made in it, and `close` puts back what they replaced.

What a local session of our own gets, and why, stands beside `local_settings`. The environment of this
process may get a JAVA_HOME and a PYSPARK_PYTHON, which the JVM inherits; nothing beyond the process is
changed, but for what `java` keeps in the user's cache folder. No module outside this room imports
PySpark, and this room imports it only inside functions: a machine without Spark gets a coded error, and
`headrace --version` does not wait for it.

`jobs.Runner` takes the result.
"""

from __future__ import annotations

import importlib
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.core.errors import Misconfigured
from headrace.spark import jvm
from headrace.spark.failures import engine_errors, of_master, of_silence, of_start
from headrace.spark.java import Archive, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_SPARK = (4, 0)

_LOCAL_MASTER = re.compile(r"local(?:\[([0-9]+|\*)\])?\Z")

# A dead Python worker must not fail an epoch: as many attempts as Spark makes on a cluster.
_ATTEMPTS = 4

_KNOCK_SECONDS = 10.0

# Spark itself gives up after a minute, three tries of 20 s. Yarn and Kubernetes may take longer to find room.
MASTER_SECONDS = 45.0

# With one of these set, gRPC does not go to the address itself.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")

_JOB_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}

# Spark gives a slot that is free to the job that came first, and within a copy or a verify thousands of tasks
# wait. Between pools it gives it to the one that has fewer, and those of ties to the name that comes first:
# all other jobs are in "default".
_MODE, _POOL = "spark.scheduler.mode", "spark.scheduler.pool"
BEHIND = "headrace-behind"


class MasterSilent(Exception):
    """No master listens where the configuration says that one is."""

    def __init__(self, master: str, reason: OSError) -> None:
        super().__init__(master)
        self.master, self.reason = master, reason


@dataclass(frozen=True)
class SparkConfig:
    """The `[spark]` part of the configuration; all empty means the user's environment decides."""

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunningSpark:
    """A running Spark: `spark` for DataFrames, `jobs` for our own jobs."""

    spark: SparkSession
    jobs: SparkSession
    is_owned: bool
    connect: bool
    # What our settings replaced in a session that is the user's too; put back by `close`.
    replaced_settings: Mapping[str, str | None] = field(default_factory=dict)

    def tasks_at_once(self) -> int:
        """The number of tasks that run at once; asked anew, since executors come and go."""
        if not self.connect:
            return int(self.jobs.sparkContext.defaultParallelism)
        return _connect_parallelism(self.spark)

    def executors(self) -> int:
        """The number of executors that a cluster has given us by now; Connect does not tell."""
        context = self.jobs.sparkContext._jsc.sc()
        return int(context.getExecutorMemoryStatus().size()) - 1  # the driver counts as one

    def close(self) -> None:
        """Stops what we started; a borrowed session goes on."""
        if self.connect and self.jobs is not self.spark:
            # Not `stop`: that would take a local Connect server down with it. And before the other one:
            # a client left open talks to the stopped server at exit, and retries for ten minutes.
            self.jobs.client.close()
        if self.is_owned:
            self.spark.stop()
            return
        for key, value in self.replaced_settings.items():
            if value is None:
                self.spark.conf.unset(key)
            else:
                self.spark.conf.set(key, value)

    def __enter__(self) -> RunningSpark:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_session(
    config: SparkConfig, app: str = "headrace", *, brief: bool = False, queries: bool = False
) -> RunningSpark:
    """The active session, or a new one where the configuration and the environment say.

    A new one whose life is `brief` may spend a moment at its end so that the next one starts sooner. One for
    `queries` works on rows in its JVM, which compiles them better then.
    """
    require_pyspark()
    active = _active()
    if active is not None:
        return borrow_session(active)
    _one_target(config)
    try:
        spark = _start(config, app, brief, queries)
        return _dress(spark, owned=True)
    except MasterSilent as silent:
        raise of_master(silent.master, silent.reason) from None
    except jvm.DidNotStart as error:
        raise of_silence(str(error)) from None
    except engine_errors() as error:
        raise of_start(error, remote=bool(config.remote or os.environ.get("SPARK_REMOTE"))) from None


def starts_empty() -> bool:
    """Tell whether a session that `open_session` starts by the environment alone knows no table.

    Anybody's Spark may have a catalog of its own.
    """
    told = ("SPARK_REMOTE", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")
    return not any(os.environ.get(name) for name in told)


def borrow_session(spark: SparkSession) -> RunningSpark:
    """Somebody else's session, which is used and never stopped or altered."""
    require_pyspark()
    return _dress(spark, owned=False)


def tasks_here(spark: SparkSession) -> int | None:
    """The number of tasks that a session runs at once here; None if they run elsewhere, or it ended."""
    if _is_connect(spark) or spark.sparkContext._jsc is None:
        return None
    here = not has_executors(spark.sparkContext.master or "")
    return int(spark.sparkContext.defaultParallelism) if here else None


@contextmanager
def preserving(session: RunningSpark) -> Iterator[None]:
    """Leave the active session as it was, whatever is done inside.

    PySpark's `createDataFrame` makes its session the active one, for this thread in the JVM and for
    all threads in Python: the user's next `getActiveSession` would answer with ours, where none of
    their views and settings are. There is no public way to put it back.
    """
    if session.connect:
        yield
        return
    from pyspark.sql import SparkSession

    active = session.spark._get_j_spark_session_class(session.spark._jvm)
    before, jvms = SparkSession._activeSession, active.getActiveSession()
    try:
        yield
    finally:
        SparkSession._activeSession = before
        if jvms.isDefined():
            active.setActiveSession(jvms.get())
        else:
            active.clearActiveSession()


@contextmanager
def in_pool(session: RunningSpark, name: str) -> Iterator[None]:
    """Run this thread's jobs in a pool of the scheduler meanwhile.

    A borrowed session has pools if its owner chose the scheduler FAIR; what Connect's client says of them is
    heard by nobody. An engine that is gone is met by the jobs, which say it better.
    """
    if session.connect:
        yield
        return
    before = None
    with suppress(*engine_errors()):
        before = session.jobs.sparkContext.getLocalProperty(_POOL)
        session.jobs.sparkContext.setLocalProperty(_POOL, name)
    try:
        yield
    finally:
        with suppress(*engine_errors()):
            # None takes it away, as PySpark's own documentation says; its types do not.
            session.jobs.sparkContext.setLocalProperty(_POOL, before)  # type: ignore[arg-type]


def require_pyspark() -> None:
    """Refuses a missing or too old PySpark, with what to type."""
    try:
        version = str(importlib.import_module("pyspark").__version__)
    except ModuleNotFoundError:
        raise Misconfigured(
            "SPARK_MISSING",
            "PySpark is not installed",
            hint="pip install 'headrace[local]', or run with the Python of your Spark",
        ) from None
    _require_version("PySpark", version)


def _require_version(what: str, version: str) -> None:
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < OLDEST_SPARK:
        raise Misconfigured(
            "SPARK_TOO_OLD",
            f"{what} is {version}, and {'.'.join(map(str, OLDEST_SPARK))} or later is needed",
            hint="pip install 'headrace[local]' in an environment of its own, or use a newer Spark",
        )


def _active() -> SparkSession | None:
    """The session of this thread, or the one that the process's Spark context already has."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active: SparkSession | None = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        # Another thread made it: the JVM keeps "active" per thread.
        active = SparkSession.builder.getOrCreate()
    return active


def _one_target(config: SparkConfig) -> None:
    if config.master and (config.remote or os.environ.get("SPARK_REMOTE")):
        raise Misconfigured(
            "SPARK_TWO_TARGETS",
            "both a Spark master and a Spark Connect address are given",
            detail="remote is set in " + ("the configuration" if config.remote else "SPARK_REMOTE"),
            hint="keep either [spark] master or [spark] remote (SPARK_REMOTE), not both",
        )


def _start(config: SparkConfig, app: str, brief: bool, queries: bool) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app)
    remote = config.remote or os.environ.get("SPARK_REMOTE")
    master = config.master or (None if remote or _ambient(config.conf) else "local[*]")
    settings = dict(config.conf) if remote else {_MODE: "FAIR", **config.conf}
    if is_local(remote or master):
        settings = {**local_settings(os.environ), **settings}
        _prepare_environment(settings)
    elif master is not None or not remote:
        _prepare_java()
    if remote:
        _knock(remote)
        builder = builder.remote(remote)
    elif master:
        _knock_at_master(master)
        settings["spark.master"] = retrying(master)
    if master and "PYSPARK_GATEWAY_PORT" not in os.environ:
        local = is_local(master)
        archive = Archive.of(os.environ) if local else None
        within = MASTER_SECONDS if master.startswith("spark://") else None
        try:
            wanted = {"spark.app.name": app, **settings}
            jvm.start(wanted, archive, brief=brief, light=local and not queries, within=within)
        except jvm.Late:
            reason = TimeoutError(f"it took the connection, and nothing came for {MASTER_SECONDS:.0f} s")
            raise MasterSilent(master, reason) from None
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    return spark


def _knock(remote: str) -> None:
    """Fails at once where nothing listens; Spark's client would go on trying for ten minutes."""
    address = urlsplit(remote)
    if address.scheme != "sc" or any(os.environ.get(name) for name in _PROXIES):
        return
    with socket.create_connection((address.hostname or "", address.port or 15002), _KNOCK_SECONDS):
        pass


def knock_at(master: str | None) -> None:
    """Raise where a run would find no master of a cluster: before anything is made for it."""
    if "pyspark" in sys.modules and _active() is not None:
        return  # that one is used
    try:
        _knock_at_master(master or "")
    except MasterSilent as silent:
        raise of_master(silent.master, silent.reason) from None


def _knock_at_master(master: str) -> None:
    """Raise at once where no master listens; Spark would print Java's stack traces for a minute first."""
    if not master.startswith(("spark://", "k8s://")):
        return  # its own configuration says where it is
    kind, _, places = master.removeprefix("k8s://").rpartition("://")
    refused: OSError | None = None
    for place in places.split(","):
        address = urlsplit(f"//{place}")
        port = address.port or {"spark": 7077, "http": 80}.get(kind, 443)
        try:
            with socket.create_connection((address.hostname or "", port), _KNOCK_SECONDS):
                return
        except OSError as error:
            refused = error
    if refused is not None:
        raise MasterSilent(master, refused)


def _ambient(conf: Mapping[str, str]) -> bool:
    """Tell whether spark-submit, its arguments or its defaults already say where to run."""
    if "spark.master" in conf or "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    if "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return True
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else None)
    defaults = Path(folder, "spark-defaults.conf") if folder else None
    if defaults is None or not defaults.is_file():
        return False
    text = defaults.read_text(encoding="utf-8", errors="replace")
    return re.search(r"^\s*spark\.master\b", text, re.MULTILINE) is not None


def is_local(target: str | None) -> bool:
    """Tell whether the engine will be on this machine and of our making."""
    return target is not None and target.startswith("local")


def has_executors(master: str) -> bool:
    """Tell whether tasks run in processes of their own, as on a cluster, and not in the driver's JVM."""
    return master != "local" and not master.startswith("local[")


def retrying(master: str) -> str:
    """A local master with Spark's usual number of attempts; local mode by itself makes only one."""
    plain = _LOCAL_MASTER.match(master)
    return f"local[{plain.group(1) or 1},{_ATTEMPTS}]" if plain else master


def local_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session of our own on this machine; the user's `conf` overrides each."""
    cores = len(os.sched_getaffinity(0))
    return {
        # Nobody asked for a web page, and nothing should listen beyond this machine.
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": environ.get(jvm.LOG, "ERROR"),
        # Spark's own default of 1 GB dies on a few hundred megabytes of blobs; pages are touched as needed.
        "spark.driver.memory": f"{_driver_megabytes()}m",
        # Over TCP each task waits 20-40 ms for acknowledgements (measured: 267 ms for 8 tasks, 145 so).
        # Spark 4.0 does not know the setting and ignores it.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }


def _driver_megabytes() -> int:
    """A quarter of the memory, between one and four gigabytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return max(1024, min(4096, total // 4))


def _prepare_environment(settings: Mapping[str, str]) -> None:
    _prepare_java()
    # Spark takes the machine's first outward address otherwise, listens there, and warns about it.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if "spark.pyspark.python" not in settings:
        # Without it workers run the "python3" of PATH, which need not be this environment's.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _prepare_java() -> None:
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java(os.environ))


def _dress(spark: SparkSession, *, owned: bool) -> RunningSpark:
    """The session with its second half, after a look at the engine's own version."""
    _require_version("Spark", spark.version)
    connect = _is_connect(spark)
    jobs = _second(spark, connect)
    replaced = {key: spark.conf.get(key, None) for key in _JOB_SETTINGS} if jobs is spark else {}
    for key, value in _JOB_SETTINGS.items():
        jobs.conf.set(key, value)
    return RunningSpark(spark, jobs, is_owned=owned, connect=connect, replaced_settings=replaced)


def _is_connect(spark: SparkSession) -> bool:
    kind = type(spark)
    return not hasattr(kind, "sparkContext") or kind.__module__.startswith("pyspark.sql.connect")


def _second(spark: SparkSession, connect: bool) -> SparkSession:
    if not connect:
        return spark.newSession()
    # `newSession` came to Connect with 4.3, `cloneSession` with 4.1.
    for name in ("newSession", "cloneSession"):
        if callable(getattr(type(spark), name, None)):
            try:
                second: SparkSession = getattr(spark, name)()
            except NotImplementedError:
                continue
            return second
    return spark


def _connect_parallelism(spark: SparkSession) -> int:
    """Connect tells no parallelism; Spark's own choice of partitions for a range does."""
    from pyspark.sql import functions

    partitions = spark.range(0, 1 << 16).select(functions.spark_partition_id().alias("p")).distinct()
    return max(1, partitions.count())
