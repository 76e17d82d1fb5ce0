"""Handoffs: which transactions of the stream a snapshot already holds.

A snapshot is a set of transactions. The stream starts before the copy, so the copy holds some of the stream's
transactions already. The handoff tests, for each transaction of the stream, whether the copy holds it.

    ByPosition   held iff the position of the snapshot covers the transaction's time
                 (a slot's consistent point; a tick)
    BySet        held iff the transaction's name is in the set that was executed
    ByXid        held iff its *top-level* xid is visible in `xmin:xmax:xip`

                 xid:   ...  xmin        xip members        xmax  ...
                        held  |  held, but for the members   |  not held

`ByXid` is exact; the test `commit_lsn < pg_current_wal_lsn()` is not: a commit is in the log before it is
visible, and the order of the two differs between transactions. `ByXid` needs two things of its caller:

* Top-level xids. `pg_current_snapshot()` lists no sub-transactions: a sub-transaction's xid may lie below
  xmax and in no list while its transaction is still running.
* `until`, a frontier that covers every transaction that the snapshot can see (the WAL insert position,
  read after the snapshot was taken). Past it nothing is held, whatever its xid: 32-bit xids wrap around after
  four billion transactions, and the test must not.

Not for standbys: there `pg_current_snapshot()` lists no running transaction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core import records
from headrace.core.columns import contiguous
from headrace.core.errors import Misconfigured
from headrace.core.position import Position
from headrace.core.records import from_record, on_disk, to_record, with_tag

_SNAPSHOT = re.compile(r"([0-9]{1,20}):([0-9]{1,20}):((?:[0-9]{1,20},)*[0-9]{1,20})?\Z")


class Handoff(Protocol):
    """The test that joins a snapshot to a stream."""

    @property
    def until(self) -> Position | None:
        """A frontier past which nothing is held: from there on a copy is exact."""

    def holds(self, times: Any, names: Any) -> pa.BooleanArray:
        """Tell for each transaction, given by its time and its name, whether the snapshot holds it.

        The name is the source's own: the top-level xid, or a text.
        """


@with_tag("by", "position")
@dataclass(frozen=True, slots=True)
class ByPosition:
    """The snapshot holds exactly what its frontier covers.

    DDL on the table may show in rows that were read later, though no row of the stream says so. If the stream
    reports such DDL at a place before `settled_at`, the copy is not exact before `settled_at`.
    """

    frontier: Position
    settled_at: Position | None = field(default=None, metadata=on_disk("settled", sparse=True))

    @property
    def until(self) -> Position:
        return self.frontier if self.settled_at is None else self.settled_at

    @property
    def floor(self) -> None:
        """Return no bound: the test goes by times, not by names."""
        return None

    def holds(self, times: Any, names: Any) -> pa.BooleanArray:
        return self.frontier.mask(times)


@with_tag("by", "xid")
@dataclass(frozen=True, slots=True)
class ByXid:
    """The snapshot holds what is visible in it: 64-bit `xmin`, `xmax` and the running `xip`."""

    xmin: int
    xmax: int
    xip: tuple[int, ...]
    until: Position | None = None

    @classmethod
    def parse(cls, text: str, until: Position | None = None) -> ByXid:
        """Read what `pg_current_snapshot()` prints."""
        match = _SNAPSHOT.match(text)
        running = tuple(sorted(int(xid) for xid in (match[3] or "").split(",") if xid)) if match else ()
        if match is None or not int(match[1]) <= int(match[2]):
            raise Misconfigured(
                "SNAPSHOT_MALFORMED",
                f"{text[:100]!r} is not a snapshot",
                hint="pass the text of pg_current_snapshot(), for example 10:20:10,14",
            )
        return cls(int(match[1]), int(match[2]), running, until)

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.xip))}"

    @property
    def floor(self) -> int:
        """Return `xmin`: all transactions with a lower number are held."""
        return self.xmin

    def holds(self, times: Any, names: Any) -> pa.BooleanArray:
        visible = self._visible(contiguous(names))
        return visible if self.until is None else pc.and_(visible, self.until.mask(times))

    def _visible(self, xids: pa.Array) -> pa.BooleanArray:
        full = widen(xids, self.xmax)
        running = pc.is_in(full, value_set=pa.array(self.xip, pa.int64()))
        finished = pc.and_(pc.less(full, self.xmax), pc.invert(running))
        return pc.or_(pc.less(full, self.xmin), finished)


def _write(handoff: ByXid) -> dict[str, Any]:
    return {"by": "xid", "snapshot": str(handoff), "settled": to_record(handoff.until)}


def _read(record: Mapping[str, Any]) -> ByXid:
    until = record["settled"]
    return ByXid.parse(record["snapshot"], None if until is None else from_record(Position, until))


records.register(ByXid, _write, _read)


class NameSet(Protocol):
    """A set of transactions by their names; the value and its text belong to the source."""

    def mask(self, names: Any) -> pa.BooleanArray:
        """Tell for each of these names whether it is in the set."""


@dataclass(frozen=True, slots=True)
class BySet:
    """The snapshot holds what was executed when it was taken, with gaps; past `until` it holds nothing."""

    names: NameSet
    until: Position | None = None

    def __str__(self) -> str:
        return str(self.names)

    @property
    def floor(self) -> None:
        """Return no bound: the transactions have no common order, so none is the lowest."""
        return None

    def holds(self, times: Any, names: Any) -> pa.BooleanArray:
        executed = self.names.mask(names)
        return executed if self.until is None else pc.and_(executed, self.until.mask(times))


HANDOFFS: Any = ByPosition | ByXid  # handoffs with a record, for `from_record`
ByName = ByXid | BySet
AnySnapshot = ByPosition | ByName


def by_name(handoff: Handoff) -> AnySnapshot:
    """Return the handoff without its time: what the snapshot shows, whatever the commit times are.

    A snapshot that is known only by its position shows all that lies before it.
    """
    assert isinstance(handoff, ByPosition | ByXid | BySet)
    return handoff if isinstance(handoff, ByPosition) else replace(handoff, until=None)


def shift(handoff: ByPosition | ByXid, by: int) -> ByPosition | ByXid:
    """Shift the handoff into the times of a source that are larger by a base than the server's own."""
    if isinstance(handoff, ByPosition):
        return ByPosition(handoff.frontier.shift(by))
    assert handoff.until is not None
    return replace(handoff, until=handoff.until.shift(by))


def widen(xids: Any, near: int) -> pa.Array:
    """Return 64-bit xids: unchanged, or for 32-bit ones (uint32) the xids nearest to `near`.

    Xids in use at one time lie within 2^31 of each other, so the nearest is the right one for every
    transaction that ran at about the time of the snapshot.
    """
    xids = contiguous(xids)
    if xids.null_count or pc.any(pc.less(xids, pa.scalar(0, xids.type)), min_count=0).as_py():
        # A source without xids writes -1, which every snapshot would seem to hold.
        raise ValueError("an update without an xid")
    if xids.type != pa.uint32():
        return xids.cast(pa.int64())
    low = xids.to_numpy(zero_copy_only=False)
    # The difference modulo 2^32, read as a signed number, is the distance from `near`.
    away = (low - np.uint32(near & 0xFFFFFFFF)).view(np.int32)
    return pa.array(near + away.astype(np.int64))
