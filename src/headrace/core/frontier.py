"""Frontiers: up to where a stream is complete, over three kinds of time.

    kind   time of a transaction        frontier                   covers t
    lsn    its commit LSN               an LSN F                   t < F
    tick   the tick that carried it     a tick F                   t < F
    gtid   its GTID                     a set of GTIDs F           t in F

Every frontier is read *exclusively*: an LSN or a tick F says that all that is smaller has come, and
nothing of F itself. (A keepalive's position may equal the next commit LSN: an inclusive reading claims
a transaction that has not come.) A set of GTIDs names what has come, one by one, with gaps.

`<=` is "everything that self covers, other covers too". It is total for LSNs and ticks, and partial for
GTID sets: both `a <= b` and `b <= a` may be false, so that `not a <= b` never means `b < a`. `join` is
the least frontier that covers what either covers. The rest of `core` uses these and nothing else: it
knows an order, not an integer.

Times of many transactions are an Arrow array: int64 for LSNs and ticks, `GTID_TIME` for GTIDs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import Flags, contiguous
from headrace.core.errors import Misconfigured
from headrace.core.gtid import Gtid, GtidSet, Interval, Origin
from headrace.core.position import Lsn

# The time of an update where time is a GTID; server and tag in lower case, tag '' where there is none.
GTID_TIME = pa.struct(
    [
        pa.field("server", pa.string(), nullable=False),
        pa.field("tag", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
    ]
)

TimeT = TypeVar("TimeT", contravariant=True)


class Frontier(Protocol[TimeT]):
    """What every kind of frontier can say."""

    @property
    def kind(self) -> str: ...

    def covers(self, time: TimeT) -> bool:
        """Whether a transaction of this time is below the frontier."""

    def mask(self, times: Any) -> pa.BooleanArray:
        """`covers` for an array of times."""

    def __le__(self, other: Self) -> bool: ...

    def join(self, other: Self) -> Self:
        """The least frontier that covers what either of the two covers."""

    def text(self) -> str:
        """The source's own spelling; `frontier_of(kind, text)` reads it."""


@dataclass(frozen=True, slots=True, order=True)
class Tick:
    """A batch boundary of a trigger queue."""

    value: int

    def __int__(self) -> int:
        return self.value

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def parse(cls, text: str) -> Tick:
        if not (text.isascii() and text.isdigit()):
            raise Misconfigured(
                "POSITION_MALFORMED", f"{text[:100]!r} is not a tick", hint="write a number, for example 42"
            )
        return cls(int(text))


@dataclass(frozen=True, slots=True)
class LsnFrontier:
    """All commits whose commit LSN is smaller than `at`."""

    at: Lsn
    kind: ClassVar[str] = "lsn"

    def covers(self, time: Lsn) -> bool:
        return time < self.at

    def mask(self, times: Any) -> pa.BooleanArray:
        return _below(times, self.at.value)

    def __le__(self, other: LsnFrontier) -> bool:
        return self.at <= other.at

    def join(self, other: LsnFrontier) -> LsnFrontier:
        return max(self, other, key=lambda frontier: frontier.at)

    def text(self) -> str:
        return str(self.at)


@dataclass(frozen=True, slots=True)
class TickFrontier:
    """All events of the ticks before `at`."""

    at: Tick
    kind: ClassVar[str] = "tick"

    def covers(self, time: Tick) -> bool:
        return time < self.at

    def mask(self, times: Any) -> pa.BooleanArray:
        return _below(times, self.at.value)

    def __le__(self, other: TickFrontier) -> bool:
        return self.at <= other.at

    def join(self, other: TickFrontier) -> TickFrontier:
        return max(self, other, key=lambda frontier: frontier.at)

    def text(self) -> str:
        return str(self.at)


@dataclass(frozen=True, slots=True)
class GtidFrontier:
    """All transactions whose GTIDs are in the set, and no other."""

    gtids: GtidSet
    kind: ClassVar[str] = "gtid"

    def covers(self, time: Gtid) -> bool:
        return time in self.gtids

    def mask(self, times: Any) -> pa.BooleanArray:
        return _members(contiguous(times), self.gtids)

    def __le__(self, other: GtidFrontier) -> bool:
        return self.gtids <= other.gtids

    def join(self, other: GtidFrontier) -> GtidFrontier:
        return GtidFrontier(self.gtids | other.gtids)

    def text(self) -> str:
        return str(self.gtids)


AnyFrontier = LsnFrontier | TickFrontier | GtidFrontier


def frontier_of(kind: str, text: str) -> AnyFrontier:
    """The inverse of `kind` and `text()`."""
    if kind == LsnFrontier.kind:
        return LsnFrontier(Lsn.parse(text))
    if kind == TickFrontier.kind:
        return TickFrontier(Tick.parse(text))
    if kind == GtidFrontier.kind:
        return GtidFrontier(GtidSet.parse(text))
    raise Misconfigured(
        "POSITION_KIND_UNKNOWN",
        f"{kind[:100]!r} is not a kind of position",
        hint="use the version of headrace that wrote this lake, or a newer one",
    )


def frontier_from_record(record: Mapping[str, Any]) -> AnyFrontier:
    """The inverse of `frontier_as_record`."""
    return frontier_of(record["kind"], record["text"])


def frontier_as_record(frontier: AnyFrontier) -> dict[str, str]:
    """A frontier as it is written into JSON."""
    return {"kind": frontier.kind, "text": frontier.text()}


def gtid_times(gtids: list[Gtid]) -> pa.StructArray:
    """The GTIDs as an array of times."""
    return pa.array(
        [{"server": g.origin.server, "tag": g.origin.tag, "number": g.number} for g in gtids], GTID_TIME
    )


def _below(times: Any, bound: int) -> pa.BooleanArray:
    times = contiguous(times)
    _refuse_nulls(times)
    return pc.less(times, pa.scalar(bound, times.type))


def _members(times: pa.StructArray, gtids: GtidSet) -> pa.BooleanArray:
    _refuse_nulls(times)
    server, tag, number = times.flatten()
    numbers = number.to_numpy(zero_copy_only=False)
    inside = np.zeros(len(times), np.bool_)
    # One round for each origin of the set, not for each time: a set has a handful of them.
    for origin, spans in gtids.parts:
        inside |= _of_origin(server, tag, origin) & _within(numbers, spans)
    return pa.array(inside)


def _of_origin(server: pa.Array, tag: pa.Array, origin: Origin) -> Flags:
    both = pc.and_(pc.equal(server, origin.server), pc.equal(tag, origin.tag))
    return np.asarray(both.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _within(numbers: Any, spans: tuple[Interval, ...]) -> Flags:
    starts = np.array([start for start, _ in spans], np.int64)
    stops = np.array([stop for _, stop in spans], np.int64)
    at = np.searchsorted(starts, numbers, side="right") - 1
    return np.asarray((at >= 0) & (numbers < stops[at]), dtype=np.bool_)


def _refuse_nulls(times: pa.Array) -> None:
    if times.null_count:
        raise ValueError("an update without a time")
