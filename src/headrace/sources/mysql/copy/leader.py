"""The leader of a snapshot: it locks the tables until every reader that has come has opened its view.

    leader                                   reader (`follower`)
    hold leader, gates
                                             hold place N; wait for gate N
    wait until the places are held
    LOCK TABLES ... READ
    let go of the gates
                                             START TRANSACTION WITH CONSISTENT SNAPSHOT
                                             read gtid_executed; hold view N
    see who holds views, read gtid_executed (*)
    UNLOCK TABLES
    hold unlocked T for each that was gone, member C for each of them, closed
                                             member: read.   closed, and no member: left out

The proof: a gate is free only after the tables were locked, and the session that holds the locks answers (*).
So each member's view was opened while nobody could write. It shows, of these tables, the transactions of
`gtid_executed` and no others. A leader that dies, between two statements or within one, never answers (*),
and then there are no members.

The set is right because a transaction that has written one of the tables prevents its lock until it has ended
in the log and in the engine. So every set that is read while the locks are held is right for the locked
tables, and only for them. A reader reads its own set; the leader's, read later, includes it.

A table that is missing when the others are locked is left out: no view of it is right, even if it comes back
under its name (`ticket.unlock_name`).

The locks are held no longer than `VIEW_SECONDS` and the two answers around them; `held` is that time, on our
clock. A reader that is late is left out. On a busy machine that may be all readers: then the caller tries
again.

MariaDB may have forgotten a domain: then its executed set lies before what its stream has brought
(`refuse_forgetful`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from types import TracebackType

from headrace.core.errors import HeadraceError
from headrace.core.handoff import ByPosition
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.sources.contract.errors import MomentMissed
from headrace.sources.contract.values import ALONE, Waiting
from headrace.sources.mysql.copy.locks import HeldLocks, Keeper, idle, lock_tables, nothing
from headrace.sources.mysql.copy.ticket import Ticket
from headrace.sources.mysql.position import MariadbProgress, MysqlTimeline, parse
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity, identify, verify
from headrace.sources.mysql.session.log_end import count, domain_forgotten, position
from headrace.sources.mysql.session.statements import MysqlConnection, Value, query


def refuse_forgetful(executed_until: Position, received_until: Position | None) -> None:
    """Refuse a server that does not count a domain that its stream has brought: its times are too small.

    On MySQL this proves nothing: a transaction may be sent before it counts as executed.
    """
    forgotten = (
        set() if received_until is None else _domains(received_until.text) - _domains(executed_until.text)
    )
    if forgotten:
        raise domain_forgotten(forgotten)


def _domains(text: str) -> set[int]:
    progress = parse(text)
    return {gtid.domain for gtid in progress.read.newest} if isinstance(progress, MariadbProgress) else set()


VIEW_SECONDS = 0.08  # for the readers to open their views, while the tables are locked
ARRIVAL_SECONDS = 600.0  # for the first reader to come
PLACE_SECONDS = 30.0  # from the first reader's arrival, for the others to come
_GLANCE = 0.004  # between two looks at the views
_LOOK = 0.05  # between two looks at the places


class ReadersMissing(MomentMissed):
    """No reader was there, or in time, when the moment came."""

    codes = ("MY_READERS_MISSING",)


class MysqlLeader:
    """A moment of some tables, for readers that hold its ticket: made by `lead`, taken by `take`."""

    def __init__(self, session: MysqlConnection, ticket: Ticket) -> None:
        self._session = session
        self.ticket = ticket
        self.members: tuple[int, ...] = ()  # connections of the readers that see the moment
        self.held: float | None = None  # for how long the tables were locked
        self._keeper = Keeper(lambda: (session,), nothing)
        self._keeper.start()

    def __enter__(self) -> MysqlLeader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the moment; members that have their views can go on."""
        self._keeper.stop()
        self._session.close()

    def take(
        self,
        tables: Sequence[TableName],
        log: MysqlTimeline,
        seconds: float,
        waiting: Waiting = ALONE,
        readers: int | None = None,
        marks: Collection[str] = (),
    ) -> ByPosition:
        """Take the moment, once: as soon as the readers are there and the tables can be locked.

        Waits up to `seconds` for `readers` readers (None: one for each place), and goes on with those that
        have come. Then it waits as long for the locks. The moment lies in a later second than all `marks`, so
        whatever is done to a table from here on leaves another mark.
        """
        self._wait_for_readers(self.ticket.readers if readers is None else readers, seconds, waiting)
        while query(self._session, "SELECT NOW()")[0][0] in marks:
            time.sleep(_LOOK)
        with lock_tables(self._session, tables, waiting, seconds) as locks:
            present = self._open_gates()
            self.members, executed = self._views(present, time.monotonic())
            locks.release(self._session)
        handoff = ByPosition(count(self._session, log, executed))
        self._close(locks)
        return handoff

    def handoff_of_none(self, log: MysqlTimeline) -> ByPosition:
        """The handoff of a snapshot without tables."""
        return ByPosition(position(self._session, log))

    @property
    def _executed_gtids(self) -> str:
        return f"@@global.{self._session.release.words.executed_variable}"

    def alive(self) -> bool:
        """Tell whether the readers still have a leader."""
        if self._session.is_closed:
            return False
        try:
            query(self._session, "SELECT 1")
        except HeadraceError:
            return False
        return True

    def _wait_for_readers(self, wanted: int, seconds: float, waiting: Waiting) -> None:
        places = [self.ticket.place(number) for number in range(self.ticket.readers)]
        deadline, first = time.monotonic() + min(seconds, ARRIVAL_SECONDS), True
        while (there := sum(one is not None for one in self._owners(places))) < wanted:
            waiting.check()
            if there and first:
                first, deadline = False, min(deadline, time.monotonic() + PLACE_SECONDS)
            if time.monotonic() >= deadline:
                if not there:
                    raise _missing("no reader has come")
                return
            time.sleep(_LOOK)

    def _open_gates(self) -> list[int]:
        """Open the gates. Returns the places that readers hold."""
        ticket, numbers = self.ticket, range(self.ticket.readers)
        places = ", ".join(f"IS_USED_LOCK('{ticket.place(number)}')" for number in numbers)
        gates = ", ".join(f"RELEASE_LOCK('{ticket.gate(number)}')" for number in numbers)
        [row] = query(self._session, f"SELECT {places}, {gates}")
        return [number for number in numbers if row[number] is not None]

    def _views(self, present: Sequence[int], since: float) -> tuple[tuple[int, ...], str]:
        """The connections that open their views in time, as the session with the locks sees them; and what
        the server has executed, which it is asked afterwards.
        """
        views = [self.ticket.view(number) for number in present]
        looks = "".join(f"IS_USED_LOCK('{view}'), " for view in views)
        while True:
            [(*owners, executed)] = query(self._session, f"SELECT {looks}{self._executed_gtids}")
            found = tuple(one for one in owners if isinstance(one, int))
            if len(found) == len(views) or time.monotonic() + _GLANCE >= since + VIEW_SECONDS:
                return found, str(executed)
            time.sleep(_GLANCE)

    def _close(self, locks: HeldLocks) -> None:
        """Tell the members that they are members, and which tables no view shows; all others are left out."""
        self.held = locks.held_seconds
        unlocked = map(self.ticket.unlock_name, locks.missing)
        _hold(self._session, [*unlocked, *map(self.ticket.member, self.members), self.ticket.closing_lock])
        if not self.members:
            raise _missing("none of them opened its view in time")

    def _owners(self, names: Sequence[str]) -> tuple[Value, ...]:
        [row] = query(self._session, "SELECT " + ", ".join(f"IS_USED_LOCK('{name}')" for name in names))
        return row


def lead(address: MysqlAddress, identity: MysqlIdentity, readers: int) -> MysqlLeader:
    """Make a leader for readers to join; only its own names are locked yet."""
    session = connect(address, role="snapshot")
    try:
        verify(identify(session), identity)
        idle(session, None)
        ticket = Ticket.new(session.connection_id, readers)
        _hold(session, [ticket.leader, *(ticket.gate(number) for number in range(readers))])
    except BaseException:
        with suppress(HeadraceError):
            session.close()
        raise
    return MysqlLeader(session, ticket)


def _hold(session: MysqlConnection, names: Sequence[str]) -> None:
    query(session, "SELECT " + ", ".join(f"GET_LOCK('{name}', 0)" for name in names))


def _missing(detail: str) -> ReadersMissing:
    return ReadersMissing(
        "MY_READERS_MISSING",
        "the readers of a snapshot were not there when it was taken",
        detail=detail,
        hint="nothing to do: it is tried again; if it goes on, see that executors reach the server",
    )
