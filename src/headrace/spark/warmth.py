"""Warm Python workers: loaded before the first real job, and kept alive between jobs.

A cold worker pays 1-2 seconds: the imports of PyArrow, Polars and Numba, and the compiled kernels read
from their cache. A warm one pays nothing, as long as it lives:

* it is kept only if a task read its whole input (`worker` sees to that);
* Spark ends all idle workers of an executor once the executor has run no Python task for a minute.

So `warm` runs one task per slot, all at the same time and long enough (while cold) that no worker gets
two, and a `Heartbeat` runs an empty job whenever the runner was idle for half a minute. If no job has come
for five minutes, it lets Spark rest: a mirror of a quiet source may not need it for days. A run that has its
process for itself ends the JVM then; elsewhere the workers end, and the JVM gives memory back. The next job
then pays for the start.

`warm` also is where executors that lack this package, or have another version of it, are found: before the
first real job and with a hint, instead of in the middle of a copy.

The heartbeat's thread touches nothing but the runner.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Final, TypeAlias

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.spark.failures import engine_errors
from headrace.spark.jobs import Runner
from headrace.spark.priority import raise_pools
from headrace.spark.session import RunningSpark, has_executors

# Spark's limit is a minute; a heartbeat at half of it may come late once.
BEAT_SECONDS: Final = 30.0
BEATS_ALONE: Final = 10  # in a row, with no job between them

EXECUTORS_SECONDS: Final = 2.0

_LIBRARIES: Final = ("numpy", "pyarrow", "pyarrow.parquet", "polars", "numba")

Loader: TypeAlias = Callable[[], object]


def warm(runner: Runner, loaders: Sequence[Loader] = ()) -> int:
    """Loads the libraries, and what `loaders` load, in every worker; how many workers answered."""
    task = partial(_load, tuple(loaders))
    answers = [json.loads(raw) for raw in runner.run(task, [b""] * runner.at_once)]
    ours = _own_version()
    for answer in answers:
        if answer["headrace"] != ours:
            raise Misconfigured(
                "SPARK_WORKER_UNFIT",
                f"an executor has headrace {answer['headrace']}, the driver has {ours}",
                detail=f'on host "{answer["host"]}"',
                hint=f"install headrace {ours} on every executor",
            )
    return len({(answer["host"], answer["pid"]) for answer in answers})


def _load(loaders: tuple[Loader, ...], item: bytes) -> bytes:
    """Runs in a worker: imports, then the loaders, then says who it is."""
    for name in _LIBRARIES:
        importlib.import_module(name)
    raise_pools()
    for loader in loaders:
        loader()
    return json.dumps({"host": platform.node(), "pid": os.getpid(), "headrace": _own_version()}).encode()


def _own_version() -> str:
    try:
        return version("headrace")
    except PackageNotFoundError:
        # A source tree on the path, or an archive shipped to executors.
        return "unknown"


def _beat(item: bytes) -> bytes:
    return b""


class Heartbeat:
    """Keeps a runner's workers alive for some minutes without a job; use it in a `with`."""

    def __init__(
        self,
        runner: Runner,
        every: float = BEAT_SECONDS,
        most: int = BEATS_ALONE,
        *,
        rest: Callable[[], None] | None = None,
    ) -> None:
        self._runner = runner
        self._rest = rest or runner.rest
        self._every = every
        self._most = most
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-heartbeat", daemon=True)
        self.beats = 0

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def alive(self) -> bool:
        """Tell whether it still beats; it ends by itself when a beat fails."""
        return self._thread.is_alive()

    def _run(self) -> None:
        alone, jobs = 0, self._runner.jobs
        while not self._stop.wait(self._pause(rests=alone >= self._most)):
            if self._runner.jobs != jobs:
                alone, jobs = 0, self._runner.jobs
            if alone >= self._most or self._runner.idle_seconds() < self._every:
                continue
            try:
                self._runner.run(_beat, [b""] * self._runner.at_once)
                self.beats, alone, jobs = self.beats + 1, alone + 1, self._runner.jobs
                if alone == self._most:
                    self._rest()
            except HeadraceError:
                # Spark is gone or ailing: the next real job meets the same and says it better.
                return

    def _pause(self, *, rests: bool) -> float:
        return self._every if rests else max(0.0, self._every - self._runner.idle_seconds())


class ExecutorWatch:
    """Tells whether a cluster has given us an executor; use it in a `with`.

    Without one every job waits, and Spark says so in its log alone. A local Spark has none to wait for, and
    Connect does not tell.
    """

    def __init__(self, session: RunningSpark, says: Callable[[str | None], None]) -> None:
        self._session = session
        self._says = says
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-executors", daemon=True)
        self._wanted = not session.connect and has_executors(session.jobs.sparkContext.master or "local")

    def __enter__(self) -> ExecutorWatch:
        if self._wanted:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._says(None)

    def _run(self) -> None:
        while not self._stop.wait(EXECUTORS_SECONDS):
            try:
                count = self._session.executors()
            except engine_errors():
                return  # the engine is gone: the next job meets that, and says it better
            self._says(None if count else "Spark waits for an executor: the cluster has given none")
