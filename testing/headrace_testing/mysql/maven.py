"""Servers that a JAR of Maven Central packs: for releases that no suite of Debian serves.

`programs` calls `unpack`, after `debian.fetch` has brought the libraries and their loader. Maven does the
work, from the mirror that it is set up with. The JAR is compared with a pinned hash before it is unpacked.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace_testing.cache import announce
from headrace_testing.mysql.debian import FetchError

DEADLINE = 600.0
_GET = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:get"


@dataclass(frozen=True, slots=True)
class Pack:
    """A JAR with a server: what it is called, its hash, and which of its folders go where."""

    artifact: str  # group:name:version
    sha256: str
    folders: Mapping[str, str] = field(hash=False)  # the target below the root, by the folder in the JAR
    archive: str | None = None  # the .tar.gz in the JAR that holds the folders


def unpack(pack: Pack, root: Path) -> None:
    """Put the folders of a pack below `root`; its programs are executable then."""
    folder = root.with_name("maven")
    announce(f"fetching {pack.artifact} with Maven")
    try:
        jar = _fetch(pack.artifact, folder)
        if hashlib.sha256(jar.read_bytes()).hexdigest() != pack.sha256:
            raise FetchError(f'"{jar.name}" is not what was pinned')
        content = folder / "content"
        with zipfile.ZipFile(jar) as opened:
            opened.extractall(content)
        if pack.archive is not None:
            with tarfile.open(content / pack.archive) as tar:
                tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
                tar.extractall(content)
        for source, target in pack.folders.items():
            shutil.copytree(content / source, root / target, dirs_exist_ok=True)
            if target.endswith("bin"):
                for program in (root / target).iterdir():
                    program.chmod(0o755)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fetch(artifact: str, folder: Path) -> Path:
    command = ["mvn", "-q", "-B", _GET, f"-Dmaven.repo.local={folder}", f"-Dartifact={artifact}"]
    try:
        done = subprocess.run(
            [*command, "-Dtransitive=false"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE,
        )
    except FileNotFoundError:
        raise FetchError('"mvn" is not installed') from None
    except subprocess.TimeoutExpired:
        raise FetchError(f'"mvn" did not end within {DEADLINE:g} s') from None
    group, name, version = artifact.split(":")
    jar = folder / group.replace(".", "/") / name / version / f"{name}-{version}.jar"
    if done.returncode or not jar.exists():
        raise FetchError(f'Maven could not fetch "{artifact}": {done.stdout.strip()[-500:]}')
    return jar
