"""Statements: one question, one answer, on a connection that is pinned; each wait has an end.

    query(session, "SELECT ... WHERE a = %s", [1])     rows as values
    with rows(session, "SELECT ...") as answer:        many rows, as bytes (`result_set`)
        for block in answer.blocks(): ...

Parameters are put into the text here, in a form that means the same in every sql_mode: what is not plainly
printable goes as hexadecimal digits. What fails is a coded error (`refusals`), which quotes neither statement
nor row.

A statement that takes too long, or that nobody wants any more, is cancelled by `KILL QUERY` on a connection
of its own. The server drops a request that comes before the statement began, so it is made again until the
statement is over; one that comes after its end would strike the next one, which is why an empty statement
follows. Only ever our own is struck: each session holds a lock with a name of chance at its server, and
whoever holds that lock is who is named (`connection`). What will not end is hung up on.

The bounds of waiting, in seconds; and who may end a wait before.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal

from headrace.core.errors import HeadraceError
from headrace.sources.mysql.flavour import Release
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.packets import (
    ConnectionLost,
    PacketBatch,
    PacketStream,
    ServerError,
    connection_lost,
)
from headrace.sources.mysql.session.refusals import cancelled_error, refused_error
from headrace.sources.mysql.session.result_set import ColumnDefinition, StatementAnswer, answer

LOGIN_SECONDS = 15.0  # from the greeting to the server's OK
ANSWER_SECONDS = 60.0  # of a question; a wait for locks the server ends before that (`connection`)
COPY_SECONDS = 120.0  # between two parts of a copy's rows
CHECK_SECONDS = 0.2  # between two looks whether it is wanted still
CANCEL_SECONDS = 0.5  # for the answer to a cancellation, until it is asked for again
STRIKE_SECONDS = 5.0  # for a request to cancel; its session is hung up on
READY_SECONDS = 0.5  # the same, of a session that was ready before it was needed
CANCEL_LIMIT = 30.0  # until a statement that will not end is hung up on


def nobody() -> None:
    """Nobody wants to end the wait before its time."""


Value = None | int | float | Decimal | str | bytes
Parameter = None | bool | int | float | Decimal | str | bytes | date | datetime
Row = tuple[Value, ...]

COM_QUIT, COM_QUERY = 1, 3
_CANCELLED_BY_KILL = 1317
_TOO_LARGE = 1153
_LONG = 1 << 20  # bytes of an answer, from which on it is taken in large parts
_LOW_WATER = 1 << 18  # bytes of such a part; what is there is taken once no more has come for a moment
_LULL_SECONDS = 0.01
_PRINTABLE = re.compile(r"[ !#-&(-\[\]-~]*")  # neither quotes nor a backslash


@dataclass(eq=False)
class MysqlConnection:
    """One connection, pinned; `close` it. It is one thread's, but for who keeps it awake (`ping`)."""

    packets: PacketStream
    address: MysqlAddress  # as it means the same on another machine
    release: Release
    connection_id: int
    role: str
    # Strikes the statement that runs here, once; a session that has none is hung up on instead.
    interrupt: Callable[[], None] | None = field(repr=False)
    # Whoever strikes is logged in in the block, so that nothing need be waited for; it may be asked, too.
    ready: Callable[[], AbstractContextManager[MysqlConnection | None]] = field(
        default=nullcontext, repr=False
    )
    status: int = 0  # of the transaction, as the last answer said
    is_asked: bool = False  # and has not answered in full
    purged_gtids: str | None = None  # the server's gtid_purged, as `log_end` last looked into it
    domains: frozenset[int] = frozenset()  # of MariaDB's log, likewise
    largest: int | None = None  # bytes of a packet that the server takes; it may hang up on a larger one
    in_use: threading.RLock = field(default_factory=threading.RLock, repr=False)  # while it is asked

    @property
    def is_closed(self) -> bool:
        return self.packets.is_closed

    def close(self) -> None:
        """Say goodbye, or hang up amid an answer; the server ends what it holds for us."""
        if not self.is_closed and not self.is_asked:
            with suppress(ConnectionLost):  # a server notes in its log who goes without a word
                self.packets.send(COM_QUIT)
        self.packets.close()

    def __enter__(self) -> MysqlConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def query(
    session: MysqlConnection,
    statement: str,
    parameters: Sequence[Parameter] = (),
    *,
    seconds: float = ANSWER_SECONDS,
    limit: float = CANCEL_LIMIT,
    check: Callable[[], None] = nobody,
) -> list[Row]:
    """Run one statement; its rows. After so many seconds it is cancelled on the server.

    If it goes on for the `limit` all the same, it is hung up on.

    `check` is called all the while; what it raises is raised here, once the server has let go; what the
    statement did may have been done by then, so whoever asked for a lock closes the session. A statement
    without rows that ends while its time is being cancelled is done. Rows that come then are not taken: some
    functions (SLEEP, GET_LOCK) answer a cancellation with a value.
    """
    with session.in_use:
        return _query(session, statement, parameters, _Patience(session, seconds, check, limit=limit))


def _query(
    session: MysqlConnection, statement: str, parameters: Sequence[Parameter], patience: _Patience
) -> list[Row]:
    found: list[Row] = []
    refusal: HeadraceError | None = None
    try:
        asked = _ask(session, statement, parameters, patience)
        found = [_row(values, asked.columns) for values in asked.rows()]
        _finish_answer(session, asked)
    except ServerError as error:
        session.is_asked = False
        refusal = refused_error(error)
    except BaseException:
        session.close()  # nobody knows how much of the answer is still to come
        raise
    if patience.began_to_cancel:
        _absorb(session)
        refusal = refusal or (cancelled_error() if found else None)
    if patience.reason is not None or refusal is not None:
        raise patience.reason or refusal or connection_lost() from None
    return found


@contextmanager
def rows(
    session: MysqlConnection,
    statement: str,
    parameters: Sequence[Parameter] = (),
    *,
    silence: float = COPY_SECONDS,
    check: Callable[[], None] = nobody,
) -> Iterator[StatementAnswer]:
    """Run one statement whose rows are taken as they come; the session is closed if they aren't all taken.

    `silence` bounds the wait for the next of them, not the whole.
    """
    with session.in_use, _take(session, statement, parameters, silence, check) as answer:
        yield answer


@contextmanager
def _take(
    session: MysqlConnection,
    statement: str,
    parameters: Sequence[Parameter],
    silence: float,
    check: Callable[[], None],
) -> Iterator[StatementAnswer]:
    patience = _Patience(session, silence, check, renewed=True)
    asked: StatementAnswer | None = None
    try:
        asked = _ask(session, statement, parameters, patience)
        yield asked
        if asked.finished:
            _finish_answer(session, asked)
    except ServerError as error:
        session.is_asked = False
        raise (patience.reason or refused_error(error)) from None
    finally:
        if session.is_asked and not session.is_closed:
            # The server would write on until it notices.
            patience.strike()
        if session.is_asked or patience.began_to_cancel:
            session.close()


def execute(session: MysqlConnection, statement: str, parameters: Sequence[Parameter] = ()) -> None:
    """Run one statement that has no rows, or whose rows don't matter."""
    query(session, statement, parameters)


def ping(session: MysqlConnection) -> None:
    """Keep a session awake that nobody asks just now, from any thread."""
    if not session.in_use.acquire(blocking=False):
        return
    try:
        if not session.is_closed and not session.is_asked:
            query(session, "DO 0")
    finally:
        session.in_use.release()


def quote(name: str) -> str:
    """A name as a statement spells it."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: Parameter) -> str:
    """A value as a statement spells it, whatever sql_mode and character set its reader has."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "1" if value else "0"
        case int() | Decimal() | float():
            return _number(value)
        case bytes():
            return f"X'{value.hex()}'"
        case date():  # a datetime, too
            return f"'{value}'"
        case str() if _PRINTABLE.fullmatch(value):
            return f"'{value}'"
        case str():
            return f"_utf8mb4 X'{value.encode().hex()}'"


def _number(value: int | float | Decimal) -> str:
    text = f"{value:f}" if isinstance(value, Decimal) else repr(value)
    if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?", text):
        raise ValueError("no statement can spell that number")
    return f"({text})" if text.startswith("-") else text  # "- -1" is a comment without its blank


def bind(statement: str, parameters: Sequence[Parameter]) -> str:
    """The statement with its parameters in the places of `%s`."""
    if not parameters:
        return statement
    parts = statement.split("%s")
    if len(parts) != len(parameters) + 1:
        raise ValueError(f"{len(parts) - 1} places for {len(parameters)} parameters")
    return parts[0] + "".join(
        literal(value) + part for value, part in zip(parameters, parts[1:], strict=True)
    )


def _ask(
    session: MysqlConnection,
    statement: str,
    parameters: Sequence[Parameter],
    receive: Callable[[], PacketBatch],
) -> StatementAnswer:
    """Send a statement; the beginning of its answer. Its reader sees in the server's list who asks."""
    if session.is_asked and not session.is_closed:
        raise RuntimeError("the answer to another statement has not been taken in full")
    session.is_asked = True
    text = f"/* headrace {session.role} */ {bind(statement, parameters)}".encode()
    if session.largest is not None and len(text) + 1 >= session.largest:
        raise ServerError(_TOO_LARGE, "08S01", "it was not sent")
    session.packets.send(COM_QUERY, text)
    return answer(receive)


def _finish_answer(session: MysqlConnection, asked: StatementAnswer) -> None:
    session.status, session.is_asked = asked.status, False


class _Patience:
    """The next packets of an answer, for as long as it is wanted; `answer` calls it."""

    def __init__(
        self,
        session: MysqlConnection,
        seconds: float,
        check: Callable[[], None],
        *,
        limit: float | None = None,
        renewed: bool = False,
    ) -> None:
        self._session = session
        self._seconds = seconds
        self._renewed = renewed
        self._patience = CANCEL_LIMIT if limit is None else limit
        self._came = self._begun = session.packets.received
        self._check = check
        self._deadline = time.monotonic() + seconds
        self._checked = time.monotonic()
        self._struck = 0.0
        self._limit: float | None = None  # when a statement that will not end is hung up on
        self.reason: HeadraceError | None = None

    @property
    def began_to_cancel(self) -> bool:
        return self._limit is not None

    def __call__(self) -> PacketBatch:
        while True:
            batch = self._come()
            if self._limit is None:
                self._look()
            elif time.monotonic() >= self._limit:
                self._session.close()
                raise self.reason or connection_lost("a statement would not end")
            elif time.monotonic() >= self._struck + CANCEL_SECONDS:
                self.strike()
            if self._renewed and self._session.packets.received != self._came:
                self._deadline = time.monotonic() + self._seconds
                self._came = self._session.packets.received
            if len(batch):
                return batch

    def _come(self) -> PacketBatch:
        """Take what has come; of a long answer much at once, since each wakening costs."""
        packets = self._session.packets
        if packets.received - self._begun >= _LONG:
            packets.wake_at(_LOW_WATER)
            batch = packets.receive(_LULL_SECONDS)
            packets.wake_at(1)
            if len(batch):
                return batch
        return packets.receive(CHECK_SECONDS)

    def _look(self) -> None:
        """See whether the answer is wanted still, and in time."""
        now = time.monotonic()
        if now >= self._checked + CHECK_SECONDS:
            self._checked = now
            try:
                self._check()
            except HeadraceError as error:
                self.reason = error
        if self.reason is not None or now >= self._deadline:
            self._limit = now + (self._patience if self._session.interrupt else 0)
            self.strike()

    def strike(self) -> None:
        """Have the server end the statement; where it can't be reached, it is tried again."""
        if self._session.interrupt is not None:
            with suppress(HeadraceError):
                self._session.interrupt()
        self._struck = time.monotonic()


def _absorb(session: MysqlConnection) -> None:
    """Let a cancellation that came too late strike a statement that does nothing."""
    for _ in range(2):
        try:
            _finish_answer(session, _ask(session, "DO 0", (), _Patience(session, CANCEL_LIMIT, nobody)))
        except ServerError as error:
            session.is_asked = False
            if error.number != _CANCELLED_BY_KILL:
                session.close()
                return
        else:
            return


_INTEGERS = frozenset((1, 2, 3, 8, 9, 13))
_FLOATS = frozenset((4, 5))
_DECIMALS = frozenset((0, 246))
_BIT, _JSON, _GEOMETRY = 16, 245, 255
_TEXTS = frozenset((15, 249, 250, 251, 252, 253, 254))
_BINARY = 63


def _row(values: tuple[bytes | None, ...], columns: tuple[ColumnDefinition, ...]) -> Row:
    return tuple(
        None if value is None else _value(value, column)
        for value, column in zip(values, columns, strict=True)
    )


def _value(value: bytes, column: ColumnDefinition) -> Value:
    """A value by its column's type; moments and the like stay as the server prints them."""
    kind = column.type
    if kind in _INTEGERS:
        return int(value)
    if kind in _FLOATS:
        return float(value)
    if kind in _DECIMALS:
        return Decimal(value.decode("ascii"))
    if kind == _BIT:
        return int.from_bytes(value, "big")
    if kind == _GEOMETRY or (kind in _TEXTS and column.charset == _BINARY):
        return value
    return value.decode("utf-8", "surrogateescape")
