"""An entry of the cache that holds a server's programs is whole, or known not to be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace_testing.mysql.programs import LIST, is_whole


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/mysqld").write_bytes(b"elf")
    (tmp_path / LIST).write_text(json.dumps({"version": "9", "files": {"root/mysqld": 3}}))
    return tmp_path


def test_an_entry_as_it_was_made_is_whole(entry: Path) -> None:
    assert is_whole(entry)


@pytest.mark.parametrize(
    ("name", "data"),
    [("root/mysqld", b"el"), ("root/mysqld", None), (LIST, b"{}"), (LIST, b"{"), (LIST, None)],
)
def test_an_entry_that_lacks_something_is_not(entry: Path, name: str, data: bytes | None) -> None:
    (entry / name).unlink()
    if data is not None:
        (entry / name).write_bytes(data)
    assert not is_whole(entry)


def test_those_who_ask_for_postgresql_alone_need_nothing_of_it() -> None:
    loaded = "import sys, headrace_testing.fixtures; print([m for m in sys.modules if 'mysql' in m])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
