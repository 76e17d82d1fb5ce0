"""The contents of a collection at a time: the sum of all its updates up to then.

A negative sum is an error here as it is in a lake.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.core.collection import TIME, check_counts, consolidate
from headrace.core.position import Position


def accumulate(updates: pa.Table, frontier: Position) -> pa.Table:
    """The sums, of either sign, of the updates below the frontier; without times."""
    below = updates.filter(frontier.mask(updates.column(TIME)))
    return consolidate(below.drop_columns([TIME]))


def contents(updates: pa.Table, frontier: Position) -> pa.Table:
    """The contents of the collection at the frontier: rows and how many times each."""
    return check_counts(accumulate(updates, frontier))
