"""The JVM behind a local session of our own: its start, and the redirection of its output.

PySpark starts it through `spark-submit` and lets it write where we write; Java's warnings, Spark's greeting
and the traceback of a daemon whose JVM is gone would stand between the lines of a command. So this module
redirects its output:

    JVM, its Python workers ──► pipe ──► a thread of ours    keeps the last lines, for a start that fails
                                              │
                                              └─ "headrace: ..." (a fail point in a task) ──► standard error

With HEADRACE_SPARK_LOG all goes to standard error instead. Never to standard output, which belongs to the
command, and never by exchanging descriptors of this process, in which other threads speak meanwhile.

An archive of classes (`java`) only saves time, and so do the options of `LIGHT`: a JVM that does not start
with them is started once more without, and the archive is not used for a day.

PySpark keeps one JVM for the life of a process: where there is one already, nothing is started. A run that
has its process for itself ends a JVM that has nothing to do (`end`), and starts another when there is work.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from headrace.spark.java import Archive

LOG = "HEADRACE_SPARK_LOG"
_OPTIONS = "spark.driver.extraJavaOptions"
# For a JVM that carries blobs between our tasks and sees no row: its second compiler costs more than it saves
# there, and the collectors that use several cores keep more memory (decision 0069).
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40 -Xms64m"
_OURS = b"headrace: "
_KEPT = 50
# Java says what is wrong in one to three lines.
_REASON = 3
# The last output of a JVM arrives with its end, except for bytes that the system has yet to pass on.
_LAST_SECONDS = 5.0
_END_SECONDS = 30.0


class Late(Exception):
    """No context came in time."""


class DidNotStart(Exception):
    """The JVM ended before it answered; the message is what it said last."""


def start(
    settings: Mapping[str, str],
    archive: Archive | None = None,
    *,
    brief: bool = False,
    light: bool = False,
    within: float | None = None,
) -> None:
    """Start a Spark context with these settings, which the next session of this process takes.

    `light`: the JVM has no queries to answer. One of which no context came `within` so many seconds is ended,
    and `Late` raised.
    """
    from pyspark import SparkConf, SparkContext

    ours = (archive.options(brief=brief) if archive else None, LIGHT if light else None)
    options = "" if _OPTIONS in settings else " ".join(filter(None, ours))
    gateway = None
    if SparkContext._gateway is None:
        gateway, settings = _first(settings, options, archive)
    conf = SparkConf().setAll(list(settings.items()))
    if gateway is None or within is None:
        SparkContext(conf=conf, gateway=gateway)
        return
    late = threading.Event()

    def end() -> None:
        late.set()
        gateway.proc.kill()

    timer = threading.Timer(within, end)
    timer.start()
    try:
        SparkContext(conf=conf, gateway=gateway)
    except Exception as error:
        if late.is_set():
            raise Late from error
        raise
    finally:
        timer.cancel()


def end() -> None:
    """End the JVM whose Spark context was stopped; the next session of this process starts another."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None or SparkContext._active_spark_context is not None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process.stdin.close()  # it ends with that
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _first(
    settings: Mapping[str, str], options: str, archive: Archive | None
) -> tuple[Any, Mapping[str, str]]:
    """The gateway to a new JVM, and the settings that it was started with."""
    if not options:
        return _launch(settings), settings
    helped = {**settings, _OPTIONS: options}
    try:
        return _launch(helped), helped
    except DidNotStart:
        gateway = _launch(settings)
        if archive is not None:
            archive.leave_alone()
        return gateway, settings


def _launch(settings: Mapping[str, str]) -> Any:
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll(list(settings.items()))
    heard = None if os.environ.get(LOG) else _Listener()
    end = 2 if heard is None else heard.end
    try:
        return launch_gateway(conf, {"stdout": end, "stderr": end})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        raise DidNotStart(heard.reason() if heard is not None else str(error)) from None
    finally:
        if heard is not None:
            heard.hang_up()


class _Listener:
    """A thread that reads what the JVM writes into `end`, so that it never has to wait."""

    def __init__(self) -> None:
        self._source, self.end = os.pipe()
        self._open = True
        self._last: deque[bytes] = deque(maxlen=_KEPT)
        self._thread = threading.Thread(target=self._listen, name="headrace-jvm-output", daemon=True)
        self._thread.start()

    def hang_up(self) -> None:
        """Close our own copy of the end; the JVM has its own."""
        if self._open:
            self._open = False
            os.close(self.end)

    def reason(self) -> str:
        """The last words of the JVM before it ended, without warnings and stacks."""
        self.hang_up()
        self._thread.join(_LAST_SECONDS)
        lines = [line.decode("utf-8", "replace").strip() for line in self._last]
        words = [line for line in lines if line and not line.startswith(("WARNING", "at ", "..."))]
        return "; ".join(words[-_REASON:])

    def _listen(self) -> None:
        with open(self._source, "rb") as lines:
            for line in lines:
                self._last.append(line)
                if line.startswith(_OURS):
                    os.write(2, line)
