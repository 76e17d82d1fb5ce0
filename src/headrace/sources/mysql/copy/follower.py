"""A follower: one connection, on an executor, that sees the moment of a leader.

A follower needs only its arguments. `join` waits for the moment as long as there is a leader. Afterwards the
view belongs to this connection and outlives the leader. A follower that is late is left out: it would read
another moment, so it reads nothing (`leader` says why a member's view is right).

Other sessions may wait while it reads a table (`holding`). If we may see them, it gives way
(`locks.Keeper`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from headrace.core.errors import Definite, HeadraceError, Transient
from headrace.core.names import TableName
from headrace.sources.contract.errors import MomentMissed, TableBusy
from headrace.sources.mysql.copy.locks import UNREAD_SECONDS, Keeper, idle, waiting_for
from headrace.sources.mysql.copy.ticket import Ticket
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity, identify, verify
from headrace.sources.mysql.session.statements import MysqlConnection, Row, execute, nobody, query

_GATE_SECONDS = 2  # of one wait at the gate, until it checks again that there is a leader
_GLANCE = 0.01  # between two looks at the leader's decision


class LeftOut(MomentMissed):
    """This reader was not there when the moment was taken, or has lost its view of it."""

    codes = ("MY_READER_LATE",)


class LeaderGone(Transient):
    """The leader is gone, or never was, and the moment was not taken."""

    codes = ("MY_SNAPSHOT_GONE",)


class GaveWay(TableBusy):
    """A reader was ended because other sessions waited for its table."""

    codes = ("MY_COPY_GAVE_WAY",)


class MysqlFollower:
    """A connection to the source, and to no other, that joins a snapshot."""

    def __init__(self, address: MysqlAddress, identity: MysqlIdentity, ticket: Ticket, *, role: str) -> None:
        self._address = address
        self._identity = identity
        self._ticket = ticket
        self._role = role
        self._session: MysqlConnection | None = None
        self._witness: MysqlConnection | None = None
        self.executed = ""  # what the server had executed when the view was opened: all that the view shows
        self._keeper = Keeper(lambda: (self._session, self._witness), self._look)
        self._held: frozenset[TableName] = frozenset()  # tables that our view may keep others waiting for
        self._holds = 0  # how often they were released to others
        self._in_the_way: tuple[int, frozenset[int]] = (0, frozenset())  # who waited at the last look
        self._gave_way = False

    def __enter__(self) -> MysqlFollower:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def join(self, check: Callable[[], None] = nobody) -> MysqlConnection:
        """The connection, in a transaction that shows the moment; the first call waits for the moment."""
        if self._session is None:
            session = self._session = connect(self._address, role=self._role)
            try:
                verify(identify(session), self._identity)
                idle(session, None)
                execute(session, f"SET SESSION net_write_timeout = {UNREAD_SECONDS}")
                self.executed = _join(session, self._ticket, check)
                self._keeper.start()
            except BaseException:
                self.close()
                raise
        if self._gave_way:
            raise late("it was ended, since others waited for a table that it read")
        if self._session.is_closed:
            raise late("its connection ended, and its view with it")
        return self._session

    def reading(self, table: TableName, check: Callable[[], None] = nobody) -> MysqlConnection:
        """Join the snapshot for a table that was locked when the moment was taken."""
        session = self.join(check)
        names = (self._ticket.unlock_name(table), self._ticket.leader)
        # The leader's lock is checked last, so the leader was there when the other name was checked.
        unlocked, leader = _owners(session, names)
        if leader != self._ticket.connection:
            raise _gone_error()
        if unlocked is not None:
            raise late(f"{table} was not there when the snapshot was taken")
        return session

    @contextmanager
    def holding(self, table: TableName) -> Iterator[None]:
        """During the block, look for sessions that wait for the table.

        The block ends with `GaveWay` if the reader was in a session's way. MariaDB lets sessions wait until
        the view ends.
        """
        witness = self.witness()
        self._held |= {table}
        try:
            yield
        except HeadraceError as error:
            if self._gave_way and not isinstance(error, Definite):
                raise _gave_way(table) from None
            raise
        finally:
            if not witness.release.is_mariadb:
                self._held, self._holds = frozenset(), self._holds + 1

    def _look(self) -> None:
        """End the view if a session waits for it, and did so at the last look."""
        held, holds, witness = self._held, self._holds, self._witness
        if not held or witness is None or self._session is None or self._gave_way:
            return
        waiting = waiting_for(witness, held)
        before, waited = self._in_the_way
        self._in_the_way = holds, waiting
        if before == holds == self._holds and waiting & waited:
            self._gave_way = True
            query(witness, f"KILL {self._session.connection_id}")

    def witness(self) -> MysqlConnection:
        """A connection that sees tables, and the sessions that wait for them, as they are now.

        On MySQL the catalog is a part of the view: a query in the view's session sees the table of that
        moment.
        """
        if self._witness is None or self._witness.is_closed:
            self._witness = connect(self._address, role=self._role)
            verify(identify(self._witness), self._identity)
            idle(self._witness, None)  # it sleeps while a piece is read
        return self._witness

    def close(self) -> None:
        """Close the connections; the server releases what they held."""
        self._keeper.stop()
        for session in (self._session, self._witness):
            if session is not None:
                session.close()


def _join(session: MysqlConnection, ticket: Ticket, check: Callable[[], None]) -> str:
    number = _place(session, ticket)
    _wait_at_gate(session, ticket, number, check)
    execute(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    # Evaluated from left to right: a leader that sees our view knows that we asked before.
    executed = f"@@global.{session.release.words.executed_variable}"
    [(brought, got)] = query(session, f"SELECT {executed}, GET_LOCK('{ticket.view(number)}', 0)")
    if got != 1:
        raise late("its place was another's before")
    while not _is_member(session, ticket):
        check()
        time.sleep(_GLANCE)
    return str(brought)


def _place(session: MysqlConnection, ticket: Ticket) -> int:
    """Take the first free place, and hold it from here on."""
    _is_member(session, ticket)  # raises if there is nothing to wait for
    for number in range(ticket.readers):
        if _get_lock(session, ticket.place(number), 0, nobody):
            return number
    raise late("all places are held by others")


def _wait_at_gate(session: MysqlConnection, ticket: Ticket, number: int, check: Callable[[], None]) -> None:
    while not _get_lock(session, ticket.gate(number), _GATE_SECONDS, check):
        check()
        _is_member(session, ticket)


def _is_member(session: MysqlConnection, ticket: Ticket) -> bool:
    """Tell whether the leader has seen our view. Raises once that can't happen any more.

    The server evaluates the names from left to right, and the leader takes `member` names before `closed`.
    """
    names = (ticket.leader, ticket.closing_lock, ticket.member(session.connection_id))
    leader, closed, member = _owners(session, names)
    if member == ticket.connection:
        return True
    if leader != ticket.connection:
        raise _gone_error()
    if closed is not None:
        raise late("the tables were locked and let go of without it")
    return False


def _owners(session: MysqlConnection, names: Sequence[str]) -> Row:
    [row] = query(session, "SELECT " + ", ".join(f"IS_USED_LOCK('{name}')" for name in names))
    return row


def _gone_error() -> LeaderGone:
    return LeaderGone(
        "MY_SNAPSHOT_GONE",
        "nobody holds the snapshot that is to be read",
        hint="nothing to do: what is missing is copied from a new snapshot",
    )


def _get_lock(session: MysqlConnection, name: str, seconds: int, check: Callable[[], None]) -> bool:
    [(answer,)] = query(session, f"SELECT GET_LOCK('{name}', {seconds})", check=check)
    return answer == 1


def _gave_way(table: TableName) -> GaveWay:
    return GaveWay(
        "MY_COPY_GAVE_WAY",
        f"the reader of {table} was ended, since others waited for the table",
        detail="somebody alters it, or flushes all tables",
        hint="nothing to do: it is copied again; if it goes on, give the table a primary key, or "
        'set handoff = "chunks", which holds a table for a moment only',
    )


def late(detail: str) -> LeftOut:
    """The error for a reader that has no view of the moment."""
    return LeftOut(
        "MY_READER_LATE",
        "a reader was not there when the snapshot was taken, or has lost it",
        detail=detail,
        hint="nothing to do: what it would have read is read under a new snapshot",
    )
