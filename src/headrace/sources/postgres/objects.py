"""The objects that we make upstream, a publication and a slot: their order, their names, their removal.

    `publication` first, committed ──► `slot` ──► W (`writers`) ──► `copy`

The order is the proof. A publication filters change by change: the stream has only a part of a transaction
that was open when its table was added to the publication. So the slot is made after the publication has
committed. The transactions that then hold a write lock on a table to be copied are noted as W. A snapshot in
which one of them still runs is not accepted (`copy.leader`).

Both objects are named after the lake and removed with it. Objects of the user (`--publication`, `slot =`) are
never altered or dropped here.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from headrace.core.errors import Definite, HeadraceError, Misconfigured, PositionLost
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.contract.mirror import StreamOrder, StreamOrigin
from headrace.sources.contract.values import COLUMNS, Json, Waiting
from headrace.sources.postgres.declaration import AUTO, DECLARATION, OFF, SLOT_FAILOVER
from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.publication import drop_publication, ensure_publication, publication_oid
from headrace.sources.postgres.session import clock
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import application_name, connect
from headrace.sources.postgres.session.identity import PostgresIdentity
from headrace.sources.postgres.session.log_end import wal_end
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.session.stream_errors import publication_missing
from headrace.sources.postgres.session.timeline import read_forks
from headrace.sources.postgres.slot import (
    check_slot,
    drop_slot,
    ensure_failover,
    ensure_slot,
    free_slot,
    slot_state,
)
from headrace.sources.postgres.upstream import PostgresUpstream

OURS = "^headrace_[0-9a-f]{8}_"  # matches the names of a lake's own slots and publications (`object_name`)
_NAME_LIMIT = 63


def object_name(lake_id: str, source: str) -> str:
    """The name of both slot and publication: `headrace_<lake>_<source>`, fit for a slot."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in source.lower())
    name = f"headrace_{lake_id[:8].lower()}_{plain}"
    if plain == source and len(name) <= _NAME_LIMIT:
        return name
    # Two names must stay different although a slot's name can't hold some of their characters.
    mark = f"_{zlib.crc32(source.encode()):08x}"
    return name[: _NAME_LIMIT - len(mark)] + mark


def check_options(options: Mapping[str, str]) -> None:
    """Refuse a slot of the user's without a publication of theirs: we would make ours after the slot."""
    slot = options.get("slot")
    if slot is not None and "publication" not in options:
        raise Misconfigured(
            "PG_SLOT_WITHOUT_PUBLICATION",
            f'the slot "{slot}" is named, and no publication that is older than it',
            detail="a slot cannot bring changes from before the publication held their tables",
            hint="name both, with --publication too, or leave out the slot",
        )


def plan(lake_id: str, source: str, options: Mapping[str, str]) -> PostgresUpstream:
    """The objects of a mirror: the lake's own, except those that the user names."""
    check_options(options)
    own = object_name(lake_id, source)
    slot, publication = options.get("slot"), options.get("publication")
    return PostgresUpstream(
        slot or own,
        publication or own,
        slot is None,
        publication is None,
        failover=DECLARATION.value(options, SLOT_FAILOVER) == AUTO,
        columns=ColumnRules.parse(options.get(COLUMNS.name, "")).text,
    )


def options(upstream: PostgresUpstream) -> dict[str, str]:
    """The options that name the user's objects, which the lake's own need not, and what is made of a slot."""
    said = (
        ("publication", upstream.publication, upstream.owns_publication),
        ("slot", upstream.slot, upstream.owns_slot),
    )
    named = {option: name for option, name, ours in said if not ours}
    return {**named, SLOT_FAILOVER: AUTO if upstream.failover else OFF, **upstream.rules.options}


# --- where a stream begins ----------------------------------------------------------------------


def establish(
    address: PostgresAddress,
    connection: Session,
    identity: PostgresIdentity,
    upstream: PostgresUpstream,
    order: StreamOrder,
    waiting: Waiting,
    *,
    anew: Collection[TableName] = (),
) -> StreamOrigin:
    """Make sure that the publication holds the tables, then that there is a slot. Use the user's as they are.

    The publication sends only a part of the tables in `anew`: they are added again, whole. With `order.undo`
    a failure drops the publication again, unless a slot of an earlier attempt needs it.
    """
    if upstream.owns_publication and order.names:
        ensure_publication(connection, upstream.publication, order.names, anew=anew, rules=upstream.rules)
    fresh = slot_state(connection, upstream.slot) is None
    try:
        start = _start(address, connection, identity, upstream, waiting)
    except HeadraceError:
        if order.undo and upstream.owns_publication and slot_state(connection, upstream.slot) is None:
            drop_upstream(address, publication=upstream.publication, slot=None, application="")
        raise
    upstream = replace(
        upstream,
        publication_oid=publication_oid(connection, upstream.publication),
        forks=read_forks(address, identity) or None,
    )
    begun = clock.begin(connection)
    found = PostgresStart(
        upstream, start, identity, order.received_until, order.left_identity, wal_end(connection)
    )
    return origin_of(found, fresh=fresh, begun_at=begun)


@dataclass(frozen=True, slots=True)
class PostgresStart:
    """The start of a stream in the server's LSNs, the position received before, and the end of the log."""

    upstream: PostgresUpstream
    start: Lsn
    identity: PostgresIdentity
    received_until: Position | None
    left_identity: Json | None
    end: Lsn


def origin_of(stream_start: PostgresStart, *, fresh: bool, begun_at: int | None) -> StreamOrigin:
    """The start of a stream. After a lost position it is at or behind `received_until`.

    A server that was set back is in another life: the base that is added to its positions grows. A slot of
    the user's that outlived a promotion sends again what we have already.
    """
    known, upstream, start = (
        stream_start.identity.lasting_part(),
        stream_start.upstream,
        stream_start.upstream.position(stream_start.start),
    )
    if stream_start.received_until is None:
        return StreamOrigin(known, to_record(upstream), start, fresh, begun_at)
    if upstream.position(stream_start.end) < stream_start.received_until:
        upstream = replace(
            upstream, base=upstream.log.behind(stream_start.received_until, stream_start.start).base
        )
    position = upstream.log.at(max(upstream.position(stream_start.start), stream_start.received_until).time)
    other = upstream.base != stream_start.upstream.base or known != stream_start.left_identity
    return StreamOrigin(known, to_record(upstream), position, fresh, begun_at, another_life=other)


def _start(
    address: PostgresAddress,
    connection: Session,
    identity: PostgresIdentity,
    upstream: PostgresUpstream,
    waiting: Waiting,
) -> Lsn:
    """Find where the stream begins: the consistent point of our slot, or where the user's slot stands."""
    name = upstream.slot
    if upstream.owns_slot:
        return ensure_slot(address, name, failover=upstream.failover, waiting=waiting)
    state = slot_state(connection, name)
    if state is None or state.confirmed_flush_lsn is None:
        raise Misconfigured(
            "PG_SLOT_UNKNOWN",
            f'there is no logical slot "{name}" in database "{identity.database}"',
            hint=f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput'), or leave out the slot",
        )
    check_slot(name, state, identity.database)
    return state.confirmed_flush_lsn


class PublicationRemade(Definite, PositionLost):
    """The publication is not the one that the stream was read through."""

    codes = ("PG_PUBLICATION_REMADE",)


def remade(upstream: PostgresUpstream, oid: int | None) -> HeadraceError | None:
    """The error if the publication was dropped, or dropped and made again: changes in between are missing."""
    if not upstream.publication_oid or oid == upstream.publication_oid:
        return None
    if not oid:
        return publication_missing(f'"{upstream.publication}"')
    return PublicationRemade(
        "PG_PUBLICATION_REMADE",
        f'the publication "{upstream.publication}" was dropped and made again',
        detail="changes that were made meanwhile are in no stream",
        hint="headrace run --reconcile",
    )


def confirm(address: PostgresAddress, connection: Session, upstream: PostgresUpstream) -> None:
    """Refuse to go on with a publication that was dropped and made again; let standbys copy our slot."""
    error = remade(upstream, publication_oid(connection, upstream.publication))
    if error is not None:
        raise error
    if upstream.owns_slot and upstream.failover:
        ensure_failover(address, connection, upstream.slot)


# --- the end ------------------------------------------------------------------------------------


def leave(address: PostgresAddress, connection: Session, upstream: PostgresUpstream) -> None:
    """Let go a slot whose position was lost: drop ours; a user's slot must have been made again by now."""
    name = upstream.slot
    if upstream.owns_slot:
        drop_upstream(address, publication=None, slot=name, application=receiver_name(name))
        return
    state = slot_state(connection, name)
    if state is None or state.confirmed_flush_lsn is None or state.is_lost:
        raise Misconfigured(
            "PG_SLOT_NOT_OURS",
            f'the slot "{name}" is not ours to make again',
            hint=f"SELECT pg_drop_replication_slot('{name}') if it is there, "
            f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput'), "
            "then headrace run --reconcile",
        )


def receiver_name(slot: str) -> str:
    """Name the connection that reads our slot."""
    return application_name(f"receiver {slot}")


def drop(address: PostgresAddress, upstream: PostgresUpstream) -> list[str]:
    """Remove those of the objects that are ours; returns what was removed, for people."""
    return drop_upstream(
        address,
        publication=upstream.publication if upstream.owns_publication else None,
        slot=upstream.slot if upstream.owns_slot else None,
        application=receiver_name(upstream.slot),
    )


def ours(address: PostgresAddress, upstream: PostgresUpstream) -> list[str]:
    """The objects that `drop` would remove now."""
    found: list[str] = []
    with closing(connect(address, role="drop")) as connection:
        if upstream.owns_slot and slot_state(connection, upstream.slot) is not None:
            found.append(f'slot "{upstream.slot}"')
        if upstream.owns_publication and publication_oid(connection, upstream.publication):
            found.append(f'publication "{upstream.publication}"')
    return found


def drop_upstream(
    address: PostgresAddress,
    *,
    publication: str | None,
    slot: str | None,
    application: str,
    seconds: float = 30.0,
) -> list[str]:
    """Remove our slot and our publication; returns what was removed, for people.

    A session that still reads the slot is ended if it is ours, that is, if its application name is
    `application`. Any other session is left alone, and the error names it.
    """
    removed: list[str] = []
    with closing(connect(address, role="drop")) as connection:
        if slot is not None:
            if free_slot(connection, slot, application):
                removed.append(f'the walsender of "{application}" was ended')
            if drop_slot(connection, slot, seconds):
                removed.append(f'slot "{slot}"')
        if publication is not None and drop_publication(connection, publication):
            removed.append(f'publication "{publication}"')
    return removed
