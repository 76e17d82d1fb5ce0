"""Printed rows: those that a trigger has written as texts, in transactions that are open.

DDL on a type of users (`ALTER TYPE ... RENAME VALUE`) locks no table, so that it may come between a writer's
statement and its commit: the event has the row as it was printed, a later snapshot as it is called by now.
Whoever begins to read, or to copy, lets such writers end first.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import partial

from headrace.sources.contract.values import Waiting
from headrace.sources.postgres.catalog.table_def import TableEntry
from headrace.sources.postgres.copy.leader import until_shown
from headrace.sources.postgres.copy.visibility import see
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.writers import writers


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
