"""Sessions as a fresh process meets them: without Java, under spark-submit, made by another thread.

Each runs a script in a process of its own, since a process starts one JVM and keeps its environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from headrace.spark.java import find_java
from tests import jvms

pytestmark = pytest.mark.spark

_HEAD = """
from functools import partial
from headrace.spark.jobs import Runner
from headrace.spark.session import SparkConfig, open_session
"""
_SPARK = Path(pyspark.__file__).parent


def outcome(
    script: str, folder: Path, environ: dict[str, str], *command: str, silent: bool = False
) -> list[str]:
    """Run a script, and return the lines it printed; it must end well, and soon after its last line."""
    path = folder / "script.py"
    path.write_text(_HEAD + script)
    done = subprocess.run(
        [*(command or (sys.executable,)), str(path)],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    if silent:
        assert done.stderr == "", "Java or Spark spoke"
    return done.stdout.splitlines()


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what decides about Spark, with a Java and the changes."""
    decided = ("JAVA_HOME", "PYSPARK_", "SPARK_")
    changes = {"JAVA_HOME": str(find_java(os.environ)), **changes}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(decided)}
    options = {name: os.environ[name] for name in jvms.VARIABLES}
    return {**kept, **options, **changes}


def only_tools(folder: Path) -> str:
    """A PATH with the programs that Spark's scripts need, without java and python3."""
    tools = folder / "tools"
    tools.mkdir()
    for program in ("bash", "sh", "dirname", "ps", "env", "uname", "readlink", "basename", "cat"):
        found = next((Path(at, program) for at in ("/usr/bin", "/bin") if Path(at, program).exists()), None)
        if found is not None:
            (tools / program).symlink_to(found)
    return str(tools)


def test_a_machine_without_java_and_an_empty_home_runs_a_job(tmp_path: Path) -> None:
    # Brief, so that an archive of classes is to be written; and the option keeps Java from loading the base
    # that was made for it, without which it would not start.
    script = """
import os
with open_session(SparkConfig(), brief=True) as session:
    print(session.spark.sparkContext.master, session.is_owned)
    print(Runner(session).run(bytes, [b"a", b"b"]))
    print(os.environ["JAVA_HOME"])
"""
    home = tmp_path / "home"
    home.mkdir()
    options = dict.fromkeys(jvms.VARIABLES, f"{jvms.SHORT_LIVED} -XX:-UseCompressedOops")
    environ = environment(PATH=only_tools(tmp_path), HOME=str(home), **options)
    del environ["JAVA_HOME"]
    said = outcome(script, tmp_path, environ, silent=True)
    assert said[:2] == ["local[*,4] True", "[b'a', b'b']"]
    assert Path(said[2]).is_relative_to(home)
    assert [path.suffix for path in (home / ".cache" / "headrace").glob("spark-*")] == [".none"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["home", "script.py", "tools"]


def test_under_spark_submit_its_settings_decide(tmp_path: Path) -> None:
    script = """
with open_session(SparkConfig()) as session:
    print(session.spark.sparkContext.master, session.is_owned)
    print(session.spark.conf.get("spark.sql.session.timeZone"))
    print(Runner(session).run(bytes, [b"a"]))
"""
    submit = (str(_SPARK / "bin" / "spark-submit"), "--master", "local[1]")
    conf = ("--conf", "spark.sql.session.timeZone=Asia/Kathmandu", "--conf", "spark.ui.enabled=false")
    environ = environment(PYSPARK_PYTHON=sys.executable)
    said = outcome(script, tmp_path, environ, *submit, *conf)
    assert said == ["local[1] True", "Asia/Kathmandu", "[b'a']"]


def test_a_session_of_another_thread_is_borrowed_and_goes_on(tmp_path: Path) -> None:
    script = """
import threading
from pyspark.sql import SparkSession
users = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
def other():
    with open_session(SparkConfig(master="local[7]")) as session:
        print(session.is_owned, Runner(session).run(bytes, [b"a"]))
thread = threading.Thread(target=other)
thread.start()
thread.join()
print(SparkSession.getActiveSession() is users, users.range(3).count(), users.sparkContext.pythonExec)
users.stop()
"""
    # Nobody says which Python its workers are, and PATH has none.
    said = outcome(script, tmp_path, environment(PATH=only_tools(tmp_path)))
    assert said == ["False [b'a']", "True 3 python3"]


def test_a_spark_that_rests_ends_its_java_and_comes_back(tmp_path: Path) -> None:
    script = """
import os, threading
from pyspark import SparkContext
from headrace.pipeline.state import owner
from headrace.pipeline.state.config import config_of
owner.Heartbeat = partial(owner.Heartbeat, every=0.2, most=2)
source = {"url": "postgresql://nobody@localhost/none", "tables": ["public.*"]}
config = config_of({"lake": {"path": "lake"}, "source": {"main": source}, "spark": {"master": "local[1]"}})
with owner.open_contexts(config, soon=True, free_spark=True) as [place]:
    for letter in (b"a", b"b"):
        print(place.spark.run(bytes, [letter]), place.spark.is_up)
        SparkContext._gateway.proc.wait(60)
        for thread in [each for each in threading.enumerate() if each.name == "headrace-spark-rest"]:
            thread.join()
        print(place.spark.is_up, place.spark.waits)
        for processors in (2, 3) if letter == b"a" else ():
            os.sched_getaffinity = lambda process: range(processors)
            place.wake_spark()
            print(place.spark.starting_since is not None)
"""
    said = outcome(script, tmp_path, environment(), silent=True)
    rests = "False None"
    assert said == ["[b'a'] True", rests, "False", "True", "[b'b'] True", rests]


def test_a_master_that_does_not_exist_is_misconfigured(tmp_path: Path) -> None:
    script = """
from headrace.core.errors import Misconfigured
for master in ("nonsense://x", "local[many]"):
    try:
        open_session(SparkConfig(master=master))
    except Misconfigured as error:
        print(error.code, error.detail)
"""
    said = "\n".join(outcome(script, tmp_path, environment()))
    assert said.count("SPARK_START_FAILED ") == 2
    assert "Master must either be" in said
    assert "Could not parse Master URL: 'local[many]'" in said


def test_a_java_that_refuses_its_options_is_quoted_in_the_error(tmp_path: Path) -> None:
    script = """
from headrace.core.errors import Misconfigured
options = {"spark.driver.extraJavaOptions": "-Xss1"}
try:
    open_session(SparkConfig(master="local[1]", conf=options))
except Misconfigured as error:
    print(error.code, error.detail)
"""
    [said] = outcome(script, tmp_path, environment(), silent=True)
    assert said.startswith("SPARK_START_FAILED ")
    assert "stack size" in said
