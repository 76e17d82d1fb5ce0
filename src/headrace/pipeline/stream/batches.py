"""The choice of the transactions that the next epoch takes, cut into slices for the tasks.

An epoch takes whole transactions, as many as are there: few when the stream is slow, so that a mark
follows quickly; many in a backlog, so that files are rewritten seldom. If it takes all of the spool, its
frontier is the spool's own; else its frontier lies just behind its last transaction. It takes transactions of
an earlier session only as far as they are confirmed to hold still: they may be of another life.

One task decodes one slice: neighbouring transactions of one session, some megabytes of them. A larger
transaction is cut where its decoder says, and each piece after the first carries the context that the decoder
derives from the piece before:

    ┌ B … C ┬ B … C ┐   ┌ B ……………… ┬ ……………… ┬ … C ┐
    └─── slice 0 ───┘   └── 1 ────── 2 ────── 3 ──┘

A transaction that was streamed while it ran lies in files of its own. A large one is cut in the same way; its
pieces also carry which of its parts were rolled back. Small ones share a slice, as if they had come whole. If
one brought a layout of a table, a slice of other transactions ends before its commit: the layout holds only
after that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace.core.position import Position
from headrace.decode.kernel import Ints
from headrace.pipeline.tasks.slices import Slice, SmallTransaction
from headrace.sources.contract.decoder import Context, Decoder, RunningTransaction
from headrace.spool.cut_places import CutPlaces
from headrace.spool.layout import RECORD, Kind, Records, damaged_error
from headrace.spool.reader import SpoolReader
from headrace.spool.running_files import TransactionName

EPOCH_BYTES = 192 << 20
SLICE_BYTES = 8 << 20
EPOCH_TRANSACTIONS = 200_000
ALONE_BYTES = 16 << 20  # a streamed transaction of this size gets an epoch of its own


@dataclass(frozen=True, slots=True)
class EpochBatch:
    """The transactions of one epoch."""

    transactions: Records
    frontier: Position
    next_address: int  # all before it is in this epoch or an earlier one
    more: bool = False  # the spool holds further transactions

    @property
    def changes(self) -> int:
        return int(self.transactions["changes"].sum())

    @property
    def size(self) -> int:
        """Return its bytes in the spool."""
        return int(_sizes(self.transactions).sum())

    @property
    def truncates(self) -> bool:
        """Tell whether it truncates any table, ours or not."""
        return bool(self.transactions["truncates"].any())

    @property
    def commit_ts(self) -> int | None:
        """Return the newest commit timestamp, microseconds since 1970."""
        return int(self.transactions["commit_ts"].max()) if len(self.transactions) else None

    @property
    def earliest_commit_ts(self) -> int | None:
        return int(self.transactions["commit_ts"].min()) if len(self.transactions) else None

    @property
    def alone(self) -> np.void | None:
        """Return the large streamed transaction that makes up the whole epoch, if one does."""
        return self.transactions[0] if len(_alone(self.transactions)) == len(self.transactions) == 1 else None


def next_batch(
    reader: SpoolReader, address: int, before: Position, places: CutPlaces, confirmed_until: int | None = None
) -> EpochBatch | None:
    """Take the next epoch's transactions from `address` on; None while the spool holds nothing new.

    `confirmed_until` is the time up to which the transactions of an earlier session still hold; None: all do.
    """
    newest = reader.newest()  # read first: whatever we read afterwards is complete up to here
    if newest is None:
        return None
    if confirmed_until is not None and confirmed_until <= before.time:
        return EpochBatch(np.empty(0, RECORD), before, address)
    found, more = _new(reader, address, before)
    all_found = not more
    held = found if confirmed_until is None else found[found["time"] < confirmed_until]
    taken = _within(held)
    if len(taken) < len(held) or (more and len(held) == len(found)):
        reached, behind, more = int(taken["end"][-1]), int(taken["stop"][-1]), True
    else:
        reached, behind, more = int(newest["end"]), max(address, _complete_before(newest)), False
        if confirmed_until is not None:
            reached = min(reached, confirmed_until)
        if len(taken):
            reached, behind = max(reached, int(taken["end"][-1])), int(taken["stop"][-1])
        if len(held) < len(found):
            behind = int(found["start"][len(held)])
    end = places.within(before, reached, confirmed_until)
    if end.time == reached:
        return EpochBatch(taken, max(end, before), behind, more)
    if end.time > int(newest["end"]):
        # The stream says a position before the spool has all that lies before it.
        return EpochBatch(np.empty(0, RECORD), before, address)
    return _ending_at(end, held if all_found else _upto(reader, found, end.time), address)


def _upto(reader: SpoolReader, found: Records, time: int) -> Records:
    """Read on behind these transactions until all before this time are found: the spool has them."""
    parts = [found]
    while int(parts[-1]["end"][-1]) < time:
        behind = reader.transactions(int(parts[-1]["stop"][-1]), EPOCH_TRANSACTIONS)
        if not len(behind):
            break  # the rest of the time is of transactions without a change of ours
        parts.append(behind)
    return np.concatenate(parts)


def _ending_at(end: Position, held: Records, address: int) -> EpochBatch:
    """Make the batch that ends at a place where the stream said its position."""
    taken = held[held["time"] < end.time]
    behind = int(taken["stop"][-1]) if len(taken) else address
    return EpochBatch(taken, end, behind, more=len(taken) < len(held))


def _complete_before(newest: np.void) -> int:
    """Return the address before which every transaction has its record by now.

    A segment may begin inside a transaction. No transaction is open where the source is complete.
    """
    return 0 if newest["kind"] == Kind.HEAD else int(newest["stop"])


def _new(reader: SpoolReader, address: int, before: Position) -> tuple[Records, bool]:
    """Find transactions that are not in the lake yet, and whether there may be more of them.

    A server that crashed sends transactions again that we have already.
    """
    while True:
        found = reader.transactions(address, EPOCH_TRANSACTIONS)
        more = len(found) == EPOCH_TRANSACTIONS
        new = found[found["time"] >= before.time]
        if len(new) or not more:
            return new, more
        address = int(found["stop"][-1])


def _within(found: Records) -> Records:
    """Take as many transactions as fit into an epoch, at least one; of large streamed ones only one."""
    alone = _alone(found)
    if len(alone):
        found = found[: max(1, int(alone[0]))]
    sizes = np.cumsum(_sizes(found))
    return found[: max(1, int(np.searchsorted(sizes, EPOCH_BYTES, side="right")))]


def _sizes(transactions: Records) -> Ints:
    """Return the bytes of each, among others and in files of its own."""
    sizes: Ints = transactions["stop"] - transactions["start"] + transactions["length"]
    return sizes


def _alone(found: Records) -> Ints:
    """Pick the transactions that get epochs of their own."""
    return np.flatnonzero((found["kind"] == Kind.STREAMED) & (found["length"] >= ALONE_BYTES))


def slices(reader: SpoolReader, transactions: Records, decoder: Decoder) -> Iterator[Slice]:
    """Cut an epoch into slices, in no order: each change in them has its own time."""
    is_streamed = transactions["kind"] == Kind.STREAMED
    whole, streamed = transactions[~is_streamed], transactions[is_streamed]
    for first, last in _neighbours(whole, _describing(reader, streamed)):
        start, stop = int(whole["start"][first]), int(whole["stop"][last])
        context = decoder.between(reader.layouts_before(start))
        if last == first and stop - start > 2 * SLICE_BYTES:
            yield from Pieces(reader, decoder, start, context).whole(stop)
        else:
            yield Slice(decoder, context, start, stop)
    yield from _of_streamed(reader, streamed, decoder)


def _of_streamed(reader: SpoolReader, streamed: Records, decoder: Decoder) -> Iterator[Slice]:
    """Make slices of streamed transactions, each with all layouts that it needs. Small ones share a slice."""
    together: list[SmallTransaction] = []
    size = 0
    for transaction in streamed[streamed["length"] > 0]:  # the others are blocks without a change of ours
        own, length = own_files(transaction), int(transaction["length"])
        assert decoder.running is not None  # only such a decoder has streamed transactions
        context = decoder.running.within(ended_transaction(reader, own, transaction, decoder))
        if length > SLICE_BYTES:
            yield from Pieces(reader, decoder, 0, context, own).whole(length)
            continue
        if together and size + length > SLICE_BYTES:
            yield _together(decoder, together, size)
            together, size = [], 0
        together.append(SmallTransaction(own, length, context))
        size += length
    if together:
        yield _together(decoder, together, size)


def _together(decoder: Decoder, several: Sequence[SmallTransaction], size: int) -> Slice:
    return Slice(decoder, decoder.between(()), 0, size, several=tuple(several))


def ended_transaction(
    reader: SpoolReader, own: TransactionName, transaction: np.void, decoder: Decoder
) -> RunningTransaction:
    """Make the transaction, which came while it ran, of the spool's files now that it has ended."""
    start, stop = int(transaction["start"]), int(transaction["stop"])
    return RunningTransaction(
        number=int(transaction["transaction"]),
        time=int(transaction["time"]),
        commit_ts=int(transaction["commit_ts"]),
        aborted_parts=tuple(reader.aborted_parts(own).tolist()),
        # There may be very many, and each costs a read: look up only names that are not numbers.
        end=b"" if decoder.transaction_id is not None else reader.read(start, stop).tobytes(),
    )


def _describing(reader: SpoolReader, streamed: Records) -> Ints:
    """Find the ends of streamed transactions that brought layouts which hold from there on."""
    if not len(streamed):
        return np.empty(0, np.int64)
    starts = streamed["start"]
    return np.intersect1d(starts, reader.description_addresses(int(starts[0]), int(starts[-1])))


def _neighbours(whole: Records, described: Ints) -> Iterator[tuple[int, int]]:
    """Find the first and the last of the transactions that share a slice: of one session, and not too large.

    Commits of streamed transactions may lie between them (their changes lie elsewhere), but no new layout.
    """
    sessions = np.flatnonzero(np.diff(whole["session"]))
    layouts = np.searchsorted(whole["start"], described) - 1
    ends = np.unique(np.concatenate([sessions, layouts[layouts >= 0], [len(whole) - 1]]))
    first = 0
    for end in ends.tolist():
        while first <= end:
            within = np.searchsorted(whole["stop"], whole["start"][first] + SLICE_BYTES, side="right")
            last = min(max(int(within) - 1, first), end)
            yield first, last
            first = last + 1


def own_files(transaction: np.void) -> TransactionName:
    """Return the files of a transaction that was streamed."""
    return TransactionName(int(transaction["own"]), int(transaction["transaction"]))


@dataclass(slots=True)
class Pieces:
    """One very large transaction, cut into slices as far as the spool has it."""

    reader: SpoolReader
    decoder: Decoder
    at: int  # where the next one begins
    context: Context  # of what follows there
    own: TransactionName | None = None
    size: int = SLICE_BYTES

    def upto(self, stop: int) -> Iterator[Slice]:
        """Cut slices up to this address, or to the last whole message before it."""
        while self.at < stop and (piece := self._next(stop)) is not None:
            yield piece

    def whole(self, stop: int) -> Iterator[Slice]:
        """Cut the slices of a transaction that ends here."""
        yield from self.upto(stop)
        if self.at < stop:
            raise damaged_error(
                "transaction: it ends within a message", 0 if self.own is None else self.own.segment
            )

    def _next(self, stop: int) -> Slice | None:
        end = self.at
        length = 0
        while length == 0:  # a message may be larger than a slice
            if end == stop:
                return None
            end = min(end + self.size, stop)
            window = Slice(self.decoder, self.context, self.at, end, self.own)
            length, behind = self.decoder.split(window.read(self.reader), self.context)
        piece = replace(window, stop=self.at + length)
        self.at, self.context = piece.stop, behind
        return piece
