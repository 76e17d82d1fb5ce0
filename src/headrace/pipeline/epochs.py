"""Which transactions the next epoch takes, and how they are cut into stretches for the tasks.

An epoch takes whole transactions, as many as are there: few when the stream is slow, so that a mark
follows quickly; many in a backlog, so that files are rewritten seldom. Its frontier is the spool's own
when it takes all there is, else that behind the last transaction that it takes.

A stretch is what one task decodes: neighbouring transactions of one session, some megabytes of them.
A transaction larger than that is cut between two messages, and each piece after the first is told the
transaction's head, the layouts in force, and how many changes of each table came before:

    ┌ B … C ┬ B … C ┐   ┌ B ……………… ┬ ……………… ┬ … C ┐
    └── stretch 0 ──┘   └── 1 ────── 2 ────── 3 ──┘
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headrace.core.position import Lsn
from headrace.decode.kernel import Bytes
from headrace.decode.pgoutput import Messages, scan
from headrace.sources.postgres.decoding import Inside
from headrace.spool.layout import Records
from headrace.spool.reader import SpoolReader

EPOCH_BYTES = 192 << 20
STRETCH_BYTES = 8 << 20
EPOCH_TRANSACTIONS = 200_000

_RELATION = ord("R")
_CHANGES = (ord("I"), ord("U"), ord("D"))


@dataclass(frozen=True, slots=True)
class Batch:
    """The transactions of one epoch."""

    transactions: Records
    frontier: Lsn

    @property
    def changes(self) -> int:
        return int(self.transactions["changes"].sum())

    @property
    def commit_ts(self) -> int | None:
        """The newest commit timestamp, microseconds since 1970."""
        return int(self.transactions["commit_ts"].max()) if len(self.transactions) else None

    @property
    def next_address(self) -> int | None:
        return int(self.transactions["stop"][-1]) if len(self.transactions) else None


@dataclass(frozen=True, slots=True)
class Cut:
    """A stretch as the planner sees it: where it lies and what its task must be told."""

    start: int
    stop: int
    relations: tuple[bytes, ...]  # whole frames
    inside: Inside | None = None


def next_batch(reader: SpoolReader, address: int, before: Lsn) -> Batch | None:
    """What the next epoch takes from `address` on; None while the spool holds nothing new."""
    frontier = reader.frontier()  # asked first: what is found afterwards is complete up to here
    if frontier is None:
        return None
    found, more = _new(reader, address, before)
    taken = _within(found)
    if len(taken) < len(found) or more:
        return Batch(taken, Lsn(int(taken["end"][-1])))
    newest = max(frontier, int(taken["end"][-1]) if len(taken) else 0)
    return Batch(taken, max(Lsn(newest), before))


def _new(reader: SpoolReader, address: int, before: Lsn) -> tuple[Records, bool]:
    """Transactions that are not in the lake yet, and whether there may be more of them.

    A server that crashed sends again what we have, and a table that was copied late goes back.
    """
    while True:
        found = reader.transactions(address, EPOCH_TRANSACTIONS)
        more = len(found) == EPOCH_TRANSACTIONS
        new = found[found["time"] >= int(before)]
        if len(new) or not more:
            return new, more
        address = int(found["stop"][-1])


def _within(found: Records) -> Records:
    """As many as fit into an epoch; one at least, however large."""
    sizes = np.cumsum(found["stop"] - found["start"])
    return found[: max(1, int(np.searchsorted(sizes, EPOCH_BYTES, side="right")))]


def cuts(reader: SpoolReader, transactions: Records) -> Iterator[Cut]:
    """The stretches of an epoch."""
    first = 0
    while first < len(transactions):
        last = _neighbours(transactions, first)
        start, stop = int(transactions["start"][first]), int(transactions["stop"][last])
        if last == first and stop - start > 2 * STRETCH_BYTES:
            yield from _pieces(reader, transactions[first])
        else:
            yield Cut(start, stop, tuple(reader.relations_before(start)))
        first = last + 1


def _neighbours(transactions: Records, first: int) -> int:
    """The last transaction that shares a stretch with the first."""
    near = transactions["stop"][first:] <= transactions["start"][first] + STRETCH_BYTES
    near &= transactions["session"][first:] == transactions["session"][first]
    near[0] = True
    return first + (len(near) if near.all() else int(np.argmin(near))) - 1


def _pieces(reader: SpoolReader, transaction: np.void) -> Iterator[Cut]:
    """One very large transaction, cut between messages."""
    at, stop = int(transaction["start"]), int(transaction["stop"])
    known = tuple(reader.relations_before(at))
    inside: Inside | None = None
    while at < stop:
        end = min(at + STRETCH_BYTES, stop)
        data = reader.read(at, end)
        messages = scan(data)
        while messages.tail == 0:  # one message larger than a stretch
            end = min(end + STRETCH_BYTES, stop)
            data = reader.read(at, end)
            messages = scan(data)
        yield Cut(at, at + messages.tail, known, inside)
        known += tuple(_layouts(data, messages))
        inside = _further(transaction, inside, messages)
        at += messages.tail


def _layouts(data: Bytes, messages: Messages) -> Iterator[bytes]:
    for row in np.flatnonzero(messages.kind == _RELATION):
        yield data[messages.frame_start[row] : messages.stop[row]].tobytes()


def _further(transaction: np.void, inside: Inside | None, messages: Messages) -> Inside:
    """The head for the next piece: the ordinals go on where this piece ends."""
    counts = dict(inside.ordinals) if inside else {}
    changed = messages.relation[np.isin(messages.kind, _CHANGES)]
    for oid, count in zip(*np.unique(changed, return_counts=True), strict=True):
        counts[int(oid)] = counts.get(int(oid), 0) + int(count)
    return Inside(
        time=int(transaction["time"]),
        xid=int(transaction["xid"]),
        commit_ts=int(transaction["commit_ts"]),
        ordinals=counts,
    )
