"""The files of deploy/: each checked by the program that will read it, and the image's steps done for real.

The image needs no engine here: its steps run by chroot in a root that debootstrap makes. Then a mirror runs
there as the image says: as its user, with nothing writable but /tmp and the lake. That takes a superuser of
Linux and minutes: `full`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import kubernetes_validate
import pytest
import yaml  # type: ignore[import-untyped]

from headrace_testing.ports import free_port
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.debian_programs import program
from tests.meta.tracked import ROOT

DEPLOY = ROOT / "deploy"
MANIFEST = tuple(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8")))
# What the machine needs to reach packages, as it is set up.
_HANDED_ON = (
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d",
    "/etc/pip.conf",
    "/etc/resolv.conf",
    "/etc/ssl/certs/ca-certificates.crt",
)


@pytest.mark.parametrize("record", MANIFEST, ids=lambda record: record["kind"])
def test_the_manifest_follows_kubernetes_schemas(record: dict[str, Any]) -> None:
    kubernetes_validate.validate(record, "1.34", strict=True)


@pytest.mark.full
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "headrace@.service").read_text("utf-8")
    installed = unit.replace("/srv/headrace/bin", str(Path(sys.executable).parent))
    (tmp_path / "headrace@.service").write_text(installed, "utf-8")
    analyze = program("systemd-analyze", "systemd")
    told = subprocess.run(
        [analyze, "verify", tmp_path / "headrace@shop.service"], capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stderr) == (0, "")


# --- the image ------------------------------------------------------------------------------------


def instructions() -> Iterator[tuple[str, str]]:
    """Each instruction of the Containerfile, with its argument on one line."""
    lines = (DEPLOY / "Containerfile").read_text("utf-8").replace("\\\n", "").splitlines()
    for line in lines:
        if line and not line.startswith("#"):
            word, _, argument = line.partition(" ")
            yield word, argument


def is_superuser_of_linux() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0


class Image:
    """A root in which the instructions were done."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        self.user = "0"
        self.entrypoint: list[str] = []

    def build(self, context: Path) -> None:
        for word, argument in instructions():
            match word:
                case "FROM":
                    self._begin(argument)
                case "RUN":
                    self._hand_on()  # each time: the step before may have replaced certificates
                    self._within(f"mount -t proc proc {self.root}/proc", ["sh", "-c", argument])
                case "COPY":
                    source, target = argument.split()
                    _copy(context / source, self.root / target.lstrip("/"))
                case "ENV":
                    self.variables |= dict(each.split("=", 1) for each in shlex.split(argument))
                case "USER":
                    self.user = argument
                case "ENTRYPOINT":
                    self.entrypoint = json.loads(argument)
                case "VOLUME" | "WORKDIR" | "STOPSIGNAL" | "CMD" | "HEALTHCHECK":
                    pass  # of the engine
                case _:
                    raise AssertionError(f"the test does not know {word}")

    def _begin(self, base: str) -> None:
        suite = base.removeprefix("debian:").removesuffix("-slim")
        debootstrap = program("debootstrap", "debootstrap", "usr/sbin")
        where = {"DEBOOTSTRAP_DIR": str(debootstrap.parents[1] / "share" / "debootstrap")}
        made = subprocess.run(
            [debootstrap, "--variant=minbase", suite, self.root],
            env=os.environ | where,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-2000:]

    def _hand_on(self) -> None:
        for name in _HANDED_ON:
            if Path(name).exists():
                _copy(Path(name), self.root / name.lstrip("/"))

    def _within(self, mounts: str, command: list[str], user: str = "0") -> None:
        done = self.start(mounts, command, user)
        said, _ = done.communicate(timeout=900)
        assert done.returncode == 0, f"{shlex.join(command)}\n{said[-3000:]}"

    def start(self, mounts: str, command: list[str], user: str | None = None) -> subprocess.Popen[str]:
        """Run a command in the root, in mounts of its own."""
        user = self.user if user is None else user
        variables = self.variables | {name: os.environ[name] for name in ("PIP_CERT",) if name in os.environ}
        told = [f"{name}={value}" for name, value in variables.items()]
        chroot = ["chroot", f"--userspec={user}:{user}", str(self.root), "env", "-i", *told, *command]
        return subprocess.Popen(
            ["unshare", "-m", "sh", "-c", f"{mounts} && exec {shlex.join(chroot)}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, symlinks=False)
    else:
        target.unlink(missing_ok=True)  # never through a link, which would lead out of the root
        shutil.copy(source, target)


@pytest.mark.full
@pytest.mark.server
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_the_image_mirrors_on_a_root_that_is_read_only(database: Database, tmp_path: Path) -> None:
    assert is_superuser_of_linux(), "chroot and mounts need a superuser of Linux"
    context, lake = tmp_path / "context", tmp_path / "lake"
    shutil.copytree(DEPLOY, context / "deploy")
    wheel = ["build", "--no-isolation", "--outdir", str(context / "dist"), str(ROOT)]
    built = [sys.executable, "-m", *wheel]
    subprocess.run(built, check=True, capture_output=True)
    image = Image(tmp_path / "root")
    image.build(context)
    lake.mkdir()
    os.chown(lake, int(image.user), int(image.user))

    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 1000)", user="app"
    )
    root, port = image.root, free_port()
    mounts = " && ".join(
        [
            f"mount --bind {root} {root}",
            f"mount -t proc proc {root}/proc",
            f"mount --bind /dev {root}/dev",
            f"mount -t tmpfs tmpfs {root}/tmp",
            f"mount --bind {lake} {root}/lake",
            f"mount -o remount,bind,ro {root}",
        ]
    )
    run = ["run", database.url(user="app"), "--lake", "/lake/shop", "--tables", "public.*"]
    mirror = image.start(mounts, [*image.entrypoint, *run, "--listen", f"127.0.0.1:{port}"])
    try:
        wait_for(partial(_is_ready, port), "a mark", deadline=300)
        mirror.terminate()
        said, _ = mirror.communicate(timeout=120)
    finally:
        mirror.kill()
    assert mirror.returncode == 0, said[-3000:]
    answer = image.start(mounts, [*image.entrypoint, "sql", "--lake", "/lake/shop", "SELECT sum(id) FROM t"])
    assert "500500" in answer.communicate(timeout=300)[0]
    refused = image.start(mounts, ["touch", "/srv/headrace/written"])
    assert "Read-only file system" in refused.communicate(timeout=60)[0]


def _is_ready(port: int) -> bool:
    try:
        with closing(urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5)) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
