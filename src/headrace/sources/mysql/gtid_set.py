"""GTID sets: the exact set of transactions that a MySQL server has executed, with gaps and tags.

A transaction's name is a GTID: the server that first committed it, an optional tag, and a number. A set is
stored as disjoint, sorted, half-open intervals per (server, tag):

    uuid:1-5:7            (uuid, ''):    [1, 6) [7, 8)
    uuid:1-3:audit:1-2    (uuid, ''):    [1, 4)         (uuid, 'audit'): [1, 3)

Sets are only partly ordered (by inclusion): of two servers' histories, neither may include the other. Nothing
here may round a set to its greatest number. Gaps are real (parallel appliers commit out of order, and a
purged or skipped GTID never comes), and a transaction in a gap has not happened.

It reads and prints the server's own spelling (`@@gtid_executed`). Sets are used at three places of a stream:
to join a snapshot to it (`core.handoff.BySet`), to find out whether a server can go on, and to name a place
in it. The names of many transactions are an Arrow array of texts, as `Gtid` prints them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.errors import Misconfigured

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.core.columns import Flags

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}\Z")
_NAME = r"^(?P<origin>.+):(?P<number>[0-9]+)$"
_INTERVAL = re.compile(r"([1-9][0-9]{0,18})(?:-([1-9][0-9]{0,18}))?\Z")

Interval = tuple[int, int]  # half-open: first number, one past the last


@dataclass(frozen=True, slots=True, order=True)
class GtidOrigin:
    """The origin of a transaction's number: a server, or one of its tags."""

    server: str
    tag: str = ""

    def __str__(self) -> str:
        return f"{self.server}:{self.tag}" if self.tag else self.server


@dataclass(frozen=True, slots=True, order=True)
class Gtid:
    """The name of one transaction."""

    origin: GtidOrigin
    number: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.number}"

    @classmethod
    def parse(cls, text: str) -> Gtid:
        """Read `uuid:7` or `uuid:tag:7`."""
        named = list(GtidSet.parse(text))
        if len(named) != 1:
            raise _malformed_error(text, "is not one GTID")
        return named[0]


@dataclass(frozen=True, slots=True)
class GtidSet:
    """A set of GTIDs in its one canonical form; build it with `of` or `parse`."""

    parts: tuple[tuple[GtidOrigin, tuple[Interval, ...]], ...] = ()

    @classmethod
    def of(cls, intervals: Mapping[GtidOrigin, Iterable[Interval]]) -> GtidSet:
        """The set that these half-open intervals cover, however they overlap."""
        merged = {origin: _merge(spans) for origin, spans in intervals.items()}
        return cls(tuple(sorted((origin, spans) for origin, spans in merged.items() if spans)))

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Read the server's spelling; blanks and line breaks between parts are ignored."""
        found: dict[GtidOrigin, list[Interval]] = {}
        for part in filter(None, (piece.strip() for piece in text.lower().split(","))):
            server, *fields = (field.strip() for field in part.split(":"))
            if not _UUID.match(server) or not fields:
                raise _malformed_error(text, "is not a GTID set")
            _read_fields(text, server, fields, found)
        return cls.of(found)

    def __str__(self) -> str:
        by_server: dict[str, list[str]] = {}
        for origin, spans in self.parts:
            words = by_server.setdefault(origin.server, [])
            words.extend([origin.tag] if origin.tag else [])
            words.extend(_print(span) for span in spans)
        return ",".join(":".join([server, *words]) for server, words in by_server.items())

    def __iter__(self) -> Iterator[Gtid]:
        for origin, spans in self.parts:
            for start, stop in spans:
                yield from (Gtid(origin, number) for number in range(start, stop))

    def __contains__(self, gtid: Gtid) -> bool:
        return _holds(self.intervals(gtid.origin), (gtid.number, gtid.number + 1))

    def __le__(self, other: GtidSet) -> bool:
        return all(_holds(other.intervals(origin), span) for origin, spans in self.parts for span in spans)

    def __or__(self, other: GtidSet) -> GtidSet:
        both: dict[GtidOrigin, list[Interval]] = {}
        for origin, spans in (*self.parts, *other.parts):
            both.setdefault(origin, []).extend(spans)
        return GtidSet.of(both)

    @property
    def count(self) -> int:
        """The number of its transactions."""
        return sum(stop - start for _, spans in self.parts for start, stop in spans)

    def mask(self, names: Any) -> pa.BooleanArray:
        """Tell for each of these GTIDs whether it is in the set."""
        # Imported late: a receiver uses sets too, and must start before Arrow would be loaded.
        import pyarrow as pa
        import pyarrow.compute as pc

        from headrace.core.columns import contiguous

        coded = contiguous(names).dictionary_encode()
        said = pc.extract_regex(coded.dictionary, _NAME)
        if coded.null_count or said.null_count:
            raise ValueError("a transaction without a GTID")
        origins, numbers = said.field("origin"), said.field("number").cast(pa.int64()).to_numpy()
        inside = np.zeros(len(said), np.bool_)
        # Loop over the origins of the set, not over the GTIDs: a set has few origins.
        for origin, spans in self.parts:
            inside |= _equal(origins, str(origin)) & _within(numbers, spans)
        return pa.array(inside).take(coded.indices)

    def intervals(self, origin: GtidOrigin) -> tuple[Interval, ...]:
        """The intervals of one origin, in order; none if the set has no transaction of it."""
        return dict(self.parts).get(origin, ())


def _equal(texts: pa.Array, text: str) -> Flags:
    import pyarrow.compute as pc

    return np.asarray(pc.equal(texts, text).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _within(numbers: Any, spans: tuple[Interval, ...]) -> Flags:
    starts = np.array([start for start, _ in spans], np.int64)
    stops = np.array([stop for _, stop in spans], np.int64)
    at = np.searchsorted(starts, numbers, side="right") - 1
    return np.asarray((at >= 0) & (numbers < stops[at]), dtype=np.bool_)


def _read_fields(text: str, server: str, fields: list[str], found: dict[GtidOrigin, list[Interval]]) -> None:
    """Read `1-5:7:tag:1-3`: an interval belongs to the last tag before it."""
    origin = GtidOrigin(server)
    awaited = True  # an interval must follow a tag, as it must follow a server
    for field in fields:
        interval = _INTERVAL.match(field)
        if interval:
            start, last = int(interval[1]), int(interval[2] or interval[1])
            if last < start:
                raise _malformed_error(text, "is not a GTID set")
            found.setdefault(origin, []).append((start, last + 1))
            awaited = False
        elif _TAG.match(field) and not (awaited and origin.tag):
            origin, awaited = GtidOrigin(server, field), True
        else:
            raise _malformed_error(text, "is not a GTID set")
    if awaited:
        raise _malformed_error(text, "is not a GTID set")


def _merge(spans: Iterable[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for start, stop in sorted(span for span in spans if span[0] < span[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)


def _holds(spans: tuple[Interval, ...], wanted: Interval) -> bool:
    """Tell whether one of the sorted, disjoint, non-adjacent `spans` contains all of `wanted`."""
    at = bisect_right(spans, (wanted[0], 1 << 64)) - 1
    return at >= 0 and spans[at][0] <= wanted[0] and wanted[1] <= spans[at][1]


def _print(span: Interval) -> str:
    start, stop = span
    return str(start) if stop == start + 1 else f"{start}-{stop - 1}"


def _malformed_error(text: str, what: str) -> Misconfigured:
    return Misconfigured(
        "POSITION_MALFORMED",
        f"{text[:100]!r} {what}",
        hint="write it as the server prints @@gtid_executed, for example "
        "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7",
    )
