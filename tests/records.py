"""Records of a source as a lake has them, for tests that need one and no server that made it."""

from __future__ import annotations

from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.pipeline.state.records import SourceRecord
from headrace.sources.postgres.session.identity import PostgresIdentity
from headrace.sources.postgres.upstream import PostgresUpstream
from tests.places import place_at

IDENTITY = PostgresIdentity("1", 1, 180004, "d")
UPSTREAM = PostgresUpstream("s", "p")


def source_record(
    *,
    identity: PostgresIdentity = IDENTITY,
    upstream: PostgresUpstream = UPSTREAM,
    start: Position | None = None,
    patterns: tuple[str, ...] = ("*.*",),
) -> SourceRecord:
    """A source that has been mirrored."""
    return SourceRecord(
        kind="postgres",
        address="host=nowhere.invalid",
        identity=identity.lasting_part(),
        upstream=to_record(upstream),
        start=place_at(0) if start is None else start,
        patterns=patterns,
    )


def upstream_of(source: SourceRecord) -> PostgresUpstream:
    """Read a PostgreSQL source's upstream."""
    return PostgresUpstream.of(source.upstream)
