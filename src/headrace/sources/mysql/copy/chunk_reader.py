"""The reader of chunks: ranges of the primary key, each as it is when it is read.

    one session   LOCK TABLES t READ                                            executed?   UNLOCK TABLES
    the other                          START TRANSACTION WITH CONSISTENT SNAPSHOT                    SELECT

The equation is that of `leader`, for one table and one view: it was opened while nobody could write, and what
was executed is answered afterwards by the very session that holds the lock. The writers of the table wait for
three short answers, once a chunk; a transaction that has written it is waited for as by every copy.

A chunk's transaction ends with it, before anything is done with its rows. It has touched the table before
the lock goes, so that nobody alters, swaps or empties it meanwhile; what is done to it between two chunks the
stream tells.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

import pyarrow as pa

from headrace.core.handoff import ByPosition
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.schema import Column, TableSchema
from headrace.sources.contract.copying import Key, KeyRange, Piece, PieceRead
from headrace.sources.contract.values import ALONE, Json
from headrace.sources.mysql.binlog_position import MysqlTimeline
from headrace.sources.mysql.catalog.definitions import look
from headrace.sources.mysql.copy.forgotten import refuse_forgetful
from headrace.sources.mysql.copy.keeper import UNREAD_SECONDS, Keeper, nothing
from headrace.sources.mysql.copy.key_range import disorder, within
from headrace.sources.mysql.copy.locks import TablesHeld, idle, lock_tables
from headrace.sources.mysql.copy.selection import fetch
from headrace.sources.mysql.copy.table_access import busy, by_key, of_table, overtaken, prove_columns, spell
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity, identify, verify
from headrace.sources.mysql.session.log_end import count, executed_gtids
from headrace.sources.mysql.session.statements import MysqlConnection, execute, query

TOUCH_SECONDS = 0.25  # for the view to touch the table, while its writers wait
LOCK_SECONDS = 10.0  # for a lock to be had, in several attempts; then the table is left to another copy


class ChunkReader:
    """Two connections by which chunks are read one after another, made when the first is asked for."""

    def __init__(self, address: MysqlAddress, identity: MysqlIdentity, ticket: Json, *, role: str) -> None:
        self._address = address
        self._identity = identity
        self._role = role
        self._log = MysqlTimeline(ticket["base"])
        self._reached = None if ticket["reached"] is None else Position.from_record(ticket["reached"])
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
        """A view of the table as it is now, and which transactions it holds."""
        try:
            with lock_tables(locker, [table], ALONE, LOCK_SECONDS) as locks:
                if locks.missing:
                    raise overtaken(f"{table} was dropped, or renamed")
                execute(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
                # DDL that came since the lock waits for it, and this for the DDL.
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
        """Two sessions; new ones if one of them was lost amid a chunk."""
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
    """The table, which is held, has these columns and this key."""
    prove_columns(locker, piece.table, columns)
    found = look(locker, [piece.table]).get(piece.table)
    if found is None or found.key != piece.key or disorder(found) is not None:
        raise overtaken(f"{piece.table} has another key than a moment ago")
