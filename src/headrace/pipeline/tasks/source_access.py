"""A task's access to the source: a value in an item, and a reader where the task runs.

The address travels sealed; the key comes another way (`spark.secrets`). A `SourceDoor` stays in the driver:
it seals the password as it is when a job begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headrace.sources import registry
from headrace.sources.contract.copying import Reader
from headrace.sources.contract.mirror import Address
from headrace.sources.contract.values import Json
from headrace.sources.shared.refusals import LoginWithheld
from headrace.spark.secrets import Key, SealedSecret, seal

T = TypeVar("T")


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


@dataclass(frozen=True, slots=True)
class SourceDoor:
    """The driver's end: gives jobs access to the source by one ticket."""

    kind: str
    identity: Json
    address: Address
    ticket: Json
    role: str

    def run(self, job: Callable[[SourceAccess, Key], T]) -> T:
        """Run a job with the password of now; once more if another one has come into force meanwhile."""
        text = self.address.text
        try:
            return self._run(job, text)
        except LoginWithheld:
            later = self.address.text
            if later == text:
                raise
            return self._run(job, later)

    def _run(self, job: Callable[[SourceAccess, Key], T], text: str) -> T:
        sealed, key = seal(text)
        return job(SourceAccess(self.kind, self.identity, sealed, self.ticket, self.role), key)
