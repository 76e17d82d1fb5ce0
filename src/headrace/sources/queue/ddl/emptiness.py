"""Emptiness: which of the partitions that came into a tree had nothing to bring, in the snapshot of a look.

Rows that a table brings along when it is attached are in no event. One whose file has no page had none: the
file is the one that the snapshot knows, and what the snapshot shows no VACUUM takes away while it is held.
To ask for the size locks the partition as a reader does: one that somebody holds is given up in a moment, and
its root sits this mark out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.sources.postgres.catalog.table_def import TableEntry
from headrace.sources.postgres.ddl.emptiness import attached_branches, flag
from headrace.sources.postgres.session.statements import Session, in_transaction, query
from headrace.sources.queue.catalog.definitions import QueuedTable
from headrace.sources.shared.refusals import LockTimeout

_LOCK_TIMEOUT = "100ms"
_EMPTY = """
SELECT c.oid::int8, pg_catalog.pg_relation_size(c.oid) = 0
       AND c.relfilenode = pg_catalog.pg_relation_filenode(c.oid)
  FROM pg_catalog.pg_class c WHERE c.oid = ANY (%s::oid[])
"""


def with_emptiness(
    connection: Session, entries: Iterable[TableEntry], now: Mapping[int, QueuedTable]
) -> tuple[dict[int, QueuedTable], frozenset[int]]:
    """The tables with what is empty beneath them, and those of which that cannot be asked."""
    asked: dict[int, set[int]] = {}
    for last in entries:
        if (table := now.get(last.oid)) is not None:
            new = {each.oid for each in attached_branches(last, table.entry) if each.has_rows}
            asked[last.oid] = asked.get(last.oid, set()) | new
    found, held = dict(now), set[int]()
    for oid, new in asked.items():
        try:
            without = _empty(connection, new) if new else set()
        except LockTimeout:
            held.add(oid)
        else:
            found[oid] = replace(now[oid], entry=flag(now[oid].entry, without))
    return found, frozenset(held)


def _empty(connection: Session, oids: set[int]) -> set[int]:
    with in_transaction(connection):
        query(connection, f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        return {oid for oid, empty in query(connection, _EMPTY, [list(oids)]) if empty}
