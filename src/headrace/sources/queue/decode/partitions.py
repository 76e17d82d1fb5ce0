"""Partitions of a root that is mirrored as one table: how their rows become the root's, and from when on.

Each row is written as its partition has it, whose columns stand in an order of their own. So a look at a root
records of each partition, beside what `postgres.catalog.partition_tree` compares:

    numbers    the root's columns, by their numbers, in the order of such a row, and where those were that the
               root had before (`layouts`). Fixed for as long as it is attached: what is done to columns of a
               partition is done to the root, and new ones stand at the end
    made       the life of the trigger that the server put there: who disabled it has written past it
    attached   of one that came since the table was defined: the transaction that attached it. That one may
               have written rows and emptied the partition again in its place, which leaves no trace
    before     of one that was attached, and not made there, too: the first transaction that the look which
               found it empty does not show. Rows that it brought may have been deleted by earlier ones

Rows of a partition that the record does not have are of one that came and went between two looks, or came
after the last one: `flaw` says so, and the root is copied anew unless the next look knows better.

`catalog.definitions` records them, `ddl.schema_check` renews them, `changes` asks them. Values alone, no
connection.
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

_NEAR = 1 << 24  # transactions: no longer ago than that began the one that attached a partition
KEY = "partitions"  # of a look's record


@dataclass(frozen=True, slots=True)
class Clone:
    """The root's trigger on a table beneath it, as a look found it."""

    life: str  # another text after whatever was done to it
    by: int  # the transaction (its 32 bits) that made it; 0 if somebody altered it since


@dataclass(frozen=True, slots=True)
class Partition:
    """A table beneath a root."""

    oid: int
    life: str = field(metadata=on_disk("made"))
    # None of one that is partitioned itself: it has no rows. One of an older release has none: a flaw.
    numbers: tuple[int, ...] = field(default=(), metadata=on_disk(optional=True))
    attached_by: int | None = field(default=None, metadata=on_disk("attached", optional=True))
    before: int = field(default=0, metadata=on_disk(optional=True))


def partitions_of(
    root: TableEntry, columns: Mapping[int, tuple[str, ...]], clones: Mapping[int, Clone]
) -> dict[int, Partition]:
    """The tables beneath a root at this look, as if all of them had always been there."""
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
    """The partitions of a look, of which some were known; `stop` is where what its snapshot shows ends."""
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
    """Follow partitions where columns of the root came or went; None where their order is another."""
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
    """Say whose trigger was altered: rows may have been written past it."""
    for branch in tree:
        clone, known = clones.get(branch.oid), last.get(branch.oid)
        if clone is None or branch.oid not in now:
            return f"its partition {branch.name} was attached a moment ago"
        # Of a new one it is the server's own only if the statement that attached the table made it, and
        # nobody altered it since: who did in the same transaction may have written past it.
        if (clone.life != known.life) if known is not None else (clone.by != branch.attached_by):
            return f"the trigger of its partition {branch.name} was altered"
    return None


# --- the record -----------------------------------------------------------------------------------


def to_records(partitions: Mapping[int, Partition]) -> list[Json]:
    """The partitions of a root as JSON can hold them."""
    return [to_record(each) for each in partitions.values()]


def from_details(details: Mapping[str, Any]) -> dict[int, Partition]:
    """The partitions of a root, out of a look's record."""
    known = (from_record(Partition, each) for each in details.get(KEY, ()))
    return {each.oid: each for each in known}


# --- rows of them ---------------------------------------------------------------------------------


def flaw(partitions: Mapping[int, Partition], layout: Ints, tx: Ints) -> tuple[int, str] | None:
    """Say of which row its root may have others, or none, and why; None where all are as recorded."""
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
