"""A copy in chunks: key ranges, each with a snapshot and a handoff of its own.

    keys      ─∞ ──────── b₁ ──────── b₂ ──────── b₃ ──────── +∞
    chunks      [ S₀     )[   S₁     )[   S₂     )[    S₃     )       low <= key < high

A copy in one snapshot keeps one transaction open for as long as it takes. Here each range is read in a short
transaction of its own, and the test "is it held?" is made key by key: an update counts as delete(old key) +
insert(new key), and each of the two is held iff the chunk of its own key shows the transaction. The equations
of `reference.rewind` hold for each range by itself, since contents are a sum over keys.

    T moves a row from a to b      chunk of a shows T     chunk of b shows T
                                   yes: no row at a       yes: the row is at b     nothing to do
                                   no:  the row is at a   no:  no row at b         both sides are applied
                                   no                     yes                      delete at a only
                                   yes                    no                       insert at b only (1)

(1) The server did not send a long value that the update left alone, and no copy has the row with it. Then the
value is lost, and b has to be read again: a later snapshot shows T. Only b is read again, as a chunk of one
key (`without`), not its whole chunk. A chunk that is read later than the others lacks the values of rows that
left it for one of those meanwhile, so a whole chunk would lack new values each time. One key lacks a value
only if a row went through it meanwhile. If that happens again and again, the table is copied in one snapshot.

A TRUNCATE concerns all keys at once. If all chunks show it, or none, it is as with one snapshot; else the
chunks that do not show it are copied again (`incomplete`): there is little left to copy.

Within a chunk, the held changes of a key come before the others: a transaction that changes a row has waited
for the end of the one that changed it before. So a change in a chunk always fits the row at its key.

A bound has the texts of its key columns, in the source's spelling and order, and their keycode, in ours. The
two orders must agree: the source says for which tables they do. A copy whose chunks have gaps is not
finished, and goes on at its gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core import records
from headrace.core.columns import Flags, Ints, contiguous
from headrace.core.handoff import HANDOFFS, ByPosition, ByXid, Handoff
from headrace.core.position import Position
from headrace.core.records import as_list, from_record, on_disk, to_record, with_tag
from headrace.core.row_groups import rank

_CODE = pa.large_binary()
MOST_ROUNDS = 5
_XIDS = 1 << 33  # more than the transactions that can run beside one another


@as_list
@dataclass(frozen=True, slots=True)
class Bound:
    """A key between two chunks: it is the first that may be in the later one."""

    texts: tuple[str, ...]
    code: bytes = field(metadata=on_disk(by=(bytes.hex, bytes.fromhex)))
    after: bool = False  # not the key itself but the place just behind it

    @property
    def behind(self) -> Bound:
        """The end of a chunk that holds this key and no other."""
        # No keycode is the beginning of another one, so nothing lies between.
        return Bound(self.texts, self.code + b"\0", after=True)


@as_list
@dataclass(frozen=True, slots=True)
class KeySpan:
    """The keys `low <= key < high`; None is the end of all keys."""

    low: Bound | None = None
    high: Bound | None = None

    @property
    def one_key(self) -> bool:
        """Tell whether it holds one key only."""
        return self.low is not None and self.high == self.low.behind


@dataclass(frozen=True, slots=True)
class Chunk:
    """A key range that was copied, and which transactions its snapshot shows."""

    span: KeySpan
    handoff: ByXid | ByPosition

    @classmethod
    def of(cls, span: KeySpan, handoff: Handoff) -> Chunk:
        """The chunk, where its snapshot tells transactions by their numbers or their times."""
        assert isinstance(handoff, ByXid | ByPosition)
        return cls(span, handoff)


def _write(chunk: Chunk) -> list[Any]:
    return [*to_record(chunk.span), to_record(chunk.handoff)]


def _read(record: Sequence[Any]) -> Chunk:
    low, high, handoff = record
    return Chunk(from_record(KeySpan, [low, high]), from_record(HANDOFFS, handoff))


records.register(Chunk, _write, _read)


@with_tag("by", "chunk")
@dataclass(frozen=True, slots=True)
class ByChunk:
    """The handoff of a copy in chunks, in the order of their keys; with gaps while it is unfinished."""

    chunks: tuple[Chunk, ...] = ()
    rounds: int = 0  # how often it turned out to lack a value

    @property
    def given_up(self) -> bool:
        """Tell whether it lacked values so often that the table is copied in one snapshot instead."""
        return self.rounds > MOST_ROUNDS

    @property
    def until(self) -> Position | None:
        """Past it no chunk holds anything."""
        return max(map(_until, self.chunks), default=None)

    @property
    def complete(self) -> bool:
        return not any(True for _ in self.gaps())

    def gaps(self) -> Iterator[KeySpan]:
        """The key ranges that are still to be copied."""
        reached: Bound | None = None
        for chunk in self.chunks:
            if _low(chunk.span) != _low(KeySpan(reached)):
                yield KeySpan(reached, chunk.span.low)
            reached = chunk.span.high
        if not self.chunks or reached is not None:
            yield KeySpan(reached)

    def plus(self, chunks: Iterable[Chunk]) -> ByChunk:
        """With further chunks, none of which overlaps another."""
        ordered = sorted([*self.chunks, *chunks], key=lambda chunk: _low(chunk.span))
        for one, other in pairwise(ordered):
            if one.span.high is None or one.span.high.code > _low(other.span):
                raise ValueError("two chunks hold the same keys")
        return ByChunk(tuple(ordered), self.rounds)

    def without(self, keys: Iterable[Bound]) -> ByChunk:
        """Without these keys, each of which becomes a gap of its own."""
        points = {key.code: key for key in keys}
        codes = sorted(points)
        numbers = self.numbers(pa.array(codes, _CODE)).tolist()
        left: list[Chunk] = []
        for number, chunk in enumerate(self.chunks):
            inside = [points[code] for code, at in zip(codes, numbers, strict=True) if at == number]
            left += [Chunk(span, chunk.handoff) for span in _between(chunk.span, inside)]
        return ByChunk(tuple(left), self.rounds + 1)

    def incomplete(self, times: Any, names: Any) -> tuple[KeySpan, ...]:
        """The chunks that do not show one of these, which concern all keys, while another chunk shows it."""
        shown = np.array([_flags(chunk.handoff.holds(times, names)) for chunk in self.chunks])
        behind = (~shown & shown.any(axis=0)).any(axis=1)
        return tuple(self.chunks[number].span for number in np.flatnonzero(behind))

    def minus(self, spans: Iterable[KeySpan]) -> ByChunk:
        """Without these chunks."""
        gone = set(spans)
        return ByChunk(tuple(chunk for chunk in self.chunks if chunk.span not in gone), self.rounds + 1)

    def numbers(self, keys: Any) -> Ints:
        """The chunk of each key (a keycode)."""
        assert self.complete
        lows = [_low(chunk.span) for chunk in self.chunks[1:]]
        ids = rank(pa.concat_arrays([pa.array(lows, _CODE), contiguous(keys).cast(_CODE)])).ids
        return np.searchsorted(ids[: len(lows)], ids[len(lows) :], side="right").astype(np.int64)

    def holds(self, keys: Any, times: Any, names: Any) -> pa.BooleanArray:
        """For each change of a key: does the chunk of that key show its transaction already?"""
        time = contiguous(times).to_numpy(zero_copy_only=False)
        if len(time) == 0:
            return pa.array([], pa.bool_())
        at = self.numbers(keys)
        until = np.array([_until(chunk).time for chunk in self.chunks])[at]
        return pa.array((time < until) & self._visible(at, names))

    def _visible(self, at: Ints, names: Any) -> Flags:
        """Tell whether the transaction is in the snapshot of its chunk, but for its time."""
        by_xid = [chunk.handoff for chunk in self.chunks if isinstance(chunk.handoff, ByXid)]
        if not by_xid:
            return np.ones(len(at), np.bool_)
        if len(by_xid) < len(self.chunks):
            raise ValueError("chunks that tell transactions in two ways")
        xid = contiguous(names).to_numpy(zero_copy_only=False)
        below = np.array([handoff.xmax for handoff in by_xid])[at]
        visible: Flags = (xid < below) & ~_running(by_xid, at, xid)
        return visible


def _running(snapshots: Sequence[ByXid], at: Ints, xid: Ints) -> Flags:
    """Tell whether the transaction was still running when the snapshot of its chunk was taken."""
    # A chunk and a transaction in one number; those that ran lie close to the chunk's oldest.
    oldest = np.array([each.xmin for each in snapshots])
    ran = [n * _XIDS + x - each.xmin for n, each in enumerate(snapshots) for x in each.xip]
    away = xid - oldest[at]
    near: Flags = (away >= 0) & (away < _XIDS)
    return near & np.isin(at * _XIDS + away, np.array(ran, np.int64))


def _flags(held: pa.BooleanArray) -> Flags:
    return np.asarray(held.to_numpy(zero_copy_only=False), np.bool_)


def _between(span: KeySpan, points: Iterable[Bound]) -> Iterator[KeySpan]:
    """The parts of a span before, between and behind some keys of it."""
    reached = span.low
    for point in points:
        if _low(KeySpan(reached)) < point.code:
            yield KeySpan(reached, point)
        reached = point.behind
    if span.high is None or _low(KeySpan(reached)) < span.high.code:
        yield KeySpan(reached, span.high)


def _until(chunk: Chunk) -> Position:
    assert chunk.handoff.until is not None
    return chunk.handoff.until


def _low(span: KeySpan) -> bytes:
    return b"" if span.low is None else span.low.code


AnyHandoff = Handoff | ByChunk
TableHandoff = ByPosition | ByXid | ByChunk  # that the record of a table may hold


def exact_from(handoff: AnyHandoff) -> Position:
    """The frontier from which on a copy, joined by this handoff, is exact."""
    assert handoff.until is not None
    return handoff.until
