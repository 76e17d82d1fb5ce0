"""Jars that other projects made for Spark, and the Spark that they need, for a test: fetched once a machine.

`locate(ICEBERG)` is a file in the cache (`testing.cache`). Maven asks whichever repository it is set up with;
what comes is compared with a pinned hash. `locate_pyspark()` is a folder for PYTHONPATH with the PySpark that
the jar was made for, by pip. What cannot be had raises `SERVER_MISSING`: never a silent skip. Nothing but
tests needs either.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
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


PYSPARK = "4.1.4"  # the newest that Iceberg has a runtime for
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
            raise _missing_error(jar.file, "what was fetched is not what was pinned", detail=found)
        shutil.rmtree(into / "repository")

    return cached(f"maven-{jar.artifact}-{jar.version}", fetch) / jar.file


def locate_pyspark() -> Path:
    """The folder with `PYSPARK`, by pip, if this machine has none."""

    def fetch(into: Path) -> None:
        announce(f"fetching PySpark {PYSPARK}")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(into)]
        done = subprocess.run(
            [*command, f"pyspark=={PYSPARK}"], capture_output=True, text=True, check=False, timeout=_DEADLINE
        )
        if done.returncode:
            raise _missing_error(f"pyspark {PYSPARK}", "pip could not fetch it", detail=done.stderr[-500:])

    return cached(f"pyspark-{PYSPARK}", fetch)


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
        raise _missing_error(
            jar.file, '"mvn" is not installed or does not answer', detail=str(error)
        ) from error
    if done.returncode or not (into / jar.file).exists():
        raise _missing_error(jar.file, "Maven could not fetch it", detail=done.stdout.strip()[-500:])


def _missing_error(name: str, why: str, *, detail: str) -> Misconfigured:
    return Misconfigured(
        "SERVER_MISSING",
        f'no "{name}" for this test: {why}',
        detail=detail,
        hint="install Maven, and let it and pip reach their repositories or a mirror of them",
    )
