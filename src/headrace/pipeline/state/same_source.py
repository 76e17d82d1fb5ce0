"""The server behind an address is the one that a lake mirrors, and the publication that of its stream.

Called before anything is read or done: by an attempt, by a command that took the fence, by verify, and before
each mark.
"""

from __future__ import annotations

from headrace.core.errors import Definite, PositionLost
from headrace.pipeline.state.records import SourceRecord
from headrace.sources.postgres.protocol.stream_errors import publication_missing
from headrace.sources.postgres.session.identity import Identity, another_server, timeline_changed


def prove_same(source: SourceRecord, identity: Identity) -> None:
    """The server behind the address is the one that the mirror is of, on the same timeline."""
    if (identity.system_id, identity.database) != (source.system_id, source.database):
        raise another_server(
            f"system {identity.system_id}, was {source.system_id}; "
            f'database "{identity.database}", was "{source.database}"'
        )
    if identity.timeline != source.timeline:
        raise timeline_changed(identity.timeline, source.timeline)


class PublicationRemade(Definite, PositionLost):
    """The publication is another than the stream was read through."""

    codes = ("PG_PUBLICATION_REMADE",)


def check_publication(source: SourceRecord, found: int | None) -> None:
    """Refuse to go on with a publication that was dropped and made again: what came in between is missing."""
    if not source.publication_oid or found == source.publication_oid:
        return
    if not found:
        raise publication_missing(f'"{source.publication}"')
    raise PublicationRemade(
        "PG_PUBLICATION_REMADE",
        f'the publication "{source.publication}" was dropped and made again',
        detail="changes that were made meanwhile are in no stream",
        hint="headrace run --reconcile",
    )
