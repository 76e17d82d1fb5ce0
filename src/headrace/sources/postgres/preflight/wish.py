"""A wish in PostgreSQL's words: what is to be mirrored, and through which objects. All checks go by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.sources.contract.findings import Wish
from headrace.sources.contract.values import Json
from headrace.sources.postgres.declaration import DECLARATION, SLOT
from headrace.sources.postgres.upstream import PostgresUpstream


@dataclass(frozen=True, slots=True)
class PostgresWish:
    """A wish to mirror tables of PostgreSQL."""

    patterns: Sequence[str]
    publication: str | None = None  # the user's own; None: ours, made for the lake
    slot: str | None = None  # likewise; of a source that is mirrored already, whosever it is
    handoff: str = SLOT  # how the snapshot is joined to the stream
    connections: int = 4  # that the copy may open
    identity: Json | None = None  # of the source that the lake already mirrors

    @classmethod
    def of(cls, wish: Wish) -> PostgresWish:
        """Read a wish: its options, or what the mirror has upstream already."""
        handoff = DECLARATION.value(wish.options, "handoff") or SLOT
        if wish.upstream is not None:
            known = cls.of_mirror(PostgresUpstream.of(wish.upstream), wish.patterns)
            return replace(known, handoff=handoff, connections=wish.connections, identity=wish.identity)
        publication, slot = wish.options.get("publication"), wish.options.get("slot")
        patterns = _within(publication, wish.patterns)
        return cls(patterns, publication, slot, handoff, wish.connections, wish.identity)

    @classmethod
    def of_mirror(cls, upstream: PostgresUpstream, patterns: Sequence[str]) -> PostgresWish:
        """Select by patterns as a mirror with these objects does."""
        publication = None if upstream.owns_publication else upstream.publication
        return cls(_within(publication, patterns), publication, upstream.slot)


def _within(publication: str | None, patterns: Sequence[str]) -> Sequence[str]:
    """A publication alone means all that it holds."""
    return patterns or (("*.*",) if publication else ())
