"""The options of a queue's mirror, as the record of what it reads, and back.

Called where a mirror is planned (`source`); a value that cannot be is refused there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from headrace.core.errors import Misconfigured
from headrace.sources.queue.declaration import DECLARATION, IDLE_TICK, QUEUE, SCHEMA, TICK
from headrace.sources.queue.objects import Objects, Upstream

_LEAST, _MOST = 0.01, 3600.0  # seconds between two ticks
_LAKE_LETTERS = 8


def planned(lake_id: str, source: str, options: Mapping[str, str]) -> Upstream:
    """The record of a mirror that is to be, by the options of its user."""
    values = {option.name: DECLARATION.value(options, option.name) or "" for option in DECLARATION.options}
    Objects(values[SCHEMA.name], values[QUEUE.name])
    return Upstream(
        schema=values[SCHEMA.name],
        queue=values[QUEUE.name],
        lake=f"{lake_id[:_LAKE_LETTERS].lower()}_{source}",
        pause=_seconds(values[TICK.name], TICK.name),
        idle_pause=max(
            _seconds(values[IDLE_TICK.name], IDLE_TICK.name), _seconds(values[TICK.name], TICK.name)
        ),
    )


def said(upstream: Upstream) -> dict[str, str]:
    """The options that say the same."""
    return {
        QUEUE.name: upstream.queue,
        SCHEMA.name: upstream.schema,
        TICK.name: f"{upstream.pause:g}",
        IDLE_TICK.name: f"{upstream.idle_pause:g}",
    }


def _seconds(text: str, name: str) -> float:
    with suppress(ValueError):
        if _LEAST <= (seconds := float(text)) <= _MOST:
            return seconds
    raise Misconfigured(
        "QUEUE_PAUSE_MALFORMED",
        f'"{text}" is not a pause that {name} can have',
        hint=f"write seconds, from {_LEAST:g} to {_MOST:g}: {name} = 0.1",
    )
