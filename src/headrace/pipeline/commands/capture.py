"""Tables whose changes are captured at the source, and a position that was read after that.

It may have to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.pipeline.state.owner import Owner
from headrace.sources import registry
from headrace.sources.contract.record import Json
from headrace.sources.contract.session import Address, Session
from headrace.sources.contract.source import Source
from headrace.sources.contract.tables import ExaminedTables


@dataclass(frozen=True, slots=True)
class CapturedTables:
    """Tables whose changes are captured, and a position that was read after."""

    examined_tables: ExaminedTables
    position: Position


@dataclass(frozen=True, slots=True)
class Capturing:
    """A background job that has tables captured: until it is taken note of, they are where it puts them."""

    names: Sequence[TableName]
    capture: Callable[[Sequence[TableName]], CapturedTables]

    def __call__(self) -> CapturedTables:
        return self.capture(self.names)


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """The source as the owner has it, for work on a connection of its own."""

    source: Source
    address: Address
    identity: Json
    upstream: Json

    @classmethod
    def of(cls, owner: Owner) -> SourcePlace:
        known = owner.ledger.source
        assert known is not None
        source = registry.by_kind(known.kind)
        return cls(source, owner.session.address, owner.session.identity, known.upstream)

    @contextmanager
    def connect(self, role: str = "publish") -> Iterator[Session]:
        with closing(self.source.connect(self.address, role=role)) as session:
            session.prove(self.identity)
            yield session

    def capture(self, names: Sequence[TableName]) -> CapturedTables:
        """See that changes of the tables are captured; committed when this returns.

        Where one of them comes with an error, none is.
        """
        with self.connect() as session:
            tables = session.tables(self.upstream)
            found = tables.capture(names)
            if found.errors:
                tables.release(names)
            return CapturedTables(found, session.behind_all(self.upstream))

    def capture_again(self, names: Sequence[TableName]) -> CapturedTables:
        """Capture tables that were mirrored before, as far as they are still fit for it."""
        with self.connect("resync") as session:
            tables = session.tables(self.upstream)
            found = tables.examine(names)
            found = found.then(tables.capture(found.fit))
            return CapturedTables(found, session.behind_all(self.upstream))
