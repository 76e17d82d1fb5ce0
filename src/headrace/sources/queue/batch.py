"""Batches: the query for the events that one tick shows and the tick before does not.

    snapshot A    xmin ... xip ... xmax(A)
    snapshot B                 xip ...        xmax(B)

    range    xmax(A) <= tx < xmax(B), but for those that run in B
    late     tx that ran in A and not in B, however long ago they began: by xid, without a scan back

A transaction below xmax(A) that is not in xip(A) had ended when A was taken. So the two lists are all
transactions that ended since. The batches of successive ticks hold each committed event once, and each
transaction whole (`tests/laws/sources/queue`). A query never sees an event that was rolled back.

All three event tables are read at once, so it does not matter which of them a transaction wrote to.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from headrace.sources.queue.upstream import Objects


@dataclass(frozen=True, slots=True)
class TxidSnapshot:
    """A snapshot as the server prints it (`pg_current_snapshot()`): which transactions had ended."""

    xmin: int
    xmax: int
    xip: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> TxidSnapshot:
        """Read what the server prints."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), tuple(int(xid) for xid in running.split(",") if xid))


@dataclass(frozen=True, slots=True)
class TickBatch:
    """The transactions that ended between two snapshots."""

    first: int  # of the range
    stop: int
    running: tuple[int, ...]  # of the range, those that have not ended
    late: tuple[int, ...]

    @classmethod
    def between(cls, before: TxidSnapshot, now: TxidSnapshot) -> TickBatch:
        """The batch of the snapshot `now`; `before` is that of the tick before."""
        still = frozenset(now.xip)
        late = tuple(xid for xid in before.xip if xid not in still)
        return cls(before.xmax, now.xmax, tuple(xid for xid in now.xip if xid >= before.xmax), late)

    @property
    def is_empty(self) -> bool:
        """Tell whether no transaction can be in it."""
        return not self.late and self.stop - self.first <= len(self.running)

    def holds(self, xid: int) -> bool:
        """Tell whether a transaction is in it, if it has committed."""
        return xid in self.late or (self.first <= xid < self.stop and xid not in self.running)

    def question(self, objects: Objects) -> str:
        """The statement that asks for one event of the batch; it skips transactions that still run."""
        edges = [self.first - 1, *sorted(self.running), self.stop]
        spans = [(low + 1, high) for low, high in pairwise(edges) if low + 1 < high]
        spans += [(xid, xid + 1) for xid in self.late]
        lows, highs = (
            (_array(tuple(each)) for each in zip(*spans, strict=True)) if spans else (_array(()), _array(()))
        )
        found = " OR ".join(
            f"EXISTS (SELECT FROM unnest({lows}, {highs}) s(low, high), LATERAL"
            f" (SELECT FROM {table} e WHERE e.tx >= s.low AND e.tx < s.high LIMIT 1) e)"
            for table in objects.events
        )
        return f"SELECT {found}"

    def query(self, objects: Objects, columns: str) -> str:
        """The statement that reads these columns of its events, in no order."""
        return " UNION ALL ".join(
            f"SELECT {columns} FROM {table} e WHERE {condition}"
            for table in objects.events
            for condition in self._conditions()
        )

    def _conditions(self) -> list[str]:
        found = []
        if self.first < self.stop:
            running = f" AND e.tx <> ALL ({_array(self.running)})" if self.running else ""
            found.append(f"e.tx >= '{self.first}' AND e.tx < '{self.stop}'{running}")
        if self.late:
            found.append(f"e.tx = ANY ({_array(self.late)})")
        return found or ["false"]


def _array(xids: tuple[int, ...]) -> str:
    return f"'{{{','.join(map(str, xids))}}}'::pg_catalog.xid8[]"
