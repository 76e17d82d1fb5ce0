"""Origins: the key under which an epoch found a row that changes its key.

A change of key may leave a long value out: then the value is under the old key, as it was at that moment. So
all events of such a row are folded in one place, whatever keys it goes through:

    key 1    BASE ── DELETE ┐   INSERT ── PUT                  a new row under the old key: origin 1 too
    key 9                   └► INSERT ── DELETE ┐              origin 1
    key 4    BASE ── DELETE                     └► INSERT      first origin 4, behind its DELETE origin 1

A key's events fall into *spans*, each up to a DELETE or a truncation. If a span begins with a change of key
that has holes, it continues another row and has that row's origin. The origin of every other span is its own
key. So the spans of one origin are the story of one row, or of rows that came one after the other under one
key. One fold needs no more than that, however many keys an epoch changes, and however they depend on each
other (`id = id - 1`).

    traces         the events of a slice that begin or end spans, without values
    origins        the spans, and their origins, of each key that rows move to; from all traces of an epoch
    with_origins   events, each with its `_origin`, and `_arrives` where it must be the first under its key

`_arrives`: a row moves to a key that no row had in this epoch before; the lake must not hold that key either.
The row's origin may lie elsewhere, so the task that holds the key's place in the lake has to check
(`pipeline.tasks.partition`).

Pure. The traces take the memory: about a hundred bytes for each change of key with a hole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import Flags, Ints, column, contiguous, flags, ints
from headrace.core.key_events import KeyEvent
from headrace.core.row_groups import Groups, group
from headrace.core.truncation import Truncation, generations

TRACES = pa.schema(
    [
        pa.field("_key", pa.large_binary(), nullable=False),
        pa.field("_from", pa.large_binary()),  # the old key of a row that came with holes; NULL: a DELETE
        pa.field("_time", pa.int64(), nullable=False),
        pa.field("_ordinal", pa.int64(), nullable=False),
    ]
)
ORIGINS = pa.schema(
    [
        pa.field("_key", pa.large_binary(), nullable=False),
        pa.field("_time", pa.int64(), nullable=False),  # the time of the DELETE behind which the span begins
        pa.field("_ordinal", pa.int64(), nullable=False),
        pa.field("_generation", pa.int64(), nullable=False),
        pa.field("_origin", pa.large_binary(), nullable=False),
    ]
)
_BEFORE_ALL = -1  # the time of a first span
_PLACES = 40  # bits for an ordinal


def traces(events: pa.Table) -> pa.Table:
    """Select the DELETEs, and the INSERTs by a change of key that have holes."""
    is_trace = pc.or_(pc.equal(events["_event"], int(KeyEvent.DELETE)), pc.is_valid(events["_from"]))
    found = events.select(TRACES.names).filter(is_trace)
    return pa.Table.from_arrays([contiguous(each) for each in found.columns], schema=TRACES)


def origins(events: pa.Table, truncations: Sequence[Truncation] = ()) -> pa.Table:
    """Find the spans of every key to which rows come with holes, in the order of the log."""
    events = _relevant(events)
    spans = _Spans.of(events, truncations)
    homes = spans.key[spans.roots()]
    is_trace = np.isin(spans.key, spans.key[homes != spans.key])
    codes, first = spans.codes, spans.keys.first
    return pa.Table.from_arrays(
        [
            codes.take(pa.array(first[spans.key[is_trace]])),
            pa.array(spans.time[is_trace], pa.int64()),
            pa.array(spans.ordinal[is_trace], pa.int64()),
            pa.array(spans.generation[is_trace], pa.int64()),
            codes.take(pa.array(first[homes[is_trace]])),
        ],
        schema=ORIGINS,
    )


def with_origins(
    events: pa.Table, known_origins: pa.Table, truncations: Sequence[Truncation] = ()
) -> pa.Table:
    """Return the events with their origins."""
    codes = pa.concat_arrays([column(known_origins, "_key"), column(events, "_key")])
    generation = np.concatenate([ints(known_origins, "_generation"), generations(truncations, events)])
    ids = group(codes).ids * (len(truncations) + 1) + generation
    places = _places(known_origins, events)
    starts = np.arange(len(codes)) < known_origins.num_rows
    # A span begins behind its DELETE: an event at the place of the DELETE belongs to the span before.
    order = np.lexsort((starts, places, ids))
    at = np.arange(len(order))
    last = np.maximum.accumulate(np.where(starts[order], at, -1))
    span = np.full(len(order), -1, np.int64)
    has = (last >= 0) & (ids[order[np.maximum(last, 0)]] == ids[order])
    span[order[has]] = order[last[has]]
    span = span[known_origins.num_rows :]
    taken = column(known_origins, "_origin").take(pa.array(span, mask=span < 0))
    origin = pc.coalesce(taken, column(events, "_key"))
    first = np.zeros(len(span), np.bool_)
    first[span >= 0] = ints(known_origins, "_time")[span[span >= 0]] == _BEFORE_ALL
    moved = flags(pc.not_equal(origin, column(events, "_key"))) & flags(pc.is_valid(column(events, "_from")))
    return events.append_column("_origin", origin).append_column("_arrives", pa.array(first & moved))


def _relevant(found: pa.Table) -> pa.Table:
    """Drop the DELETEs of keys that no row with holes leaves or comes to."""
    came = column(found.filter(pc.is_valid(found["_from"])), "_key")
    left = column(found, "_from").drop_null()
    return found.filter(pc.is_in(found["_key"], pa.concat_arrays([came, left])))


@dataclass(frozen=True, slots=True)
class _Spans:
    """All spans of some keys, numbered key by key and then in the order of the log."""

    codes: pa.Array
    keys: Groups  # of the codes
    key: Ints  # the key of each span
    generation: Ints  # the number of truncations before each span
    time: Ints  # the time behind which each span begins
    ordinal: Ints
    child: Ints  # spans that continue the row of another span
    parent: Ints  # the spans that they continue

    @classmethod
    def of(cls, events: pa.Table, truncations: Sequence[Truncation]) -> _Spans:
        come = flags(pc.is_valid(column(events, "_from")))
        rows = events.num_rows
        codes = pa.concat_arrays([column(events, "_key"), column(events, "_from").filter(pa.array(come))])
        keys = group(codes)
        # A truncation ends all rows: a key has a list of spans for each generation.
        generation, count = generations(truncations, events), len(truncations) + 1
        both = np.concatenate(
            [keys.ids[:rows] * count + generation, keys.ids[rows:] * count + generation[come]]
        )
        lists, ids = np.unique(both, return_inverse=True)
        own, left = ids[:rows], ids[rows:]
        time, ordinal = ints(events, "_time"), ints(events, "_ordinal")
        order = np.lexsort((ordinal, time, own))
        ends = ~come[order]
        counts = np.bincount(own[~come], minlength=len(lists)) + 1
        base = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        before: Ints = np.cumsum(ends) - ends  # the number of DELETEs before, over all lists
        span = np.empty(rows, np.int64)
        span[order] = before + own[order]
        total = int(base[-1])
        start_time, start_ordinal = (np.full(total, _BEFORE_ALL, np.int64) for _ in range(2))
        follows = span[~come] + 1
        start_time[follows], start_ordinal[follows] = time[~come], ordinal[~come]
        child, parent = _links(span, come, left, own, _dense(time, ordinal))
        each = np.repeat(lists, counts)
        return cls(codes, keys, each // count, each % count, start_time, start_ordinal, child, parent)

    def roots(self) -> Ints:
        """Find for each span the first one of its row's story."""
        label = _components(len(self.key), self.child, self.parent)
        begins = np.ones(len(self.key), np.bool_)
        begins[self.child] = False
        root = np.arange(len(self.key))
        first = np.flatnonzero(begins)[::-1]
        root[label[first]] = first  # the lowest of several: then the fold reports a conflict
        return root[label]


def _links(span: Ints, come: Flags, left: Ints, own: Ints, place: Ints) -> tuple[Ints, Ints]:
    """Find the spans of rows that came to a key, and those that they left at the same place of the log.

    If the DELETE is missing, the copy held it, and the value with it.
    """
    width = int(place.max(initial=0)) + 1
    gone = own[~come] * width + place[~come]
    order = np.argsort(gone, kind="stable")
    asked = left * width + place[come]
    at = np.minimum(np.searchsorted(gone[order], asked), max(len(gone) - 1, 0))
    there = gone[order][at] == asked if len(gone) else np.zeros(len(asked), np.bool_)
    return span[come][there], span[~come][order[at[there]]]


def _components(count: int, one: Ints, other: Ints) -> Ints:
    """Find for each of `count` nodes the lowest one connected to it; each round doubles the distance."""
    label = np.arange(count)
    while True:
        low = np.minimum(label[one], label[other])
        new = label.copy()
        for ends in (one, other):
            np.minimum.at(new, label[ends], low)
        while not np.array_equal(new, new[new]):
            new = new[new]
        if np.array_equal(new, label):
            return label
        label = new


def _dense(time: Ints, ordinal: Ints) -> Ints:
    """Number the places in the log without gaps."""
    order = np.lexsort((ordinal, time))
    steps = np.zeros(len(order), np.int64)
    steps[1:] = (np.diff(time[order]) != 0) | (np.diff(ordinal[order]) != 0)
    dense = np.empty(len(order), np.int64)
    dense[order] = np.cumsum(steps)
    return dense


def _places(known: pa.Table, events: pa.Table) -> Ints:
    """Number the places in the log of both lists so that the order stays."""
    times = np.unique(ints(known, "_time"))

    def place(rows: pa.Table) -> Ints:
        time = ints(rows, "_time")
        at = np.searchsorted(times, time, side="left").astype(np.int64)
        same = times[np.minimum(at, len(times) - 1)] == time if len(times) else np.zeros(len(time), np.bool_)
        # If no span begins at a time, only the time counts: it lies before all places of the next one.
        return np.asarray((at << _PLACES) | np.where(same, ints(rows, "_ordinal") + 1, 0))

    return np.concatenate([place(known), place(events)])
