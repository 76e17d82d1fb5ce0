"""The readers of a copy: rows of the lake, read on executors by a ticket of `plan`, which travels as JSON.

    ticket   of a snapshot    its leader                  ─► `MomentReader`: ranges of an index, at one moment
             of a key walk    how far the stream came     ─► `ChunkReader`: ranges of keys, as they are now

A `MomentReader` has one connection, its `follower`, which sees the leader's moment. It asked the server which
transactions were executed while it opened its view, so it knows its handoff. `table_access` proves that a
table is the planned one, and `selection` reads its rows.

A `ChunkReader` has two sessions, and reads each range of the primary key as it is when it is read:

    one session   LOCK TABLES t READ                                            executed?   UNLOCK TABLES
    the other                          START TRANSACTION WITH CONSISTENT SNAPSHOT                    SELECT

The proof is that of `leader`, for one table and one view. The view was opened while nobody could write, and
the session that holds the lock then says what was executed. Once a chunk, the table's writers wait for three
short answers. The lock waits for every transaction that has written the table, as in every copy.

A chunk's transaction ends before its rows are used. It touches the table before the lock is released, so that
nobody alters, swaps or empties the table until it ends. The stream brings changes of the table between two
chunks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

import pyarrow as pa

from headrace.core.handoff import ByPosition
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import from_record
from headrace.core.schema import Column, TableSchema
from headrace.decode.copyrows import CopiedRows
from headrace.sources.contract.copying import Key, KeyRange, Piece, PieceRead, Reader
from headrace.sources.contract.values import ALONE, Json
from headrace.sources.mysql.catalog.definitions import look
from headrace.sources.mysql.copy import key_range, measure
from headrace.sources.mysql.copy.follower import MysqlFollower
from headrace.sources.mysql.copy.key_range import disorder, within
from headrace.sources.mysql.copy.leader import refuse_forgetful
from headrace.sources.mysql.copy.locks import UNREAD_SECONDS, Keeper, TablesHeld, idle, lock_tables, nothing
from headrace.sources.mysql.copy.measure import IndexRange
from headrace.sources.mysql.copy.selection import fetch
from headrace.sources.mysql.copy.table_access import (
    busy,
    by_key,
    hold,
    of_table,
    orders,
    overtaken,
    prove_columns,
    prove_mark,
    spell,
)
from headrace.sources.mysql.copy.ticket import Ticket
from headrace.sources.mysql.position import MysqlTimeline, parse
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity, identify, verify
from headrace.sources.mysql.session.log_end import count, executed_gtids
from headrace.sources.mysql.session.statements import MysqlConnection, execute, query, quote

TOUCH_SECONDS = 0.25  # for the view to touch the table, while its writers wait
LOCK_SECONDS = 10.0  # to get a lock, in several attempts; then the table is left to another copy


class ChunkReader:
    """Two connections that read one chunk after another; they are made for the first chunk."""

    def __init__(self, address: MysqlAddress, identity: MysqlIdentity, ticket: Json, *, role: str) -> None:
        self._address = address
        self._identity = identity
        self._role = role
        self._log = MysqlTimeline(ticket["base"])
        self._reached = None if ticket["reached"] is None else from_record(Position, ticket["reached"])
        self._sessions: list[MysqlConnection] = []
        self._keeper = Keeper(lambda: tuple(self._sessions), nothing)

    def __enter__(self) -> ChunkReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._keeper.stop()
        self._hang_up()

    def _hang_up(self) -> None:
        for session in self._sessions:
            session.close()
        self._sessions = []

    @contextmanager
    def read(
        self, columns: Sequence[Column], piece: Piece, record: Json | None = None
    ) -> Iterator[PieceRead]:
        """Read these columns of a range of keys."""
        assert isinstance(piece, KeyRange), "a table without a moment is read in ranges of keys"
        table = piece.table
        locker, session = self._connect()
        with of_table(table), self._moment(locker, session, table) as handoff:
            _prove(locker, piece, columns)
            key = [next(each for each in columns if each.name == name) for name in piece.key]
            origin = f"FROM {by_key(table)}{within(key, piece.spans)}"
            found = fetch(session, table, columns, origin)
        yield PieceRead(handoff, found.decode())

    def look_up(
        self, schema: TableSchema, pieces: Sequence[Piece], keys: Sequence[Key]
    ) -> Generator[tuple[int, pa.Table], None, None]:
        raise AssertionError("rows are looked up in a snapshot")

    @contextmanager
    def _moment(
        self, locker: MysqlConnection, session: MysqlConnection, table: TableName
    ) -> Iterator[ByPosition]:
        """Open a view of the table as it is now; yields it with its handoff."""
        try:
            with lock_tables(locker, [table], ALONE, LOCK_SECONDS) as locks:
                if locks.missing:
                    raise overtaken(f"{table} was dropped, or renamed")
                execute(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
                # DDL that came since the lock waits for the lock, and this view waits for the DDL.
                query(session, f"SELECT 1 FROM {spell(table)} LIMIT 0", seconds=TOUCH_SECONDS)
                text = executed_gtids(locker)
                locks.release(locker)
        except TablesHeld as error:
            raise busy(table, error) from None
        handoff = ByPosition(count(locker, self._log, text))
        refuse_forgetful(handoff.frontier, self._reached)
        try:
            yield handoff
        finally:
            if not session.is_closed:
                execute(session, "COMMIT")

    def _connect(self) -> tuple[MysqlConnection, MysqlConnection]:
        """Return the two sessions; new ones if one of them was lost within a chunk."""
        if not self._sessions or any(session.is_closed for session in self._sessions):
            self._hang_up()
            for _ in range(2):
                session = connect(self._address, role=self._role)
                self._sessions.append(session)
                verify(identify(session), self._identity)
                idle(session, None)
                execute(session, f"SET SESSION net_write_timeout = {UNREAD_SECONDS}")
            self._keeper.start()
        locker, session = self._sessions
        return locker, session


def _prove(locker: MysqlConnection, piece: KeyRange, columns: Sequence[Column]) -> None:
    """Raise unless the locked table has these columns and this key."""
    prove_columns(locker, piece.table, columns)
    found = look(locker, [piece.table]).get(piece.table)
    if found is None or found.key != piece.key or disorder(found) is not None:
        raise overtaken(f"{piece.table} has another key than a moment ago")


FIRST_ROWS = 10_000  # of the first step along an index
STEP_BYTES = 32 << 20  # of each later one, by the rows of the one before
_NUMBER = Column("\0number", pa.int32(), "int", "int")  # no identifier of a source holds a NUL


@dataclass(frozen=True, slots=True)
class StepWalk:
    """The order in which rows are read: along an index that has each row once, or (None) in any order."""

    index: str | None
    columns: Sequence[Column]

    def origin(self, part: IndexRange, behind: str, limit: int, skip: int) -> str:
        """The FROM clause of a step: `limit` rows under the condition `behind`, after `skip` rows."""
        if self.index is None:
            return f"FROM {spell(part.table)}{measure.where(part)}"
        order = ", ".join(quote(column.name) for column in self.columns)
        found = f"FROM {by_key(part.table, self.index)}{measure.where(part, behind)}"
        return f"{found} ORDER BY {order} LIMIT {limit} OFFSET {skip}"


class MomentReader:
    """A connection that reads one piece of a snapshot after another, by a ticket."""

    def __init__(self, follower: MysqlFollower, log: MysqlTimeline) -> None:
        self._follower = follower
        self._log = log
        self._proved: set[TableName] = set()
        self._walks: dict[TableName, StepWalk] = {}

    def __enter__(self) -> MomentReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._follower.close()

    @contextmanager
    def read(
        self, columns: Sequence[Column], piece: Piece, record: Json | None = None
    ) -> Iterator[PieceRead]:
        """Read these columns of a piece."""
        part = _range(piece)
        with of_table(part.table):
            self._follower.reading(part.table)
        handoff = ByPosition(self._log.position(str(parse(self._follower.executed))))
        yield PieceRead(handoff, self._rows(part, columns))

    def look_up(
        self, schema: TableSchema, pieces: Sequence[Piece], keys: Sequence[Key]
    ) -> Generator[tuple[int, pa.Table], None, None]:
        """Find the rows with these keys by the key's index, and the piece of each by its bounds."""
        ranges = [_range(piece) for piece in pieces]
        table = ranges[0].table
        with of_table(table):
            self._follower.reading(table)
        origin = f"FROM {spell(table)} WHERE {key_range.where(schema, keys)}"
        with self._hold(ranges[0], schema.columns) as session:
            columns = (_NUMBER, *schema.columns)
            found = fetch(session, table, columns, origin, before=measure.range_number(ranges))
        yield from _by_number(found.decode())

    def _rows(self, part: IndexRange, columns: Sequence[Column]) -> Iterator[CopiedRows]:
        """Read the rows of a range, in steps along an index; in one step if there is no index.

        Other sessions wait for one step at most, and never for what is done with its rows.
        """
        walk = self._walk(part.table, columns)
        behind, skipped, limit = "", 0, FIRST_ROWS
        while True:
            with self._hold(part, columns) as session:
                fetched = fetch(session, part.table, columns, walk.origin(part, behind, limit, skipped))
            last: pa.Table | None = None
            for copied in fetched.decode():
                yield copied
                last = copied.rows
            if last is None or walk.index is None or fetched.count < limit:
                return
            beyond = key_range.beyond(walk.columns, last.slice(last.num_rows - 1))
            behind, skipped = (beyond, 0) if beyond else (behind, skipped + limit)
            limit = max(1, STEP_BYTES * fetched.count // fetched.size)

    def _walk(self, table: TableName, columns: Sequence[Column]) -> StepWalk:
        """Find the order in which to read the rows of a table."""
        if table not in self._walks:
            known = {column.name: column for column in columns if key_range.walkable(column)}
            with of_table(table):
                indexes = orders(self._follower.witness(), table)
            fit = (index for index, names in indexes.items() if known.keys() >= set(names))
            index = next(fit, None)
            self._walks[table] = StepWalk(index, [known[name] for name in indexes[index]] if index else [])
        return self._walks[table]

    @contextmanager
    def _hold(self, part: IndexRange, columns: Sequence[Column]) -> Iterator[MysqlConnection]:
        """The connection, while the table is kept as it was planned."""
        with of_table(part.table), self._follower.holding(part.table):
            session = self._follower.join()
            with hold(session, part.table):
                self._prove(session, part, columns)
                yield session

    def _prove(self, session: MysqlConnection, part: IndexRange, columns: Sequence[Column]) -> None:
        """Raise unless the table is the one that was planned; that holds as long as the table is held.

        MySQL releases the table between two ranges, but refuses by itself to show columns that came later.
        """
        known = part.table in self._proved
        if known and session.release.is_mariadb:
            return
        witness = self._follower.witness()
        prove_mark(witness, part.table, part.mark)
        if not known:
            prove_columns(witness, part.table, columns)
            self._proved.add(part.table)


def _by_number(found: Iterator[CopiedRows]) -> Iterator[tuple[int, pa.Table]]:
    for copied in found:
        which = copied.rows.column(0).to_numpy()
        for number in sorted(set(which.tolist())):
            yield number, copied.rows.filter(pa.array(which == number)).remove_column(0)


def of_moment(address: MysqlAddress, identity: MysqlIdentity, ticket: Json, *, role: str) -> MomentReader:
    """Make a reader from a ticket of a snapshot; it connects at its first read."""
    follower = MysqlFollower(address, identity, Ticket.of(ticket["leader"]), role=role)
    return MomentReader(follower, MysqlTimeline(ticket["base"]))


def _range(piece: Piece) -> IndexRange:
    assert isinstance(piece, IndexRange), "a snapshot is cut into ranges of an index"
    return piece


def reader(address: MysqlAddress, identity: MysqlIdentity, ticket: Json, *, role: str) -> Reader:
    """Make a reader from a ticket; it connects at its first read."""
    if "leader" in ticket:
        return of_moment(address, identity, ticket, role=role)
    return ChunkReader(address, identity, ticket, role=role)
