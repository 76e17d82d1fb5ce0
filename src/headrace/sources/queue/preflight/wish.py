"""A wish in the queue's words: what is to be mirrored, and through which queue. All checks go by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.sources.contract.findings import Wish
from headrace.sources.contract.values import Json
from headrace.sources.queue.declaration import DECLARATION, HANDOFF, QUEUE, SCHEMA, XID
from headrace.sources.queue.objects import Objects, QueueUpstream


@dataclass(frozen=True, slots=True)
class QueueWish:
    """A wish to mirror tables through a queue."""

    patterns: Sequence[str]
    objects: Objects
    handoff: str = XID  # how a table is copied
    connections: int = 4  # that the copy may open
    identity: Json | None = None  # of the source that the lake already mirrors

    @classmethod
    def of(cls, wish: Wish) -> QueueWish:
        """Read a wish: its options, or what the mirror has upstream already."""
        if wish.upstream is not None:
            objects = QueueUpstream.of(wish.upstream).objects
        else:
            said = {option.name: DECLARATION.value(wish.options, option.name) for option in (SCHEMA, QUEUE)}
            objects = Objects(said[SCHEMA.name] or "", said[QUEUE.name] or "")
        handoff = DECLARATION.value(wish.options, HANDOFF.name) or XID
        return cls(wish.patterns, objects, handoff, wish.connections, wish.identity)
