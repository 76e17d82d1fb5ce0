"""The code inside a Python worker, and, for tiny epochs, the very same in the driver.

    items ──► perform ──► results                                       one stage

    items ──► divide  ══ shuffle by group, sorted ══► unite ──► results   two stages

Both stages turn a stream of rows (`wire`) into a stream of rows and hold one row of it at a time, so
that memory does not depend on how much passes through (G7). They read their input to its end whatever
happens: Spark throws away a Python worker that left input unread, and a new one costs a second.

Here stands the supervisor of the tasks, `guard`: an exception becomes a row and not a failed Spark
task. Spark's retries are for what raises nothing, a worker or an executor that died.

Tasks, splits and merges are pickled by reference, so executors need the same version of this package;
`warmth.warm` checks that before the first real job.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias

from headrace.spark.allocators import give_back
from headrace.spark.depot import Depot, receive, send
from headrace.spark.wire import RESULT, Row, from_batches, from_error, to_batches

Task: TypeAlias = Callable[[bytes], bytes | list[bytes]]
Split: TypeAlias = Callable[[bytes], Iterable[tuple[str, int, bytes]]]
Merge: TypeAlias = Callable[[str, Iterator[bytes]], Iterable[bytes]]

# What `mapInArrow` wants: record batches in, record batches out.
Stage: TypeAlias = Callable[[Iterator[Any]], Iterator[Any]]

_modules = 0  # that were there when the collector was last told to leave them alone


def perform(task: Task, rows: Iterable[Row], depot: Depot | None = None) -> Iterator[Row]:
    """Runs the task on each item; its results, or its error, as rows."""
    for row in rows:
        yield from guard(_send(depot, _results(task, row)), 0, row.item, "")


def divide(split: Split, rows: Iterable[Row], depot: Depot | None = None) -> Iterator[Row]:
    """Splits each item into the blobs of its groups."""
    for row in rows:
        yield from guard(_send(depot, _blobs(split, row)), 0, row.item, "")


def unite(merge: Merge, rows: Iterable[Row], depot: Depot | None = None) -> Iterator[Row]:
    """Merges each group; wants errors first, then the groups one after the other, each in order.

    After an error of a split nothing is merged: a part of some group is missing, and which one is
    not known.
    """
    failed = False
    for (kind, group), members in groupby(rows, key=lambda row: (row.kind, row.grp)):
        if kind != RESULT:
            failed = True
            yield from members
        elif not failed:
            # `groupby` skips what the merge left unread of its group.
            yield from guard(_send(depot, _merge(merge, group, members)), 1, -1, group)


def guard(rows: Iterator[Row], stage: int, item: int, group: str) -> Iterator[Row]:
    """The rows, and, if making them failed, one more that says so."""
    try:
        yield from rows
    except Exception as error:  # noqa: BLE001 - the supervisor of the tasks: errors become values
        yield from_error(error, stage, item, group)


def _results(task: Task, row: Row) -> Iterator[Row]:
    made = task(receive(row.payload))
    for part, payload in enumerate([made] if isinstance(made, bytes) else made):
        yield Row(RESULT, 0, row.item, "", 0, part, payload)


def _blobs(split: Split, row: Row) -> Iterator[Row]:
    for part, (group, order, blob) in enumerate(split(receive(row.payload))):
        yield Row(RESULT, 0, row.item, group, order, part, blob)


def _merge(merge: Merge, group: str, members: Iterator[Row]) -> Iterator[Row]:
    for part, payload in enumerate(merge(group, (receive(row.payload) for row in members))):
        yield Row(RESULT, 1, -1, group, 0, part, payload)


def _send(depot: Depot | None, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows as they travel: of what is too large for one, its name."""
    for row in rows:
        yield row._replace(payload=send(depot, row.payload))


def stage(
    work: Callable[..., Iterator[Row]], function: Callable[..., Any], depot: Depot | None = None
) -> Stage:
    """One of the three above with its function, as Spark calls it."""
    return partial(_in_batches, work, function, depot)


def _in_batches(
    work: Callable[[Callable[..., Any], Iterable[Row], Depot | None], Iterator[Row]],
    function: Callable[..., Any],
    depot: Depot | None,
    batches: Iterator[Any],
) -> Iterator[Any]:
    yield from to_batches(work(function, from_batches(batches), depot))
    _settle()
    give_back()


def _settle() -> None:
    """Take what was imported by now out of the sight of the garbage collector.

    PySpark has it look through everything behind each task: with our modules that is a tenth of a second.
    """
    global _modules
    if len(sys.modules) > _modules:
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()
