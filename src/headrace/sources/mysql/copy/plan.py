"""The plan of a copy: a moment, whose readers are started before it is taken; or chunks.

    snapshot    a leader under the contract's names, for a copy or for a comparison
    shares      a share of the pieces for each reader; all readers must be there
    handoff     ask for it after the readers were started: it takes the moment
    key_walk    the driver's half of reading chunks: a walk along the primary key to the end of each chunk

A plan notes no transactions to wait for: the locks wait for every one that has written one of the tables. If
a reader was left out, its tables are given back (`TableBusy`). So is a table that was gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

from headrace.core.chunks import Bound, KeySpan
from headrace.core.handoff import ByPosition, BySet
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.sources.contract.copying import CopyOrder, Piece
from headrace.sources.contract.errors import StepTooLong
from headrace.sources.contract.values import ALONE, Json, TableDef, Waiting
from headrace.sources.mysql.catalog.definitions import read_visible_tables
from headrace.sources.mysql.catalog.table_def import apply_rules
from headrace.sources.mysql.copy import key_range
from headrace.sources.mysql.copy.key_range import bounds, of_key, within
from headrace.sources.mysql.copy.leader import MysqlLeader, lead, refuse_forgetful
from headrace.sources.mysql.copy.measure import IndexRange, shares
from headrace.sources.mysql.copy.selection import fetch
from headrace.sources.mysql.copy.table_access import by_key, of_table
from headrace.sources.mysql.declaration import CHUNKS, HANDOFF
from headrace.sources.mysql.gtid_set import GtidSet
from headrace.sources.mysql.mariadb_position import MariadbPosition
from headrace.sources.mysql.position import MariadbProgress, MysqlTimeline, parse
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity, identify, verify
from headrace.sources.mysql.session.log_end import position
from headrace.sources.mysql.session.statements import MysqlConnection, quote
from headrace.sources.mysql.upstream import MysqlUpstream
from headrace.sources.shared.refusals import StatementCancelled


@dataclass(frozen=True, slots=True)
class MysqlCopyTarget:
    """The server that a copy reads, and the life of its binlog."""

    address: MysqlAddress
    identity: MysqlIdentity
    upstream: MysqlUpstream


@dataclass(frozen=True, slots=True)
class MysqlCopyPlan:
    """A copy of tables that can be read."""

    server: MysqlCopyTarget
    order: CopyOrder
    by_ranges: frozenset[TableName]

    def snapshot(self, tables: Sequence[TableDef], waiting: Waiting) -> MysqlHeldSnapshot:
        """Begin a snapshot of the tables; its readers may be started now."""
        return _begin(self.server, self.order.readers, math.inf, waiting, reached=self.order.read_until)

    def key_walk(self, waiting: Waiting) -> MysqlKeyWalk:
        """Open the walk's connection. It waits for nothing: each chunk waits for its own lock."""
        waiting.check()
        connection = connect(self.server.address, role="chunks")
        try:
            verify(identify(connection), self.server.identity)
        except BaseException:
            connection.close()
            raise
        return MysqlKeyWalk(connection, self.server.upstream.base, self.order.read_until)


def plan(connection: MysqlConnection, server: MysqlCopyTarget, order: CopyOrder) -> MysqlCopyPlan:
    """Plan a copy of these tables, which can be read."""
    by_ranges: frozenset[TableName] = frozenset()
    if order.options.get(HANDOFF.name) == CHUNKS:
        # A table that is hidden or gone is left out here: its reader will find out.
        looks, _ = read_visible_tables(connection, [table.name for table in order.tables])
        by_ranges = frozenset(
            name
            for name, found in looks.items()
            if key_range.disorder(apply_rules(found, server.upstream.rules)) is None
        )
    return MysqlCopyPlan(server, order, by_ranges)


@dataclass(frozen=True, slots=True)
class MysqlKeyWalk:
    """The walk along keys, over a connection of its own."""

    connection: MysqlConnection
    base: int
    read_until: Position | None

    def __enter__(self) -> MysqlKeyWalk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    @property
    def ticket(self) -> Json:
        return {
            "base": self.base,
            "reached": to_record(self.read_until),
        }

    def next_bound(
        self, table: TableDef, span: KeySpan, rows: int, check: Callable[[], None]
    ) -> Bound | None:
        return next_bound(self.connection, table, span, rows, check)


def to_compare(server: MysqlCopyTarget, readers: int, seconds: float) -> MysqlHeldSnapshot:
    """Begin a snapshot for a comparison; its handoff identifies transactions by their names (GTIDs)."""
    return _begin(server, readers, seconds, ALONE, named=True)


def _begin(
    server: MysqlCopyTarget,
    readers: int,
    seconds: float,
    waiting: Waiting,
    *,
    named: bool = False,
    reached: Position | None = None,
) -> MysqlHeldSnapshot:
    leader = lead(server.address, server.identity, readers)
    return MysqlHeldSnapshot(leader, server, seconds, waiting, named, reached)


@dataclass(slots=True)
class MysqlHeldSnapshot:
    """A leader's snapshot, in the life of the server that the mirror is in."""

    leader: MysqlLeader
    server: MysqlCopyTarget
    seconds: float
    waiting: Waiting
    by_name: bool  # its handoff identifies transactions by their names
    read_until: Position | None  # how far the stream that it joins was read
    admits_later: bool = False  # only readers that came before the moment see it
    _begun_readers: int = 0  # readers that have a share
    # The marks of the tables that the readers read; no others are locked.
    _marks: Mapping[TableName, str] = field(default_factory=dict)
    _handoff: ByPosition | BySet | None = None

    def __enter__(self) -> MysqlHeldSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leader.close()

    @property
    def log(self) -> MysqlTimeline:
        return self.server.upstream.log

    @property
    def handoff(self) -> ByPosition | BySet:
        """The test of which transactions it holds; the first call takes the moment."""
        if self._handoff is None:
            try:
                self._handoff = self._own_handoff()
            except BaseException:
                self.leader.close()  # waiting readers learn that the moment will not come
                raise
        return self._handoff

    def settle(self) -> ByPosition | BySet:
        """Return the handoff, exact from the log's current end on.

        Rows of an exchanged partition may be older than the moment, and the table's mark does not show the
        exchange. The log brings the exchange before that end. The leader may be gone: readers outlive it.
        """
        handoff = self.handoff
        if isinstance(handoff, BySet):
            return handoff
        return replace(handoff, settled_at=max(handoff.frontier, self._end()))

    def _end(self) -> Position:
        """The end of the server's log."""
        if self.leader.alive():
            return self.leader.handoff_of_none(self.log).frontier
        with connect(self.server.address, role="snapshot") as session:
            verify(identify(session), self.server.identity)
            return position(session, self.log)

    @property
    def ticket(self) -> Json:
        return {"leader": to_record(self.leader.ticket), "base": self.log.base}

    def shares(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        dealt = shares(pieces, self.leader.ticket.readers)
        self._begun_readers = len(dealt)
        self._marks = {piece.table: piece.mark for piece in pieces if isinstance(piece, IndexRange)}
        return dealt

    def alive(self) -> bool:
        return self.leader.alive()

    def _own_handoff(self) -> ByPosition | BySet:
        if not self._begun_readers:
            found = self.leader.handoff_of_none(self.log)
        else:
            found = self.leader.take(
                sorted(self._marks),
                self.log,
                self.seconds,
                self.waiting,
                self._begun_readers,
                set(self._marks.values()),
            )
        refuse_forgetful(found.frontier, self.read_until)
        if not self.by_name:
            return found
        return BySet(names_of(found.frontier.text), found.frontier)


def names_of(text: str) -> GtidSet | MariadbPosition:
    """Parse the names of the transactions that a server has executed."""
    progress = parse(text)
    return progress.read if isinstance(progress, MariadbProgress) else progress.ended_gtids


BOUND_SECONDS = 300.0  # for the walk to the end of one chunk


def next_bound(
    connection: MysqlConnection, table: TableDef, span: KeySpan, rows: int, check: Callable[[], None]
) -> Bound | None:
    """Find the first key after `rows` rows of the span; None if the span has no more rows than that.

    Each row may cost a read from a cold disk, so the walk has minutes. It is cancelled on the server when
    they are over (`StepTooLong`), or when `check` raises.
    """
    columns = of_key(table.schema)
    order = ", ".join(quote(column.name) for column in columns)
    origin = f"FROM {by_key(table.name)}{within(columns, [span])} ORDER BY {order} LIMIT 1 OFFSET {rows}"
    try:
        with of_table(table.name, but=StatementCancelled):
            found = fetch(connection, table.name, columns, origin, silence=BOUND_SECONDS, check=check)
            copied = list(found.decode())
    except StatementCancelled as error:
        raise StepTooLong(
            error.code,
            f"{table.name}: the walk along its key took too long",
            detail=f"{rows} rows",
            hint="nothing to do: it is tried again",
        ) from None
    if not copied or copied[0].unrepresentable:
        return None  # the key has no lake form: the copy of that row will stop the table
    known = bounds(table.schema, copied[0].rows)
    return known[0] if known else None
