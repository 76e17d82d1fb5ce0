"""The JVMs of tests: a hundred of them, each for seconds, on the same cores as the tests themselves.

    pytest begins ──► SPARK_SUBMIT_OPTS   Spark's launcher gives them to the JVM of every local session,
                                          in this process or in a `headrace run` that a test starts
    many tests    ──► an archive          of the classes that Spark loads (AppCDS), made once for a Java and
                                          a PySpark, and kept in the user's cache folder

Compiling for a long life and collecting with threads of their own cost such a JVM more than all of its work.
Whoever measures what users get takes the options away: `as_users_have_it`.

The archive changes how fast classes are found, and nothing else; the JVM passes over one that does not fit
its class path. Where it cannot be made there is none. Called by `conftest`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.core.errors import HeadraceError
from headrace.spark.java import cache_folder, find_java

_VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Making the archive takes as long as ten starts with it save.
_ENOUGH = 40
_MAKING_SECONDS = 300

# A session that has done what ours do: a query, and a job in Python workers. The JVM writes the archive when
# it ends, and it ends when its standard input does.
_LIFE = """
from pyspark import SparkContext
from headrace.spark.jobs import Runner
from headrace.spark.session import SparkConfig, open_session
from headrace.spark.warmth import warm

with open_session(SparkConfig(master="local[2]")) as session:
    runner = Runner(session)
    warm(runner)
    session.spark.range(9).groupBy("id").count().collect()
gateway = SparkContext._gateway
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def shorten() -> None:
    """Every JVM from here on is one for a short life; what the user set in its place stays."""
    for name in _VARIABLES:
        os.environ.setdefault(name, _SHORT_LIVED)


def as_users_have_it(patch: pytest.MonkeyPatch) -> None:
    """JVMs as they are without the above."""
    for name in _VARIABLES:
        patch.delenv(name, raising=False)


def archive(items: list[pytest.Item]) -> None:
    """Have the archive used if there is one, and make it first if these tests are many."""
    if os.environ["SPARK_SUBMIT_OPTS"] != _SHORT_LIVED:
        return
    starting = [item for item in items if {"spark", "server"} & set(item.keywords)]
    path = _path() if starting else None
    if path is None:
        return
    if not path.exists() and len(starting) >= _ENOUGH:
        _make(path)
    if path.exists():
        quiet = "-Xlog:cds=off -Xlog:cds+dynamic=off"
        os.environ["SPARK_SUBMIT_OPTS"] = f"{_SHORT_LIVED} -XX:SharedArchiveFile={path} {quiet}"


def _path() -> Path | None:
    """Where the archive for this Java and this PySpark is; None where there are none, or no cache folder."""
    try:
        import pyspark

        home = find_java(os.environ)
    except (ImportError, HeadraceError):
        return None
    cache, release = cache_folder(os.environ), home / "release"
    told = release.read_text() if release.is_file() else ""
    seal = hashlib.sha256(f"{home} {told} {pyspark.__version__} {pyspark.__file__}".encode()).hexdigest()
    return None if cache is None else cache / f"tests-{seal[:16]}.jsa"


def _make(path: Path) -> None:
    making = path.with_suffix(f".{os.getpid()}")
    environment = os.environ | {"SPARK_SUBMIT_OPTS": f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={making}"}
    subprocess.run(
        [sys.executable, "-c", _LIFE],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_MAKING_SECONDS,
        check=False,
    )
    if making.exists():
        making.rename(path)
