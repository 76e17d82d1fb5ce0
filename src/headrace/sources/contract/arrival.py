"""The arrivals of a source's stream: bytes, and which transactions are in them. Values only.

    data        k  B R I I C  k  B I U C  B I I I I I I     bytes of whole transactions, and between them
    ended          (BRIIC)       (BIUC)                     one entry of TRANSACTION each
    open                                  (BIIIIII ...
    running                               7: (I I)  9: ()   what came of transactions that run

Made by a source's stream (`stream`), written to the spool by the receiver (`pipeline.ingest.store_stream`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.core.position import Position

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
