"""The schema check: do tables match their records, and are all of their changes captured?

The check is one transaction under one snapshot. So the catalog that it reads and the newest tick that it sees
belong to one moment. DDL locks out the table's writers, so an event of a later layout comes after the DDL,
and a tick shows both or neither. Therefore, in all ticks up to that newest one, events were written under the
definition that the check sees, or under one that differs from the record. The check needs no locks, and no
table is in doubt. `following` says what becomes of a table that differs.

For that, the check reads only columns of the catalog. Catalog functions (`format_type`, `pg_get_expr`) look
at a later moment, so their results are only shown to people.

It runs before each mark. It locks no table of the application, except for a moment and as a reader: a
partition that was attached since the last look (`with_emptiness`).

Rows that a partition has when it is attached are in no event. A partition whose file has no page had none:
the file is the one that the snapshot knows, and while the snapshot is held no VACUUM removes rows that it
shows. Asking for the size locks the partition as a reader does. If another session holds it, the check gives
up after a moment, and this mark omits the root.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.sources.contract.values import Change, SchemaCheck, TableDef
from headrace.sources.postgres.catalog.locks import busy
from headrace.sources.postgres.catalog.rights import rows_hidden
from headrace.sources.postgres.catalog.table_def import PARTITIONED, TableEntry
from headrace.sources.postgres.ddl.alteration import differs, is_news
from headrace.sources.postgres.ddl.emptiness import attached_branches, flag
from headrace.sources.postgres.session.statements import Session, in_transaction, query
from headrace.sources.queue import proof, tick
from headrace.sources.queue.catalog.definitions import LookMemory, QueuedTable, definition
from headrace.sources.queue.ddl.following import ColumnFollowing, lives
from headrace.sources.queue.decode import partitions
from headrace.sources.queue.position import TickPlace
from headrace.sources.queue.upstream import QueueUpstream
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
    """The tables with their empty branches flagged, and those tables for which that can't be asked."""
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


def check(
    connection: Session,
    upstream: QueueUpstream,
    records: Mapping[str, TableDef],
    memory: LookMemory | None = None,
) -> SchemaCheck:
    """Look at the queue and at these tables in one moment; skip what the last look found the same."""
    try:
        return _look(connection, upstream, records, memory or LookMemory())
    except tick.QueueLost as broken:
        return SchemaCheck(upstream.log.position(TickPlace(0)), 0, {}, {}, frozenset(), broken)


def _look(
    connection: Session, upstream: QueueUpstream, known: Mapping[str, TableDef], memory: LookMemory
) -> SchemaCheck:
    with proof.translate_missing_queue(connection, upstream), in_transaction(connection):
        query(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        proof.prove_same(connection, upstream)
        sight = tick.see(connection, upstream.objects)
        newest = sight.tick
        if newest is None:
            raise tick.remade(upstream.objects, "its ticks were removed by hand")
        seen = memory.read(connection, upstream.objects, sorted({table.number for table in known.values()}))
        last = memory.others(known, seen)
        now, held = with_emptiness(connection, last.values(), seen)
        roots = {oid: each for oid, each in now.items() if each.entry.kind == PARTITIONED}
        now = {**now, **{oid: replace(each, look_tick=newest.number) for oid, each in roots.items()}}
        looked = ColumnFollowing.look(connection, upstream, sight, last, now)
        shown = tick.shown_places(connection, upstream.objects, newest.number, known)
        unproven = dict.fromkeys(tick.unproven(connection, upstream.objects, newest.number, known))
    gone = tick.passing(shown, known, {oid: each.entry.tree for oid, each in roots.items()})
    looked.settle(connection, known)
    changes, news = {}, {}
    for key in sorted(gone):
        changes[key] = Change(_GONE, definition(now[known[key].number]))
    for key, before in last.items():
        table, found = known[key], now.get(known[key].number)
        if table.number in held or key in gone:
            continue
        what = _difference(before, table, found) or looked.doubt(key)
        if what is not None:
            changes[key] = looked.change(what, key, table, found)
        elif found is not None and is_news(before, found.entry):
            news[key] = looked.renew(before, table, found)
        elif found is not None and table.number not in looked.moved_tables:
            memory.note_same(key, table, seen[table.number])
    locked = frozenset(key for key, table in known.items() if table.number in held and key not in gone)
    news |= _owing({key: known[key] for key in locked & shown.keys()}, shown, last, now)
    who = busy(connection, {key: (known[key].number, known[key].name) for key in locked})
    entries = {key: now[table.number].entry for key, table in known.items() if table.number in now}
    trees = {key: (root.name, root.tree) for key, root in entries.items() if root.kind == PARTITIONED}
    policed = {key: (each.oid, each.name) for key, each in entries.items() if each.policies}
    denied = memory.denials(connection, trees) | rows_hidden(connection, policed)
    end = newest.position(upstream.log)
    return SchemaCheck(end, 0, changes, news, locked, unreadable=denied, busy=who, unproven=unproven)


def _owing(
    held: Mapping[str, TableDef],
    shown: Mapping[str, tick.Places | None],
    last: Mapping[str, TableEntry],
    now: Mapping[int, QueuedTable],
) -> dict[str, TableDef]:
    """The new records of locked roots: marks go on without them, and later ticks are deleted meanwhile.

    If a root waited for its copy, ticks that listed its present partitions may be deleted already.
    """
    found = {}
    for key, table in held.items():
        before, root = last.get(key), now[table.number].entry
        came: tick.Places = frozenset() if before is None else tick.places_since(before.tree, root.tree)
        places = (shown[key] or frozenset()) | came
        if places and (record := tick.owing(table, places)) is not None:
            found[key] = record
    return found


_GONE = "a partition came and went since the last look; its rows were there at a tick in between"


def _difference(last: TableEntry, known: TableDef, found: QueuedTable | None) -> str | None:
    """Say what changed; changes of the triggers come first."""
    if found is None:
        return "it was dropped"
    if found.triggers.flaw is not None:
        return found.triggers.flaw
    if lives(last) != lives(found.entry):
        return "its triggers, the function that they call, or who else writes it was altered"
    return differs(last, found.entry, by_triggers=True) or partitions.differs(
        partitions.from_details(known.details), found.partitions, found.triggers.clones, found.entry.tree
    )
