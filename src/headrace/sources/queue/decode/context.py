"""The context of bytes of the stream: the tick that they begin in.

    HEAD ─ EVENT ─ EVENT │ EVENT ─ EVENT │ EVENT   HEAD ...     cut between frames
          nothing before     of the tick    of it

An event says all else itself. Made and read by the decoder alone; everybody above carries it without a look
inside.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sources.contract.decoder import Context


@dataclass(frozen=True, slots=True)
class OpenTick:
    """The tick in whose middle bytes begin."""

    time: int
    commit_ts: int  # microseconds since 1970


@dataclass(frozen=True, slots=True)
class QueueStreamContext:
    """The tick that is open where bytes begin, if one is."""

    inside: OpenTick | None = None


def own(context: Context) -> QueueStreamContext:
    """The context that came back from above."""
    assert isinstance(context, QueueStreamContext)
    return context
