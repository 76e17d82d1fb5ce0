"""A kind of source, as `registry` finds it: by the scheme of an address, or by the kind of a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa

from headrace.core.chunks import Bound
from headrace.core.credential import Credential
from headrace.core.schema import TableSchema
from headrace.sources.contract.copying import Reader
from headrace.sources.contract.decoder import Decoder
from headrace.sources.contract.findings import CheckReport, Wish
from headrace.sources.contract.mirror import Address, Connection
from headrace.sources.contract.values import Json, UpstreamFacts


class Source(Protocol):
    """A kind of source; a folder beside this one implements it. It has no state: any thread may call it."""

    @property
    def drop(self) -> Callable[[Address, Json, bool], list[str]] | None:
        """Remove our own objects upstream, and return their names for people.

        A rehearsal (True) removes nothing, and returns what it would remove. Objects that are gone are
        skipped. None if the source makes no objects.
        """
        return None

    @property
    def drop_reader(self) -> Callable[[Address, Json, str, bool], list[str]] | None:
        """Remove what is there for another mirror, given by name, that reads through the same objects.

        None if each mirror of the source has objects of its own.
        """
        return None

    @property
    def key_bounds(self) -> Callable[[TableSchema, pa.Table], list[Bound] | None] | None:
        """Make range bounds of these keys, given as the lake has them; None if the source can't read one.

        The property is None if the source is never read in key ranges (`CopyPlan.key_walk`).
        """
        return None

    # --- before anything is made ------------------------------------------------------------------

    def address(self, text: str, credential: Credential | None = None) -> Address:
        """Parse an address that a person typed or a lake remembers. An error never quotes the text.

        With a credential every connection to the address asks it for the password.
        """

    def plan(self, lake_id: str, name: str, options: Mapping[str, str]) -> Json:
        """Plan the objects upstream of a mirror of this name: its own, or those that options name.

        Makes nothing. The same arguments give the same record. Refuses options that contradict each other.
        """

    def describe(self, upstream: Json) -> UpstreamFacts:
        """The facts of a record, from `plan` or from an established stream."""

    def examine(self, address: Address, wish: Wish) -> CheckReport:
        """Find what would go wrong later, before anything is made. Raises only if no server can be asked."""

    # --- while it is mirrored ---------------------------------------------------------------------

    def connect(self, address: Address, *, role: str) -> Connection:
        """Open a connection with pinned settings; the server's lists of sessions show `role`, its purpose."""

    def reader(self, address: Address, identity: Json, ticket: Json, *, role: str) -> Reader:
        """Make a reader for a ticket; it connects at its first read.

        `identity` is that of the connection that the ticket came from.
        """

    def decoder(self, reference: int = 0) -> Decoder:
        """The decoder of the source's stream.

        `reference` comes from the newest check of the source (`SchemaCheck.reference`). A source whose stream
        shortens transaction ids restores them by it. Without it the ids stay as the stream has them.
        """
