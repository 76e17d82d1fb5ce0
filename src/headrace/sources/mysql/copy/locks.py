"""The read locks on the tables of a copy: had within a bound, or given up and asked for again.

    LOCK TABLES a READ, b READ, ...     waits for every transaction that has written one of them
    ...                                 writers wait for us
    UNLOCK TABLES

Whoever waits for such a lock stands in front of all who come later and want to write. So one attempt lasts
`ATTEMPT_SECONDS` over all tables, and between two of them the application has `PAUSE_SECONDS` for itself. The
server bounds the wait for each lock; the sum of them is bounded here, by a cancellation. Who cancels is
logged in before the wait begins: at a server without a free connection nothing is locked. If the cancellation
does not get through all the same, the session is hung up on, which ends its wait, too.

A server opens each table before it locks the first, which takes its time where there are thousands. So they
are opened before the attempt, while nobody waits. Where the caches of the server hold fewer tables than that,
an attempt ends while tables are being opened, as the server's list says; the next one is for half of them,
and the others are left out (`HeldLocks.missing`), for another copy.

A server whose client vanished keeps its locks until it notices: the session's `wait_timeout` is short while
it holds them, and a leader that sleeps for longer loses them.

XA transactions that are prepared have their rows in the log and not in a snapshot. MySQL keeps their locks,
whoever made them is connected or not, so they are in the way of ours. MariaDB forgets the locks on tables
when that session ends, and does not tell which tables a prepared one wrote. While we hold the locks nobody
writes these: so the ones that were prepared by then have to end, and those that are prepared later do not
matter. Their end is waited for with the locks held, within the same attempt; what does not end is waited for
without them.

Whether a database's tables may be locked at all `measure` and preflight ask.

A keeper: the thread beside a reader or a leader that keeps its sessions awake, and looks who waits for it.

A view holds up the server's purge for as long as it stands, and a machine that vanished says no goodbye. So
the server ends a session of ours that says nothing for `KEPT_SECONDS`, or does not take its rows for
`UNREAD_SECONDS`, and the keeper pings each that nobody asks just now.

Somebody may wait for a table that is being read: DDL, or `FLUSH TABLES WITH READ LOCK` for its last row; and
all writers wait behind these. A reader that two looks in a row find in somebody's way gives way: the keeper
ends its session, and the table is copied again later. Whose statements wait for what is shown to those who
have the privilege PROCESS; without it nobody is seen. Which of them waits for us and not for another no
server tells: whoever names our table counts, and whoever waits for a flush.
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
    """A thread that keeps sessions awake, and calls `look` meanwhile; begun by the first `start`."""

    def __init__(
        self, sessions: Callable[[], Iterable[MysqlConnection | None]], look: Callable[[], None]
    ) -> None:
        self._sessions = sessions
        self._look = look
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="headrace-keeper", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End before the sessions are closed: a session that is being pinged is waited for."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(KEPT_SECONDS)

    def _keep(self) -> None:
        pinged = time.monotonic()
        while not self._over.wait(LOOK_SECONDS):
            # Whoever owns the session meets what is wrong with it.
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
    """Nobody waits for a session that holds no table."""


def waiting_for(witness: MysqlConnection, tables: Iterable[TableName]) -> frozenset[int]:
    """The connections whose statements wait for one of these tables, as far as we may see them."""
    named = re.compile("|".join(rf"(?<!\w){re.escape(each.name)}(?!\w)" for each in tables), re.IGNORECASE)
    return frozenset(
        int(str(connection))
        for connection, state, statement in query(witness, _WAITING)
        if state == _FLUSH or named.search(str(statement))
    )


ATTEMPT_SECONDS = 1.0
PAUSE_SECONDS = 2.0
_GLANCE = 0.2  # between two looks whether the pause is wanted still
_IDLE_SECONDS = 2  # until the server ends a session that holds the locks and says nothing
_XA_GLANCE = 0.004  # between two looks whether prepared transactions have ended
_OPENED_AT_ONCE = 50
_STATE = "SELECT state FROM information_schema.processlist WHERE id ="
_MOST_NAMED = 5
_NO_TABLE = "headrace: no such table"  # as a name it is legal, and nobody's
_HANG_UP_SECONDS = 1.0  # until a wait that will not be cancelled is hung up on


class TablesHeld(Transient):
    """The tables of a copy could not be locked, or are locked while a prepared transaction hides rows."""

    codes = ("MY_TABLES_HELD", "MY_TABLES_UNOPENED")
    opening = False  # nobody was in the way: the server was opening tables
    hidden_xa: frozenset[str] = frozenset()  # the prepared transactions that may hide rows


class LockDenied(RightWithheld):
    """We may not lock the tables of a copy."""

    codes = ("MY_LOCK_PRIVILEGE",)


@dataclass(slots=True)
class HeldLocks:
    """Read locks while they are held; afterwards for how long they were."""

    since: float  # of time.monotonic
    held_seconds: float | None = None
    missing: tuple[TableName, ...] = ()  # those that were not there

    def release(self, session: MysqlConnection) -> None:
        """Let the writers go on."""
        execute(session, "UNLOCK TABLES")
        self.held_seconds = time.monotonic() - self.since
        idle(session, None)


@contextmanager
def lock_tables(
    session: MysqlConnection, tables: Sequence[TableName], waiting: Waiting, seconds: float
) -> Iterator[HeldLocks]:
    """Lock the tables that are there, however many attempts that takes within so many seconds.

    The block releases them; if it fails before that, the session is closed and the server does.
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
    """Ask for a lock that nobody can have: of a table that is not there. It ends those that we have."""
    try:
        query(session, f"LOCK TABLES {quote(schema)}.{quote(_NO_TABLE)} READ")
    except DatabaseDenied:
        return False
    except (PrivilegeMissing, TableGone):
        return True  # we may not read that table, or there is none
    query(session, "UNLOCK TABLES")
    return True


def lock_denied(schemas: Collection[str], detail: str | None = None) -> LockDenied:
    """The error of tables of these databases, none of which we may lock."""
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
    """Find the tables that are there and may be read, where they cannot be locked together."""
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
    """Have the server end the session after so many seconds of silence; None: one that a keeper pings."""
    execute(session, f"SET SESSION wait_timeout = {KEPT_SECONDS if seconds is None else seconds}")


@contextmanager
def _cancellable(session: MysqlConnection) -> Iterator[MysqlConnection | None]:
    """Have whoever cancels a wait ready in the block; no block without."""
    with ExitStack() as stack:
        try:
            beside = stack.enter_context(session.ready())
        except Transient as error:
            primary = f"the tables of a copy are not locked, since nobody could end the wait: {error.primary}"
            raise TablesHeld(error.code, primary, detail=error.detail, hint=error.hint) from None
        yield beside


def _open(session: MysqlConnection, tables: Sequence[TableName]) -> None:
    """Have the server open these tables; what keeps it from that the attempt will meet, and tell."""
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
        """Note what the server is at; a session is shown itself, whatever its privileges."""
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
        # It is not known when they were had, and nobody is to wait for us longer than that.
        locks.release(session)
        raise _unlocked_error(session, states, "they were had too late")
    if session.release.is_mariadb and (hidden := _still_prepared(session, begun + ATTEMPT_SECONDS)):
        locks.release(session)
        raise _hiding(hidden)
    return locks


def _unlocked_error(session: MysqlConnection, states: Sequence[str], detail: str | None) -> TablesHeld:
    """The error of an attempt in vain: somebody was in the way, or the server was at work all the while."""
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
    """Find the transactions prepared by now that still are at the deadline; none where we see none."""
    left = frozenset(_prepared_xa(session) or ())
    while left and time.monotonic() < deadline:
        time.sleep(_XA_GLANCE)
        left = left.intersection(_prepared_xa(session) or ())  # a name may be used again
    return left


def _refuse_hidden(session: MysqlConnection, hidden: frozenset[str]) -> None:
    """Lock nothing while a transaction is prepared that outlasted an attempt."""
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
    """The XA transactions that are prepared, as XA COMMIT names them; None where we may not see them."""
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
