"""A wish in PostgreSQL's words: the tables to mirror, and the objects to use. All checks take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.sources.contract.column_rules import NO_RULES, ColumnRules
from headrace.sources.contract.findings import Wish
from headrace.sources.contract.values import Json
from headrace.sources.postgres.declaration import AUTO, DECLARATION, SLOT, SLOT_FAILOVER
from headrace.sources.postgres.upstream import PostgresUpstream


@dataclass(frozen=True, slots=True)
class PostgresWish:
    """A wish to mirror tables of PostgreSQL."""

    patterns: Sequence[str]
    publication: str | None = None  # the user's own; None: ours, made for the lake
    slot: str | None = None  # likewise; if the source is mirrored already, its slot, ours or the user's
    owns_slot: bool = False  # the slot is ours
    failover: bool = True  # standbys shall keep a copy of our slot
    handoff: str = SLOT  # how the snapshot is joined to the stream
    connections: int = 4  # that the copy may open
    identity: Json | None = None  # of the source that the lake already mirrors
    whole_rows: bool = False  # only tables with REPLICA IDENTITY FULL
    columns: ColumnRules = NO_RULES

    @classmethod
    def of(cls, wish: Wish) -> PostgresWish:
        """Read a wish: from its options, or from the record of a mirror that exists."""
        handoff = DECLARATION.value(wish.options, "handoff") or SLOT
        if wish.upstream is not None:
            known = cls.of_mirror(PostgresUpstream.of(wish.upstream), wish.patterns)
            return replace(
                known,
                handoff=handoff,
                connections=wish.connections,
                identity=wish.identity,
                whole_rows=wish.whole_rows,
            )
        publication, slot = wish.options.get("publication"), wish.options.get("slot")
        patterns = _within(publication, wish.patterns)
        return cls(
            patterns,
            publication,
            slot,
            failover=DECLARATION.value(wish.options, SLOT_FAILOVER) == AUTO,
            handoff=handoff,
            connections=wish.connections,
            identity=wish.identity,
            whole_rows=wish.whole_rows,
            columns=ColumnRules.of(wish.options),
        )

    @classmethod
    def of_mirror(cls, upstream: PostgresUpstream, patterns: Sequence[str]) -> PostgresWish:
        """The wish of a mirror with these objects, for these patterns."""
        publication = None if upstream.owns_publication else upstream.publication
        return cls(
            _within(publication, patterns),
            publication,
            upstream.slot,
            owns_slot=upstream.owns_slot,
            failover=upstream.failover,
            columns=upstream.rules,
        )


def _within(publication: str | None, patterns: Sequence[str]) -> Sequence[str]:
    """The patterns; a publication without patterns means all its tables."""
    return patterns or (("*.*",) if publication else ())
