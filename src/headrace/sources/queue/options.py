"""The options of a queue's mirror, as the record of what it reads, and back.

Called where a mirror is planned (`source`) and where a run begins to read (`stream_source`); a value that
cannot be is refused there.
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
    """The record of a mirror that is to be, by the options of its user."""
    schema, queue = _value(options, SCHEMA), _value(options, QUEUE)
    Objects(schema, queue)
    lake = f"{lake_id[:_LAKE_LETTERS].lower()}_{source}"
    return with_pauses(QueueUpstream(schema=schema, queue=queue, lake=lake), options)


def with_pauses(upstream: QueueUpstream, options: Mapping[str, str]) -> QueueUpstream:
    """The queue with the pauses that these options ask for: each run may have others."""
    pause = _seconds(_value(options, TICK), TICK.name)
    return replace(
        upstream, pause=pause, idle_pause=max(_seconds(_value(options, IDLE_TICK), IDLE_TICK.name), pause)
    )


def options_of(upstream: QueueUpstream) -> dict[str, str]:
    """The options that say the same: those that stay what they are."""
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
