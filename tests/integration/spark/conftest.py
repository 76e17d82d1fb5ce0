"""The engines on which every job must behave the same, each started once for a module and then stopped.

    local     local[2]: tasks in this JVM's own Python workers
    cluster   local-cluster[2,1,1024]: two executor processes of one core each
    connect   a Spark Connect server on local[2], and this process its client

Each writes an event log, in which a test searches for a secret.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.spark.jobs import Runner
from headrace.spark.session import RunningSpark, SparkConfig, open_session
from tests import jvms

_ROOT = str(Path(__file__).resolve().parents[3])
ENGINES = {
    "local": SparkConfig(master="local[2]"),
    "cluster": SparkConfig(master="local-cluster[2,1,1024]"),
    "connect": SparkConfig(remote="local[2,4]"),
}


@dataclass(frozen=True)
class Engine:
    """A started Spark, a runner on it, and where its event log goes."""

    name: str
    session: RunningSpark
    runner: Runner
    events: Path


@pytest.fixture(scope="module", params=list(ENGINES))
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Each of the engines in turn."""
    with pytest.MonkeyPatch.context() as patch:
        # Workers must find the functions of `work`. The JVM of an earlier test may be running already,
        # so the path goes the way of the configuration too.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")])))
        yield from started(request.param, tmp_path_factory.mktemp("events"), patch)


def started(name: str, events: Path, patch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Starts one engine, and stops it at the end."""
    if name == "connect":
        # Lets the server choose a free port instead of its well-known one.
        patch.setenv("SPARK_TESTING", "1")
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.executor.extraJavaOptions": jvms.SHORT_LIVED,
    }
    config = ENGINES[name]
    with open_session(SparkConfig(config.master, config.remote, conf)) as session:
        assert session.is_owned, "another test left its session running"
        yield Engine(name, session, Runner(session), events)
