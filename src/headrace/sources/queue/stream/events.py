"""The way of a tick's events into what a stream brings: frames, counted, with a head before the first.

    HEAD ─ EVENT ─ EVENT ─ ...  │  EVENT ─ EVENT ...  │  EVENT ...
    └────── a first read ──────┘  └──── further ones ──┘  └── the last one: the tick ends

Nothing holds a tick. One without an event leaves no frame: that it has passed is said by the position
behind it. No Arrow, and no connection.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.core.errors import Transient
from headrace.core.position import Position
from headrace.decode.kernel import Bytes
from headrace.decode.queue.framing import COPY_END, EMPTIED, head, scan
from headrace.sources.contract.arrival import TRANSACTION, Open, Received
from headrace.sources.queue.position import Log
from headrace.sources.queue.tick import Tick

_NOTHING: Bytes = np.empty(0, np.uint8)


@dataclass(slots=True)
class TickEvents:
    """The events of one tick, as they come."""

    tick: Tick
    log: Log
    changes: int = 0
    truncates: int = 0
    begun: bool = False  # its head was handed on

    def take(self, buffer: Bytes) -> Received:
        """Hand on whole tuples; behind the last ones stands COPY's end."""
        found = scan(buffer)
        tuples, rest = buffer[: found.tail], buffer[found.tail :].tobytes()
        if rest not in (b"", COPY_END):
            raise Transient(
                "PG_BAD_FRAME",
                "the server's answer to COPY cannot be read",
                hint="check what stands between this machine and the server",
            )
        self.changes += int(found.changes.sum())
        self.truncates += int((found.diff == EMPTIED).sum())
        return self._received(tuples, ends=rest == COPY_END)

    def end(self) -> Received:
        """Hand on a tick in which nothing can be."""
        return self._received(_NOTHING, ends=True)

    def _received(self, tuples: Bytes, *, ends: bool) -> Received:
        starts = -1 if self.begun else 0
        if len(tuples) and not self.begun:
            first = head(self.log.time(self.tick.number), self.tick.taken, self.tick.number)
            tuples = np.concatenate([np.frombuffer(first, np.uint8), tuples])
            self.begun = True
        behind = self.tick.position(self.log)
        ended = np.zeros(1 if ends and self.begun else 0, TRANSACTION)
        ended["time"], ended["end"] = self.log.time(self.tick.number), behind.time
        ended["commit_ts"], ended["number"] = self.tick.taken, self.tick.number
        ended["changes"], ended["truncates"] = self.changes, self.truncates
        ended["start"], ended["stop"] = starts, len(tuples)
        is_open = self.begun and not ends
        return Received(
            size=len(tuples),
            data=tuples,
            ended=ended,
            open=Open(starts, self.log.time(self.tick.number)) if is_open else None,
            running={},
            gone=(),
            aborted={},
            layouts=(),
            complete=behind.time if ends else 0,
            heard=(behind.time, self.tick.taken),
            amid=False,
            positions=(behind,) if ends else (),
        )


def idle(position: Position, clock: int) -> Received:
    """Say that nothing has come behind a position, by the source's clock (microseconds since 1970)."""
    return Received(
        size=0,
        data=_NOTHING,
        ended=np.zeros(0, TRANSACTION),
        open=None,
        running={},
        gone=(),
        aborted={},
        layouts=(),
        complete=0,
        heard=(position.time, clock),
        amid=False,
    )
