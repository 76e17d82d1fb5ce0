"""Jars that other projects made for Spark, and the Spark that they need, for a test: fetched once a machine.

`locate(ICEBERG)` is a file in the cache (`testing.cache`), `locate_all(APACHE_REST)` a folder of jars that
need each other. Maven asks whichever repository it is set up with; what comes is compared with a pinned hash.
`locate_package` is a folder with a package by pip, such as the PySpark that a jar was made for. What cannot
be had raises `SERVER_MISSING`: never a silent skip. Nothing but tests needs either.
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


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars at Maven Central with all that they need; the digest is of their names and bytes."""

    name: str
    artifacts: tuple[str, ...]  # group:artifact:version, and a classifier
    sha512: str


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
# The server of Iceberg's own tests; there is none of 1.12.
_JETTY = "12.1.5"
APACHE_REST = JarSet(
    "iceberg-rest-server-1.11.0",
    (
        "org.apache.iceberg:iceberg-open-api:1.11.0:test-fixtures",
        "org.apache.iceberg:iceberg-core:1.11.0",
        "org.apache.iceberg:iceberg-core:1.11.0:tests",
        f"org.eclipse.jetty:jetty-server:{_JETTY}",
        f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{_JETTY}",
        f"org.eclipse.jetty.compression:jetty-compression-server:{_JETTY}",
        f"org.eclipse.jetty.compression:jetty-compression-gzip:{_JETTY}",
        "org.apache.hadoop:hadoop-client-api:3.4.1",
        "org.apache.hadoop:hadoop-client-runtime:3.4.1",
        "org.slf4j:slf4j-simple:2.0.17",
        "org.xerial:sqlite-jdbc:3.50.3.0",
    ),
    "31dd4c2bd58c6fbd1db73b1e70e6b5011c4ec7c2e40e6cfdb3db8db9d56a20f26f8d0a80b5d5e008e264156dcf23dc3aea754d534597e507dcf522954ee430d6",
)


def locate(jar: Jar) -> Path:
    """The jar, fetched if this machine has none."""
    entry = f"maven-{jar.artifact}-{jar.version}"
    return cached(entry, lambda into: fetch(jar, into)) / jar.file


def fetch(jar: Jar, into: Path) -> None:
    """Have Maven put the jar into a folder."""
    announce(f"fetching {jar.file}")
    artifact = f"-Dartifact={jar.group}:{jar.artifact}:{jar.version}:{jar.kind}"
    _run_maven(jar.file, into, "dependency:copy", artifact, f"-DoutputDirectory={into}")
    if not (into / jar.file).exists():
        raise missing(jar.file, "Maven has not fetched it", detail=f"{jar.group}:{jar.artifact}")
    with (into / jar.file).open("rb") as file:
        found = hashlib.file_digest(file, "sha512").hexdigest()
    if found != jar.sha512:
        raise missing(jar.file, "what was fetched is not what was pinned", detail=found)
    shutil.rmtree(into / "repository")


def locate_all(jars: JarSet) -> Path:
    """The folder of a set of jars, fetched if this machine has none."""
    return cached(jars.name, lambda into: _fetch_all(jars, into))


def _fetch_all(jars: JarSet, into: Path) -> None:
    announce(f"fetching {jars.name}")
    (into / "pom.xml").write_text(_pom(jars))
    _run_maven(jars.name, into, "dependency:copy-dependencies", f"-DoutputDirectory={into}")
    digest = hashlib.sha512()
    for file in sorted(into.glob("*.jar")):
        digest.update(f"{file.name}\n".encode() + file.read_bytes())
    if digest.hexdigest() != jars.sha512:
        raise missing(jars.name, "what was fetched is not what was pinned", detail=digest.hexdigest())
    shutil.rmtree(into / "repository")


def _pom(jars: JarSet) -> str:
    names = ("groupId", "artifactId", "version", "classifier")
    found = []
    for each in jars.artifacts:
        parts = zip(names, each.split(":"), strict=False)
        found.append("".join(f"<{name}>{text}</{name}>" for name, text in parts))
    wanted = "".join(f"<dependency>{each}</dependency>" for each in found)
    own = "<groupId>test</groupId><artifactId>test</artifactId><version>1</version>"
    return f"<project><modelVersion>4.0.0</modelVersion>{own}<dependencies>{wanted}</dependencies></project>"


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


def _run_maven(name: str, into: Path, *goal: str) -> None:
    command = ["mvn", "--quiet", "--batch-mode", *goal, f"-Dmaven.repo.local={into / 'repository'}"]
    try:
        done = subprocess.run(
            command, cwd=into, capture_output=True, text=True, check=False, timeout=_DEADLINE
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise missing(name, '"mvn" is not installed or does not answer', detail=str(error)) from error
    if done.returncode:
        raise missing(name, "Maven could not fetch it", detail=done.stdout.strip()[-500:])


def missing(name: str, why: str, *, detail: str) -> Misconfigured:
    """The error of something that cannot be had here."""
    return Misconfigured(
        "SERVER_MISSING",
        f'no "{name}" for this test: {why}',
        detail=detail,
        hint="install Maven, and let it and pip reach their repositories or a mirror of them",
    )
