"""Tables whose changes are captured at the source, and a position that was read after that.

It may have to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from headrace.core.names import TableName
from headrace.pipeline.state.owner import Owner
from headrace.pipeline.state.records import SourceRecord
from headrace.sources import registry
from headrace.sources.contract.mirror import Address, CapturedTables, Mirror
from headrace.sources.contract.source import Source
from headrace.sources.contract.values import Json


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

    record: SourceRecord
    address: Address
    identity: Json

    @classmethod
    def of(cls, owner: Owner) -> SourcePlace:
        known, connection = owner.ledger.source, owner.mirror.connection
        assert known is not None
        return cls(known, connection.address, connection.identity)

    @property
    def source(self) -> Source:
        return registry.by_kind(self.record.kind)

    @contextmanager
    def connect(self, role: str = "publish") -> Iterator[Mirror]:
        with closing(self.source.connect(self.address, role=role)) as connection:
            yield connection.mirror(self.record.upstream, self.identity)

    def capture(self, names: Sequence[TableName]) -> CapturedTables:
        """See that changes of the tables are captured; committed when this returns.

        Where one of them comes with an error, none is.
        """
        with self.connect() as mirror:
            captured = _capture(mirror, names)
            if captured.examined_tables.errors and mirror.captures is not None:
                mirror.captures.release(names)
            return captured

    def capture_again(self, names: Sequence[TableName]) -> CapturedTables:
        """Capture tables that were mirrored before, as far as they are still fit for it."""
        with self.connect("resync") as mirror:
            found = mirror.examine(names)
            captured = _capture(mirror, found.fit)
            return replace(captured, examined_tables=found.then(captured.examined_tables))


def _capture(mirror: Mirror, names: Sequence[TableName]) -> CapturedTables:
    if mirror.captures is not None:
        return mirror.captures.capture(names)
    found = mirror.examine(names)
    return CapturedTables(found, mirror.end())
