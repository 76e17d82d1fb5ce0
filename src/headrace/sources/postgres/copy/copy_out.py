"""COPY TO STDOUT: the rows of a statement as COPY's text, in large pieces of whole lines.

On a plain connection the socket is read directly (see `session.wire`); with TLS libpq does it.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from psycopg import OperationalError, pq

from headrace.core.errors import HeadraceError, Transient
from headrace.decode.copydata import CopyFrames, frames, payloads
from headrace.sources.postgres.session.refusals import refused_error
from headrace.sources.postgres.session.statements import answer, last_result, receive
from headrace.sources.postgres.session.timeouts import COPY_SECONDS, silence
from headrace.sources.postgres.session.wire import SocketWire, fields, lost_error

Bytes = npt.NDArray[np.uint8]
Stream = Generator[Bytes, None, None]  # close it if you don't read it to its end
_PIECE = 1 << 20  # yield a piece when it has so many bytes
_BUFFER = 4 << 20
_READY = b"Z\0\0\0\5"  # the server's last frame, but for one byte with the transaction's state
_WAIT = 1.0


def stream_copy(pgconn: pq.abc.PGconn, statement: str) -> Stream:
    """Stream the rows of a COPY, in pieces of whole lines."""
    return _through_libpq(pgconn, statement) if pgconn.ssl_in_use else _off_the_socket(pgconn, statement)


def error_of(result: pq.abc.PGresult) -> HeadraceError:
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    return refused_error(
        result.error_field(pq.DiagnosticField.SQLSTATE), (message or b"").decode(errors="replace")
    )


def _through_libpq(pgconn: pq.abc.PGconn, statement: str) -> Stream:
    result = answer(pgconn, statement, COPY_SECONDS)
    if result.status != pq.ExecStatus.COPY_OUT:
        raise error_of(result)
    try:
        piece, more = _piece(pgconn)
        while more:
            yield np.frombuffer(piece, np.uint8)
            piece, more = _piece(pgconn)
    except GeneratorExit:
        pgconn.finish()  # given up half-way: nobody else could read the rest
        raise
    with silence(pgconn, COPY_SECONDS):
        ended = last_result(pgconn)
    if ended is None or ended.status != pq.ExecStatus.COMMAND_OK:
        raise refused_error(None, "the copy ended early") if ended is None else error_of(ended)
    if piece:
        yield np.frombuffer(piece, np.uint8)


def _piece(pgconn: pq.abc.PGconn) -> tuple[bytes, bool]:
    """Take the next lines, and tell whether more may come. The caller's own time never counts as silence."""
    lines: list[bytes] = []
    held = 0
    try:
        with silence(pgconn, COPY_SECONDS) as heard:
            while held < _PIECE and (taken := _take_line(pgconn))[0] > 0:
                heard()
                lines.append(bytes(taken[1]))
                held += taken[0]
    except OperationalError as error:
        raise refused_error(None, str(error)) from None
    return b"".join(lines), held >= _PIECE


def _take_line(pgconn: pq.abc.PGconn) -> tuple[int, memoryview]:
    """Take the next line and its length; a length below 1 means the end."""
    while not (taken := pgconn.get_copy_data(1))[0]:
        receive(pgconn, None)
    return taken


def _off_the_socket(pgconn: pq.abc.PGconn, statement: str) -> Stream:
    wire = SocketWire(pgconn)
    answer = _Answer()
    try:
        wire.begin(statement)
        buffer = np.empty(_BUFFER, np.uint8)
        filled = 0
        while not answer.over:
            if filled == len(buffer):  # one row that is longer than the buffer
                buffer = np.concatenate([buffer, np.empty_like(buffer)])
            filled += _receive(wire, memoryview(buffer.data)[filled:], answer)
            if filled < _PIECE and buffer[max(0, filled - 6) : filled - 1].tobytes() != _READY:
                continue
            found = frames(buffer, 0, filled)
            answer.take(buffer, found)
            lines = payloads(buffer, found)
            if len(lines):
                yield lines
            filled -= found.tail
            buffer[:filled] = buffer[found.tail : found.tail + filled].copy()
    finally:
        # Given up half-way: nobody else could read the rest.
        wire.leave() if answer.over else wire.close()
    if answer.error is not None:
        raise answer.error


@dataclass(slots=True)
class _Answer:
    """The server's answer to COPY, beside the rows."""

    over: bool = False  # the server is ready for the next statement
    error: HeadraceError | None = None

    def take(self, data: Bytes, frames: CopyFrames) -> None:
        if frames.is_malformed:
            raise Transient(
                "PG_BAD_FRAME",
                "the server's answer to COPY cannot be read",
                hint="check what stands between this machine and the server",
            )
        for i in np.flatnonzero(frames.kinds != ord("d")):
            if frames.kinds[i] == ord("E"):
                said = fields(data[frames.starts[i] + 5 : frames.stops[i]].tobytes())
                self.error = refused_error(said.get("C", "").encode(), said.get("M", ""))
            self.over |= bool(frames.kinds[i] == ord("Z"))


def _receive(wire: SocketWire, into: memoryview, answer: _Answer) -> int:
    """Receive the next bytes; the server may take minutes, but not for ever."""
    deadline = time.monotonic() + COPY_SECONDS
    try:
        while not (count := wire.receive(into, _WAIT)):
            if time.monotonic() > deadline:
                raise lost_error(f"nothing came for {COPY_SECONDS:.0f} s")
    except Transient:
        # A server that ends the session says why before it hangs up.
        raise answer.error or lost_error("it ended in the midst of a copy") from None
    return count
