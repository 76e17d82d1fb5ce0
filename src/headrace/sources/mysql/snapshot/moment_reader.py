"""The reader of a snapshot: ranges of an index, over one connection, as rows of the lake.

    ticket ─► `follower`: a connection that sees the leader's moment
    range  ─► `table_access`: the table as it was planned; `selection`: its rows

Which transactions a reader sees it knows from the server: it asked while it opened its view.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

import pyarrow as pa

from headrace.core.handoff import ByPosition
from headrace.core.names import TableName
from headrace.core.schema import Column, TableSchema
from headrace.decode.copyrows import CopiedRows
from headrace.sources.contract.copying import Key, Piece, Reading
from headrace.sources.contract.record import Json
from headrace.sources.mysql.binlog_position import Log, parse
from headrace.sources.mysql.session.address import Address
from headrace.sources.mysql.session.identity import Identity
from headrace.sources.mysql.session.statements import Session
from headrace.sources.mysql.snapshot import index_ranges, key_range
from headrace.sources.mysql.snapshot.follower import Follower
from headrace.sources.mysql.snapshot.index_ranges import IndexRange
from headrace.sources.mysql.snapshot.selection import listed, selection
from headrace.sources.mysql.snapshot.table_access import held, of_table, prove_columns, prove_mark, spelled
from headrace.sources.mysql.snapshot.ticket import Ticket

_NUMBER = Column("\0number", pa.int32(), "int", "int")  # no identifier of a source holds a NUL


class MomentReader:
    """A connection over which pieces of a snapshot are read one after another, by a ticket."""

    def __init__(self, follower: Follower, log: Log) -> None:
        self._follower = follower
        self._log = log
        self._proved: set[TableName] = set()

    def __enter__(self) -> MomentReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._follower.close()

    @contextmanager
    def read(self, columns: Sequence[Column], piece: Piece, known: Json | None = None) -> Iterator[Reading]:
        """Read these columns of a piece."""
        part = _range(piece)
        with of_table(part.table):
            session = self._follower.reading(part.table)
            handoff = ByPosition(self._log.position(str(parse(self._follower.executed))))
            statement = f"SELECT {listed(columns)} FROM {spelled(part.table)}{index_ranges.where(part)}"
            with held(session, part.table):
                self._prove(session, part, columns)
                with selection(session, part.table, statement, columns) as found:
                    yield Reading(handoff, found)

    def look_up(
        self, schema: TableSchema, pieces: Sequence[Piece], keys: Sequence[Key]
    ) -> Generator[tuple[int, pa.Table], None, None]:
        """Find the rows with these keys by the key's index, and the piece of each by its bounds."""
        ranges = [_range(piece) for piece in pieces]
        table = ranges[0].table
        wanted = f"{index_ranges.numbered(ranges)}, {listed(schema.columns)}"
        statement = f"SELECT {wanted} FROM {spelled(table)} WHERE {key_range.where(schema, keys)}"
        with of_table(table):
            session = self._follower.reading(table)
            with held(session, table):
                self._prove(session, ranges[0], schema.columns)
                with selection(session, table, statement, (_NUMBER, *schema.columns)) as found:
                    yield from _by_number(found)

    def _prove(self, session: Session, part: IndexRange, columns: Sequence[Column]) -> None:
        """The table is the one that was planned, as long as it is held.

        MySQL itself refuses a view of columns that came later, and lets go of a table between two ranges.
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


def of_moment(address: Address, identity: Identity, ticket: Json, *, role: str) -> MomentReader:
    """A reader by a ticket of a snapshot; it connects when it is first asked for something."""
    follower = Follower(address, identity, Ticket.of(ticket["leader"]), role=role)
    return MomentReader(follower, Log(ticket["base"]))


def _range(piece: Piece) -> IndexRange:
    assert isinstance(piece, IndexRange), "a snapshot is cut into ranges of an index"
    return piece
