"""The context of bytes of the stream: the tick in which they begin.

    HEAD ─ EVENT ─ EVENT │ EVENT ─ EVENT │ EVENT   HEAD ...     cut between frames
          nothing before     of the tick    of it

An event itself says everything else. Only the decoder makes and reads contexts; the rooms above carry them
and never look inside.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sources.contract.decoder import Context


@dataclass(frozen=True, slots=True)
class OpenTick:
    """The tick in which bytes begin."""

    time: int
    commit_ts: int  # microseconds since 1970


@dataclass(frozen=True, slots=True)
class QueueStreamContext:
    """The tick in which bytes begin, if there is one."""

    inside: OpenTick | None = None


def own(context: Context) -> QueueStreamContext:
    """Assert that a context is ours, for the type checker."""
    assert isinstance(context, QueueStreamContext)
    return context
