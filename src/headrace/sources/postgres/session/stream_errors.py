"""Errors of a stream, its slot and its publication, each with its remedy.

They are classified by SQLSTATE, never by the server's text, which may be translated. `stream` raises them,
and so do `slot`, `publication` and preflight, which find the same conditions earlier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.core.errors import (
    Definite,
    HeadraceError,
    Misconfigured,
    PositionDoubtful,
    PositionLost,
    Transient,
)
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from headrace.sources.postgres.session.refusals import refused_error

# SQLSTATEs of server errors that end a stream and need a code of their own.
_OBJECT_IN_USE = "55006"
_WRONG_STATE = "55000"
_UNDEFINED_OBJECT = "42704"
_UNDEFINED_FILE = "58P01"
_OF_A_VALUE = "22"  # a class
_WAITS_FOR_STANDBYS = "StandbySlotsHaveCaughtup"  # the server's routine
_DENIED = "42501"


class StreamLost(Definite, PositionLost):
    """The stream behind our position can't be read: slot or log are gone, or were replaced."""

    codes = (
        "PG_SLOT_MISSING",
        "PG_SLOT_LOST",
        "PG_SLOT_AHEAD",
        "PG_SLOT_UNPROTECTED",
        "PG_SERVER_BEHIND",
        "PG_HISTORY_CHANGED",
    )


class PublicationMissing(Misconfigured, PositionLost):
    """The publication that the stream is read through is gone."""

    codes = ("PG_PUBLICATION_MISSING",)


class FilterFails(Misconfigured, PositionDoubtful):
    """The server cannot evaluate a row filter on a change, and sends nothing behind that change."""

    codes = ("PG_FILTER_STOPS_STREAM",)


def refusal(fields: Mapping[str, str], slot: str, *, has_begun: bool = False) -> HeadraceError:
    """The coded error of an ErrorResponse to START_REPLICATION, or to a stream that has begun."""
    state, message = fields.get("C", ""), fields.get("M", "")
    if state == _OBJECT_IN_USE:
        return slot_active(slot, None, message)
    if state == _UNDEFINED_OBJECT:
        # The slot existed a moment ago, so the publication is missing (before 18).
        return publication_missing(message)
    if state in (_WRONG_STATE, _UNDEFINED_FILE):
        return slot_lost(slot, message)
    if state.startswith(_OF_A_VALUE):
        # Don't repeat the message: it may quote the value that made the filter fail.
        return filter_fails(f"SQLSTATE {state}; the server's log says which expression")
    if has_begun and state == _DENIED:
        return filter_fails(message)
    return refused_error(state.encode(), message)


def warning(fields: Mapping[str, str]) -> HeadraceError | None:
    """The error in a NoticeResponse of the stream: version 18 only warns of a missing publication.

    A stream that waits for a standby warns with the same SQLSTATE. No translation changes a routine's name.
    """
    is_warning = fields.get("V", fields.get("S")) == "WARNING"
    if is_warning and fields.get("C") == _WRONG_STATE and fields.get("R") != _WAITS_FOR_STANDBYS:
        return publication_missing(fields.get("M", ""))
    return None


def publication_missing(detail: str) -> PublicationMissing:
    """The error of a missing publication: without it the stream is silently empty."""
    return PublicationMissing(
        "PG_PUBLICATION_MISSING",
        "a publication that this source streams from does not exist at this point of the log",
        detail=detail,
        hint="SELECT pubname FROM pg_publication shows those that exist; one that is made anew lacks the "
        "changes from before it: headrace run --reconcile",
    )


def filter_fails(detail: str) -> FilterFails:
    """The error of a filter that fails. The server uses the filter of the change's time: altering it now
    mends nothing."""
    return FilterFails(
        "PG_FILTER_STOPS_STREAM",
        "the server ended the stream at a change on which a row filter of the publication fails",
        detail=detail,
        hint="the server uses the filter as it was at the change: publish the table with one that fails on "
        "no row and that this user may evaluate, then headrace run --reconcile (make a slot of your own anew "
        "before)",
    )


def slot_missing(slot: str) -> StreamLost:
    return StreamLost(
        "PG_SLOT_MISSING",
        f'replication slot "{slot}" does not exist',
        detail="what happened since the last mark cannot be read from the server's log",
        hint="headrace run --reconcile; after a failover, check that the new primary has the slot",
    )


def slot_lost(slot: str, detail: str) -> StreamLost:
    return StreamLost(
        "PG_SLOT_LOST",
        f'replication slot "{slot}" can no longer be read: the server has removed log that it needs',
        detail=detail,
        hint="headrace run --reconcile; "
        "then raise max_slot_wal_keep_size or run headrace without long breaks",
    )


def slot_active(slot: str, pid: int | None, detail: str) -> Transient:
    who = f"process {pid} of the server" if pid is not None else "another process"
    return Transient(
        "PG_SLOT_ACTIVE",
        f'replication slot "{slot}" is in use by {who}',
        detail=detail,
        hint="the server notices a broken connection after wal_sender_timeout; if another headrace reads "
        "the slot, stop that one: SELECT * FROM pg_stat_replication shows where it runs",
    )


def slot_taken(slot: str, pid: int | None, whose: str) -> Misconfigured:
    """The error of a slot that another program reads: we would miss the changes that it reads."""
    return Misconfigured(
        "PG_SLOT_TAKEN",
        f'replication slot "{slot}" is read by another program',
        detail=f"process {pid} of the server, {whose}",
        hint="stop that program, or name another slot; headrace never ends a session that is not its own",
    )


def slot_ahead(slot: str, confirmed_lsn: Lsn, frontier: Lsn) -> StreamLost:
    return StreamLost(
        "PG_SLOT_AHEAD",
        f'replication slot "{slot}" has moved past what the lake holds',
        detail=f"the slot is at {confirmed_lsn}, the lake is complete up to {frontier}",
        hint="another program has read from this slot; headrace run --reconcile",
    )


def slot_unprotected(slot: str) -> StreamLost:
    return StreamLost(
        "PG_SLOT_UNPROTECTED",
        f'replication slot "{slot}" was on a standby that did not protect what it needs',
        detail="before PostgreSQL 16 a standby removes catalog rows that a slot needs, and says nothing",
        hint="headrace run --reconcile; from PostgreSQL 17 on a standby keeps a copy of the slot itself",
    )


def slot_unfit(slot: str, why: str) -> Misconfigured:
    return Misconfigured(
        "PG_SLOT_UNFIT",
        f'replication slot "{slot}" cannot be used',
        detail=why,
        hint="name a logical slot of this database, made with pgoutput and without two_phase",
    )


def history_changed(detail: str) -> StreamLost:
    return StreamLost(
        "PG_HISTORY_CHANGED",
        "the server has another history than when it was followed",
        detail=detail,
        hint="it was set back, restored or replaced: headrace run --reconcile",
    )


def sends_others(log: PostgresTimeline, sent_times: Sequence[int], again: Sequence[int]) -> StreamLost:
    """The error of a server that sent transactions at `sent_times`, and now sends others (`again`)."""
    return history_changed(
        f"of its transactions it sent {_show(log, sent_times)}, and sends {_show(log, again)} again"
    )


def _show(log: PostgresTimeline, times: Sequence[int]) -> str:
    """Count commits and name their positions, for a person."""
    if not times:
        return "none"
    first, last = log.at(times[0]), log.at(times[-1])
    where = f"at {first}" if first == last else f"from {first} to {last}"
    return f"{len(times)} {where}"


def server_behind(flushed_lsn: Lsn, frontier: Lsn) -> StreamLost:
    return StreamLost(
        "PG_SERVER_BEHIND",
        "the server's log ends before what it has sent already: it was restored from a backup, or replaced",
        detail=f"the server is at {flushed_lsn}, received and checked up to {frontier}",
        hint="headrace run --reconcile",
    )
