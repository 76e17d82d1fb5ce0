"""A stranger never hears the password, whatever they ask for."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.sources.mysql.session import login
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.statements import query
from headrace_testing.mysql import Database, Server
from headrace_testing.postmaster import wait_for
from headrace_testing.proxy import Proxy

pytestmark = pytest.mark.server

SECRET = "hunter2"


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every server counts as one on another machine."""
    monkeypatch.setattr(login, "_is_local", lambda line: False)


def test_the_password_itself_goes_only_to_whom_the_address_trusts(server: Server, far_away: None) -> None:
    """An account of MySQL's default method is refused from the beginning, not only after a restart."""
    server.start()
    key = server.process.data / "public_key.pem"
    trusted = [
        "ssl-mode=REQUIRED",
        "ssl-mode=DISABLED&get-server-public-key=1",
        f"ssl-mode=DISABLED&server-public-key-path={key}",
    ]
    untrusted = ["", "ssl-mode=PREFERRED", "ssl-mode=DISABLED"]
    if server.flavour.is_mariadb:
        # Its method proves the password and never tells it; and it has no TLS here.
        trusted, untrusted = untrusted, []
    for options in untrusted + trusted + untrusted:
        address = MysqlAddress.parse(f"{server.url(user='app')}?{options}")
        if options in trusted:
            with connect(address, role="test") as session:
                assert query(session, "SELECT 1") == [(1,)]
            continue
        with pytest.raises(Misconfigured) as caught:
            connect(address, role="test")
        assert caught.value.code == "MY_PASSWORD_WITHHELD"
        assert server.password not in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is said that the password can be seen")
def test_a_password_in_the_url_is_used_and_leaves_the_process_list(
    server: Server, database: Database
) -> None:
    with Proxy("127.0.0.1", server.port) as proxy:
        proxy.stall()
        url = database.url(user="mirror", host=proxy.host, port=proxy.port)
        secret = quote(server.password, safe="")
        assert secret in url
        command = [sys.executable, "-m", "headrace.cli.main", "check", url, "--tables", "*.t", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            wait_for(lambda: proxy.counts.connections > 0, "it connects", deadline=120)
            listed = Path(f"/proc/{process.pid}/cmdline").read_text()
            proxy.resume()
            said, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    assert secret not in listed
    assert f"/{database.name}" in listed
    assert json.loads(said)["tables"] == [f"{database.name}.t"]
    assert secret not in said


def _packet(sequence: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([sequence]) + payload


def _greeting(method: bytes) -> bytes:
    """The greeting of a server without TLS that wants this method."""
    capabilities = 0x800FF7DF & ~0x800 | 0x280000
    return _packet(
        0,
        b"\x0a8.4.0\0" + (77).to_bytes(4, "little") + b"12345678\0"
        + (capabilities & 0xFFFF).to_bytes(2, "little") + b"\x2d\x02\x00"
        + (capabilities >> 16 & 0xFFFF).to_bytes(2, "little") + b"\x15" + bytes(10)
        + b"123456789012\0" + method + b"\0",
    )  # fmt: skip


@contextmanager
def _stranger(greeting: bytes, *answers: bytes) -> Iterator[tuple[int, bytearray]]:
    """Somebody who greets like a server, answers like this, and keeps all that they are told."""
    heard = bytearray()

    def listen() -> None:
        line, _ = listener.accept()
        with line:
            line.settimeout(1)
            line.sendall(greeting)
            for answer in answers:
                if not (told := line.recv(65536)):
                    return
                heard.extend(told)
                line.sendall(_packet(told[3] + 1, answer))
            # The answer to the last word, if there is one.
            with suppress(TimeoutError):
                heard.extend(line.recv(65536))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield listener.getsockname()[1], heard
        finally:
            thread.join()


SWITCH = b"\xfe%s\x0012345678901234567890\x00"


@pytest.mark.parametrize(
    ("greeting", "answers"),
    [
        (b"mysql_native_password", [SWITCH % b"mysql_clear_password"]),
        (b"mysql_native_password", [SWITCH % b"dialog"]),
        (b"mysql_native_password", [SWITCH % b"mysql_old_password"]),
        (b"mysql_native_password", [SWITCH % b"sha256_password"]),
        (b"mysql_native_password", [SWITCH % b"caching_sha2_password", b"\x01\x04"]),
        (b"caching_sha2_password", [b"\x01\x04", b"\x01-----BEGIN PUBLIC KEY-----"]),
        (b"sha256_password", [b"\x01-----BEGIN PUBLIC KEY-----"]),
        (b"mysql_clear_password", [SWITCH % b"mysql_clear_password"]),
        (b"authentication_of_tomorrow", [SWITCH % b"authentication_of_tomorrow"]),
    ],
)
@pytest.mark.parametrize("is_far", [True, False])
def test_a_stranger_hears_no_password(
    monkeypatch: pytest.MonkeyPatch, greeting: bytes, answers: list[bytes], is_far: bool
) -> None:
    monkeypatch.setattr(login, "_is_local", lambda line: not is_far)
    with (
        _stranger(_greeting(greeting), *answers) as (port, heard),
        pytest.raises(HeadraceError) as caught,
    ):
        connect(MysqlAddress.parse(f"mysql://ann:{SECRET}@127.0.0.1:{port}/"), role="test")
    assert b"ann\0" in heard
    assert SECRET.encode() not in heard
    assert SECRET not in str(caught.value)


def test_a_server_that_never_greets_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "LOGIN_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(HeadraceError) as caught:
        connect(
            MysqlAddress.parse(f"mysql://ann:{SECRET}@127.0.0.1:{listener.getsockname()[1]}/"), role="test"
        )
    assert caught.value.code == "MY_UNREACHABLE"


def test_without_the_driver_one_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pymysql", "headrace.sources.mysql.session.login"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(Misconfigured) as caught:
        connect(MysqlAddress.parse(f"mysql://ann@127.0.0.1:{listener.getsockname()[1]}/"), role="test")
    assert caught.value.code == "MY_DRIVER_MISSING"
    assert "pip install 'headrace[mysql]'" in caught.value.hint


@pytest.mark.full
@pytest.mark.parametrize("server", ["mysql"], indirect=True)  # no account of MariaDB needs it
def test_without_cryptography_an_account_that_needs_it_is_told(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.restart()  # it forgets who has logged in
    monkeypatch.setattr("pymysql._auth._have_cryptography", False)
    with pytest.raises(Misconfigured) as caught:
        connect(MysqlAddress.parse(f"{server.url(user='app')}?ssl-mode=DISABLED"), role="test")
    assert caught.value.code == "MY_DRIVER_MISSING"
