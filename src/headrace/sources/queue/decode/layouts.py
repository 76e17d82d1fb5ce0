"""Layouts: the columns under which a row of the queue was written, if its table was altered between ticks.

A row is the text of a composite: its fields are the table's columns of that time, in the order of their
numbers in the catalog, which no statement alters. So a layout is a list of numbers, without names and types.
A look knows the columns of the last look and of this one, how many columns there ever were, and for each
dropped column the transaction that dropped it, which lies between two ticks (`ddl`). DDL keeps writers out:

    time     ... after │  rows of both kinds  │ by ...       of a column that was dropped
                  all │                      │ none have it

Columns are added in the order of their numbers, and each is dropped at most once. So all possible layouts
between the two looks are known (`between`), with the times in which each may have rows. A row's layout is
always among them. If its time and the number of its fields leave only one, the row has that layout
(`of_rows`). If they leave two, one column came and another went within one tick, and nothing is proven of
such a row.

A look that follows a change (`ddl.schema_check`) records layouts as long as the stream may bring rows of
them. It also records the values of added columns in older rows: the catalog forgets these when the table is
rewritten. This module computes with values alone, and has no connection.

`printed_otherwise` tells whether texts without a lake form are ones that their columns' types print. No event
says under which definition its row was printed. A column may get another type between two looks, and its own
type back. If the table was not rewritten, no look shows that. The server rewrites nothing for types that have
the same form in its files. But these print texts that the column's own type never prints:

    integers                      texts that are no numbers of theirs: from oid and the like
    bytea                         texts that are not hexadecimal: from the server's types of statistics
    timestamp, and with a zone    one with UTC's zone, one without: from each other

A text that both types print means the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.records import as_list, from_record, on_disk
from headrace.decode.kernel import Ints, Lengths
from headrace.sources.postgres.catalog.table_def import types_of

KEY = "layouts"  # of a look's record
_MOST = 256  # layouts of a table; with more, nothing is proven
_MOST_GONE = 6  # dropped columns between two looks; with more, nothing is proven
_NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class DdlSpan:
    """The times around DDL: all rows up to `after` are from before it, and all rows after `by` are not."""

    after: int
    by: int


@as_list
@dataclass(frozen=True, slots=True)
class QueueLayout:
    """Columns by their numbers, in order, and the times in which rows may have them."""

    numbers: tuple[int, ...]
    since: int = 0
    until: int = _NEVER


@dataclass(frozen=True, slots=True)
class Doubt:
    """Rows that would be ambiguous, if there are any: their number of fields, and their times."""

    count: int
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Layouts:
    """The layouts of a table, the newest last, and the values of columns in rows without them."""

    layouts: tuple[QueueLayout, ...] = field(metadata=on_disk("known"))
    missing: Mapping[int, str | None] = field(default_factory=dict)

    @property
    def most(self) -> int:
        """The most fields that a row may have."""
        return max(len(layout.numbers) for layout in self.layouts)

    @property
    def matter(self) -> bool:
        """Tell whether rows may have another layout than the newest look's."""
        return len(self.layouts) > 1 or self.layouts[0].since > 0

    @property
    def doubts(self) -> list[Doubt]:
        """The rows that may have either of two layouts."""
        pairs = [
            Doubt(len(one.numbers), max(one.since, other.since), min(one.until, other.until))
            for one, other in combinations(self.layouts, 2)
            if len(one.numbers) == len(other.numbers)
        ]
        return [doubt for doubt in pairs if doubt.since < doubt.until]

    def of_column(self, number: int, write_span: DdlSpan, behind: int | None = None) -> list[Doubt]:
        """The rows that have a column and may be older than the column's row in the catalog.

        Rows with the column `behind` are not among them: it was added after that row was written.
        """
        mine = [each for each in self.layouts if number in each.numbers and behind not in each.numbers]
        found = [Doubt(len(each.numbers), each.since, min(each.until, write_span.by + 1)) for each in mine]
        return [doubt for doubt in found if doubt.since < doubt.until]

    def of_rows(self, counts: Lengths, times: Ints) -> Ints:
        """The layout of each row, by its number of fields and its time; -1 if it is not proven."""
        found, hits = np.full(len(counts), -1, np.int64), np.zeros(len(counts), np.int64)
        for place, layout in enumerate(self.layouts):
            mine = (counts == len(layout.numbers)) & (times >= layout.since) & (times < layout.until)
            found[mine] = place
            hits += mine
        found[hits != 1] = -1
        return found


def from_details(details: Mapping[str, Any]) -> Layouts:
    """Read a table's layouts from a look's record; if it has none, the look's own layout."""
    record = details.get(KEY)
    if record is None:
        return Layouts((QueueLayout(tuple(each["number"] for each in details["attributes"])),))
    return from_record(Layouts, record)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table at a look: their numbers, and how many columns there ever were."""

    numbers: tuple[int, ...]
    width: int


def between(
    last: Layouts,
    before: Columns,
    now: Columns,
    spans: Mapping[int, DdlSpan],
    missing: Mapping[int, str | None],
) -> Layouts | None:
    """The layouts of a table after another look; None if there are too many, or if it is another table.

    `spans` has for each dropped column when it went, and for each added one when it was there.
    """
    added = tuple(range(before.width + 1, now.width + 1))
    gone = ({*before.numbers, *added}) - set(now.numbers)
    if not set(now.numbers) <= {*before.numbers, *added} or not gone | set(added) <= spans.keys():
        return None
    if len(gone) > _MOST_GONE or len(added) << len(gone) > _MOST:
        return None
    here = last.layouts[-1]
    steps = _merge(_steps(here, before, added, gone, spans))
    ended = [each for each in last.layouts[:-1] if each.numbers not in steps]
    for each in last.layouts[:-1]:
        if each.numbers in steps:
            steps[each.numbers] = _both(steps[each.numbers], each)
    newest = steps.pop(now.numbers)
    values = {**last.missing, **missing}
    return Layouts(
        (*ended, *steps.values(), newest),
        {number: text for number, text in values.items() if number in now.numbers},
    )


def _steps(
    here: QueueLayout, before: Columns, added: Sequence[int], gone: set[int], done: Mapping[int, DdlSpan]
) -> Iterator[QueueLayout]:
    """Yield all possible layouts: some first columns were added, and any of the dropped ones were gone."""
    for come in range(len(added) + 1):
        there = (*before.numbers, *added[:come])
        leaving = sorted(gone.intersection(there))
        for count in range(len(leaving) + 1):
            for left in combinations(leaving, count):
                ahead = [*added[come:], *(number for number in leaving if number not in left)]
                yield QueueLayout(
                    tuple(number for number in there if number not in left),
                    max([here.since, *(done[number].after + 1 for number in left)]),
                    min([_NEVER, *(done[number].by + 1 for number in ahead)]),
                )


def _merge(layouts: Iterator[QueueLayout]) -> dict[tuple[int, ...], QueueLayout]:
    found: dict[tuple[int, ...], QueueLayout] = {}
    for each in layouts:
        if each.since < each.until:
            known = found.get(each.numbers)
            found[each.numbers] = each if known is None else _both(known, each)
    return found


def _both(one: QueueLayout, other: QueueLayout) -> QueueLayout:
    return replace(one, since=min(one.since, other.since), until=max(one.until, other.until))


def without(layouts: Layouts, time: int) -> Layouts:
    """Return the layouts that may still have rows after a time which the stream has passed."""
    return replace(layouts, layouts=tuple(each for each in layouts.layouts if each.until > time))


_ENDLESS = r"-?infinity|"
# The texts that a type prints although they have no lake form, by the type's oid.
_WITHOUT_FORM = {
    **dict.fromkeys((17, 20, 21, 23), re.compile("(?!)")),
    1114: re.compile(_ENDLESS + r"[\d :.-]+( BC)?"),
    1184: re.compile(_ENDLESS + r"[\d :.-]+\+00( BC)?"),
}


def printed_otherwise(bad: pa.Table, details: Mapping[str, Any]) -> bool:
    """Tell whether another type than the column's recorded one printed one of these texts."""
    if not len(bad):
        return False
    known = enumerate(_WITHOUT_FORM.get(oid) for oid, _ in types_of(details))
    return any(
        printed.fullmatch(text) is None
        for number, printed in known
        if printed is not None
        for text in pc.unique(bad.filter(pc.equal(bad["column"], number))["raw"]).to_pylist()
    )
