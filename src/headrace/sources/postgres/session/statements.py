"""Statements: run one on a pinned connection and return its rows; each wait has an end.

    query(connection, ...)             an ordinary connection, parameters, rows as values
    in_transaction(connection)         several statements in one transaction, or in one savepoint
    ask(pgconn, statement)             the simple protocol, walsender commands too, rows as text
    answer(pgconn, statement)          the same, but libpq's whole result
    ask_within(pgconn, ..., seconds)   `ask` with a limit, after which the server cancels the statement
    origins(connection, statement)     the table columns that the columns of the result come from
    receive, next_result, last_result  waits for callers that use libpq directly; they release Python's lock

A failure is a coded error (`refusals`), which never quotes a row.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import pq
from psycopg.rows import TupleRow

from headrace.core.errors import HeadraceError, Transient
from headrace.sources.postgres.session import timeouts
from headrace.sources.postgres.session.refusals import refused_error
from headrace.sources.postgres.session.timeouts import ANSWER_SECONDS, silence, socket_of

Params = Sequence[Any] | Mapping[str, Any]
Session = psycopg.Connection[TupleRow]
_CHECK_SECONDS = 0.2
_CANCEL_SECONDS = 0.5  # between two requests to cancel


def ask(pgconn: pq.abc.PGconn, statement: str) -> list[tuple[str | None, ...]]:
    """Run one statement or walsender command by the simple protocol; return its rows as text."""
    return _rows(answer(pgconn, statement))


def answer(pgconn: pq.abc.PGconn, statement: str, seconds: float | None = None) -> pq.abc.PGresult:
    """Run one statement by the simple protocol; return the server's answer, even if it is a refusal.

    If the connection is lost meanwhile, libpq returns a result; if it was lost before, libpq raises.
    """
    with silence(pgconn) if seconds is None else silence(pgconn, seconds):
        try:
            return pgconn.exec_(statement.encode())
        except psycopg.OperationalError as error:
            raise refused_error(None, str(error)) from None


def _nobody() -> None:
    """Never end the wait early."""


def ask_within(
    pgconn: pq.abc.PGconn, statement: str, seconds: float, check: Callable[[], None] = _nobody
) -> list[tuple[str | None, ...]]:
    """`ask` for a statement that may take long: after so many seconds it is cancelled on the server.

    `check` is called again and again; an error that it raises is raised here, once the server has ended the
    statement. If the statement ends while its cancellation is under way, its rows count.
    """
    with silence(pgconn, seconds + ANSWER_SECONDS):
        return _ask(pgconn, statement, seconds, check)


def _ask(
    pgconn: pq.abc.PGconn, statement: str, seconds: float, check: Callable[[], None]
) -> list[tuple[str | None, ...]]:
    deadline = time.monotonic() + seconds
    try:
        pgconn.send_query(statement.encode())
        _await(pgconn, deadline, check)
        result = _cancel_wait(pgconn)
    except psycopg.OperationalError as error:
        raise refused_error(None, str(error)) from None
    return _rows(result)


def _await(pgconn: pq.abc.PGconn, deadline: float, check: Callable[[], None]) -> None:
    try:
        while _busy(pgconn) and (left := deadline - time.monotonic()) > 0:
            check()
            receive(pgconn, min(left, _CHECK_SECONDS))
    except HeadraceError:
        _cancel(pgconn)
        raise


def _cancel(pgconn: pq.abc.PGconn) -> None:
    """Cancel the statement, whatever its result; if the connection is gone, do nothing."""
    try:
        _cancel_wait(pgconn)
    except (psycopg.OperationalError, Transient):
        return


def _cancel_wait(pgconn: pq.abc.PGconn) -> pq.abc.PGresult:
    """Cancel the statement until it ends; return its result.

    The server ignores a request that comes before the statement has begun, so the request is repeated.
    """
    with silence(pgconn, ANSWER_SECONDS):
        while _busy(pgconn):
            timeouts.request(pgconn)
            receive(pgconn, _CANCEL_SECONDS)
        result = last_result(pgconn)
    if result is None:
        raise refused_error(None, "no answer")
    return result


def _busy(pgconn: pq.abc.PGconn) -> bool:
    return bool(pgconn.is_busy())


def last_result(pgconn: pq.abc.PGconn) -> pq.abc.PGresult | None:
    """Wait until the server is ready for the next statement; return the first result of this one."""
    result = following = next_result(pgconn)
    while following is not None:
        following = next_result(pgconn)
    return result


def next_result(pgconn: pq.abc.PGconn) -> pq.abc.PGresult | None:
    """Wait for the next result. libpq's own wait would hold Python's lock, so nobody could end the wait."""
    while _busy(pgconn):
        receive(pgconn, None)
    return pgconn.get_result()


def receive(pgconn: pq.abc.PGconn, seconds: float | None) -> None:
    """Read a part of the answer, if any comes in time."""
    if _readable(socket_of(pgconn), seconds):
        try:
            pgconn.consume_input()
        except psycopg.OperationalError as error:
            raise refused_error(None, str(error)) from None


def _readable(socket: int, seconds: float | None) -> bool:
    waiting = select.poll()
    waiting.register(socket, select.POLLIN)
    return bool(waiting.poll(None if seconds is None else max(0.0, seconds) * 1000))


def _rows(result: pq.abc.PGresult) -> list[tuple[str | None, ...]]:
    if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise refused_error(result.error_field(pq.DiagnosticField.SQLSTATE), _primary(result))
    return [
        tuple(_text(result.get_value(row, column)) for column in range(result.nfields))
        for row in range(result.ntuples)
    ]


def query(
    connection: Session,
    statement: LiteralString | bytes,
    parameters: Params | None = None,
    *,
    prepare: bool = False,
) -> list[TupleRow]:
    """Run one statement on an ordinary connection; return its rows. A failure is a coded error.

    Use `prepare` for a statement that is run again and again with the same text. The server plans it once,
    for any parameters (`connection.WISHES`).
    """
    with _code_errors(connection):
        cursor = connection.execute(statement, parameters, prepare=prepare)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def in_transaction(connection: Session) -> Iterator[None]:
    """Run the block in one transaction; inside another transaction, in a savepoint.

    If the connection is lost at COMMIT, nobody knows whether the transaction committed.
    """
    opened = connection.transaction()
    with _code_errors(connection):
        opened.__enter__()
    try:
        yield
    except BaseException as error:
        with _code_errors(connection):
            opened.__exit__(type(error), error, error.__traceback__)
        raise
    with _code_errors(connection):
        opened.__exit__(None, None, None)


@contextmanager
def _code_errors(connection: Session) -> Iterator[None]:
    """Bound the wait for an answer, and turn a failure into a coded error."""
    try:
        with silence(connection.pgconn):
            yield
    except psycopg.Error as error:
        state = error.sqlstate.encode() if error.sqlstate else None
        # Never the error's own detail: it may quote a row.
        raise refused_error(state, error.diag.message_primary or "") from None


def origins(connection: Session, statement: str) -> list[int]:
    """Run one statement; return for each column of the result its number in its own table."""
    result = answer(connection.pgconn, statement)
    _rows(result)
    return [result.ftablecol(column) for column in range(result.nfields)]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _primary(result: pq.abc.PGresult) -> str:
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    return message.decode(errors="replace") if message else ""
