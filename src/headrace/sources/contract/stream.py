"""The stream of a source, as the receiver reads it: the order, the reads, the feedback.

    Orders ─► open_stream ─► Stream ── read ─► StreamRead ─► the spool
                               ▲
                               └── feedback ── what the lake holds, what has arrived

A stream has no gap after the lake's frontier. `open_stream` refuses a source that can't send everything from
there on, or that is not the one that was followed. If that can't change, the error is a
`core.errors.PositionLost`. A source sends again what was not acknowledged, and the receiver compares it
(`ingest.replay_check`).

A source that remembers how far its stream was read begins there. Any other begins at `frontier`, whose text
says all that the source needs. A receiver must start fast: neither this module nor its implementations load
Arrow or the rest of a source (`registry.stream_source`).

A read brings bytes, and which transactions are in them:

    data        k  B R I I C  k  B I U C  B I I I I I I     bytes of whole transactions, and between them
    ended          (BRIIC)       (BIUC)                     one entry of TRANSACTION each
    open                                  (BIIIIII ...
    running                               7: (I I)  9: ()   the bytes of running transactions
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headrace.core.errors import HeadraceError
from headrace.core.hashing import HashKey
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import on_disk
from headrace.sources.contract.values import Json

Bytes = npt.NDArray[np.uint8]
Transactions = npt.NDArray[np.void]  # of dtype TRANSACTION

TRANSACTION = np.dtype(
    [
        ("ran", "?"),  # it was streamed while it ran: its bytes came before, under its number
        ("time", "<i8"),
        ("end", "<i8"),  # the frontier behind it
        ("commit_ts", "<i8"),  # microseconds since 1970
        ("number", "<i8"),  # as the stream numbers it
        ("changes", "<i8"),  # without those that were rolled back
        ("truncates", "<i8"),  # how many of the changes are messages that empty tables
        ("start", "<i8"),  # of its bytes; if it ran, of its end message; -1: in an earlier read
        ("stop", "<i8"),
    ]
)


@dataclass(frozen=True, slots=True)
class Open:
    """The transaction that is open where a read ends. A running transaction is never meant."""

    start: int  # where it begins; -1: in an earlier read
    time: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table from a place on: a frame that the source's decoder reads."""

    table: int
    at: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class StreamRead:
    """The result of one read of a stream; places are offsets into `data`.

    `data` has the bytes of whole transactions and the bytes between them, without those of running
    transactions. Keep all of it as it is: a read may end anywhere.

    A source that can't compute a position from a time lists `positions`: those behind some ended
    transactions, at least behind the last one, and the one that `complete` is the time of. Marks are made
    nowhere else.
    """

    size: int  # bytes that were read
    data: Bytes
    transactions: Transactions  # in their order
    complete: int  # the source has sent everything with a time before this; 0 if it does not say
    source_end: tuple[int, int] | None  # how far the source is, and its clock, microseconds since 1970
    open: Open | None = None
    running: Mapping[int, Bytes] = field(default_factory=dict)  # by number; may be empty
    rolled_back: Sequence[int] = ()  # running transactions that were rolled back
    aborted_parts: Mapping[int, Sequence[int]] = field(default_factory=dict)  # of those that ended
    layouts: Sequence[Layout] = ()
    amid: bool = False  # the read ends within bytes of a running transaction
    positions: Sequence[Position] = ()  # only of a source that can't compute them from times; see above


# --- the stream --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Orders:
    """An order to stream: what, from whom, and from where on. It holds password and key: never show it."""

    address: str  # the whole text
    identity: Json  # of the server that must answer: `Connection.identity`
    upstream: Json
    frontier: Position  # of the lake
    received_until: Position = field(metadata=on_disk("reached"))  # the frontier, or past it
    newest: int | None = None  # the largest transaction id that is known to have committed there
    running: bool = False  # stream large transactions while they run, if the source can
    silence: float | None = None  # seconds that the stream may be silent; None: the source's own limit
    hash_key: str = ""  # of the rules of columns in `upstream`, if one hashes values

    @property
    def own_hash_key(self) -> HashKey | None:
        """The key, if there is one."""
        return HashKey(self.hash_key) if self.hash_key else None


class Stream(Protocol):
    """An open stream. It belongs to one thread."""

    @property
    def start(self) -> Position:
        """The position where the stream begins. Everything from it on comes, some of it again."""

    @property
    def pause(self) -> float:
        """The longest time in seconds between two feedbacks."""
        return 1.0

    @property
    def feedback(self) -> Callable[[Position, Position], None] | None:
        """Report two positions: what the lake holds durably (the source may forget it), and what has arrived.

        None if the source does not remember them.
        """
        return None

    def read(self, timeout: float) -> StreamRead | None:
        """Read what has come; None if nothing came in time. The result is valid until the next call."""

    def close(self) -> None: ...


class StreamSource(Protocol):
    """The half of a source that a receiver needs."""

    @property
    def at(self) -> Callable[[Json, int], Position] | None:
        """Compute the position at a time, in the life of `upstream`; None if only the stream can tell."""
        return None

    @property
    def picking(self) -> Callable[[Json, Collection[TableName], Mapping[str, str]], Json] | None:
        """Make the record of a stream of these tables, from the mirror's record and the options of this run.

        A receiver that picks tables out of the stream finds them in the record. Bytes that were received by
        another record are useless: they are received again, from the newest mark on. None if the source
        itself knows the tables, and no option says how to read the stream.
        """
        return None

    def open_stream(self, orders: Orders) -> Stream:
        """Connect, prove the server's identity, check that nothing is missing, and begin."""

    def history_changed(
        self, upstream: Json, sent_times: Sequence[int], again: Sequence[int]
    ) -> HeadraceError:
        """The error of a source whose repeated transactions (times `again`) differ from `sent_times`."""
