"""Clusters that are not what a configuration hopes for: a master that is silent, one that has no workers.

Each script is a process of its own, since a process starts one JVM; the master is a real one.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from headrace.spark.java import find_java
from headrace_testing.postmaster import wait_for
from tests import jvms
from tests.integration.spark.test_sessions import environment, outcome

pytestmark = pytest.mark.spark

_JARS = Path(pyspark.__file__).parent / "jars"


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A master of Spark's own kind of cluster, without any worker."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(find_java(os.environ), "bin", "java")), *jvms.SHORT_LIVED.split()]
    place = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    log = (tmp_path / "master.log").open("wb")
    process = subprocess.Popen(
        [*command, "-cp", f"{_JARS}/*", "org.apache.spark.deploy.master.Master", *place],
        stdout=log,
        stderr=log,
    )
    try:
        wait_for(lambda: _listens(port), "the master")
        yield f"spark://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        log.close()


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def test_a_spark_that_waits_for_executors_says_so(master: str, tmp_path: Path) -> None:
    script = f"""
import os, time
from headrace.pipeline.state.config import config_of
from headrace.pipeline.state.owner import open_contexts
source = {{"url": "postgresql://nobody@127.0.0.1/none", "tables": ["t.*"]}}
lake = {{"path": {str(tmp_path / "lake")!r}}}
config = {{"lake": lake, "source": {{"main": source}}, "spark": {{"master": {master!r}}}}}
with open_contexts(config_of(config)) as [place]:
    assert place.spark.waits is None
    place.spark.begin()
    said = []
    end = time.monotonic() + 120
    while time.monotonic() < end and len(said) < 2:
        what = place.spark.waits[0]
        if what not in said:
            said.append(what)
        time.sleep(0.1)
    print(said, flush=True)
os._exit(0)
"""
    [said] = outcome(script, tmp_path, environment(SPARK_LOCAL_IP="127.0.0.1"), silent=True)
    waits = [f"Spark is starting at {master}", "Spark waits for an executor: the cluster has given none"]
    assert said == str(waits)


def test_a_master_that_takes_the_connection_and_says_nothing_is_given_up(tmp_path: Path) -> None:
    script = """
import headrace.spark.session as session
from headrace.core.errors import Misconfigured
session.MASTER_SECONDS = 3.0
try:
    open_session(SparkConfig(master="spark://127.0.0.1:{0}"))
except Misconfigured as error:
    print(error.code)
    print(error.detail)
"""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = outcome(
            script.replace("{0}", str(silent.getsockname()[1])), tmp_path, environment(), silent=True
        )
    assert said[0] == "SPARK_MASTER_SILENT"
    assert "nothing came for 3 s" in said[1]
