"""Statements: run one on a pinned connection and return its rows; each wait has an end.

    query(session, "SELECT ... WHERE a = %s", [1])     rows as values
    with rows(session, "SELECT ...") as answer:        many rows, as bytes (`result_set`)
        for block in answer.blocks(): ...

Parameters are put into the text here, in a form that means the same in every sql_mode: text that is not plain
ASCII is written in hexadecimal digits. A failure is a coded error (`refusals`), which quotes neither
statement nor row.

If a statement takes too long, or is not wanted any more, `KILL QUERY` on a connection of its own cancels it.
The server ignores a request that comes before the statement has begun, so the request is repeated until the
statement ends. A request that comes after its end would kill the next statement, so an empty statement
follows. Only our own statement can be killed: each session holds a lock with a random name at its server, and
the request names the holder of that lock (`connection`). If a statement does not end even so, we hang up.

The constants bound the waits, in seconds.
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
ANSWER_SECONDS = 60.0  # for a statement; the server ends waits for locks before that (`connection`)
COPY_SECONDS = 120.0  # between two parts of a copy's rows
CHECK_SECONDS = 0.2  # between two calls of `check`
CANCEL_SECONDS = 0.5  # between two requests to cancel
STRIKE_SECONDS = 5.0  # for a request to cancel; then we hang up its session
READY_SECONDS = 0.5  # the same, if its session was logged in beforehand
CANCEL_LIMIT = 30.0  # from the first request to cancel until we hang up


def nobody() -> None:
    """Never end the wait early."""


Value = None | int | float | Decimal | str | bytes
Parameter = None | bool | int | float | Decimal | str | bytes | date | datetime
Row = tuple[Value, ...]

COM_QUIT, COM_QUERY = 1, 3
_CANCELLED_BY_KILL = 1317
_TOO_LARGE = 1153
_LONG = 1 << 20  # after so many bytes an answer is read in large parts
_LOW_WATER = 1 << 18  # bytes of such a part; a smaller one is read if no more comes for a moment
_LULL_SECONDS = 0.01
_PRINTABLE = re.compile(r"[ !#-&(-\[\]-~]*")  # neither quotes nor a backslash


@dataclass(eq=False)
class MysqlConnection:
    """One pinned connection; `close` it. It belongs to one thread; only `ping` may come from another."""

    packets: PacketStream
    address: MysqlAddress  # complete, so that it means the same on another machine
    release: Release
    connection_id: int
    role: str
    # Kills the statement that runs here, once; if it is None, we hang up instead.
    interrupt: Callable[[], None] | None = field(repr=False)
    # Logs the killing session in for the block, so that a kill need not wait; it can run statements too.
    ready: Callable[[], AbstractContextManager[MysqlConnection | None]] = field(
        default=nullcontext, repr=False
    )
    status: int = 0  # of the transaction, from the last answer
    is_asked: bool = False  # a statement has not been answered in full
    purged_gtids: str | None = None  # the server's gtid_purged at the last check by `log_end`
    domains: frozenset[int] = frozenset()  # of MariaDB's log, likewise
    largest: int | None = None  # bytes of a packet that the server accepts; it may hang up on a larger one
    in_use: threading.RLock = field(default_factory=threading.RLock, repr=False)  # held during a statement

    @property
    def is_closed(self) -> bool:
        return self.packets.is_closed

    def close(self) -> None:
        """Say goodbye, or hang up if an answer is incomplete; the server frees what it holds for us."""
        if not self.is_closed and not self.is_asked:
            with suppress(ConnectionLost):  # without COM_QUIT the server would log an aborted connection
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
    """Run one statement; return its rows. After so many seconds it is cancelled on the server.

    If it still has not ended after the `limit`, we hang up.

    `check` is called again and again; an error that it raises is raised here, once the server has ended the
    statement. The statement may have had its effect by then, so a caller that asked for a lock must close the
    session. If a statement without rows ends while it is being cancelled, it succeeded. Rows that come then
    are discarded: some functions (SLEEP, GET_LOCK) answer a cancellation with a value.
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
        session.close()  # the rest of the answer is of unknown length
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
    """Run one statement whose rows are read as they come; if they aren't all read, close the session.

    `silence` bounds the wait for the next rows, not the whole statement.
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
            # Without this the server would go on writing until it notices.
            patience.strike()
        if session.is_asked or patience.began_to_cancel:
            session.close()


def execute(session: MysqlConnection, statement: str, parameters: Sequence[Parameter] = ()) -> None:
    """Run one statement that has no rows, or whose rows don't matter."""
    query(session, statement, parameters)


def ping(session: MysqlConnection) -> None:
    """Keep an idle session awake; any thread may call it."""
    if not session.in_use.acquire(blocking=False):
        return
    try:
        if not session.is_closed and not session.is_asked:
            query(session, "DO 0")
    finally:
        session.in_use.release()


def quote(name: str) -> str:
    """Quote a name for a statement."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: Parameter) -> str:
    """Spell a value for a statement, so that it means the same in every sql_mode and character set."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "1" if value else "0"
        case int() | Decimal() | float():
            return _number(value)
        case bytes():
            return f"X'{value.hex()}'"
        case date():  # or a datetime
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
    """Send a statement; return the start of its answer. The server's list of statements shows our role."""
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
    """Returns the next packets of an answer; cancels a statement that takes too long or is unwanted."""

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
        self._limit: float | None = None  # the time to hang up, once the statement is being cancelled
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
        """Return the packets that have come; for a long answer wait for many, since each wakeup costs."""
        packets = self._session.packets
        if packets.received - self._begun >= _LONG:
            packets.wake_at(_LOW_WATER)
            batch = packets.receive(_LULL_SECONDS)
            packets.wake_at(1)
            if len(batch):
                return batch
        return packets.receive(CHECK_SECONDS)

    def _look(self) -> None:
        """Call `check`, and begin to cancel if it raised or the time is over."""
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
        """Ask the server to kill the statement; if it can't be reached, the next call tries again."""
        if self._session.interrupt is not None:
            with suppress(HeadraceError):
                self._session.interrupt()
        self._struck = time.monotonic()


def _absorb(session: MysqlConnection) -> None:
    """Run an empty statement, for a late cancellation to kill."""
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
    """Convert a value by its column's type; dates, times and the like stay texts."""
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
