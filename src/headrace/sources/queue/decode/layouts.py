"""Layouts: under which columns a row of the queue was written, where tables are altered between ticks.

A row is the text of a composite: its fields are the columns that were there, by their numbers in the catalog,
which no statement alters. So a layout is a list of numbers; names are no part of it, nor is a type that
prints alike. A look knows the columns of the last look and of this one, how many there ever were, and of each
that was dropped the transaction that did it, which lies between two ticks (`ddl`). DDL keeps writers out:

    time     ... after │  rows of both kinds  │ by ...       of a column that was dropped
                  all │                      │ none have it

Columns come in the order of their numbers, and each goes once. All layouts that may have been between the two
looks are therefore known (`between`), with the times that each may have rows of. The one that a row has is
always among them; where its time and the number of its fields leave one alone, it is that (`of_rows`). Where
they leave two, a column came and another went within what one tick shows: nothing is proven of such a row.

A look that follows a change (`ddl.schema_check`) records the layouts for as long as the stream may bring rows
of them, and the values of added columns in rows from before: the catalog forgets those when the table is
written anew. Values alone, no connection.

Texts: whether values without a lake form are ones that the types of their columns print.

No event says under which definition its row was printed. A column that was given another type between two
looks, and its own one back, differs in nothing by the end if no row was written anew. The server does so for
types that have one form in its files, and these print what the column's own type never does:

    integers                      what is no number of theirs: under oid and its like
    bytea                         what is not in hexadecimal: under the server's types of statistics
    timestamp, and with a zone    one with UTC's zone, one without: under each other

What both types print alike is right.
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
_MOST = 256  # of layouts that are kept of a table; more are not proven
_MOST_GONE = 6  # columns that went between two looks
_NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class DdlSpan:
    """The times between which DDL lies: all rows up to `after` are from before, those behind `by` are not."""

    after: int
    by: int


@as_list
@dataclass(frozen=True, slots=True)
class QueueLayout:
    """Columns by their numbers, in order, and the times from and up to which rows may have them."""

    numbers: tuple[int, ...]
    since: int = 0
    until: int = _NEVER


@dataclass(frozen=True, slots=True)
class Doubt:
    """Rows of which nothing is proven, if there are any: of so many fields, from one time up to another."""

    count: int
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Layouts:
    """The layouts of a table, the newest last; and what columns hold in rows of layouts without them."""

    layouts: tuple[QueueLayout, ...] = field(metadata=on_disk("known"))
    missing: Mapping[int, str | None] = field(default_factory=dict)

    @property
    def most(self) -> int:
        """The fields that a row may have."""
        return max(len(layout.numbers) for layout in self.layouts)

    @property
    def matter(self) -> bool:
        """Tell whether any row may have been written under others than those of the newest look."""
        return len(self.layouts) > 1 or self.layouts[0].since > 0

    @property
    def doubts(self) -> list[Doubt]:
        """The rows that may be of two layouts."""
        pairs = [
            Doubt(len(one.numbers), max(one.since, other.since), min(one.until, other.until))
            for one, other in combinations(self.layouts, 2)
            if len(one.numbers) == len(other.numbers)
        ]
        return [doubt for doubt in pairs if doubt.since < doubt.until]

    def of_column(self, number: int, write_span: DdlSpan, behind: int | None = None) -> list[Doubt]:
        """The rows with a column that may have been written before its row in the catalog was.

        None of those that have the column `behind`, which came later than that.
        """
        mine = [each for each in self.layouts if number in each.numbers and behind not in each.numbers]
        found = [Doubt(len(each.numbers), each.since, min(each.until, write_span.by + 1)) for each in mine]
        return [doubt for doubt in found if doubt.since < doubt.until]

    def of_rows(self, counts: Lengths, times: Ints) -> Ints:
        """The layout of each row, by how many fields it has and its time; -1 where it is not proven."""
        found, hits = np.full(len(counts), -1, np.int64), np.zeros(len(counts), np.int64)
        for place, layout in enumerate(self.layouts):
            mine = (counts == len(layout.numbers)) & (times >= layout.since) & (times < layout.until)
            found[mine] = place
            hits += mine
        found[hits != 1] = -1
        return found


def from_details(details: Mapping[str, Any]) -> Layouts:
    """The layouts of a table, out of a look's record; without a note that of the look alone."""
    record = details.get(KEY)
    if record is None:
        return Layouts((QueueLayout(tuple(each["number"] for each in details["attributes"])),))
    return from_record(Layouts, record)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table at a look: by number, and how many there ever were."""

    numbers: tuple[int, ...]
    width: int


def between(
    last: Layouts,
    before: Columns,
    now: Columns,
    spans: Mapping[int, DdlSpan],
    missing: Mapping[int, str | None],
) -> Layouts | None:
    """The layouts of a table after another look; None where there are too many, or it is not the same table.

    `done` tells of each column that is gone when it went, and of those that came when they were there.
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
    """All layouts that there may have been: so many columns had come, and some of those that went."""
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
    """Return the layouts once the stream has come to a time, which it will not bring again."""
    return replace(layouts, layouts=tuple(each for each in layouts.layouts if each.until > time))


_ENDLESS = r"-?infinity|"
# The texts without a lake form that a type prints, by its oid.
_WITHOUT_FORM = {
    **dict.fromkeys((17, 20, 21, 23), re.compile("(?!)")),
    1114: re.compile(_ENDLESS + r"[\d :.-]+( BC)?"),
    1184: re.compile(_ENDLESS + r"[\d :.-]+\+00( BC)?"),
}


def printed_otherwise(bad: pa.Table, details: Mapping[str, Any]) -> bool:
    """Tell whether one of these texts is of another type than its column has on record."""
    if not len(bad):
        return False
    known = enumerate(_WITHOUT_FORM.get(oid) for oid, _ in types_of(details))
    return any(
        printed.fullmatch(text) is None
        for number, printed in known
        if printed is not None
        for text in pc.unique(bad.filter(pc.equal(bad["column"], number))["raw"]).to_pylist()
    )
