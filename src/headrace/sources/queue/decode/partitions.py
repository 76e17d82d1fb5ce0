"""Partitions of a root that is mirrored as one table: how and since when their rows become the root's.

A row is written in its partition's layout, in which columns have an order of their own. So a look at a root
records for each partition, besides the facts that `postgres.catalog.partition_tree` compares:

    numbers    the root's columns, by number, in the partition's order, with columns that the root had earlier
               (`layouts`). The order is fixed while the partition is attached: DDL on columns is done to the
               whole tree, and new columns stand at the end
    made       the life of the trigger that the server put there: if somebody disabled it, rows may have been
               written without it
    attached   the transaction that attached the partition, if it came after the table was defined. That
               transaction may have written rows and emptied the partition again, which leaves no trace
    before     for such a partition that was attached, not created in place: the first transaction that is not
               shown by the look that found it empty. Earlier ones may have deleted rows that it brought

Rows of a partition that is not in the record belong to one that came and went between two looks, or that came
after the last one. Then `flaw` reports it, and the root is copied anew unless the next look knows the
partition.

`catalog.definitions` records partitions, `ddl.schema_check` renews them, `changes` uses them. This module
computes with values alone, and has no connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headrace.core.records import from_record, on_disk, to_record
from headrace.decode.kernel import Ints
from headrace.sources.contract.values import Json
from headrace.sources.postgres.catalog.partition_tree import Branch
from headrace.sources.postgres.catalog.table_def import TableEntry

_NEAR = 1 << 24  # a transaction is older than the attaching one if its xid is at most so much smaller
KEY = "partitions"  # of a look's record


@dataclass(frozen=True, slots=True)
class Clone:
    """The root's trigger on a table beneath it, at a look."""

    life: str  # a text that changes with every change of the trigger
    by: int  # the 32-bit id of the transaction that made it; 0 if somebody altered it since


@dataclass(frozen=True, slots=True)
class Partition:
    """A table beneath a root."""

    oid: int
    life: str = field(metadata=on_disk("made"))
    # Empty if it is partitioned itself, since it has no rows; and in an older record, which is a flaw.
    numbers: tuple[int, ...] = field(default=(), metadata=on_disk(optional=True))
    attached_by: int | None = field(default=None, metadata=on_disk("attached", optional=True))
    before: int = field(default=0, metadata=on_disk(optional=True))


def partitions_of(
    root: TableEntry, columns: Mapping[int, tuple[str, ...]], clones: Mapping[int, Clone]
) -> dict[int, Partition]:
    """The tables beneath a root at this look, each recorded as if it had always been there."""
    known = {attribute.name: attribute.number for attribute in root.attributes}
    return {
        branch.oid: Partition(
            branch.oid,
            clones[branch.oid].life if branch.oid in clones else "",
            _numbers(known, columns.get(branch.oid, ())) if branch.has_rows else (),
        )
        for branch in root.tree
    }


def _numbers(known: Mapping[str, int], columns: Sequence[str]) -> tuple[int, ...]:
    if known.keys() != set(columns):
        return ()  # altered between two statements of ours: the next look differs
    return tuple(known[name] for name in columns)


def renew(
    last: Mapping[int, Partition], now: Mapping[int, Partition], tree: Sequence[Branch], stop: int
) -> dict[int, Partition]:
    """The partitions of a look, known ones as they were; `stop` is the xmax of the look's snapshot."""
    branches = {branch.oid: branch for branch in tree}
    return {
        oid: last.get(oid) or _new(each, branches[oid], stop) for oid, each in now.items() if oid in branches
    }


def _new(partition: Partition, branch: Branch, stop: int) -> Partition:
    before = 0 if branch.born else stop
    return replace(partition, attached_by=branch.attached_by, before=before)


def alter(
    last: Mapping[int, Partition], now: Mapping[int, Partition], tree: Sequence[Branch], stop: int
) -> dict[int, Partition] | None:
    """Follow partitions whose root got or lost columns; None if the order of columns changed."""
    found = renew(last, now, tree, stop)
    for oid, known in last.items():
        if oid not in now:
            return None
        later = now[oid].numbers
        numbers = (*known.numbers, *(each for each in later if each not in known.numbers))
        if bool(known.numbers) != bool(later) or later != tuple(n for n in numbers if n in later):
            return None
        found[oid] = replace(known, numbers=numbers)
    return found


def differs(
    last: Mapping[int, Partition],
    now: Mapping[int, Partition],
    clones: Mapping[int, Clone],
    tree: Sequence[Branch],
) -> str | None:
    """Say which partition's trigger was altered: rows may have been written without it."""
    for branch in tree:
        clone, known = clones.get(branch.oid), last.get(branch.oid)
        if clone is None or branch.oid not in now:
            return f"its partition {branch.name} was attached a moment ago"
        # A new partition's trigger counts only if the transaction that attached the partition made it, and
        # nobody altered it since: if that transaction altered it, rows may have been written without it.
        if (clone.life != known.life) if known is not None else (clone.by != branch.attached_by):
            return f"the trigger of its partition {branch.name} was altered"
    return None


# --- the record -----------------------------------------------------------------------------------


def to_records(partitions: Mapping[int, Partition]) -> list[Json]:
    """The partitions of a root as JSON."""
    return [to_record(each) for each in partitions.values()]


def from_details(details: Mapping[str, Any]) -> dict[int, Partition]:
    """Read the partitions of a root from a look's record."""
    known = (from_record(Partition, each) for each in details.get(KEY, ()))
    return {each.oid: each for each in known}


# --- rows of them ---------------------------------------------------------------------------------


def flaw(partitions: Mapping[int, Partition], layout: Ints, tx: Ints) -> tuple[int, str] | None:
    """Find a row whose partition may not be complete in the stream, and say why; None if there is none."""
    for oid in np.unique(layout).tolist():
        rows = np.flatnonzero(layout == oid)
        known = partitions.get(oid)
        if known is None or not known.numbers:
            return int(rows[0]), f"{oid} is no partition of it that was recorded"
        doubtful = tx[rows] < known.before
        if known.attached_by is not None:
            doubtful |= ((known.attached_by - tx[rows]) & 0xFFFFFFFF) < _NEAR
        if doubtful.any():
            return int(rows[np.argmax(doubtful)]), f"{oid} was written to before it was known as a partition"
    return None
