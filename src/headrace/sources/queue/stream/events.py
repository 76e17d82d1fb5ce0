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
from headrace.sources.contract.stream import TRANSACTION, Open, StreamRead
from headrace.sources.queue.position import QueueTimeline
from headrace.sources.queue.tick import Tick

_NOTHING: Bytes = np.empty(0, np.uint8)


@dataclass(slots=True)
class TickEvents:
    """The events of one tick, as they come."""

    tick: Tick
    log: QueueTimeline
    changes: int = 0
    truncates: int = 0
    has_begun: bool = False  # its head was handed on

    def take(self, buffer: Bytes) -> StreamRead:
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
        return self._as_arrival(tuples, ends=rest == COPY_END)

    def end(self) -> StreamRead:
        """Hand on a tick in which nothing can be."""
        return self._as_arrival(_NOTHING, ends=True)

    def _as_arrival(self, tuples: Bytes, *, ends: bool) -> StreamRead:
        starts = -1 if self.has_begun else 0
        if len(tuples) and not self.has_begun:
            first = head(self.log.time(self.tick.number), self.tick.taken_at, self.tick.number)
            tuples = np.concatenate([np.frombuffer(first, np.uint8), tuples])
            self.has_begun = True
        behind = self.tick.position(self.log)
        ended = np.zeros(1 if ends and self.has_begun else 0, TRANSACTION)
        ended["time"], ended["end"] = self.log.time(self.tick.number), behind.time
        ended["commit_ts"], ended["number"] = self.tick.taken_at, self.tick.number
        ended["changes"], ended["truncates"] = self.changes, self.truncates
        ended["start"], ended["stop"] = starts, len(tuples)
        is_open = self.has_begun and not ends
        return StreamRead(
            size=len(tuples),
            data=tuples,
            transactions=ended,
            open=Open(starts, self.log.time(self.tick.number)) if is_open else None,
            running={},
            rolled_back=(),
            aborted_parts={},
            layouts=(),
            complete=behind.time if ends else 0,
            source_end=(behind.time, self.tick.taken_at),
            amid=False,
            positions=(behind,) if ends else (),
        )


def idle(position: Position, clock: int) -> StreamRead:
    """Say that nothing has come behind a position, by the source's clock (microseconds since 1970)."""
    return StreamRead(
        size=0,
        data=_NOTHING,
        transactions=np.zeros(0, TRANSACTION),
        open=None,
        running={},
        rolled_back=(),
        aborted_parts={},
        layouts=(),
        complete=0,
        source_end=(position.time, clock),
        amid=False,
    )
