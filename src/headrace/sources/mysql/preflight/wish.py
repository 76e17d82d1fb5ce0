"""A wish in MySQL's words: what is to be mirrored. All checks go by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.sources.contract.findings import Wish
from headrace.sources.contract.values import Json
from headrace.sources.mysql.declaration import ACCEPT, CHUNKS, HANDOFF, UNLOGGED_CASCADES
from headrace.sources.mysql.flavour import Flavour


@dataclass(frozen=True, slots=True)
class MysqlWish:
    """The wish to mirror tables. Nothing of ours is made upstream for it."""

    patterns: Sequence[str]
    connections: int = 4  # that the copy may open
    accepts_cascades: bool = False  # somebody says that unlogged cascades never find a row
    in_chunks: bool = False  # tables are to be copied in chunks, where their keys allow it
    identity: Json | None = None  # of the source that the lake already mirrors
    flavour: Flavour | None = None  # as the address says

    @classmethod
    def of(cls, wish: Wish, flavour: Flavour | None = None) -> MysqlWish:
        """Read a wish."""
        accepts = wish.options.get(UNLOGGED_CASCADES.name) == ACCEPT
        in_chunks = wish.options.get(HANDOFF.name) == CHUNKS
        return cls(wish.patterns, wish.connections, accepts, in_chunks, wish.identity, flavour)
