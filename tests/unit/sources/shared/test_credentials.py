"""Passwords that a program prints or a file holds: asked for anew, remembered for a while, never shown."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from headrace.core.credential import Credential
from headrace.core.errors import HeadraceError
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.queue.session.address import QueueAddress
from headrace.sources.shared.credentials import PasswordUnavailable, log_in, password_of
from headrace.sources.shared.refusals import LoginWithheld

CANARY = "canary-3f1c"


def _shell(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def _printing(path: Path, ttl: float = 0.0) -> Credential:
    """A command that prints the password that stands in a file, and counts its runs in another."""
    return Credential(_shell(f"echo run >> {path}.runs; cat {path}"), ttl=ttl)


def _runs(path: Path) -> int:
    counted = Path(f"{path}.runs")
    return len(counted.read_text().splitlines()) if counted.exists() else 0


def _refused() -> LoginWithheld:
    return LoginWithheld("PG_PASSWORD_REFUSED", "refused", hint="none")


@pytest.mark.parametrize("text", [CANARY, f"{CANARY}\n", f"{CANARY}\r\n"])
def test_the_only_line_is_the_password(tmp_path: Path, text: str) -> None:
    path = tmp_path / "password"
    path.write_bytes(text.encode())
    assert password_of(Credential(file=str(path))) == CANARY
    assert password_of(_printing(path)) == CANARY


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (_shell(f"echo {CANARY}; exec sleep 60"), "PASSWORD_COMMAND_SILENT"),
        (_shell(f"echo {CANARY}; sleep 60 & exit 0"), "PASSWORD_COMMAND_SILENT"),
        (_shell("exit 0"), "PASSWORD_COMMAND_OUTPUT"),
        (_shell("echo"), "PASSWORD_COMMAND_OUTPUT"),
        (_shell(f"echo {CANARY}; echo {CANARY}"), "PASSWORD_COMMAND_OUTPUT"),
        (_shell(f"printf '{CANARY}\\t'"), "PASSWORD_COMMAND_OUTPUT"),
        (_shell("printf '\\377'"), "PASSWORD_COMMAND_OUTPUT"),
        ((sys.executable, "-c", "print('canary' * 200_000)"), "PASSWORD_COMMAND_OUTPUT"),
        (_shell(f"echo {CANARY}; echo {CANARY} >&2; exit 1"), "PASSWORD_COMMAND_FAILED"),
        (_shell("kill -9 $$"), "PASSWORD_COMMAND_FAILED"),
        ((f"/nowhere/{CANARY}",), "PASSWORD_COMMAND_MISSING"),
        (("\0",), "PASSWORD_COMMAND_MISSING"),
    ],
)
def test_a_command_that_yields_no_password_is_an_error_that_shows_nothing(
    command: tuple[str, ...], code: str
) -> None:
    credential = Credential(command, seconds=1.0)
    with pytest.raises(PasswordUnavailable) as refused:
        password_of(credential)
    assert refused.value.code == code
    assert "canary" not in str(refused.value) + repr(credential)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, "PASSWORD_FILE_UNREADABLE"),
        (b"", "PASSWORD_FILE_CONTENT"),
        (b"canary\ncanary\n", "PASSWORD_FILE_CONTENT"),
        (b"canary" * 200_000, "PASSWORD_FILE_CONTENT"),
    ],
)
def test_a_file_without_one_password_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes | None, code: str
) -> None:
    monkeypatch.setattr("headrace.sources.shared.credentials.FILE_SECONDS", 0.1)
    path = tmp_path / "password"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(PasswordUnavailable) as refused:
        password_of(Credential(file=str(path)))
    assert refused.value.code == code
    assert "canary" not in str(refused.value)


def test_a_file_that_is_empty_for_a_moment_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.touch()
    found: list[str] = []
    reading = threading.Thread(target=lambda: found.append(password_of(Credential(file=str(path)))))
    reading.start()
    path.write_text(CANARY)
    reading.join()
    assert found == [CANARY]


def test_a_command_is_run_for_each_connection_or_once_in_a_while(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("first")
    assert [log_in(_printing(path), str) for _ in range(3)] == ["first"] * 3
    assert _runs(path) == 3
    remembered = _printing(path, ttl=60.0)
    assert [log_in(remembered, str) for _ in range(3)] == ["first"] * 3
    assert _runs(path) == 4


def test_a_remembered_password_that_is_refused_is_asked_for_anew(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("first")
    credential = _printing(path, ttl=60.0)
    tried: list[str | None] = []

    def attempt(password: str | None) -> str | None:
        tried.append(password)
        if password != path.read_text():
            raise _refused()
        return password

    log_in(credential, attempt)
    path.write_text("second")
    assert log_in(credential, attempt) == "second"
    assert password_of(credential) == "second"  # for tasks and the receiver
    assert tried == ["first", "first", "second"]


def test_a_fresh_password_that_is_refused_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("wrong")

    def attempt(password: str | None) -> str | None:
        raise _refused()

    with pytest.raises(LoginWithheld):
        log_in(_printing(path), attempt)
    assert _runs(path) == 1


@pytest.mark.parametrize("parse", [PostgresAddress.parse, QueueAddress.parse, MysqlAddress.parse])
def test_an_address_has_one_password(tmp_path: Path, parse: type[PostgresAddress]) -> None:
    path = tmp_path / "password"
    path.write_text(f"{CANARY}@/?#:%\n")
    scheme = {"PostgresAddress": "postgresql", "QueueAddress": "queue+postgresql"}.get(
        parse.__qualname__.split(".")[0], "mysql"
    )
    credential = Credential(file=str(path))
    address = parse(f"{scheme}://me@db.example/shop", credential)
    assert CANARY not in repr(address) + str(address) + address.without_secrets()
    resolved = parse(address.text)
    assert CANARY in resolved.text
    assert resolved.without_secrets() == address.without_secrets()
    with pytest.raises(HeadraceError) as refused:
        parse(f"{scheme}://me:{CANARY}@db.example/shop", credential)
    assert refused.value.code == "PASSWORD_TWICE"
    assert CANARY not in str(refused.value)


def test_nothing_of_a_command_is_left_running(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with pytest.raises(PasswordUnavailable):
        password_of(Credential(_shell(f"echo $$ > {path}; exec sleep 60"), seconds=0.5))
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)
