"""A kind of source, as `registry` finds it: by the scheme of an address, or by the kind of a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa

from headrace.core.chunks import Bound
from headrace.core.schema import TableSchema
from headrace.sources.contract.copying import Reader
from headrace.sources.contract.decoder import Decoder
from headrace.sources.contract.findings import CheckReport, Wish
from headrace.sources.contract.mirror import Address, Connection
from headrace.sources.contract.values import Json, UpstreamFacts


class Source(Protocol):
    """A kind of source: a folder beside this one implements it. It holds nothing: ask it from any thread."""

    @property
    def drop(self) -> Callable[[Address, Json, bool], list[str]] | None:
        """Remove what is ours of the objects upstream; what was removed, for people.

        A rehearsal (True) removes nothing and tells what would be. What is gone already is nothing to do.
        None of a source that makes nothing there.
        """

    @property
    def drop_reader(self) -> Callable[[Address, Json, str, bool], list[str]] | None:
        """Remove what is there for another mirror of this name, which reads through the same objects.

        None of a source of which each mirror has objects of its own.
        """

    @property
    def key_bounds(self) -> Callable[[TableSchema, pa.Table], list[Bound] | None] | None:
        """The bounds of ranges at these keys, as the lake has them; None where the source can't read one.

        None of a source that is never read in ranges of keys (`CopyPlan.key_walk`).
        """

    # --- before anything is made ------------------------------------------------------------------

    def address(self, text: str) -> Address:
        """Read what a person typed, or what a lake remembers; a text that can't be read is never quoted."""

    def plan(self, lake_id: str, name: str, options: Mapping[str, str]) -> Json:
        """Plan what a mirror of this name will have upstream: its own objects, or those that options name.

        Nothing is made. The same arguments give the same record. Refuses options that do not go together.
        """

    def describe(self, upstream: Json) -> UpstreamFacts:
        """The facts of such a record, or of one that a stream was established with."""

    def examine(self, address: Address, wish: Wish) -> CheckReport:
        """Find what would go wrong later, before anything is made. Raises only if nobody can be asked."""

    # --- while it is mirrored ---------------------------------------------------------------------

    def connect(self, address: Address, *, role: str) -> Connection:
        """Open a pinned connection; `role` says in the server's own lists what for."""

    def reader(self, address: Address, identity: Json, ticket: Json, *, role: str) -> Reader:
        """Make a reader of what the ticket is for; it connects when it is first asked for something.

        `identity` is that of the connection that the ticket came from.
        """

    def decoder(self, reference: int = 0) -> Decoder:
        """The decoder of its stream.

        `reference` is what the newest look at the source said of its transactions: by it a source whose
        stream shortens their ids tells them apart. Without it they are as the stream has them.
        """
