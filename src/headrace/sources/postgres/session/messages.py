"""The walsender's protocol as bytes and messages, without a connection.

What is written and read here:

    we send      'Q' START_REPLICATION ...     then only CopyData frames with a status update:
                 'd' length 'r' write flush apply clock reply?                          (39 bytes)
    it answers   'W' the stream begins    'E' refused, or broken later    'N' a warning
                 'd' everything else: `headrace.decode.pgoutput` knows what is inside

A status update moves the slot by its `flush` alone, and not every release refuses to move it back, so a
`flush` is never smaller than the slot's own position. 0 moves nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.core.names import quote_identifier
from headrace.sources.postgres.lsn import Lsn

_STATUS = struct.Struct(">ci c QQQq ?")
_EPOCH = 946_684_800_000_000  # PostgreSQL counts microseconds from 2000-01-01


@dataclass(frozen=True, slots=True)
class Options:
    """The options of pgoutput; unknown ones are an error of the server's."""

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


def error_frame(kind: bytes, texts: Mapping[str, str]) -> bytes:
    """The inverse of `fields`, for what libpq has already taken apart."""
    payload = b"".join(letter.encode() + text.encode() + b"\0" for letter, text in texts.items()) + b"\0"
    return kind + struct.pack(">i", len(payload) + 4) + payload


def data_frame(payload: bytes | memoryview) -> bytes:
    """A CopyData frame around a payload."""
    return b"d" + struct.pack(">i", len(payload) + 4) + payload
