"""The wire: read bytes from a connection in large reads, and send small frames back.

psycopg's `pq` level has connected and logged in; `begin` sends a command that turns the connection into a
stream. From then on two classes return the same bytes, the frames of the protocol:

    SocketWire   plain connection: it reads the socket directly into the caller's buffer. libpq's own buffer
                 must be empty then. It is, because the connection is idle before `begin`, and everything
                 after it is read here, the server's answer included.
    LibpqWire    TLS: libpq decrypts and takes frames apart; they are put together again.

The server sends each message by itself, and a client that wakes for each one slows it down. So after data
came, the socket's low-water mark is raised, and the kernel wakes us for much data at once. If that does not
come within some milliseconds, the mark falls back to 1, so that a slow stream never waits for ever. A lone
commit on an idle source finds the mark low and is not delayed.

It promises never to block longer than `timeout`, and to send without waiting for the server to read. It must
never look inside a frame.

This module also writes and reads the walsender's messages:

    we send      'Q' START_REPLICATION ...     then only CopyData frames with a status update:
                 'd' length 'r' write flush apply clock reply?                          (39 bytes)
    it answers   'W' the stream begins    'E' refused, or broken later    'N' a warning
                 'd' everything else: `headrace.decode.pgoutput` knows what is inside

Only the `flush` of a status update moves the slot. Not every release refuses to move a slot back, so `flush`
must never be smaller than the slot's own position. 0 moves nothing.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from psycopg import OperationalError, pq

from headrace.core.errors import Transient
from headrace.core.names import quote_identifier
from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.session.statements import answer, next_result
from headrace.sources.postgres.session.timeouts import COPY_SECONDS, silence, socket_of

_STATUS = struct.Struct(">ci c QQQq ?")
_EPOCH = 946_684_800_000_000  # PostgreSQL counts microseconds from 2000-01-01


@dataclass(frozen=True, slots=True)
class Options:
    """The options of pgoutput; the server refuses options that it does not know."""

    protocol: int = 1  # 1: whole transactions in commit order, from every supported server
    messages: bool = False  # pg_logical_emit_message
    streaming: str | None = None  # "on" (protocol 2), "parallel" (4): large transactions while they run

    @classmethod
    def of(cls, version: int, *, streaming: bool) -> Options:
        """The wanted options, as far as a server of this version (server_version_num) has them."""
        if not streaming or version < 140000:
            return cls()
        return cls(4, streaming="parallel") if version >= 160000 else cls(2, streaming="on")


def start_replication(slot: str, publications: Sequence[str], options: Options) -> str:
    """The command that starts the stream at the slot's own position, which 0/0 means."""
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
    """The bytes of a simple query."""
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
    """The inverse of `fields`, for a message that libpq has taken apart."""
    payload = b"".join(letter.encode() + text.encode() + b"\0" for letter, text in texts.items()) + b"\0"
    return kind + struct.pack(">i", len(payload) + 4) + payload


def data_frame(payload: bytes | memoryview) -> bytes:
    """A CopyData frame around a payload."""
    return b"d" + struct.pack(">i", len(payload) + 4) + payload


RECEIVE_BUFFER = 8 * 1024 * 1024
LOW_WATER = 256 * 1024
# The seconds that a raised mark may delay a few bytes.
_PATIENCE = 0.005
_PATIENCE_IN_BACKLOG = 0.05


class Wire(Protocol):
    """A connection that has become a stream of frames."""

    def begin(self, statement: str) -> None:
        """Send the command; `receive` returns the server's answer."""

    def receive(self, into: memoryview, timeout: float) -> int:
        """Read bytes into `into`; return their number, 0 if none came in time."""

    def send(self, frame: bytes) -> None:
        """Queue a CopyData frame, and send as much as the network takes."""

    def close(self) -> None:
        """End the connection."""


def wire(pgconn: pq.abc.PGconn) -> Wire:
    """The wire that fits this connection."""
    return LibpqWire(pgconn) if pgconn.ssl_in_use else SocketWire(pgconn)


def lost_error(detail: str) -> Transient:
    """The error of a connection that ended."""
    return Transient(
        "PG_CONNECTION_LOST",
        "the connection to the server was lost",
        detail=detail,
        hint="nothing to do: it is tried again",
    )


class _Wakener:
    """Waits for the socket; while there is a backlog, for much data at once."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=os.dup(descriptor))
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)
        self._raised = False
        self._patience = _PATIENCE

    def ready(self, timeout: float) -> bool:
        """Wait for data; tell whether some came in time."""
        if self._raised:
            if self._poll.poll(self._patience * 1000):
                return True
            self._set(1)
        return bool(self._poll.poll(timeout * 1000))

    def came(self, count: int) -> None:
        """Note that data came: more may follow, and it is cheaper to wait for much of it."""
        self._patience = _PATIENCE if count < LOW_WATER // 4 else _PATIENCE_IN_BACKLOG
        if not self._raised:
            self._set(LOW_WATER)

    def rest(self) -> None:
        """Lower the mark again, so that the first byte wakes a waiting reader."""
        if self._raised:
            self._set(1)

    def _set(self, mark: int) -> None:
        # A Unix socket accepts the option and ignores it.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)
        self._raised = mark > 1


class SocketWire:
    """Reads the connection's own socket."""

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        self._pgconn = pgconn
        self._wakener = _Wakener(socket_of(pgconn))
        self._socket = self._wakener.socket
        self._unsent = bytearray()

    def begin(self, statement: str) -> None:
        self._push(query(statement))

    def receive(self, into: memoryview, timeout: float) -> int:
        self._push(b"")
        if not self._wakener.ready(timeout):
            return 0
        count = self._read(into)
        self._wakener.came(count)
        return count

    def send(self, frame: bytes) -> None:
        self._push(frame)

    def leave(self) -> None:
        """Give the idle connection back to libpq, after the server's whole answer was read."""
        self._wakener.rest()
        self._socket.close()

    def close(self) -> None:
        self._socket.close()
        self._pgconn.finish()

    def _read(self, into: memoryview) -> int:
        try:
            count = self._socket.recv_into(into)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise lost_error(error.strerror or "") from error
        if count == 0:
            raise lost_error("the server closed it")
        return count

    def _push(self, data: bytes) -> None:
        self._unsent += data
        if not self._unsent:
            return
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError as error:
            raise lost_error(error.strerror or "") from error


class LibpqWire:
    """Reads through libpq, which decrypts."""

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        self._pgconn = pgconn
        self._frames = bytearray()
        self._drained = False  # if not, libpq may hold data, for which the socket wakes nobody
        self._wakener = _Wakener(socket_of(pgconn))
        pgconn.notice_handler = self._notice

    def begin(self, statement: str) -> None:
        result = answer(self._pgconn, statement, COPY_SECONDS)
        if result.status == pq.ExecStatus.COPY_BOTH:
            self._frames += b"W\0\0\0\7\0\0\0"
        else:
            self._frames += error_frame(b"E", _fields(result))
        self._pgconn.nonblocking = 1

    def receive(self, into: memoryview, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        if not self._drained and not self._frames:
            self._take(len(into))
        while not self._frames and (left := deadline - time.monotonic()) > 0:
            if self._wakener.ready(left):
                self._take(len(into))
        if self._frames:
            self._wakener.came(len(self._frames))
        count = min(len(into), len(self._frames))
        into[:count] = self._frames[:count]
        del self._frames[:count]
        return count

    def send(self, frame: bytes) -> None:
        try:
            self._pgconn.put_copy_data(frame[5:])
            self._pgconn.flush()
        except OperationalError as error:
            raise lost_error("it could not be written to") from error

    def close(self) -> None:
        self._wakener.socket.close()
        self._pgconn.finish()

    def _take(self, enough: int) -> None:
        """Collect the frames that have arrived: libpq reads one TLS record, often one message, at a time."""
        try:
            self._pgconn.flush()
            more = True
            while more and len(self._frames) < enough:
                before = len(self._frames)
                self._pgconn.consume_input()
                more = self._unpack(enough) and len(self._frames) > before
            self._drained = not more
        except OperationalError as error:
            raise lost_error("it could not be read from") from error

    def _unpack(self, enough: int) -> bool:
        """Take the frames that libpq holds; tell whether more may follow."""
        while len(self._frames) < enough:
            size, payload = self._pgconn.get_copy_data(1)
            if size < 0:
                self._end()
                return False
            if size == 0:
                break
            self._frames += data_frame(payload)
        return True

    def _end(self) -> None:
        with silence(self._pgconn):
            result = next_result(self._pgconn)
        if result is None or result.status != pq.ExecStatus.FATAL_ERROR:
            self._frames += b"c\0\0\0\4"
        else:
            self._frames += error_frame(b"E", _fields(result))

    def _notice(self, result: pq.abc.PGresult) -> None:
        self._frames += error_frame(b"N", _fields(result))


def _fields(result: pq.abc.PGresult) -> dict[str, str]:
    letters = {
        "C": pq.DiagnosticField.SQLSTATE,
        "M": pq.DiagnosticField.MESSAGE_PRIMARY,
        "V": pq.DiagnosticField.SEVERITY_NONLOCALIZED,
    }
    found = {letter: result.error_field(field) for letter, field in letters.items()}
    return {letter: text.decode(errors="replace") for letter, text in found.items() if text is not None}
