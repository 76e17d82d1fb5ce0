"""The record of what a mirror has upstream, and the names of the objects in the source's schema.

Made where a mirror is planned; a lake stores the record, and hands it back with whatever it asks for. All
statements take their names from here, quoted.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.core.errors import Misconfigured
from headrace.core.names import quote_identifier
from headrace.core.records import from_record
from headrace.sources.queue.position import QueueTimeline

VERSION = 4  # of what stands in the schema (`docs/formats.md`)
EVENT_TABLES = 3
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}\Z")
_NAME_LIMIT = 63  # bytes of an identifier


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of one queue, as statements name them."""

    schema: str
    name: str  # of the queue

    def __post_init__(self) -> None:
        for name in (self.schema, self.name):
            _refuse_malformed(name)

    @property
    def quoted_schema(self) -> str:
        return quote_identifier(self.schema)

    def _in_schema(self, name: str) -> str:
        return f"{self.quoted_schema}.{quote_identifier(name)}"

    @property
    def queue(self) -> str:
        return self._in_schema("queue")

    @property
    def tick(self) -> str:
        return self._in_schema("tick")

    @property
    def reader(self) -> str:
        return self._in_schema("reader")

    @property
    def tracked_name(self) -> str:
        return self._in_schema("tracked")

    @property
    def function(self) -> str:
        return self._in_schema(self.function_name)

    @property
    def function_name(self) -> str:
        return f"capture_{self.name}"

    @property
    def guard(self) -> str:
        """The function that tells of events that somebody removes by hand."""
        return self._in_schema(f"guard_{self.name}")

    @property
    def current(self) -> str:
        """The sequence whose last value is the number of the event table that triggers write to."""
        return self._in_schema(self.current_name)

    @property
    def current_name(self) -> str:
        return f"current_{self.name}"

    @property
    def events(self) -> tuple[str, ...]:
        """The event tables, in the order of their numbers."""
        return tuple(self._in_schema(name) for name in self.event_names)

    @property
    def event_names(self) -> tuple[str, ...]:
        """Their names, not quoted and without the schema."""
        return tuple(f"event_{self.name}_{number}" for number in range(EVENT_TABLES))

    def trigger(self, operation: str) -> str:
        """The name, not quoted, of a trigger of a table."""
        name = f"{self.schema}_{self.name}_{operation.lower()}"
        if len(name) <= _NAME_LIMIT:
            return name
        return f"{zlib.crc32(name.encode()):08x}_{operation.lower()}"

    @property
    def tree_prefix(self) -> str:
        """The name of a trigger on the rows of a partitioned table, up to that table's number."""
        name = f"{self.schema}_{self.name}_tree_"
        if len(name) <= _NAME_LIMIT - len(str(2**32)):
            return name
        return f"{zlib.crc32(name.encode()):08x}_tree_"


def _refuse_malformed(name: str) -> None:
    """Refuse what the names of objects cannot be made of, or literals would have to escape."""
    if not _NAME.match(name):
        raise Misconfigured(
            "QUEUE_NAME_MALFORMED",
            f"{name!r} is not the name of a queue or of its schema",
            hint="use at most 40 lower-case letters, digits and underscores, no digit first",
        )


@dataclass(frozen=True, slots=True)
class QueueUpstream:
    """The objects that a stream is read through, and which life of the queue it is of.

    `base` is what is added to the numbers of ticks to make times of them, which grow for ever though the
    queue is another one. `incarnation` is empty as long as the queue is not known to be there. Under load a
    tick is taken every `pause` seconds, and an idle queue is looked at every `idle_pause`.
    """

    schema: str
    queue: str
    lake: str  # the name under which this mirror reads
    incarnation: str = ""
    base: int = 0
    pause: float = 0.1
    idle_pause: float = 0.5

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> QueueUpstream:
        """Read the record of it, which the lake stores and hands back."""
        return from_record(cls, record)

    @property
    def objects(self) -> Objects:
        return Objects(self.schema, self.queue)

    @property
    def log(self) -> QueueTimeline:
        """The queue, in this life of it."""
        return QueueTimeline(self.base)
