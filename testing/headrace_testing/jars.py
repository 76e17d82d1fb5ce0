"""Jars that other projects made for Spark, and the Spark that they need, for a test: fetched once a machine.

`locate(ICEBERG)` is a file in the cache (`testing.cache`). Maven asks whichever repository it is set up with;
what comes is compared with a pinned hash. `locate_package` is a folder with a package by pip, such as the
PySpark that a jar was made for. What cannot be had raises `SERVER_MISSING`: never a silent skip. Nothing but
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
    """A jar, or another archive, by its name at Maven Central; and the digest of its bytes."""

    group: str
    artifact: str
    version: str
    sha512: str
    kind: str = "jar"

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.{self.kind}"


# The newest that each has a jar for. Delta's for 4.2 fails on 4.3 with NoSuchMethodError.
PYSPARK_OF_ICEBERG, PYSPARK_OF_DELTA = "4.1.4", "4.2.1"
ICEBERG = Jar(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    "ac1e2cb00970309f0c6bf241fabf334aef373c1f3e3b443181d429d5f2c0903ace47df9cfc1d55c95807a096cf405ae0a8868831b9e9eb5696dfdb6380587f38",
)
DELTA = Jar(
    "io.delta",
    "delta-spark_4.2_2.13",
    "4.4.0",
    "e5ed81343c92148c786396698e8543956e41fee78eedfe4c305d231d7de900ce32ef39d6b63d090bca3baa4650eb9d0e88f5ef697a780da655344e493f438e27",
)
DELTA_STORAGE = Jar(
    "io.delta",
    "delta-storage",
    "4.4.0",
    "88dc766fb423a2b81546373133246d7f8216e20456b7f6e8ba5ce6c861d6c7fa9e8bac3081402775241e7ef62a0ae05f2070d0816f1b07d838f2ef3d98cfa744",
)


def locate(jar: Jar) -> Path:
    """The jar, fetched if this machine has none."""
    entry = f"maven-{jar.artifact}-{jar.version}"
    return cached(entry, lambda into: fetch(jar, into)) / jar.file


def fetch(jar: Jar, into: Path) -> None:
    """Have Maven put the jar into a folder."""
    announce(f"fetching {jar.file}")
    _run_maven(jar, into)
    with (into / jar.file).open("rb") as file:
        found = hashlib.file_digest(file, "sha512").hexdigest()
    if found != jar.sha512:
        raise missing(jar.file, "what was fetched is not what was pinned", detail=found)
    shutil.rmtree(into / "repository")


def locate_package(name: str, version: str) -> Path:
    """A folder for PYTHONPATH with a package, by pip, if this machine has none."""

    def install(into: Path) -> None:
        announce(f"fetching {name} {version}")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(into)]
        done = subprocess.run(
            [*command, f"{name}=={version}"], capture_output=True, text=True, check=False, timeout=_DEADLINE
        )
        if done.returncode:
            raise missing(f"{name} {version}", "pip could not fetch it", detail=done.stderr[-500:])

    return cached(f"{name}-{version}", install)


def locate_pyspark(version: str) -> Path:
    """A PySpark beside the one that is installed."""
    return locate_package("pyspark", version)


def _run_maven(jar: Jar, into: Path) -> None:
    command = [
        "mvn",
        "--quiet",
        "--batch-mode",
        "dependency:copy",
        f"-Dartifact={jar.group}:{jar.artifact}:{jar.version}:{jar.kind}",
        f"-DoutputDirectory={into}",
        f"-Dmaven.repo.local={into / 'repository'}",
    ]
    try:
        done = subprocess.run(
            command, cwd=into, capture_output=True, text=True, check=False, timeout=_DEADLINE
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise missing(jar.file, '"mvn" is not installed or does not answer', detail=str(error)) from error
    if done.returncode or not (into / jar.file).exists():
        raise missing(jar.file, "Maven could not fetch it", detail=done.stdout.strip()[-500:])


def missing(name: str, why: str, *, detail: str) -> Misconfigured:
    """The error of something that cannot be had here."""
    return Misconfigured(
        "SERVER_MISSING",
        f'no "{name}" for this test: {why}',
        detail=detail,
        hint="install Maven, and let it and pip reach their repositories or a mirror of them",
    )
