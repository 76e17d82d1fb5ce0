"""The reader of a copy: PostgreSQL's reader, except that each key range gets a tick of its own.

The reading transaction can't take the tick: the tick must be committed, and must show more than that
transaction does.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from types import TracebackType

import pyarrow as pa

from headrace.core.schema import Column, TableSchema
from headrace.sources.contract.copying import Key, KeyRange, Piece, PieceRead
from headrace.sources.contract.values import Json
from headrace.sources.postgres.copy import key_range
from headrace.sources.postgres.copy.follower import PostgresFollower
from headrace.sources.postgres.copy.reader import PostgresReader, decode
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import PostgresIdentity, identify, verify
from headrace.sources.postgres.session.statements import Session
from headrace.sources.queue.copy.plan import settle
from headrace.sources.queue.trust import prove
from headrace.sources.queue.upstream import Objects, QueueUpstream


@dataclass(slots=True)
class QueueReader:
    """Connections that read one piece after another, by a ticket."""

    address: PostgresAddress
    identity: PostgresIdentity
    ticket: Json
    role: str
    _follower: PostgresFollower = field(init=False)
    _pages: PostgresReader = field(init=False)
    _ticking: Session | None = None

    def __post_init__(self) -> None:
        self._follower = PostgresFollower(self.address, self.identity, role=self.role)
        self._pages = PostgresReader(self._follower, self.ticket)

    def __enter__(self) -> QueueReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._follower.__exit__(kind, error, trace)
        if self._ticking is not None:
            self._ticking.close()

    @contextmanager
    def read(
        self, columns: Sequence[Column], piece: Piece, record: Json | None = None
    ) -> Iterator[PieceRead]:
        """Read these columns of a piece."""
        if not isinstance(piece, KeyRange):
            with self._pages.read(columns, piece, record) as reading:
                yield reading
            return
        connection, names = self._follower.connection, [column.name for column in columns]
        key_range.prepare(connection)
        with (
            key_range.chunk(connection, names, piece, record=record) as (seen, buffers),
            closing(buffers),
        ):
            upstream = QueueUpstream.of(self.ticket["upstream"])
            handoff = settle(seen, self._ticker(upstream.objects), upstream)
            yield PieceRead(handoff, decode(columns, buffers, record))

    def look_up(
        self, schema: TableSchema, pieces: Sequence[Piece], keys: Sequence[Key]
    ) -> Generator[tuple[int, pa.Table], None, None]:
        """Find the rows with these keys."""
        yield from self._pages.look_up(schema, pieces, keys)

    def _ticker(self, objects: Objects) -> Session:
        if self._ticking is None or self._ticking.closed:
            self._ticking = connect(self.address, role=f"{self.role} tick")
            verify(identify(self._ticking), self.identity)
            prove(self._ticking, objects)
        return self._ticking
