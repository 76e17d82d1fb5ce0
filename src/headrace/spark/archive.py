"""An archive of Spark's classes, from which a Java on this machine starts in half the time.

Most of a start is Java loading and checking thousands of classes. Java can keep them as it needs them in an
archive (class data sharing). A session whose life is brief (a query, `verify`, `run --once`) has its Java
write one as it ends, after the work; all later ones of the same Java and the same Spark start from it. It is
in the user's cache folder; the first that finds one complete (its head is written last) gives it its name.
Java itself leaves alone what does not fit. Without a folder that can be written there is none.

Called by `session`, which starts our own sessions on this machine; for any other nothing is changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from headrace.spark.java import cache_folder, likely_java

# Java's own words about an archive go to standard output, which belongs to the command.
_QUIET = "-Xlog:disable -Xlog:all=off:stderr"
_LONG_AGO = 600.0


class Archive:
    """The archive for one Java and one Spark: used if it is there, else to be written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Archive | None:
        folder, java = cache_folder(environ), likely_java(environ)
        spec = importlib.util.find_spec("pyspark")
        if folder is None or java is None or spec is None or spec.origin is None or _elsewhere(environ):
            return None
        spark = Path(spec.origin).parent
        jars = sorted((spark / "jars").glob("spark-core*"))
        release = java.parent.parent / "release"
        parts = [*map(os.fsencode, (java, spark, *jars)), release.read_bytes() if release.is_file() else b""]
        seal = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
        return cls(folder / f"spark-{seal}.jsa")

    def options(self, *, brief: bool) -> str | None:
        """What Java is told: to start from the archive, or to write one if its life is brief."""
        self._promote()
        if self._path.is_file():
            return f"{_QUIET} -Xshare:auto -XX:SharedArchiveFile={self._path}"
        making = self._path.with_suffix(f".{os.getpid()}")
        return f"{_QUIET} -XX:ArchiveClassesAtExit={making}" if brief else None

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
    """Whether Spark's Java is not ours to start."""
    return bool(environ.get("SPARK_REMOTE") or environ.get("PYSPARK_GATEWAY_PORT"))
