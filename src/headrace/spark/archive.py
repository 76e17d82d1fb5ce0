"""An archive of Spark's classes, from which a Java on this machine starts in half the time.

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

import hashlib
import importlib.util
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from headrace.spark.java import answer, cache_folder, likely_java

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
