"""A mirror whose password comes from a command or a file: rotated under load, unavailable, never shown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import psutil
import pytest

from headrace.pipeline.commands.ask import ask
from headrace.sources.shared import credentials
from headrace_testing.conformance.mirror import Mirror
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.workload import Keyed, running
from tests.conformance.sources import Account, RotatingPlace, execute

pytestmark = pytest.mark.server


@pytest.fixture
def account(mirror: Mirror) -> Iterator[Account]:
    """A user of his own, whose password this test rotates."""
    place = cast(RotatingPlace, mirror.place)
    with place.rotating() as made:
        yield made


def _origin(way: str, path: Path) -> dict[str, object]:
    if way == "file":
        return {"password_file": str(path)}
    return {"password_command": ["/bin/cat", str(path)], "password_ttl": "1h"}


def _write(path: Path, password: str) -> None:
    """Replace the file at once, as a mounted secret is."""
    path.with_suffix(".new").write_text(password + "\n")
    os.replace(path.with_suffix(".new"), path)


@pytest.mark.parametrize("way", ["command", pytest.param("file", marks=pytest.mark.full)])
def test_a_password_that_is_rotated_under_load_is_taken_at_the_next_connection(
    mirror: Mirror, account: Account, program: Program, tmp_path: Path, seed: int, way: str
) -> None:
    """A remembered one, too. The new table is copied with the new password."""
    path, passwords = tmp_path / "password", [account.password, "second:one", "third@one"]
    _write(path, account.password)
    origin = {**_origin(way, path), "new_tables": "add"}
    mirrored = Mirrored(mirror.path, account.address, *mirror.patterns, options=origin, program=program)
    with running(Keyed("keyed", "default"), mirror.place.owner_url, seed=seed, writers=1, pause=0.05):
        try:
            mirrored.start()
            mirrored.until_live()
            for password in passwords[1:]:
                _write(path, password)
                account.rotate(password)
                _onward(mirrored)
            assert _shown(mirrored, passwords) == []
            assert mirrored.stop() == 0, mirrored.log()
            execute(mirror.place, "CREATE TABLE later (id int PRIMARY KEY)", "INSERT INTO later VALUES (1)")
            assert mirrored.once() == 0, mirrored.log()
        finally:
            mirrored.close()
    log = mirrored.log()
    assert [password for password in passwords if password in log] == []
    files = [each for each in mirror.path.rglob("*") if each.is_file()]
    held = [each for each in files for password in passwords if password.encode() in each.read_bytes()]
    assert held == []


def _onward(mirrored: Mirrored) -> None:
    """Wait until some more marks with transactions are published."""
    known = mirrored.lake.at().mark.epoch

    def moved() -> bool:
        return sum(mark.transactions > 0 for mark in mirrored.lake.marks() if mark.epoch > known) >= 3

    mirrored.until(moved, "further marks", within=60.0)


def _shown(mirrored: Mirrored, passwords: list[str]) -> list[int]:
    """The processes of a run that show a password in their arguments or their environment."""
    run, shown = psutil.Process(mirrored.pid), []
    for process in (run, *run.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            said = " ".join([*process.cmdline(), *process.environ().values()])
            shown += [process.pid for password in passwords if password in said]
    return shown


@pytest.mark.parametrize(
    ("origin", "code"),
    [
        ({"password_command": ["/bin/sh", "-c", "echo first/one; exit 1"]}, "PASSWORD_COMMAND_FAILED"),
        ({"password_command": ["/bin/sh", "-c", "echo first/one; echo x"]}, "PASSWORD_COMMAND_OUTPUT"),
        ({"password_file": "/nowhere/password"}, "PASSWORD_FILE_UNREADABLE"),
        ({"password_file": "/dev/null"}, "PASSWORD_FILE_CONTENT"),
        ({"password_command": ["/bin/echo", "wrong"]}, "_PASSWORD_REFUSED"),
    ],
)
def test_without_a_password_nothing_is_begun(
    mirror: Mirror, account: Account, monkeypatch: pytest.MonkeyPatch, origin: dict[str, object], code: str
) -> None:
    monkeypatch.setattr(credentials, "FILE_SECONDS", 0.1)
    execute(mirror.place, "CREATE TABLE t (id int PRIMARY KEY)")
    error = mirror.stops(url=account.address, **origin)
    assert error.code.endswith(code)
    assert "first/one" not in str(error)
    assert not mirror.path.exists()


def test_a_lake_remembers_no_origin_of_a_password(
    mirror: Mirror, account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write a lake must not choose a command. Variables tell the origin to later commands."""
    path = tmp_path / "password"
    _write(path, account.password)
    execute(mirror.place, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.once(url=account.address, password_file=str(path))
    remembered = [each for each in mirror.path.rglob("*.json") if str(path) in each.read_text()]
    assert remembered == []
    monkeypatch.setenv("HEADRACE_SOURCE__MAIN__PASSWORD_FILE", str(path))
    monkeypatch.setenv("HEADRACE_SOURCE__MAIN__URL", account.address)
    execute(mirror.place, "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)")
    ask(str(mirror.path), "tables.add", {"tables": [str(mirror.place.table("u"))]})
    mirror.once(url=account.address)
    assert str(mirror.place.table("u")) in mirror.lake.marks()[-1].versions
