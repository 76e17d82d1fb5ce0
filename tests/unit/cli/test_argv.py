"""Passwords on the command line are not to be seen in the list of processes."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from headrace.cli.argv import mask, passwords
from headrace.cli.main import main
from headrace.sources import registry
from headrace_testing.postmaster import wait_for


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("postgresql://me:secret@db:5432/shop", ["secret"]),
        ("postgresql://me:p%40ss@db/shop?sslpassword=s2&x=1", ["p%40ss", "s2"]),
        ("postgres://me:a@b@db/shop", ["a@b"]),
        ("mysql://o'brien:it's a #1?@db:3306/shop", ["it's a #1?"]),
        ("mariadb://me:a/b@db/", ["a/b"]),
        ("QUEUE+POSTGRESQL://me:secret@db/shop", ["secret"]),
        ("CREATE SOURCE s FROM MYSQL CONNECTION 'host=db password=''se cret'' x'", ["se cret"]),
        ("postgresql://db/shop?user=me&password=secret", ["secret"]),
        ("host=db password=secret user=me", ["secret"]),
        (r"host=db password = 'se\'c ret' user=me", [r"se\'c ret"]),
        ("--url=host=db PASSWORD=secret", ["secret"]),
        (
            "CREATE SOURCE s FROM POSTGRES CONNECTION 'postgresql://me:secret@db/x' PUBLICATION 'p'",
            ["secret"],
        ),
        ("postgresql://me@db:5432/shop", []),
        ("postgresql://me:@db/shop", []),
        ("s3://bucket/prefix", []),
        ("public.*", []),
    ],
)
def test_passwords_are_found_wherever_an_argument_may_hold_one(text: str, secrets: list[str]) -> None:
    assert [text.encode()[a:b].decode() for a, b in passwords(text.encode())] == secrets


@contextmanager
def _silent_server() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_password_is_found_in_the_url_of_every_source() -> None:
    schemes = [scheme for kind in registry.kinds() for scheme in registry.declaration(kind).schemes]
    assert len(schemes) >= 6
    for scheme in schemes:
        assert mask(f"run {scheme}://me:secret@db/shop") == f"run {scheme}://me:xxxxxx@db/shop"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is said that the password can be seen")
def test_a_password_in_the_url_leaves_the_process_list() -> None:
    with _silent_server() as port:
        url = f"queue+postgresql://me:s3cret-word@127.0.0.1:{port}/shop"
        command = [sys.executable, "-m", "headrace.cli.main", "check", url]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            # It waits for the server's first word: by then nothing shows the password any more.
            watched = psutil.Process(process.pid)
            wait_for(
                lambda: any(c.raddr and c.raddr.port == port for c in watched.net_connections()),
                "it connects",
            )
            assert watched.cmdline()[-1] == f"queue+postgresql://me:{'x' * 11}@127.0.0.1:{port}/shop"
        finally:
            process.kill()
            process.communicate()


def test_a_command_line_that_is_wrong_shows_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["status", "--lake", "l", "mysql://me:hunter2@db/x"], ["mysql://me:hunter2@db/x"]):
        with pytest.raises(SystemExit):
            main(wrong)
        said = capsys.readouterr().err
        assert "xxxxxxx@db" in said
        assert "hunter2" not in said
