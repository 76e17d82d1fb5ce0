"""The first quarter of an hour with headrace, as a user types it: each command a process with its own Spark.

`setup/bare` runs this where there is no Java, no PostgreSQL and nothing in HOME; here it is run with what
this machine has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.spark.java import Archive
from headrace_testing.postgres import Database

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.full]

_FROM_PYTHON = """
import sys
import headrace
config = {"lake": {"path": sys.argv[1]}, "source": {"main": {"url": sys.argv[2], "tables": ["public.*"]}}}
headrace.mirror(config, once=True)
"""
# What Java, Spark and the daemon of its workers write when nobody listens for them.
_FOREIGN = ("WARN", "log4j", "Traceback", "Exception", "\tat ", "jdk.", "NativeCodeLoader", "warning][")


def _typed(database: Database, folder: Path, *command: str) -> str:
    """Return the command's standard output; it must end well, and nobody else may have spoken."""
    password = str(conninfo_to_dict(database.url(user="app"))["password"])
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | {"PGPASSWORD": password},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = (done.stdout + done.stderr).splitlines()
    assert [line for line in said if any(word in line for word in _FOREIGN)] == []
    return done.stdout


@pytest.mark.timeout(1800)
def test_each_kind_of_start_comes_up_and_only_headrace_speaks(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", user="app")
    database.execute("INSERT INTO t SELECT n, n::text FROM generate_series(1, 1000) n", user="app")
    said = {key: str(value) for key, value in conninfo_to_dict(database.url(user="app")).items()}
    url = make_conninfo(**{key: value for key, value in said.items() if key != "password"})
    source = (url, "--lake", "lake", "--tables", "public.*", "--once")

    _typed(database, tmp_path, "-m", "headrace", "run", *source)
    database.execute("INSERT INTO t VALUES (1001, 'late')", user="app")
    _typed(database, tmp_path, "-c", _FROM_PYTHON, "lake", url)
    assert "equal" in _typed(database, tmp_path, "-m", "headrace", "verify", "--lake", "lake")
    ask = ("-m", "headrace", "sql", "--lake", "lake", "--format", "json")
    told = _typed(database, tmp_path, *ask, "SELECT count(*) AS n FROM t")
    assert told == '{"n": 1001}\n'

    archive = Archive.of(os.environ)
    options = "" if archive is None else archive.options(brief=False)
    assert options is not None, "none of these starts has left an archive of classes"
