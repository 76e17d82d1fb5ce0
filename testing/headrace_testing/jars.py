"""Jars that other projects made for Spark, which a test puts beside us: fetched by Maven, once a machine.

`locate(ICEBERG)` is a file in the cache (`testing.cache`). Maven asks whichever repository it is set up with;
what comes is compared with a pinned hash. A jar that cannot be had raises `SERVER_MISSING`: never a silent
skip. Nothing but tests needs a jar.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headrace.core.errors import Misconfigured
from headrace_testing.cache import announce, cached

_DEADLINE = 500.0


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar by its name at Maven Central, and the digest of its bytes."""

    group: str
    artifact: str
    version: str
    sha512: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


# For Spark 4.1, and the newest that there is; it runs on 4.3, too.
ICEBERG = Jar(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    "ac1e2cb00970309f0c6bf241fabf334aef373c1f3e3b443181d429d5f2c0903ace47df9cfc1d55c95807a096cf405ae0a8868831b9e9eb5696dfdb6380587f38",
)


def locate(jar: Jar) -> Path:
    """The jar, fetched if this machine has none."""

    def fetch(into: Path) -> None:
        announce(f"fetching {jar.file}")
        _run_maven(jar, into)
        found = hashlib.sha512((into / jar.file).read_bytes()).hexdigest()
        if found != jar.sha512:
            raise _missing(jar, "what was fetched is not what was pinned", detail=found)
        shutil.rmtree(into / "repository")

    return cached(f"maven-{jar.artifact}-{jar.version}", fetch) / jar.file


def _run_maven(jar: Jar, into: Path) -> None:
    command = [
        "mvn",
        "--quiet",
        "--batch-mode",
        "dependency:copy",
        f"-Dartifact={jar.group}:{jar.artifact}:{jar.version}",
        f"-DoutputDirectory={into}",
        f"-Dmaven.repo.local={into / 'repository'}",
    ]
    try:
        done = subprocess.run(
            command, cwd=into, capture_output=True, text=True, check=False, timeout=_DEADLINE
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise _missing(jar, '"mvn" is not installed or does not answer', detail=str(error)) from error
    if done.returncode or not (into / jar.file).exists():
        raise _missing(jar, "Maven could not fetch it", detail=done.stdout.strip()[-500:])


def _missing(jar: Jar, why: str, *, detail: str) -> Misconfigured:
    return Misconfigured(
        "SERVER_MISSING",
        f'no jar "{jar.file}" for this test: {why}',
        detail=detail,
        hint="install Maven, and let it reach Maven Central or a mirror of it",
    )
