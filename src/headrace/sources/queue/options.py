"""The options of a queue's mirror: to the record of its objects, and back.

`source` calls it to plan a mirror, `stream_source` when a run begins to read. A bad value is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from headrace.core.errors import Misconfigured
from headrace.sources.contract.values import Option
from headrace.sources.queue.declaration import DECLARATION, IDLE_TICK, QUEUE, SCHEMA, TICK
from headrace.sources.queue.upstream import Objects, QueueUpstream

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
