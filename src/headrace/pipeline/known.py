"""What the spool knows of the past, held against what a server sends again.

After a restart the server sends again what was not acknowledged. A server that now tells another history
at the same positions was restored or replaced: that is a definite error, whatever its identity says.

Of a transaction that changed nothing of ours, or took it all back, the server may tell or not: nothing if it
comes whole, its commit if it was streamed while it ran, and which of the two it is depends on what else the
server had in its memory. Such transactions are left out on both sides.
"""

from __future__ import annotations

import numpy as np

from headrace.core.errors import Definite
from headrace.core.position import Lsn
from headrace.decode.kernel import Ints
from headrace.spool.layout import Records
from headrace.spool.reader import SpoolReader

MOST_KNOWN = 1_000_000  # transactions of which the position is remembered for comparison


class Known:
    """The newest transactions that the spool held when the session began, to compare with."""

    def __init__(self, times: Ints, xids: Ints) -> None:
        self._times = times
        self._xids = xids
        self._next = -1 if len(times) else 0  # which must come next; -1 while none has come

    @classmethod
    def of(cls, reader: SpoolReader) -> Known:
        times: Ints = np.empty(0, np.int64)
        xids: Ints = np.empty(0, np.int64)
        after = 0
        while len(found := reader.transactions(after)):
            mine = found[found["changes"] > 0]
            times = np.concatenate([times, mine["time"]])[-MOST_KNOWN:]
            xids = np.concatenate([xids, mine["xid"]])[-MOST_KNOWN:]
            after = int(found["stop"][-1])
        return cls(times, xids)

    def compare(self, ends: Records) -> None:
        """Refuse a server that sends other transactions than it did before."""
        ends = ends[ends["changes"] > 0]
        times, xids = ends["time"], ends["xid"]
        if self._next == len(self._times) or not len(times):
            return
        again = (times >= self._times[0]) & (times <= self._times[-1])
        mine = times[again]
        if not len(mine) and self._next < 0:
            return
        begin = int(np.searchsorted(self._times, mine[0])) if self._next < 0 else self._next
        self._next = begin + len(mine)
        if (
            not np.array_equal(mine, self._times[begin : self._next])
            or not np.array_equal(xids[again], self._xids[begin : self._next])
            or (times[-1] > self._times[-1] and self._next < len(self._times))
        ):
            raise Definite(
                "PG_HISTORY_CHANGED",
                "the server sends other transactions than it did before at the same positions",
                detail=f"between {Lsn(int(times[0]))} and {Lsn(int(times[-1]))}",
                hint="it was restored or replaced: headrace run --reconcile",
            )
