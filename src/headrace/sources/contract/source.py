"""A kind of source, as `registry` finds it: by the scheme of an address, or by the kind of a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from headrace.core.chunks import Bound
from headrace.core.position import Position
from headrace.core.schema import TableSchema
from headrace.sources.contract.copying import Reader
from headrace.sources.contract.declaration import Declaration
from headrace.sources.contract.decoder import Decoder
from headrace.sources.contract.findings import CheckReport, Wish
from headrace.sources.contract.record import Json
from headrace.sources.contract.session import Address, Session


class Source(Protocol):
    """A kind of source: a folder beside this one implements it."""

    @property
    def declaration(self) -> Declaration:
        """Its name, its addresses and its options: `registry.declaration` has them without the rest."""

    def address(self, text: str) -> Address:
        """Read what a person typed, or what a lake remembers; a text that can't be read is never quoted."""

    def connect(self, address: Address, *, role: str) -> Session:
        """Open a pinned connection; `role` says in the server's own lists what for."""

    def check_options(self, options: Mapping[str, str]) -> None:
        """Refuse options, each of which is right by itself, that do not go together."""

    def upstream(self, lake_id: str, name: str, options: Mapping[str, str]) -> Json:
        """Plan what a mirror of this name will have upstream: its own objects, or those that options name."""

    def options(self, upstream: Json) -> Mapping[str, str]:
        """The options that say the same: none for what is our own."""

    def objects(self, upstream: Json) -> Mapping[str, str]:
        """The objects upstream, by the options that would name them."""

    def owns_capture(self, upstream: Json) -> bool:
        """Tell whether ours to change is which tables are captured; else the user's own objects say it."""

    def examine(self, address: Address, wish: Wish) -> CheckReport:
        """Find what would go wrong later, before anything is made. Raises only if nobody can be asked."""

    def script(self, report: CheckReport) -> list[str]:
        """The statements that mend what was found, in an order in which they can be run."""

    def drop(
        self, address: Address, upstream: Json, other: str | None = None, *, rehearse: bool = False
    ) -> list[str]:
        """Remove what is ours of the objects upstream; what was removed, for people.

        A rehearsal removes nothing and tells what would be.

        Or what is there for another mirror of that name, which reads through the same objects; refused where
        none can.
        """

    def at(self, upstream: Json, time: int) -> Position | None:
        """The position at a time, in the life that `upstream` is of; None where only its stream can tell."""

    def decoder(self, reference: int = 0) -> Decoder:
        """The decoder of its stream.

        `reference` is what the newest look at the source said of its transactions: by it a source whose
        stream shortens their ids tells them apart. Without it they are as the stream has them.
        """

    def reader(self, address: Address, identity: Json, ticket: Json, *, role: str) -> Reader:
        """Make a reader of what the ticket is for; it connects when it is first asked for something.

        `identity` is that of the session that the ticket came from.
        """

    def key_bounds(self, schema: TableSchema, keys: pa.Table) -> list[Bound] | None:
        """The bounds of ranges at these keys, as the lake has them; None where the source can't read one."""
