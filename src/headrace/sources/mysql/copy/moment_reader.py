"""The reader of a snapshot: ranges of an index, over one connection, as rows of the lake.

    ticket ─► `follower`: a connection that sees the leader's moment
    range  ─► `table_access`: the table as it was planned; `selection`: its rows

Which transactions a reader sees it knows from the server: it asked while it opened its view.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

import pyarrow as pa

from headrace.core.handoff import ByPosition
from headrace.core.names import TableName
from headrace.core.schema import Column, TableSchema
from headrace.decode.copyrows import CopiedRows
from headrace.sources.contract.copying import Key, Piece, PieceRead
from headrace.sources.contract.values import Json
from headrace.sources.mysql.binlog_position import MysqlTimeline, parse
from headrace.sources.mysql.copy import index_ranges, key_range
from headrace.sources.mysql.copy.follower import MysqlFollower
from headrace.sources.mysql.copy.index_ranges import IndexRange
from headrace.sources.mysql.copy.selection import fetch
from headrace.sources.mysql.copy.table_access import (
    by_key,
    hold,
    of_table,
    orders,
    prove_columns,
    prove_mark,
    spell,
)
from headrace.sources.mysql.copy.ticket import Ticket
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.identity import MysqlIdentity
from headrace.sources.mysql.session.statements import MysqlConnection, quote

FIRST_ROWS = 10_000  # of the first step along an index
STEP_BYTES = 32 << 20  # of each later one, by the rows of the one before
_NUMBER = Column("\0number", pa.int32(), "int", "int")  # no identifier of a source holds a NUL


@dataclass(frozen=True, slots=True)
class StepWalk:
    """The way along which the rows of a table are read: an index that has each row at one place, or none."""

    index: str | None
    columns: Sequence[Column]

    def origin(self, part: IndexRange, behind: str, limit: int, skip: int) -> str:
        """The rows of a step: so many, of those behind a key, and behind so many more."""
        if self.index is None:
            return f"FROM {spell(part.table)}{index_ranges.where(part)}"
        order = ", ".join(quote(column.name) for column in self.columns)
        found = f"FROM {by_key(part.table, self.index)}{index_ranges.where(part, behind)}"
        return f"{found} ORDER BY {order} LIMIT {limit} OFFSET {skip}"


class MomentReader:
    """A connection over which pieces of a snapshot are read one after another, by a ticket."""

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
            found = fetch(session, table, columns, origin, before=index_ranges.range_number(ranges))
        yield from _by_number(found.decode())

    def _rows(self, part: IndexRange, columns: Sequence[Column]) -> Iterator[CopiedRows]:
        """The rows of a range, in steps along an index; in one go where there is none.

        Others wait for a step at most, and for nothing that is done with its rows.
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
        """The way along which the rows of a table are read."""
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


def of_moment(address: MysqlAddress, identity: MysqlIdentity, ticket: Json, *, role: str) -> MomentReader:
    """A reader by a ticket of a snapshot; it connects when it is first asked for something."""
    follower = MysqlFollower(address, identity, Ticket.of(ticket["leader"]), role=role)
    return MomentReader(follower, MysqlTimeline(ticket["base"]))


def _range(piece: Piece) -> IndexRange:
    assert isinstance(piece, IndexRange), "a snapshot is cut into ranges of an index"
    return piece
