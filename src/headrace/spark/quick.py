"""A Spark that answers soon: for commands that run one query and end.

    begin()     start it in a thread, while the caller reads the lake
    session()   the session, once it is there
    close()     stop it

Its Java starts from the archive of classes (`archive`), and writes it as it ends, after the answer, if there
is none. What Java and Spark print is heard by nobody who asked a question (`jvm`).

Only a session of our own on this machine is started so; where the environment says another Spark, that one
is used.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from headrace.spark.session import Session, SparkConfig, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Quick:
    """One session, started at most once."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "headrace-spark")
        self._started: Future[Session] | None = None

    def begin(self) -> None:
        """Start it beside whatever the caller does."""
        if self._started is None:
            self._started = self._pool.submit(_opened)

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


def _opened() -> Session:
    return open_session(SparkConfig(), "headrace sql", brief=True)
