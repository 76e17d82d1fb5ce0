"""The walsender's protocol as bytes and messages, without a connection.

Called by `stream.slot_stream`, which does the talking. What is written and read here:

    we send      'Q' START_REPLICATION ...     then only CopyData frames with a status update:
                 'd' length 'r' write flush apply clock reply?                          (39 bytes)
    it answers   'W' the stream begins    'E' refused, or broken later    'N' a warning
                 'd' everything else: `headrace.decode.pgoutput` knows what is inside

A status update moves the slot by its `flush` alone, and not every release refuses to move it back, so a
`flush` is never smaller than the slot's own position. 0 moves nothing.

Errors are classified by SQLSTATE, never by their text, which the server may translate.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.core.errors import Definite, HeadraceError, Misconfigured, PositionLost, Transient
from headrace.core.names import quote_identifier
from headrace.sources.postgres.lsn import Lsn
from headrace.sources.postgres.session.refusals import refused

_STATUS = struct.Struct(">ci c QQQq ?")
_EPOCH = 946_684_800_000_000  # PostgreSQL counts microseconds from 2000-01-01

# Server errors that end a stream and mean something of their own.
_OBJECT_IN_USE = "55006"
_WRONG_STATE = "55000"
_UNDEFINED_OBJECT = "42704"
_UNDEFINED_FILE = "58P01"


@dataclass(frozen=True, slots=True)
class Options:
    """How pgoutput is asked to write the stream; unknown options are an error of the server's."""

    protocol: int = 1  # 1: whole transactions in commit order, from every supported server
    messages: bool = False  # pg_logical_emit_message
    streaming: str | None = None  # "on" (protocol 2), "parallel" (4): large transactions while they run

    @classmethod
    def of(cls, version: int, *, streaming: bool) -> Options:
        """The most that a server of this version (server_version_num) can do of what is wanted."""
        if not streaming or version < 140000:
            return cls()
        return cls(4, streaming="parallel") if version >= 160000 else cls(2, streaming="on")


def start_replication(slot: str, publications: Sequence[str], options: Options) -> str:
    """The command that starts the stream at the slot's own position, which 0/0 asks for."""
    names = ",".join('"' + name.replace('"', '""') + '"' for name in publications)
    said = [f"proto_version '{options.protocol}'", f"publication_names {_literal(names)}"]
    if options.messages:
        said.append("messages 'true'")
    if options.streaming is not None:
        said.append(f"streaming {_literal(options.streaming)}")
    return f"START_REPLICATION SLOT {quote_identifier(slot)} LOGICAL 0/0 ({', '.join(said)})"


def _literal(text: str) -> str:
    # The walsender's own scanner knows no backslash escapes and no E'' strings.
    return "'" + text.replace("'", "''") + "'"


def query(statement: str) -> bytes:
    """A simple query as it goes over the wire."""
    text = statement.encode() + b"\0"
    return b"Q" + struct.pack(">i", len(text) + 4) + text


def status_update(write: Lsn, flush: Lsn, now: int, *, reply: bool) -> bytes:
    """A whole CopyData frame; `now` in microseconds since 1970."""
    return _STATUS.pack(b"d", _STATUS.size - 1, b"r", int(write), int(flush), int(flush), now - _EPOCH, reply)


def fields(payload: bytes) -> dict[str, str]:
    """The fields of an 'E' or 'N' by their letters: 'C' SQLSTATE, 'M' primary, 'V' severity."""
    found: dict[str, str] = {}
    for part in payload.split(b"\0"):
        if part:
            found[chr(part[0])] = part[1:].decode(errors="replace")
    return found


def error_frame(kind: bytes, said: Mapping[str, str]) -> bytes:
    """The inverse of `fields`, for what libpq has already taken apart."""
    payload = b"".join(letter.encode() + text.encode() + b"\0" for letter, text in said.items()) + b"\0"
    return kind + struct.pack(">i", len(payload) + 4) + payload


def data_frame(payload: bytes | memoryview) -> bytes:
    """A CopyData frame around a payload."""
    return b"d" + struct.pack(">i", len(payload) + 4) + payload


class StreamLost(Definite, PositionLost):
    """What comes behind our place in the stream can't be had: slot or log are gone, or are others now."""

    codes = ("PG_SLOT_MISSING", "PG_SLOT_LOST", "PG_SLOT_AHEAD", "PG_SERVER_BEHIND", "PG_HISTORY_CHANGED")


class PublicationMissing(Misconfigured, PositionLost):
    """The publication that the stream is read through is gone."""

    codes = ("PG_PUBLICATION_MISSING",)


def refusal(said: Mapping[str, str], slot: str) -> HeadraceError:
    """The coded error of an ErrorResponse to START_REPLICATION, or later in the stream."""
    state, message = said.get("C", ""), said.get("M", "")
    if state == _OBJECT_IN_USE:
        return slot_active(slot, None, message)
    if state == _UNDEFINED_OBJECT:
        # The slot was there a moment ago: it is the publication that pgoutput misses (before 18).
        return publication_missing(message)
    if state in (_WRONG_STATE, _UNDEFINED_FILE):
        return slot_lost(slot, message)
    return refused(state.encode(), message)


def warning(said: Mapping[str, str]) -> HeadraceError | None:
    """What a NoticeResponse within the stream means for us: 18 skips a missing publication so."""
    if said.get("C") == _WRONG_STATE and said.get("V", said.get("S")) == "WARNING":
        return publication_missing(said.get("M", ""))
    return None


def publication_missing(detail: str) -> PublicationMissing:
    """Without its publication the stream is silently empty."""
    return PublicationMissing(
        "PG_PUBLICATION_MISSING",
        "a publication that this source streams from does not exist at this point of the log",
        detail=detail,
        hint="SELECT pubname FROM pg_publication shows those that exist; one that is made anew lacks the "
        "changes from before it: headrace run --reconcile",
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
        hint="a connection that broke off is noticed by the server after wal_sender_timeout; if another "
        "headrace reads it, stop that one: SELECT * FROM pg_stat_replication shows where it runs",
    )


def slot_taken(slot: str, pid: int | None, whose: str) -> Misconfigured:
    """Another program reads the slot: what it reads we would miss, and waiting for its end is no plan."""
    return Misconfigured(
        "PG_SLOT_TAKEN",
        f'replication slot "{slot}" is read by another program',
        detail=f"process {pid} of the server, {whose}",
        hint="stop that program, or name another slot; headrace never ends a session that is not its own",
    )


def slot_ahead(slot: str, confirmed: Lsn, frontier: Lsn) -> StreamLost:
    return StreamLost(
        "PG_SLOT_AHEAD",
        f'replication slot "{slot}" has moved past what the lake holds',
        detail=f"the slot is at {confirmed}, the lake is complete up to {frontier}",
        hint="another program has read from this slot; headrace run --reconcile",
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


def server_behind(flushed: Lsn, frontier: Lsn) -> StreamLost:
    return StreamLost(
        "PG_SERVER_BEHIND",
        "the server's log ends before what it has sent already: it was restored from a backup, or replaced",
        detail=f"the server is at {flushed}, received and checked up to {frontier}",
        hint="headrace run --reconcile",
    )
