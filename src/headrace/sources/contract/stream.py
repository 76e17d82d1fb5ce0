"""The stream of a source, as the receiver reads it: what it is asked for, what it brings, what it is told.

    Orders ─► open_stream ─► Stream ── read ─► Received ─► the spool
                               ▲
                               └── feedback ── what the lake holds, what has arrived

Nothing between the lake's frontier and what a stream brings may be missing: `open_stream` refuses a source
that can't send it any more, or is not the one that was followed, with a `core.errors.PositionLost` where that
is so for good. What comes again, because the source keeps what was not acknowledged, is compared by the
receiver (`pipeline.ingest.replay_check`).

A source that remembers by itself how far its stream was read begins there, one that does not at `frontier`,
whose text says all that it needs. A receiver shall be there soon: neither this nor what implements it loads
Arrow, or anything else of the source (`registry.stream_source`).

A read brings bytes, and which transactions are in them:

    data        k  B R I I C  k  B I U C  B I I I I I I     bytes of whole transactions, and between them
    ended          (BRIIC)       (BIUC)                     one entry of TRANSACTION each
    open                                  (BIIIIII ...
    running                               7: (I I)  9: ()   what came of transactions that run
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import on_disk
from headrace.sources.contract.values import Json

Bytes = npt.NDArray[np.uint8]
Transactions = npt.NDArray[np.void]  # of dtype TRANSACTION

TRANSACTION = np.dtype(
    [
        ("ran", "?"),  # it came while it ran: its bytes came before, by its number
        ("time", "<i8"),
        ("end", "<i8"),  # the frontier behind it
        ("commit_ts", "<i8"),  # microseconds since 1970
        ("number", "<i8"),  # as the stream numbers it
        ("changes", "<i8"),  # that were not rolled back
        ("truncates", "<i8"),  # of those, the messages that empty tables
        ("start", "<i8"),  # of its bytes, or if it ran of the message of its end; -1: in an earlier read
        ("stop", "<i8"),
    ]
)


@dataclass(frozen=True, slots=True)
class Open:
    """The whole transaction that is open where a read ends."""

    start: int  # where it begins; -1: in an earlier read
    time: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table from this place on, as the source's decoder reads it."""

    table: int
    at: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class StreamRead:
    """The arrival of one read of a stream; places are offsets into `data`.

    `data` are the bytes of whole transactions and what lies between them, without those of transactions that
    run. All of it is to be kept as it is: what was read may have ended anywhere.

    A source that cannot tell a position by its time says the positions behind some transactions that ended:
    at least behind the last one, and where all has come before `complete`. A mark is made nowhere else.
    """

    size: int  # of all that was read
    data: Bytes
    transactions: Transactions  # in their order
    open: Open | None
    running: Mapping[int, Bytes]  # what came of transactions that run, by number; nothing yet of some
    rolled_back: Sequence[int]  # those that were rolled back
    aborted_parts: Mapping[int, Sequence[int]]  # of those that ran and ended, the parts that were rolled back
    layouts: Sequence[Layout]
    complete: int  # before this place the source has sent all there is; 0 where it does not say
    source_end: tuple[int, int] | None  # how far the source is, and its clock, microseconds since 1970
    amid: bool  # it ends amid bytes of a transaction that runs
    positions: Sequence[Position] = ()  # of a source that cannot tell them by their times; see below


# --- the stream --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Orders:
    """An order to stream: what, from whom, and from where on. Holds the password: never shown."""

    address: str  # all of its text
    identity: Json  # of who has to answer: `Session.identity`
    upstream: Json
    frontier: Position  # what the lake holds
    received_until: Position = field(metadata=on_disk("reached"))  # the frontier, or past it
    newest: int | None = None  # the largest id of a transaction that is known to have committed there
    running: bool = False  # large transactions while they run, where the source can
    silence: float | None = None  # for so many seconds a stream may be silent; None: as the source has it


class Stream(Protocol):
    """An open stream. It belongs to one thread."""

    @property
    def start(self) -> Position:
        """The position that it begins at: everything from here on comes, again or for the first time."""

    @property
    def pause(self) -> float:
        """After so many seconds at the latest the source wants feedback."""

    @property
    def feedback(self) -> Callable[[Position, Position], None] | None:
        """Say what the lake holds durably, which the source may forget, and what has arrived.

        None of a source that remembers nothing of it.
        """

    def read(self, timeout: float) -> StreamRead | None:
        """Take what has come; None if nothing came in time. Valid until the next call."""

    def close(self) -> None: ...


class StreamSource(Protocol):
    """The half of a source that a receiver needs."""

    @property
    def at(self) -> Callable[[Json, int], Position] | None:
        """The position at a time, in the life that an upstream is of; None where only its stream can tell."""

    @property
    def picking(self) -> Callable[[Json, Collection[TableName], Mapping[str, str]], Json] | None:
        """The record of a stream of these tables, by the record of the mirror and the options of this run.

        A receiver that picks tables out of the stream finds them there. What it received by another record is
        of no use: it is received again, from the newest mark on. None where the source itself knows which
        tables they are, and no option says how a stream is read.
        """

    def open_stream(self, orders: Orders) -> Stream:
        """Connect, prove who answers, see that nothing is missing, and begin."""

    def history_changed(
        self, upstream: Json, sent_times: Sequence[int], again: Sequence[int]
    ) -> HeadraceError:
        """The error of a source that sent the transactions of these times once, and those of others again."""
