"""Definitions of tables in PostgreSQL's catalog, and whether all of their changes are captured.

The look is that of `postgres.catalog`, which describes a table as a publication sends it. Here a table counts
as a member of its queue while it has our triggers: one membership that sends all stored columns. Its `life`
consists of the lives of triggers and function: it changes if one of them was disabled even for a moment.

    key        the columns of the primary key, whatever the replica identity is: old and new rows come whole
    columns    all stored columns; a row that triggers see has no value for virtual ones
    beneath    all tables beneath a partitioned one (`partitions`); their own identities do not matter
    relatives  if a table begins to inherit, or to be inherited from, statements on one table change rows of
    the
               other. It shows as for a publication's members: to inherit writes the catalog's row of each
               column (`via_root`), to be inherited from sets a flag at the table (`lives`)

It reads only columns of the catalog. So within one transaction, all that it reads belongs to one moment.

The look memory keeps the last looks, so that only tables that changed are compared:

    the catalog's texts     ──►  the entries of tables        `postgres.catalog.definitions`
    entry, triggers, parts  ──►  the same table object as before, if nothing differs
    a record, that table    ──►  they do not differ, and nothing is news

Each look still asks the server for everything. Whether a record equals what a look found depends on the two
alone. So a noted result holds as long as both are the same objects. Each connection has a memory of its own;
threads never share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.names import TableName
from headrace.core.records import from_record, to_record
from headrace.sources.contract.errors import TableDenied
from headrace.sources.contract.values import Json, TableDef
from headrace.sources.postgres.catalog.definitions import EntryMemory, read_entries
from headrace.sources.postgres.catalog.partition_tree import Branch
from headrace.sources.postgres.catalog.table_def import (
    PARTITIONED,
    Membership,
    ReplicaIdentity,
    TableEntry,
    schema_of,
)
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue.decode import layouts
from headrace.sources.queue.decode.layouts import Layouts
from headrace.sources.queue.decode.partitions import KEY, Partition, partitions_of, to_records
from headrace.sources.queue.tick import LOOKED, OWED
from headrace.sources.queue.triggers import Triggers, read_triggers
from headrace.sources.queue.upstream import Objects

_FULL = "f"  # pg_class.relreplident: all columns identify a row


@dataclass(frozen=True, slots=True)
class QueuedTable:
    """A table, our triggers on it, and the tables beneath it."""

    entry: TableEntry
    triggers: Triggers
    partitions: Mapping[int, Partition] = field(default_factory=dict)
    catalog: TableEntry | None = field(default=None, compare=False)  # the entry of PostgreSQL's own look
    look_tick: int | None = field(default=None, compare=False)  # a tick not newer than the look

    @property
    def name(self) -> TableName:
        return self.entry.name


def read_tables(
    connection: Session, objects: Objects, oids: Sequence[int], memory: EntryMemory | None = None
) -> list[QueuedTable]:
    """Look at these tables; a table that no longer exists is absent."""
    entries = sorted(read_entries(connection, oids, memory=memory).values(), key=lambda each: each.name)
    there = [entry.oid for entry in entries]
    keys, triggers = _primary_keys(connection, there), read_triggers(connection, objects, there)
    others, columns = _others(connection, entries), _columns(connection, entries)
    return [
        QueuedTable(
            _queued_entry(objects, entry, keys.get(entry.oid), triggers[entry.oid], others[entry.oid]),
            triggers[entry.oid],
            partitions_of(entry, columns, triggers[entry.oid].clones),
            entry,
        )
        for entry in entries
    ]


def _columns(connection: Session, roots: Sequence[TableEntry]) -> dict[int, tuple[str, ...]]:
    """The columns of all partitions of these tables, each in its own order."""
    oids = [branch.oid for entry in roots for branch in entry.tree if branch.has_rows]
    if not oids:
        return {}
    rows = query(
        connection,
        "SELECT a.attrelid::int8, json_agg(a.attname ORDER BY a.attnum) FROM pg_catalog.pg_attribute a"
        " WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped GROUP BY a.attrelid",
        [oids],
        prepare=True,
    )
    return {oid: tuple(names) for oid, names in rows}


def find_tables(connection: Session, objects: Objects, names: Iterable[TableName]) -> list[QueuedTable]:
    """Read tables that are known by name only."""
    wanted = list(names)
    rows = query(
        connection,
        "SELECT c.oid::int8 FROM pg_catalog.pg_class c"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " JOIN unnest(%s::text[], %s::text[]) w(schema, name) ON w.schema = n.nspname AND w.name = c.relname",
        [[name.schema for name in wanted], [name.name for name in wanted]],
    )
    return read_tables(connection, objects, [oid for (oid,) in rows])


def definition(
    table: QueuedTable,
    partitions: Mapping[int, Partition] | None = None,
    layouts: Layouts | None = None,
) -> TableDef:
    """The look as a `TableDef`, with the given partitions and layouts, if there are any."""
    entry = table.entry
    schema = replace(schema_of(entry), full=True, is_ordered=False)
    return TableDef(entry.name, entry.oid, schema, to_details(table, partitions, layouts))


def to_details(
    table: QueuedTable,
    partitions: Mapping[int, Partition] | None = None,
    known_layouts: Layouts | None = None,
) -> Json:
    """The record of a look."""
    details = to_record(table.entry)
    if table.entry.kind == PARTITIONED:
        details[KEY] = to_records(table.partitions if partitions is None else partitions)
        if table.look_tick is not None:
            details[LOOKED] = table.look_tick
    if known_layouts is not None and known_layouts.matter:
        details[layouts.KEY] = to_record(known_layouts)
    return details


def entry_of(details: Mapping[str, Any]) -> TableEntry:
    """Read a look's entry of the table from its record."""
    ours = (KEY, LOOKED, OWED, layouts.KEY)
    return from_record(TableEntry, {key: value for key, value in details.items() if key not in ours})


_KEYS = """
SELECT i.indrelid::int8, i.indexrelid::int8,
       (SELECT json_agg(a.attname ORDER BY k.place)
          FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
          JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
         WHERE k.place <= i.indnkeyatts),
       (SELECT k.oid::int8 FROM pg_catalog.pg_constraint k
         WHERE k.conrelid = i.indrelid AND k.contype = 'p' AND k.conindid = i.indexrelid)
  FROM pg_catalog.pg_index i
 WHERE i.indrelid = ANY (%s::oid[]) AND i.indisprimary AND i.indisvalid AND i.indimmediate
"""


def _primary_keys(connection: Session, oids: Sequence[int]) -> Mapping[int, ReplicaIdentity]:
    return {
        oid: ReplicaIdentity(_FULL, index, tuple(columns), constraint or 0)
        for oid, index, columns, constraint in query(connection, _KEYS, [list(oids)], prepare=True)
    }


@dataclass(frozen=True, slots=True)
class _Others:
    """The ways in which rows of a table may change without its triggers."""

    what: str  # those of now
    had_children: bool  # it may have had some: true until it is analysed


# Leave partitions out: pg_inherits has them too, but triggers write their rows one by one.
_OTHERS = """
SELECT c.oid::int8,
       concat_ws('; ',
           (SELECT 'inherited' FROM pg_catalog.pg_inherits i
             WHERE (i.inhparent = c.oid OR i.inhrelid = c.oid)
               AND c.relkind <> 'p' AND NOT c.relispartition LIMIT 1),
           (SELECT 'subscribed' FROM pg_catalog.pg_subscription_rel r WHERE r.srrelid = c.oid LIMIT 1)),
       c.relhassubclass AND c.relkind <> 'p'
  FROM pg_catalog.pg_class c WHERE c.oid = ANY (%s::oid[])
"""


def _others(connection: Session, entries: Sequence[TableEntry]) -> Mapping[int, _Others]:
    beneath = {entry.oid: [branch.oid for branch in entry.tree] for entry in entries}
    oids = [*beneath, *(oid for those in beneath.values() for oid in those)]
    found = dict.fromkeys(oids, _Others("", had_children=False))
    for oid, what, had_children in query(connection, _OTHERS, [oids], prepare=True):
        found[oid] = _Others(what, had_children)
    return {
        oid: _Others(
            "; ".join(filter(None, (found[each].what for each in (oid, *those)))), found[oid].had_children
        )
        for oid, those in beneath.items()
    }


def _queued_entry(
    objects: Objects, entry: TableEntry, key: ReplicaIdentity | None, triggers: Triggers, others: _Others
) -> TableEntry:
    member = Membership(
        publication=f"{objects.schema}.{objects.name}",
        has_filter=False,
        columns=None,
        life="; ".join(filter(None, (triggers.life, others.what))),
        by_name=True,
        via_root=True,
        lives=None if others.had_children else "",
        sends_generated=True,
    )
    identity = key or ReplicaIdentity(_FULL, 0, ())
    tree = tuple(replace(branch, identity=_FULL, key=()) for branch in entry.tree)
    return replace(entry, identity=identity, memberships=(member,), tree=tree)


@dataclass(slots=True)
class LookMemory:
    """The tables of the last look over one connection."""

    _entries: EntryMemory = field(default_factory=EntryMemory)
    _tables: Mapping[int, QueuedTable] = field(default_factory=dict)

    def read(self, connection: Session, objects: Objects, oids: Sequence[int]) -> dict[int, QueuedTable]:
        """Look at these tables, by oid; an unchanged one is the same object as last time."""
        found = read_tables(connection, objects, oids, self._entries)
        self._tables = {each.entry.oid: self._same(each) for each in found}
        return dict(self._tables)

    def _same(self, found: QueuedTable) -> QueuedTable:
        known = self._tables.get(found.entry.oid)
        # Comparison leaves some fields of an entry out, so the entry must be the same object.
        is_same = known is not None and known.catalog is found.catalog and known == found
        return known if known is not None and is_same else found

    def others(
        self, records: Mapping[str, TableDef], current: Mapping[int, QueuedTable]
    ) -> dict[str, TableEntry]:
        """The entries of the records that are not known to equal the look's tables."""
        self._entries.forget_records(records)
        return {
            key: entry_of(table.details)
            for key, table in records.items()
            if not self._entries.is_same(key, table.details, _entry(current.get(table.number)))
        }

    def denials(
        self, connection: Session, roots: Mapping[str, tuple[TableName, Sequence[Branch]]]
    ) -> dict[str, TableDenied]:
        """The error of each root that has a partition which we may not read."""
        return self._entries.partitions.denials(connection, roots)

    def note_same(self, key: str, table: TableDef, current: QueuedTable) -> None:
        """Note that a record and a look's table do not differ, and that nothing is news."""
        self._entries.note_same(key, table.details, current.entry)


def _entry(found: QueuedTable | None) -> TableEntry | None:
    return None if found is None else found.entry
