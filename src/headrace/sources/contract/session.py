"""One connection to a source: who is there, what is made upstream for a mirror, how far the source is.

    address ─► connect ─► prove the server ─► establish (objects upstream, and where the stream begins)
                                           ─► end, clock, health ... for as long as the mirror runs

A session belongs to one thread. Whatever fails is a coded error; one that means a position was lost is a
`core.errors.PositionLost`, whichever method finds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.sources.contract.copying import Contents
from headrace.sources.contract.record import Json
from headrace.sources.contract.tables import Tables
from headrace.sources.contract.waiting import Waiting


class Address(Protocol):
    """The place of a source, and who we are there. Its `repr` and `str` hold no secret."""

    @property
    def text(self) -> str:
        """All of it, secrets included: it travels sealed, and is in no message."""

    def safe(self) -> str:
        """The address as messages show it."""

    def without_secrets(self) -> str:
        """The address as it may be written down; with the password it is enough to connect."""


@dataclass(frozen=True, slots=True)
class StreamOrder:
    """An order for a stream of these tables.

    With `undo` what was made goes again if it fails: while no record of the lake names it, nobody would find
    it later. Where a position was lost the stream begins behind what had been `received_until`, perhaps in
    another life than that of the server `left_upstream`.
    """

    names: Sequence[TableName]
    undo: bool = False
    received_until: Position | None = None
    left_upstream: Json | None = None


@dataclass(frozen=True, slots=True)
class StreamOrigin:
    """The beginning of a stream, and what it stands on.

    `identity` is what of the server's identity lasts. Objects that were there already may be older than what
    they say of a table: only of a `fresh` stream it is known to have all of every table from its start on. No
    commit before the start is later than `begun_at` (microseconds since 1970, by the source's clock).
    In `another_life` the source spells its positions in another way than before.
    """

    identity: Json
    upstream: Json
    start: Position
    fresh: bool
    begun_at: int | None
    another_life: bool = False


@dataclass(frozen=True, slots=True)
class Successor:
    """Another server than the one that was followed, of the same history: what of its identity lasts."""

    identity: Json
    upstream: Json


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Every commit at `position` or behind it bears a later time than `at`, in microseconds since 1970."""

    at: int
    position: Position


@dataclass(frozen=True, slots=True)
class Health:
    """The source's word on what it holds for us: figures, lines, an error where it is too much."""

    figures: Mapping[str, Any] | None = None
    lines: tuple[str, ...] = ()
    excess: HeadraceError | None = None
    retained_bytes: int | None = None  # of its log, for us
    limit_bytes: int | None = None  # of that, beyond which the server or we end it


class Connection(Protocol):
    """One connection, pinned, and who is at its other end."""

    @property
    def address(self) -> Address:
        """The address as it means the same on another machine: what this one's environment said is in it."""

    @property
    def identity(self) -> Json:
        """The server, database and life of it that were reached here, for others to reach the same."""

    @property
    def is_closed(self) -> bool: ...

    def close(self) -> None: ...

    def prove(self, record: Json) -> None:
        """Raise unless this is the server that `known` is of: an `identity`, or what of it lasts."""


class Session(Connection, Protocol):
    """A connection, and what a mirror asks over it."""

    # --- what is made upstream --------------------------------------------------------------------

    def establish(self, upstream: Json, order: StreamOrder, waiting: Waiting) -> StreamOrigin:
        """See that all changes of the tables are captured, then that there is a stream of them."""

    def confirm(self, record: Json, upstream: Json, received_until: Position) -> Successor | None:
        """Raise unless the stream goes on here, through the same objects, from `received_until`.

        None where this is the server `known`. Another one may go on if it has all that was reached from that:
        commits behind it may come in another order from there.
        """

    def leave(self, upstream: Json) -> None:
        """Let a stream go whose position was lost: ours is removed, one of the user's must be made anew."""

    def tables(self, upstream: Json) -> Tables:
        """The tables that are mirrored through these objects."""

    # --- how far it is ----------------------------------------------------------------------------

    def end(self, upstream: Json) -> Position:
        """Behind all that is committed and that the stream can bring by now."""

    def behind_all(self, upstream: Json) -> Position:
        """Behind everything that has happened, written or not."""

    def clock(self, upstream: Json) -> ClockReading | None:
        """The source's clock, held against its stream; None where it can't be told."""

    def advance_log(self, upstream: Json) -> bool:
        """Move the end of the stream a little where nobody else does; False where we may not."""

    def is_quiet(self, upstream: Json, start: Position, stop: Position) -> bool:
        """Tell whether no captured transaction lies in [reached, wanted); only while nobody streams."""

    def health(self, upstream: Json, limit: int | None = None) -> Health:
        """Say what the source holds for us, which may be so many bytes. Raises where it would wait for us."""

    # --- what its tables hold ---------------------------------------------------------------------

    def contents(self, upstream: Json) -> Contents:
        """The contents of the tables that are mirrored through these objects, to be copied or compared."""
