"""The plan of a copy: a snapshot by xid, or ranges of keys, and the tick from which on each is exact.

    driver     BEGIN REPEATABLE READ ─► what it shows ─► a tick: `until`
    executors  a chunk: BEGIN REPEATABLE READ ─► what it shows ─► a tick     (`reader`)

Making the triggers waited for the writers of the moment, so that of every transaction all changes of a table
are captured, or none, and then any later snapshot shows it. So nobody is waited for, but where a table has
types of users: DDL on a type (`ALTER TYPE ... RENAME VALUE`) locks no table, and the trigger has printed the
rows of a writer that is open by what the type was. A copy that shows those writers has their rows as they are
now, and holds what was printed.

Printed rows: those that a trigger has written as texts, in transactions that are open.

DDL on a type of users (`ALTER TYPE ... RENAME VALUE`) locks no table, so that it may come between a writer's
statement and its commit: the event has the row as it was printed, a later snapshot as it is called by now.
Whoever begins to read, or to copy, lets such writers end first.
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
from headrace.sources.queue.proof import telling_loss
from headrace.sources.queue.trust import prove
from headrace.sources.queue.upstream import QueueUpstream


@dataclass(frozen=True, slots=True)
class QueueCopyTarget:
    """The place that a copy reads: which server, and the queue there that its stream is read from."""

    address: PostgresAddress
    identity: PostgresIdentity
    upstream: QueueUpstream


@dataclass(frozen=True, slots=True)
class QueueCopyPlan:
    """A copy of tables that can be read, as far as it can be foreseen."""

    server: QueueCopyTarget
    order: CopyOrder
    by_ranges: frozenset[TableName]
    barred_xids: frozenset[int]  # those that write tables with types of users

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
    """Foresee a copy of these tables, which can be read."""
    by_ranges: frozenset[TableName] = frozenset()
    entries = [entry_of(table.details) for table in order.tables]
    if DECLARATION.value(order.options, "handoff") == CHUNKS:
        disorder = key_range.disorder(connection, entries)
        by_ranges = frozenset(each.name for each in entries) - disorder.keys()
    return QueueCopyPlan(server, order, by_ranges, frozenset(printing(connection, entries)))


def to_compare(server: QueueCopyTarget, readers: int, seconds: float) -> PostgresHeldSnapshot:
    """Take a snapshot to compare with; nobody is waited for."""
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
    """The handoff of a snapshot that was taken before this is called, with the tick that shows all of it."""
    assert isinstance(handoff, ByXid)
    with telling_loss(connection, upstream):
        return replace(handoff, until=ticks.reach(connection, upstream.objects).position(upstream.log))


def printing(connection: Session, entries: Iterable[TableEntry]) -> Set[int]:
    """The transactions that write a table with types of users, or a partition of one."""
    typed = [
        oid for each in entries if each.types for oid in (each.oid, *(branch.oid for branch in each.tree))
    ]
    return writers(connection, typed) if typed else frozenset()


def await_ends(connection: Session, xids: Set[int], waiting: Waiting) -> None:
    """Wait until a snapshot shows all that these transactions have done."""
    if xids:
        until_shown(partial(see, connection.pgconn, xids), waiting)
