"""The plan of a copy: a snapshot by xid, or ranges of keys, and the tick from which on each is exact.

    driver     BEGIN REPEATABLE READ ─► what it shows ─► a tick: `until`
    executors  a chunk: BEGIN REPEATABLE READ ─► what it shows ─► a tick     (`reader`)

Making a trigger waited for the transactions that were writing the table. So of every transaction all changes
of the table are captured, or none, and then every later snapshot shows the transaction. Therefore a copy
waits for nobody, with one exception: tables with user-defined types.

DDL on such a type (`ALTER TYPE ... RENAME VALUE`) locks no table, so it may come between a writer's statement
and its commit. The event then has the row as the trigger printed it, with the old label; a later snapshot has
the new one. So before it begins to read or to copy, headrace waits until such writers have ended (`printing`,
`await_ends`). A copy that shows them has their rows as they are now, and holds the printed events.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from headrace.core.handoff import ByXid
from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.sources.contract.copying import CopyOrder
from headrace.sources.contract.values import ALONE, TableDef, Waiting
from headrace.sources.postgres.catalog.table_def import TableEntry
from headrace.sources.postgres.copy import key_range
from headrace.sources.postgres.copy.leader import lead, until_shown
from headrace.sources.postgres.copy.plan import PostgresHeldSnapshot, PostgresKeyWalk
from headrace.sources.postgres.copy.visibility import see
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import PostgresIdentity, identify, verify
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.writers import writers
from headrace.sources.queue import tick as ticks
from headrace.sources.queue.catalog.definitions import entry_of
from headrace.sources.queue.declaration import CHUNKS, DECLARATION
from headrace.sources.queue.proof import translate_missing_queue
from headrace.sources.queue.trust import prove
from headrace.sources.queue.upstream import QueueUpstream


@dataclass(frozen=True, slots=True)
class QueueCopyTarget:
    """The server that a copy reads, and the queue there that its stream is read from."""

    address: PostgresAddress
    identity: PostgresIdentity
    upstream: QueueUpstream


@dataclass(frozen=True, slots=True)
class QueueCopyPlan:
    """The plan of a copy: its tables, and the writers that it waits for."""

    server: QueueCopyTarget
    order: CopyOrder
    by_ranges: frozenset[TableName]
    barred_xids: frozenset[int]  # transactions that write tables with user-defined types

    def snapshot(self, tables: Sequence[TableDef], waiting: Waiting) -> PostgresHeldSnapshot:
        """Take a snapshot; it shows all tables."""
        return _hold(self.server, self.order.readers, self.barred_xids, math.inf, waiting)

    def key_walk(self, waiting: Waiting) -> PostgresKeyWalk:
        """Open the walk's connection."""
        connection = connect(self.server.address, role="chunks")
        try:
            verify(identify(connection), self.server.identity)
            waiting.check()
            await_ends(connection, self.barred_xids, waiting)
            key_range.prepare(connection)
        except BaseException:
            connection.close()
            raise
        upstream = self.server.upstream
        return PostgresKeyWalk(connection, {"upstream": to_record(upstream), "publication": ""})


def plan(connection: Session, server: QueueCopyTarget, order: CopyOrder) -> QueueCopyPlan:
    """Plan a copy of these tables."""
    by_ranges: frozenset[TableName] = frozenset()
    entries = [entry_of(table.details) for table in order.tables]
    if DECLARATION.value(order.options, "handoff") == CHUNKS:
        disorder = key_range.disorder(connection, entries)
        by_ranges = frozenset(each.name for each in entries) - disorder.keys()
    return QueueCopyPlan(server, order, by_ranges, frozenset(printing(connection, entries)))


def to_compare(server: QueueCopyTarget, readers: int, seconds: float) -> PostgresHeldSnapshot:
    """Take a snapshot to compare with; it waits for no transaction."""
    return _hold(server, readers, frozenset(), seconds, ALONE)


def _hold(
    server: QueueCopyTarget, readers: int, barred: Set[int], seconds: float, waiting: Waiting
) -> PostgresHeldSnapshot:
    leader = lead(
        server.address, server.identity, "", by="xid", barred_xids=barred, seconds=seconds, waiting=waiting
    )
    try:
        with closing(connect(server.address, role="tick")) as connection:
            prove(connection, server.upstream.objects)
            handoff = settle(leader.handoff, connection, server.upstream)
    except BaseException:
        leader.close()
        raise
    return PostgresHeldSnapshot(leader, handoff, readers, publication="")


def settle(handoff: object, connection: Session, upstream: QueueUpstream) -> ByXid:
    """The handoff of a snapshot that was taken before this call, with a tick that shows all of it."""
    assert isinstance(handoff, ByXid)
    with translate_missing_queue(connection, upstream):
        return replace(handoff, until=ticks.reach(connection, upstream.objects).position(upstream.log))


def printing(connection: Session, entries: Iterable[TableEntry]) -> Set[int]:
    """The transactions that are writing a table with user-defined types, or a partition of one."""
    typed = [
        oid for each in entries if each.types for oid in (each.oid, *(branch.oid for branch in each.tree))
    ]
    return writers(connection, typed) if typed else frozenset()


def await_ends(connection: Session, xids: Set[int], waiting: Waiting) -> None:
    """Wait until a snapshot shows all that these transactions have done."""
    if xids:
        until_shown(partial(see, connection.pgconn, xids), waiting)
