"""The read locks on a copy's tables, taken in bounded attempts, and the keeper of its sessions.

    LOCK TABLES a READ, b READ, ...     waits for every transaction that has written one of them
    ...                                 writers wait for us
    UNLOCK TABLES

While a session waits for such a lock, every later writer waits behind it. So one attempt lasts
`ATTEMPT_SECONDS` over all tables, and then the application has `PAUSE_SECONDS` for itself. The server bounds
the wait for each lock; the sum is bounded here, by a cancellation. The session that cancels logs in before
the wait begins, so without a free connection nothing is locked. If the cancellation does not get through, the
waiting session's connection is closed, which ends its wait too.

A server opens each table before it locks the first, and thousands of tables take a while. So we have them
opened before the attempt, while nobody waits. If the server's caches hold fewer tables than that, an attempt
runs out while tables are being opened, as the server's process list shows. The next attempt is for half of
them; the others are left to another copy (`HeldLocks.missing`).

A server keeps the locks of a vanished client until it notices. So the session's `wait_timeout` is short while
it holds them, and a leader that sleeps for longer loses them.

A prepared XA transaction has its rows in the log and in no snapshot. MySQL keeps its locks whether or not its
session is connected, so it blocks ours. MariaDB forgets its locks on tables when its session ends, and does
not tell which tables it wrote. While we hold the locks nobody writes these tables. So the transactions that
were prepared by then must end; later ones do not matter. The attempt waits for their end with the locks held.
If one does not end, we release the locks and wait without them.

`measure` and preflight ask whether we may lock the tables of a database at all.

A `Keeper` is a thread beside a reader or a leader. It keeps their sessions alive, and looks for sessions that
wait for them. A view holds up the server's purge for as long as it is open, and our machine may vanish
without closing it. So the server ends a session of ours that is silent for `KEPT_SECONDS`, or that takes no
rows for `UNREAD_SECONDS`, and the keeper pings each session that is idle.

A session may wait for a table that is being read: for DDL, or for `FLUSH TABLES WITH READ LOCK` until the
last row is sent. All writers wait behind it. If two looks in a row find a reader in the way, the keeper ends
the reader's session, and the table is copied again later. The server shows waiting statements only to users
with the privilege PROCESS. No server tells whom a statement waits for. So each one counts that names our
table or waits for a flush.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from headrace.core.errors import HeadraceError, RightWithheld, Transient
from headrace.core.names import TableName
from headrace.sources.contract.values import Waiting
from headrace.sources.mysql.session.refusals import DatabaseDenied
from headrace.sources.mysql.session.statements import (
    READY_SECONDS,
    MysqlConnection,
    execute,
    ping,
    query,
    quote,
)
from headrace.sources.shared.refusals import (
    LockTimeout,
    PrivilegeMissing,
    StatementCancelled,
    StatementOverruled,
    StatementRefused,
    TableGone,
)

KEPT_SECONDS = 60  # of silence, until the server ends a session
UNREAD_SECONDS = 20  # until it ends one that takes nothing of an answer
PING_SECONDS = 10.0
LOOK_SECONDS = 1.0
_WAITING = """
SELECT id, state, info FROM information_schema.processlist
 WHERE state IN ('Waiting for table flush', 'Waiting for table metadata lock') AND id <> CONNECTION_ID()
"""
_FLUSH = "Waiting for table flush"


class Keeper:
    """A thread that keeps sessions alive and calls `look` meanwhile. The first `start` begins it."""

    def __init__(
        self, sessions: Callable[[], Iterable[MysqlConnection | None]], look: Callable[[], None]
    ) -> None:
        self._sessions = sessions
        self._look = look
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="headrace-keeper", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread, once its current ping has ended. Call it before the sessions are closed."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(KEPT_SECONDS)

    def _keep(self) -> None:
        pinged = time.monotonic()
        while not self._over.wait(LOOK_SECONDS):
            # The session's owner will meet the error.
            with suppress(HeadraceError):
                self._look()
            if time.monotonic() < pinged + PING_SECONDS:
                continue
            pinged = time.monotonic()
            for session in self._sessions():
                if session is not None and not self._over.is_set():
                    with suppress(HeadraceError):
                        ping(session)


def nothing() -> None:
    """Look for nobody: a session that holds no table is in nobody's way."""


def waiting_for(witness: MysqlConnection, tables: Iterable[TableName]) -> frozenset[int]:
    """Find the connections whose statements wait for one of these tables, as far as we may see them."""
    named = re.compile("|".join(rf"(?<!\w){re.escape(each.name)}(?!\w)" for each in tables), re.IGNORECASE)
    return frozenset(
        int(str(connection))
        for connection, state, statement in query(witness, _WAITING)
        if state == _FLUSH or named.search(str(statement))
    )


ATTEMPT_SECONDS = 1.0
PAUSE_SECONDS = 2.0
_GLANCE = 0.2  # between two checks during a pause
_IDLE_SECONDS = 2  # until the server ends a session that holds the locks and says nothing
_XA_GLANCE = 0.004  # between two looks whether prepared transactions have ended
_OPENED_AT_ONCE = 50
_STATE = "SELECT state FROM information_schema.processlist WHERE id ="
_MOST_NAMED = 5
_NO_TABLE = "headrace: no such table"  # a legal name that no table has
_HANG_UP_SECONDS = 1.0  # after a cancellation without effect, until the connection is closed


class TablesHeld(Transient):
    """The tables of a copy could not be locked, or are locked while a prepared transaction hides rows."""

    codes = ("MY_TABLES_HELD", "MY_TABLES_UNOPENED")
    opening = False  # no session was in the way: the server was opening tables
    hidden_xa: frozenset[str] = frozenset()  # the prepared transactions that may hide rows


class LockDenied(RightWithheld):
    """We may not lock the tables of a copy."""

    codes = ("MY_LOCK_PRIVILEGE",)


@dataclass(slots=True)
class HeldLocks:
    """Read locks while they are held; afterwards, how long they were held."""

    since: float  # of time.monotonic
    held_seconds: float | None = None
    missing: tuple[TableName, ...] = ()  # tables that were not locked

    def release(self, session: MysqlConnection) -> None:
        """Let the writers go on."""
        execute(session, "UNLOCK TABLES")
        self.held_seconds = time.monotonic() - self.since
        idle(session, None)


@contextmanager
def lock_tables(
    session: MysqlConnection, tables: Sequence[TableName], waiting: Waiting, seconds: float
) -> Iterator[HeldLocks]:
    """Lock the tables that exist, in as many attempts as fit into the time.

    The block releases them. If it fails before that, the session is closed, and the server releases them.
    """
    deadline = time.monotonic() + seconds
    there = list(tables)
    hidden: frozenset[str] = frozenset()  # prepared transactions that did not end within an attempt
    while True:
        waiting.check()
        try:
            _refuse_hidden(session, hidden)
            _open(session, there)
            with _cancellable(session) as beside:
                locks = _attempt(session, there, beside)
            break
        except TablesHeld as error:
            if time.monotonic() >= deadline:
                raise
            waiting.tell(error)
            hidden = error.hidden_xa
            if error.opening:
                there = there[: max(1, len(there) // 2)]
        except (TableGone, PrivilegeMissing) as error:
            there, before = _lockable(session, there), there
            if there != before:
                continue
            if isinstance(error, PrivilegeMissing):
                raise lock_denied({table.schema for table in tables}, error.detail) from None
            waiting.tell(_held_error(None, error.detail))
        except BaseException:
            session.close()  # it may hold them
            raise
        _pause(waiting, min(PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))
    locks.missing = tuple(table for table in tables if table not in there)
    try:
        yield locks
    finally:
        if locks.held_seconds is None:
            session.close()


def may_lock(session: MysqlConnection, schema: str) -> bool:
    """Ask for a lock on a table that does not exist, to see our privilege. It ends locks that we hold."""
    try:
        query(session, f"LOCK TABLES {quote(schema)}.{quote(_NO_TABLE)} READ")
    except DatabaseDenied:
        return False
    except (PrivilegeMissing, TableGone):
        return True  # we may not read that table, or there is none
    query(session, "UNLOCK TABLES")
    return True


def lock_denied(schemas: Collection[str], detail: str | None = None) -> LockDenied:
    """The error if we may not lock the tables of these databases."""
    grants = "; ".join(
        f"GRANT SELECT, LOCK TABLES ON {quote(each)}.* TO our_user" for each in sorted(schemas)
    )
    return LockDenied(
        "MY_LOCK_PRIVILEGE",
        "the tables of a copy may not be locked, and without that no moment can be joined to the log",
        detail=detail,
        hint=grants,
    )


def _lockable(session: MysqlConnection, tables: Sequence[TableName]) -> list[TableName]:
    """Find the tables that exist and that we may read, after a failed attempt to lock them all."""
    return [table for table in tables if _is_there(session, table)]


def _is_there(session: MysqlConnection, table: TableName) -> bool:
    try:
        query(session, f"SELECT 1 FROM {quote(table.schema)}.{quote(table.name)} LIMIT 0")
    except (TableGone, PrivilegeMissing):
        return False
    except (LockTimeout, StatementCancelled, StatementOverruled):
        return True
    return True


def idle(session: MysqlConnection, seconds: int | None) -> None:
    """Have the server end the session after so many seconds of silence; None: a keeper pings it."""
    execute(session, f"SET SESSION wait_timeout = {KEPT_SECONDS if seconds is None else seconds}")


@contextmanager
def _cancellable(session: MysqlConnection) -> Iterator[MysqlConnection | None]:
    """Log in the session that cancels a wait, before the block begins."""
    with ExitStack() as stack:
        try:
            beside = stack.enter_context(session.ready())
        except Transient as error:
            primary = f"the tables of a copy are not locked, since nobody could end the wait: {error.primary}"
            raise TablesHeld(error.code, primary, detail=error.detail, hint=error.hint) from None
        yield beside


def _open(session: MysqlConnection, tables: Sequence[TableName]) -> None:
    """Have the server open these tables; an error is ignored, since the attempt will meet it again."""
    execute(session, f"SET SESSION lock_wait_timeout = {max(1, round(ATTEMPT_SECONDS))}")
    for start in range(0, len(tables), _OPENED_AT_ONCE):
        some = tables[start : start + _OPENED_AT_ONCE]
        each = (f"(SELECT 1 FROM {quote(t.schema)}.{quote(t.name)} LIMIT 0)" for t in some)
        with suppress(
            TableGone, PrivilegeMissing, LockTimeout, StatementCancelled, StatementOverruled, StatementRefused
        ):
            query(session, " UNION ALL ".join(each))


def _attempt(
    session: MysqlConnection, tables: Sequence[TableName], beside: MysqlConnection | None
) -> HeldLocks:
    names = ", ".join(f"{quote(each.schema)}.{quote(each.name)} READ" for each in tables)
    states: list[str] = []

    def look() -> None:
        """Note what our session waits for. Every user may see its own sessions."""
        if beside is not None and not beside.is_closed:
            asked = query(beside, f"{_STATE} {session.connection_id}", seconds=READY_SECONDS)
            states.extend(str(state) for (state,) in asked)

    idle(session, _IDLE_SECONDS)
    begun = time.monotonic()
    try:
        if tables:
            query(
                session, f"LOCK TABLES {names}", seconds=ATTEMPT_SECONDS, limit=_HANG_UP_SECONDS, check=look
            )
    except (LockTimeout, StatementCancelled, StatementOverruled) as error:
        idle(session, None)
        raise _unlocked_error(session, states, error.detail) from None
    except (TableGone, PrivilegeMissing):
        idle(session, None)
        raise
    locks = HeldLocks(time.monotonic())
    if locks.since - begun > ATTEMPT_SECONDS:
        # We can't tell when the server granted the locks, and nobody may wait for us longer than one attempt.
        locks.release(session)
        raise _unlocked_error(session, states, "the server granted the locks too late")
    if session.release.is_mariadb and (hidden := _still_prepared(session, begun + ATTEMPT_SECONDS)):
        locks.release(session)
        raise _hiding(hidden)
    return locks


def _unlocked_error(session: MysqlConnection, states: Sequence[str], detail: str | None) -> TablesHeld:
    """The error for an attempt that failed: a session was in the way, or the server was opening tables."""
    if any(state.startswith("Waiting") for state in states):
        return _held_error(_prepared_xa(session), detail)
    error = TablesHeld(
        "MY_TABLES_UNOPENED",
        "the tables of a copy could not be locked in time: the server was still opening them",
        detail=detail,
        hint="nothing to do: fewer of them are copied at once; SET GLOBAL table_open_cache and "
        "table_definition_cache to more than there are tables",
    )
    error.opening = True
    return error


def _still_prepared(session: MysqlConnection, deadline: float) -> frozenset[str]:
    """Find the transactions that are prepared from now to the deadline; none if we may not see them."""
    left = frozenset(_prepared_xa(session) or ())
    while left and time.monotonic() < deadline:
        time.sleep(_XA_GLANCE)
        left = left.intersection(_prepared_xa(session) or ())  # a later transaction may reuse a name
    return left


def _refuse_hidden(session: MysqlConnection, hidden: frozenset[str]) -> None:
    """Raise while a transaction that outlasted an attempt is still prepared."""
    if hidden and (left := hidden.intersection(_prepared_xa(session) or ())):
        raise _hiding(left)


def _hiding(prepared: frozenset[str]) -> TablesHeld:
    error = _held_error(sorted(prepared), "MariaDB does not keep the locks of prepared transactions")
    error.hidden_xa = prepared
    return error


def _pause(waiting: Waiting, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        waiting.check()
        time.sleep(min(_GLANCE, left))


def _prepared_xa(session: MysqlConnection) -> list[str] | None:
    """The prepared XA transactions, as XA COMMIT names them; None if we may not see them."""
    try:
        found = query(session, "XA RECOVER")
    except PrivilegeMissing:
        return None
    return [_xid(int(str(row[0])), int(str(row[1])), row[3]) for row in found]


def _xid(form: int, split: int, data: object) -> str:
    raw = data if isinstance(data, bytes) else str(data).encode("utf-8", "surrogateescape")
    return f"X'{raw[:split].hex()}',X'{raw[split:].hex()}',{form}"


def _held_error(prepared: list[str] | None, detail: str | None) -> TablesHeld:
    primary = "the tables of a copy could not be locked: transactions that wrote them are open"
    if prepared:
        named = "; ".join(prepared[:_MOST_NAMED])
        more = f" and {len(prepared) - _MOST_NAMED} more" if len(prepared) > _MOST_NAMED else ""
        return TablesHeld(
            "MY_TABLES_HELD",
            primary,
            detail=f"XA transactions are prepared, which may be the reason: {named}{more}",
            hint=f"XA COMMIT {prepared[0]} or XA ROLLBACK {prepared[0]}; long transactions: SHOW PROCESSLIST",
        )
    unseen = "; GRANT XA_RECOVER_ADMIN shows those that are prepared" if prepared is None else ""
    return TablesHeld(
        "MY_TABLES_HELD",
        primary,
        detail=detail,
        hint=f"wait for them, or end them: SHOW PROCESSLIST, KILL{unseen}",
    )
