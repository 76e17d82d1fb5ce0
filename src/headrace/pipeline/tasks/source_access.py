"""A task's access to the source: a value in an item, and a reader where the task runs.

The address travels sealed; the key comes another way (`spark.secrets`).
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sources import registry
from headrace.sources.contract.copying import Reader
from headrace.sources.contract.values import Json
from headrace.spark.secrets import Key, SealedSecret


@dataclass(frozen=True, slots=True)
class SourceAccess:
    """The source of a task: its kind, its address, which server it has to be, and what may be read there."""

    kind: str
    identity: Json
    address: SealedSecret
    ticket: Json
    role: str

    def reader(self, key: Key) -> Reader:
        """A reader; it connects when it is first asked for something."""
        source = registry.by_kind(self.kind)
        address = source.address(self.address.open(key))
        return source.reader(address, self.identity, self.ticket, role=self.role)
