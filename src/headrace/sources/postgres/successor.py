"""A promoted standby in place of the server that was followed: may the stream go on there?

    timeline 1 ──── lake ──┬── ─ ─ ─       the lake holds nothing behind the fork: it goes on
                           └── 2 ───────

    timeline 1 ──┬─ ─ ─ ─ ─ lake           the lake has commits that the new primary never had:
                 └── 2 ───────────         PG_TIMELINE_CHANGED

The server's history file tells where each timeline ended (`session.timeline`). Both timelines have the same
log up to the fork, so a commit before it is the same on both. The slot must be there too, at or before the
place that the lake holds: a failover slot that the standby kept in step, or from PostgreSQL 16 on one that
another program copied.

A timeline that is no part of the server's history is another branch. If the server's own number is smaller,
the old primary is probably back (PG_TIMELINE_LEFT): only a person may say that the mirror shall follow it.

A standby that is not yet promoted is no successor. It is waited for (PG_STANDBY_STILL).
"""

from __future__ import annotations

from dataclasses import replace

from headrace.core.errors import Transient
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.sources.contract.mirror import Successor
from headrace.sources.contract.values import Json
from headrace.sources.postgres.position import Forks, Lsn
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.identity import (
    PostgresIdentity,
    prove_cluster,
    timeline_left,
    timeline_parted,
)
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.session.stream_errors import slot_ahead, slot_missing, slot_unprotected
from headrace.sources.postgres.session.timeline import FIRST, read_forks
from headrace.sources.postgres.slot import check_slot, slot_state
from headrace.sources.postgres.upstream import PostgresUpstream

_STANDBY_PROTECTS = 160000  # from here on a standby invalidates a slot whose catalog rows it removes


class StandbyStill(Transient):
    """A standby answers where the primary is looked for: it may be promoted at any moment."""

    codes = ("PG_STANDBY_STILL",)


def successor(
    address: PostgresAddress,
    connection: Session,
    identity: PostgresIdentity,
    record: Json,
    upstream: PostgresUpstream,
    received_until: Position,
) -> Successor | None:
    """The server here, if it is on a later timeline than the followed one; None if it is on the same."""
    prove_cluster(identity, record)
    _refuse_waiting_standby(connection, identity, upstream)
    followed, frontier = record["timeline"], upstream.log.lsn(received_until)
    known = () if followed == FIRST else upstream.forks
    if identity.timeline < followed:
        raise timeline_left(identity.timeline, followed)
    forks = read_forks(address, identity)
    if identity.timeline == followed:
        if known is None or forks == known:
            return None
        raise timeline_parted(f"timeline {followed} has another history than the one that was followed")
    refuse_fork(forks, followed, known, frontier)
    _check_slot(connection, identity, upstream, frontier)
    return Successor(identity.lasting_part(), to_record(replace(upstream, forks=forks)))


def refuse_fork(forks: Forks, timeline: int, known_forks: Forks | None, frontier: Lsn) -> None:
    """Refuse a history that left the followed `timeline` before `frontier`, or never had it.

    `forks` lead to the server's timeline, `known_forks` led to the followed one; None if nobody knows them.
    """
    at = next((number for number, fork in enumerate(forks) if fork.timeline == timeline), None)
    if at is None or known_forks not in (None, forks[:at]):
        raise timeline_parted(f"its history does not have timeline {timeline}, which was followed")
    end = Lsn(forks[at].lsn)
    if end < frontier:
        raise timeline_parted(f"it left timeline {timeline} at {end}, and the lake reaches {frontier}")


def _refuse_waiting_standby(
    connection: Session, identity: PostgresIdentity, upstream: PostgresUpstream
) -> None:
    """Refuse a standby of a mirror whose source is a primary: ours was one when we made the publication."""
    if not identity.standby:
        return
    slot = slot_state(connection, upstream.slot)
    if upstream.owns_publication or (slot is not None and slot.is_copy):
        raise StandbyStill(
            "PG_STANDBY_STILL",
            "the address leads to a standby of the source, which is not promoted yet",
            hint="nothing to do if it is about to be promoted; else correct the address, or add "
            "target_session_attrs=read-write to it",
        )


def _check_slot(
    connection: Session, identity: PostgresIdentity, upstream: PostgresUpstream, frontier: Lsn
) -> None:
    """Refuse a server whose slot can't send what follows."""
    state = slot_state(connection, upstream.slot)
    if state is None or state.confirmed_flush_lsn is None:
        raise slot_missing(upstream.slot)
    check_slot(upstream.slot, state, identity.database)
    if identity.version < _STANDBY_PROTECTS:
        raise slot_unprotected(upstream.slot)
    if state.confirmed_flush_lsn > frontier:
        raise slot_ahead(upstream.slot, state.confirmed_flush_lsn, frontier)
