"""A PostgreSQL that is mirrored by triggers, as the judge of its mirror.

A recording is exact by a tick: no transaction ended between its snapshot and that of the rows that were read.
Where one did, both are taken again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass

import psycopg

from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.sources.postgres.session.connection import connect
from headrace.sources.queue import tick as ticks
from headrace.sources.queue.batch import TickBatch, TxidSnapshot
from headrace.sources.queue.creation import ensure_queue
from headrace.sources.queue.position import QueueTimeline
from headrace.sources.queue.session.address import QueueAddress
from headrace.sources.queue.upstream import Objects
from headrace_testing.oracle.contract import Dialect, Login, Moment, Oracle, Recording, Session
from headrace_testing.oracle.postgres import DIALECT
from headrace_testing.oracle.postgres import ORACLE as POSTGRES
from headrace_testing.oracle.postgres_rows import Connection, source_rows

_OBJECTS = Objects("headrace", "main")


@dataclass(frozen=True, slots=True)
class QueueOracle:
    """The queue of an address, and all else of its PostgreSQL."""

    dialect: Dialect = DIALECT

    def moment(self, url: str) -> AbstractContextManager[Moment]:
        return POSTGRES.moment(_plain(url))

    def session(self, url: str) -> AbstractContextManager[Session]:
        return POSTGRES.session(_plain(url))

    def login(self, url: str) -> Login:
        found = POSTGRES.login(_plain(url))
        return Login(QueueAddress.parse(found.address).text, found.environment)

    def record(self, url: str, tables: Iterable[str]) -> Recording:
        names = list(tables)
        while True:
            with psycopg.connect(_plain(url), autocommit=True) as reader, _reading(reader) as snapshot:
                position, batch = _tick(url, snapshot)
                if batch.is_empty:
                    return Recording(
                        position, {name: source_rows(reader, TableName.parse(name)) for name in names}
                    )


@contextmanager
def _reading(reader: Connection) -> Iterator[TxidSnapshot]:
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    [(snapshot,)] = reader.execute("SELECT pg_current_snapshot()::text").fetchall()
    yield TxidSnapshot.parse(snapshot)
    reader.execute("COMMIT")


def _tick(url: str, snapshot: TxidSnapshot) -> tuple[Position, TickBatch]:
    """Take a tick; its position, and what ended since the snapshot."""
    with closing(connect(QueueAddress.parse(url).server, role="judge")) as connection:
        ensure_queue(connection, _OBJECTS)
        tick = ticks.take(connection, _OBJECTS)
        return tick.position(QueueTimeline()), TickBatch.between(snapshot, tick.snapshot)


def _plain(url: str) -> str:
    """The server's own address, however it is mirrored."""
    return url.removeprefix("queue+")


ORACLE: Oracle = QueueOracle()
