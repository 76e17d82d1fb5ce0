"""A Spark that answers soon: for commands that run one query and end.

    begin()     start it in a thread, while the caller reads the lake
    session()   the session, once it is there
    close()     stop it

Most of a start is Java loading and checking thousands of classes. Java can keep them as it needs them in an
archive (class data sharing): the first command's Java writes it as it ends, after the answer, and all later
ones of the same Java and the same Spark start from it. It is in the user's cache folder; the first command
that finds one complete (its head is written last) gives it its name. Java itself leaves alone what does not
fit. Without a folder that can be written there is none.

What Java and Spark print while they start is for nobody who asked a question; HEADRACE_SPARK_LOG shows it.

Only a session of our own on this machine is started so; where the environment says another Spark, that one
is used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.spark.java import cache_folder, likely_java
from headrace.spark.session import Session, SparkConfig, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Java's own words about an archive go to standard output, where our rows are.
_QUIET = "-Xlog:disable -Xlog:all=off:stderr"
_LONG_AGO = 600.0


class Quick:
    """One session, started at most once."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "headrace-spark")
        self._started: Future[Session] | None = None
        self._archive = _Archive.of(os.environ)

    def begin(self) -> None:
        """Start it beside whatever the caller does."""
        if self._started is None:
            conf = {} if self._archive is None else {"spark.driver.extraJavaOptions": self._archive.options}
            self._started = self._pool.submit(_opened, conf)

    def session(self) -> SparkSession:
        """The session; raises what kept it from starting."""
        self.begin()
        assert self._started is not None
        return self._started.result().spark

    def close(self) -> None:
        """Stop what was started."""
        self._pool.shutdown()
        if self._started is not None and self._started.exception() is None:
            self._started.result().close()


def _opened(conf: Mapping[str, str]) -> Session:
    with _silence():
        return open_session(SparkConfig(conf=conf), "headrace sql")


@contextmanager
def _silence() -> Iterator[None]:
    """What is started inside has no standard error; ours is as before afterwards."""
    if os.environ.get("HEADRACE_SPARK_LOG"):
        yield
        return
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class _Archive:
    """The archive for one Java and one Spark: used if it is there, else to be written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> _Archive | None:
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

    @property
    def options(self) -> str:
        """What Java is told: to start from the archive, or to write one."""
        self._promote()
        if self._path.is_file():
            return f"{_QUIET} -Xshare:auto -XX:SharedArchiveFile={self._path}"
        return f"{_QUIET} -XX:ArchiveClassesAtExit={self._path.with_suffix(f'.{os.getpid()}')}"

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
