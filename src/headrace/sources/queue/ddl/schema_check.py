"""The schema check: whether tables are what was recorded of them, and whether all of their changes came.

It is one transaction, under one snapshot: what it reads of the catalog is of the same moment as the newest
tick that it sees. DDL holds off whoever writes the table, so an event of a later layout is behind the DDL;
and a tick shows both or none. So of all ticks up to the newest one that is seen here, the events were written
under the definition that is seen here, or under one that differs from what was recorded. No lock is asked
about, and no table can be in between. What becomes of a table that differs is for `following` to say.

For that, everything below reads columns of the catalog: functions of it (`format_type`, `pg_get_expr`) look
at a later moment, and what they say is for people alone.

Called before each mark; it takes no lock on a table of the application's, but for a moment that of a reader
on a partition that was attached since the last look (`emptiness`).

Emptiness: which of the partitions that came into a tree had nothing to bring, in the snapshot of a look.

Rows that a table brings along when it is attached are in no event. One whose file has no page had none: the
file is the one that the snapshot knows, and what the snapshot shows no VACUUM takes away while it is held.
To ask for the size locks the partition as a reader does: one that somebody holds is given up in a moment, and
its root sits this mark out.
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


def check(
    connection: Session,
    upstream: QueueUpstream,
    records: Mapping[str, TableDef],
    memory: LookMemory | None = None,
) -> SchemaCheck:
    """Look at the queue and at these tables, in one moment; what the last look found the same is so still."""
    try:
        return _look(connection, upstream, records, memory or LookMemory())
    except tick.QueueLost as broken:
        return SchemaCheck(upstream.log.position(TickPlace(0)), 0, {}, {}, frozenset(), broken)


def _look(
    connection: Session, upstream: QueueUpstream, known: Mapping[str, TableDef], memory: LookMemory
) -> SchemaCheck:
    with proof.telling_loss(connection, upstream), in_transaction(connection):
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
        unproven = tick.unproven(connection, upstream.objects, newest.number, known)
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
    """The records of roots that are held: the mark goes on without them, and ticks behind it are forgotten.

    Of a root that waited for its copy those may be forgotten that named what is there by now.
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
    """Say what is not as it was; what was done to the triggers goes first."""
    if found is None:
        return "it was dropped"
    if found.triggers.flaw is not None:
        return found.triggers.flaw
    if lives(last) != lives(found.entry):
        return "its triggers, the function that they call, or who else writes it was altered"
    return differs(last, found.entry, by_triggers=True) or partitions.differs(
        partitions.from_details(known.details), found.partitions, found.triggers.clones, found.entry.tree
    )
