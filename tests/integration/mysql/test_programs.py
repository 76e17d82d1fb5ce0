"""The programs are fetched once, and anew when they are broken; tools run; what cannot be had is said."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.errors import Misconfigured
from headrace_testing.mysql import Database, tool
from headrace_testing.mysql.flavours import MARIADB, MYSQL
from headrace_testing.mysql.programs import locate

pytestmark = pytest.mark.server


def _printed(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_mysqls_tools_read_what_its_server_wrote(mysql_database: Database) -> None:
    server = mysql_database.server
    mysql_database.execute("CREATE TABLE told_by_the_log (id int PRIMARY KEY)")
    log = server.execute("SHOW BINARY LOG STATUS")[0][0]
    assert "told_by_the_log" in _printed(
        *tool("mysqlbinlog"), "--no-defaults", str(server.process.data / log)
    )
    options = ("--no-defaults", "--user=root", f"--socket={server.socket}")
    assert "told_by_the_log" in _printed(
        *tool("mysqldump"), *options, "--set-gtid-purged=OFF", mysql_database.name
    )
    assert _printed(*tool("mysql"), *options, "-Ne", "SELECT 6 * 7") == "42\n"


def test_mariadbs_tools_read_what_its_server_wrote(mariadb_database: Database) -> None:
    server = mariadb_database.server
    mariadb_database.execute("CREATE TABLE told_by_the_log (id int PRIMARY KEY)")
    log = server.execute("SHOW BINLOG STATUS")[0][0]
    read = _printed(*tool("mariadb-binlog"), "--no-defaults", str(server.process.data / log))
    assert "told_by_the_log" in read
    options = ("--no-defaults", "--user=root", f"--socket={server.socket}")
    assert "told_by_the_log" in _printed(*tool("mariadb-dump"), *options, mariadb_database.name)
    assert _printed(*tool("mariadb"), *options, "-Ne", "SELECT 6 * 7") == "42\n"


def test_a_tool_that_there_is_not_is_named() -> None:
    with pytest.raises(Misconfigured, match='no "mysqlworkbench"') as caught:
        tool("mysqlworkbench")
    assert caught.value.code == "SERVER_MISSING"


def test_a_server_that_cannot_be_fetched_is_an_error_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_testing.cache.cache_folder", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    for flavour in (MYSQL, MARIADB):
        with pytest.raises(Misconfigured, match=flavour.label) as caught:
            locate.__wrapped__(flavour)
        assert caught.value.code == "SERVER_MISSING"
        assert "apt-get" in str(caught.value.detail)
        assert "apt-get update" in str(caught.value.hint)


@pytest.fixture
def empty_cache() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # or root's cache is another
        yield Path(folder)


@pytest.mark.full
def test_an_empty_cache_is_filled_and_a_broken_entry_made_anew(empty_cache: Path) -> None:
    def fill() -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "headrace_testing.mysql"],
            env={**os.environ, "XDG_CACHE_HOME": str(empty_cache)},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stderr

    assert "MySQL 9" in fill()
    assert fill() == ""
    [entry] = (empty_cache / "headrace").glob("mariadb-*[0-9]")
    (entry / "root/usr/sbin/mariadbd").unlink()
    said = fill()
    assert "making it anew" in said
    assert "MariaDB 10.11" in said
    assert (entry / "root/usr/sbin/mariadbd").exists()
