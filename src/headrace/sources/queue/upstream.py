"""The record of a mirror's objects upstream, made of its options, and the names of these objects.

`source` makes the record when it plans a mirror; a bad value of an option is refused. A lake stores the
record, and hands it back with each request; `stream_source` changes the pauses in it when a run begins to
read. All statements take the names of the schema's objects from here, quoted.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from headrace.core.errors import Misconfigured
from headrace.core.names import quote_identifier
from headrace.core.records import from_record
from headrace.sources.contract.values import Option
from headrace.sources.queue.declaration import DECLARATION, IDLE_TICK, QUEUE, SCHEMA, TICK
from headrace.sources.queue.position import QueueTimeline

VERSION = 4  # of the objects in the schema (`docs/formats.md`)
EVENT_TABLES = 3
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}\Z")
_NAME_LIMIT = 63  # bytes of an identifier


@dataclass(frozen=True, slots=True)
class Objects:
    """The names of one queue's objects in statements."""

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
        """The function that notices if somebody changes or removes events."""
        return self._in_schema(f"guard_{self.name}")

    @property
    def current(self) -> str:
        """The sequence whose last value is the number of the current event table."""
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
        """The names of the event tables, unquoted and without the schema."""
        return tuple(f"event_{self.name}_{number}" for number in range(EVENT_TABLES))

    def trigger(self, operation: str) -> str:
        """The unquoted name of a table's trigger."""
        name = f"{self.schema}_{self.name}_{operation.lower()}"
        if len(name) <= _NAME_LIMIT:
            return name
        return f"{zlib.crc32(name.encode()):08x}_{operation.lower()}"

    @property
    def tree_prefix(self) -> str:
        """The name of a partitioned table's row trigger, up to that table's number."""
        name = f"{self.schema}_{self.name}_tree_"
        if len(name) <= _NAME_LIMIT - len(str(2**32)):
            return name
        return f"{zlib.crc32(name.encode()):08x}_tree_"


def _refuse_malformed(name: str) -> None:
    """Refuse a name that is too long for objects' names, or that literals would have to escape."""
    if not _NAME.match(name):
        raise Misconfigured(
            "QUEUE_NAME_MALFORMED",
            f"{name!r} is not the name of a queue or of its schema",
            hint="use at most 40 lower-case letters, digits and underscores, no digit first",
        )


@dataclass(frozen=True, slots=True)
class QueueUpstream:
    """The objects that a stream is read through, and the life of the queue.

    Times are made of the numbers of ticks plus `base`, so they grow for ever even if the queue is replaced.
    `incarnation` is empty as long as the queue is not known to exist. Under load a tick is taken every
    `pause` seconds, and an idle queue is checked every `idle_pause`.
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
        """Read the record that the lake stores and hands back."""
        return from_record(cls, record)

    @property
    def objects(self) -> Objects:
        return Objects(self.schema, self.queue)

    @property
    def log(self) -> QueueTimeline:
        """The queue's timeline, in this life of it."""
        return QueueTimeline(self.base)


# --- options, to the record and back --------------------------------------------------------------


_LEAST, _MOST = 0.01, 3600.0  # seconds between two ticks
_LAKE_LETTERS = 8


def plan(lake_id: str, source: str, options: Mapping[str, str]) -> QueueUpstream:
    """The record of a planned mirror, from its options."""
    schema, queue = _value(options, SCHEMA), _value(options, QUEUE)
    Objects(schema, queue)
    lake = f"{lake_id[:_LAKE_LETTERS].lower()}_{source}"
    return with_pauses(QueueUpstream(schema=schema, queue=queue, lake=lake), options)


def with_pauses(upstream: QueueUpstream, options: Mapping[str, str]) -> QueueUpstream:
    """The record with the pauses of these options: each run may have others."""
    pause = _seconds(_value(options, TICK), TICK.name)
    return replace(
        upstream, pause=pause, idle_pause=max(_seconds(_value(options, IDLE_TICK), IDLE_TICK.name), pause)
    )


def options_of(upstream: QueueUpstream) -> dict[str, str]:
    """The options of a record, without the pauses: those that stay the same in every run."""
    return {QUEUE.name: upstream.queue, SCHEMA.name: upstream.schema}


def _value(options: Mapping[str, str], option: Option) -> str:
    return DECLARATION.value(options, option.name) or ""


def _seconds(text: str, name: str) -> float:
    with suppress(ValueError):
        if _LEAST <= (seconds := float(text)) <= _MOST:
            return seconds
    raise Misconfigured(
        "QUEUE_PAUSE_MALFORMED",
        f'"{text}" is not a pause that {name} can have',
        hint=f"write seconds, from {_LEAST:g} to {_MOST:g}: {name} = 0.1",
    )
