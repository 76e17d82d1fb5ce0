"""The JVMs of tests: a hundred of them, each for seconds, on the same cores as the tests themselves.

    pytest begins ──► SPARK_SUBMIT_OPTS   Spark's launcher gives them to the JVM of every local session,
                                          in this process or in a `headrace run` that a test starts
    many tests    ──► the archive         of classes that users have after their first command, made before
                                          the first test (`headrace.spark.java`)

Compiling for a long life and collecting with threads of their own cost such a JVM more than all of its work.
Whoever measures what users get takes the options away: `as_users_have_it`.

Called by `conftest`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

import pytest

from headrace.spark.java import Archive

VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Making the archive takes as long as ten starts with it save.
_ENOUGH = 40
_MAKING_SECONDS = 300.0

# A session that has done what ours do: a query, and a job in Python workers. The JVM writes the archive when
# it ends, and it ends when its standard input does.
_LIFE = """
from pyspark import SparkContext
from headrace.spark.jobs import Runner
from headrace.spark.session import SparkConfig, open_session
from headrace.spark.warmth import warm

with open_session(SparkConfig(master="local[2]"), brief=True) as session:
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
    for name in VARIABLES:
        os.environ.setdefault(name, SHORT_LIVED)


def as_users_have_it(patch: pytest.MonkeyPatch) -> None:
    """JVMs as they are without the above."""
    for name in VARIABLES:
        patch.delenv(name, raising=False)


def have_archive(items: list[pytest.Item]) -> None:
    """If these tests are many, have the archive there before they begin."""
    starting = [item for item in items if item.get_closest_marker("spark")]
    archive = Archive.of(os.environ) if len(starting) >= _ENOUGH else None
    if archive is None or archive.options(brief=False) is not None:
        return
    with suppress(subprocess.TimeoutExpired):  # then there is none, as where none can be made
        subprocess.run(
            [sys.executable, "-c", _LIFE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_MAKING_SECONDS,
            check=False,
        )
