"""The plan of a copy: what it waits for, and whether slot, xid or chunks join it to the stream.

    plan        W, the transactions that every snapshot must show; the tables that can be read in key ranges
    snapshot    a leader under the contract's names, for a copy or for a comparison
    key_walk    the driver's half of reading key ranges: a connection without a snapshot

Read W after the permanent slot is made: it is the transactions that then hold a write lock. Before the first
key range wait once until a snapshot shows all of W; every later snapshot shows them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from headrace.core.chunks import Bound, KeySpan
from headrace.core.errors import Misconfigured
from headrace.core.handoff import ByPosition, ByXid, shift
from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.sources.contract.copying import CopyOrder, Piece
from headrace.sources.contract.values import ALONE, Json, TableDef, Waiting
from headrace.sources.postgres.catalog import definitions
from headrace.sources.postgres.catalog.table_def import apply_rules, is_root, tree_of
from headrace.sources.postgres.copy import key_range
from headrace.sources.postgres.copy.leader import By, PostgresLeader, lead, until_shown
from headrace.sources.postgres.copy.measure import shares
from headrace.sources.postgres.copy.table_access import reading
from headrace.sources.postgres.copy.visibility import refuse_standby, see
from headrace.sources.postgres.declaration import CHUNKS, DECLARATION, SLOT, XID
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import PostgresIdentity, identify, verify
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.upstream import PostgresUpstream
from headrace.sources.postgres.writers import writers

BY: Mapping[str, By] = {SLOT: "slot", XID: "xid", CHUNKS: "xid"}


@dataclass(frozen=True, slots=True)
class PostgresCopyTarget:
    """The server that a copy reads, and the objects there that its stream is read through."""

    address: PostgresAddress
    identity: PostgresIdentity
    upstream: PostgresUpstream


@dataclass(frozen=True, slots=True)
class PostgresCopyPlan:
    """The plan of a copy: its handoff, its W, and the tables that it reads in key ranges."""

    server: PostgresCopyTarget
    order: CopyOrder
    by_ranges: frozenset[TableName]
    barred_xids: frozenset[int]  # W

    def snapshot(self, tables: Sequence[TableDef], waiting: Waiting) -> PostgresHeldSnapshot:
        """Take a snapshot; it shows all tables."""
        by = BY[_handoff(self.order)]
        return _hold(self.server, by, self.order.readers, self.barred_xids, math.inf, waiting)

    def key_walk(self, waiting: Waiting) -> PostgresKeyWalk:
        """Open the walk's connection, and wait until a snapshot shows all of W."""
        connection = connect(self.server.address, role="chunks")
        try:
            verify(identify(connection), self.server.identity)
            refuse_standby(self.server.identity)
            waiting.check()
            until_shown(partial(see, connection.pgconn, self.barred_xids), waiting)
            key_range.prepare(connection)
        except BaseException:
            connection.close()
            raise
        upstream = self.server.upstream
        return PostgresKeyWalk(connection, {"base": upstream.base, "publication": upstream.publication})


def plan(connection: Session, server: PostgresCopyTarget, order: CopyOrder) -> PostgresCopyPlan:
    """Plan a copy of these tables."""
    numbers = [table.number for table in order.tables]
    by_ranges: frozenset[TableName] = frozenset()
    if _handoff(order) == CHUNKS:
        rules = server.upstream.rules
        found = definitions.read_entries(connection, numbers).values()
        entries = [apply_rules(each, rules) for each in found]
        # A table that was dropped or renamed since is left out here: its reader will find out.
        there = {each.name for each in entries} - key_range.disorder(connection, entries).keys()
        by_ranges = frozenset(table.name for table in order.tables if table.name in there)
    return PostgresCopyPlan(
        server, order, by_ranges, frozenset(writers(connection, _written_tables(connection, order.tables)))
    )


def _written_tables(connection: Session, tables: Sequence[TableDef]) -> list[int]:
    """The tables whose writers are W: partitions instead of their root, since writers lock partitions."""
    roots = [table for table in tables if is_root(table.details)]
    now = definitions.read_entries(connection, [root.number for root in roots]).values() if roots else ()
    trees = [*(entry.tree for entry in now), *(tree_of(root.details) for root in roots)]
    return [*(table.number for table in tables), *{branch.oid for tree in trees for branch in tree}]


def _handoff(order: CopyOrder) -> str:
    return DECLARATION.value(order.options, "handoff") or SLOT


def to_compare(server: PostgresCopyTarget, readers: int, seconds: float) -> PostgresHeldSnapshot:
    """Take a snapshot that tells which transactions it shows; it waits for no transaction."""
    if server.identity.standby:
        raise Misconfigured(
            "VERIFY_STANDBY",
            "the server is a standby, of which it cannot be told which transactions a snapshot shows",
            detail="a standby does not list the transactions that run",
            hint="give the address of the primary",
        )
    return _hold(server, "xid", readers, frozenset(), seconds, ALONE)


def _hold(
    server: PostgresCopyTarget, by: By, readers: int, barred: frozenset[int], seconds: float, waiting: Waiting
) -> PostgresHeldSnapshot:
    leader = lead(
        server.address,
        server.identity,
        server.upstream.slot,
        by=by,
        barred_xids=barred,
        seconds=seconds,
        waiting=waiting,
    )
    handoff = shift(leader.handoff, server.upstream.base)
    return PostgresHeldSnapshot(leader, handoff, readers, server.upstream.publication)


@dataclass(frozen=True, slots=True)
class PostgresHeldSnapshot:
    """A leader's snapshot, with its positions in the mirror's life of the server."""

    leader: PostgresLeader
    handoff: ByPosition | ByXid
    readers: int
    publication: str
    admits_later: bool = True

    def __enter__(self) -> PostgresHeldSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leader.close()

    def settle(self) -> ByPosition | ByXid:
        """Return the handoff; it does not change while the snapshot is read."""
        return self.handoff

    @property
    def ticket(self) -> Json:
        return {
            "snapshot": self.leader.snapshot_id,
            "handoff": to_record(self.handoff),
            "publication": self.publication,
        }

    def shares(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        return shares(pieces, self.readers)

    def alive(self) -> bool:
        return self.leader.alive()


@dataclass(frozen=True, slots=True)
class PostgresKeyWalk:
    """The walk along keys, over a connection of its own."""

    connection: Session
    ticket: Json

    def __enter__(self) -> PostgresKeyWalk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def next_bound(
        self, table: TableDef, span: KeySpan, rows: int, check: Callable[[], None]
    ) -> Bound | None:
        with reading(self.connection, table.name, table.number):
            beneath = is_root(table.details)
            return key_range.next_bound(
                self.connection, table.schema, table.name, span, rows, check, beneath=beneath
            )
