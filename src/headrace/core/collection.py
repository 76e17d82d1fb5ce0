"""Collections: multisets of updates, and their sums.

An update is `(row, time, diff)`; a table of updates has the row's columns, then `_time` and `_diff` (both
int64). The contents at a time are the rows whose diffs up to then add up to more than zero, that many times
each; a table of contents is a table of updates without times.

    consolidate   one update for each row and time, the sum of them; none where the sum is zero
    negate        the same updates, undone
    between       the updates that lead from one collection to another

Rows are told apart by their keycodes: floats by their bits, NULL equal to NULL. Consolidation keeps the
order of first appearance, and a row's first image: which of two equal rows is kept can't be told.
Other columns than these (`_ordinal`, `_transaction`) would count as parts of the row: leave them out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import column, ints
from headrace.core.errors import Definite
from headrace.core.keycode import keycode
from headrace.core.row_groups import group

TIME = "_time"
DIFF = "_diff"


def consolidate(updates: pa.Table) -> pa.Table:
    """The updates with one diff, not zero, for each row (and time, where they have times)."""
    identity = [updates.column(name) for name in updates.column_names if name != DIFF]
    groups = group(keycode(identity))
    sums = groups.sums(ints(updates, DIFF))
    kept = np.flatnonzero(sums)
    return with_diff(updates.take(pa.array(groups.first[kept])), pa.array(sums[kept], pa.int64()))


def negate(updates: pa.Table) -> pa.Table:
    """The updates that undo these."""
    return with_diff(updates, pc.negate(column(updates, DIFF)))


def between(old: pa.Table, new: pa.Table) -> pa.Table:
    """The updates that lead from the one to the other; of equal rows, where they first appear."""
    return consolidate(pa.concat_tables([negate(old), new]))


def check_counts(collection: pa.Table) -> pa.Table:
    """The collection itself, which may not hold a row less than zero times."""
    negative = int((ints(collection, DIFF) < 0).sum())
    if negative:
        raise Definite(
            "COLLECTION_NEGATIVE",
            f"{negative} rows are there less than zero times",
            detail="the updates retract rows that were never there: they are not all the updates, "
            "or not this table's",
            hint="headrace tables resync copies it anew",
        )
    return collection


def as_multiset(collection: pa.Table) -> pa.Table:
    """The rows themselves, each as often as it is there."""
    copies = np.repeat(np.arange(collection.num_rows), ints(check_counts(collection), DIFF))
    return collection.drop_columns([DIFF]).take(pa.array(copies, pa.int64()))


def of_rows(rows: pa.Table) -> pa.Table:
    """The collection that holds these rows, each once for each time that it stands there."""
    return consolidate(with_diff(rows, pa.array(np.ones(rows.num_rows, np.int64))))


def with_diff(table: pa.Table, diffs: pa.Array) -> pa.Table:
    """The table with these diffs, as its last column where it had none."""
    if DIFF in table.column_names:
        return table.set_column(table.column_names.index(DIFF), DIFF, diffs)
    return table.append_column(DIFF, diffs)
