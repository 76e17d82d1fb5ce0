"""Definitions of tables, as PostgreSQL's catalog has it, and whether all of their changes are captured.

The look is that of `postgres.catalog`, which knows of a table what a publication sends. Here a table is a
member of its queue while our triggers stand: one membership that sends all columns that are stored. Its
`life` are the lives of triggers and function: what was disabled for a moment is another one.

    key        the primary key's columns, whatever the replica identity is: rows come whole, old and new
    columns    all that are stored; of virtual ones a row that triggers see has no value
    beneath    of a partitioned table all that is beneath it (`partitions`); a partition's own identity is of
               no interest either
    relatives  that a table came to inherit, or to be inherited from, is told as of a publication's members:
               statements on the one change rows of the other since. To inherit writes the catalog's row of
               each column (`via_root`), to be inherited from leaves a note at the table (`lives`)

Reads columns of the catalog alone, so that within one transaction all of it is of one moment.

Look memory: what the last looks at the tables brought, so that what came in other words alone is compared.

    the catalog's texts     ──►  the entries of tables        `postgres.catalog.definitions`
    entry, triggers, parts  ──►  the very same table as before, where nothing of it is another
    a record, that table    ──►  they do not differ, and nothing is news

The server is asked for all of it each time. Whether a record is what a look found is a function of the two
alone: where both are the very objects of which it was noted, it holds. One per connection; never shared by
threads.
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

_FULL = "f"  # as pg_class.relreplident has it: rows are known by all of their columns


@dataclass(frozen=True, slots=True)
class QueuedTable:
    """A table, our triggers on it, and what is beneath it."""

    entry: TableEntry
    triggers: Triggers
    partitions: Mapping[int, Partition] = field(default_factory=dict)
    catalog: TableEntry | None = field(default=None, compare=False)  # the entry as any look brings it
    look_tick: int | None = field(default=None, compare=False)  # a tick no newer than the look

    @property
    def name(self) -> TableName:
        return self.entry.name


def read_tables(
    connection: Session, objects: Objects, oids: Sequence[int], memory: EntryMemory | None = None
) -> list[QueuedTable]:
    """Look at these tables; one that no longer exists is absent."""
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
    """The look as those above record it; with what was known of partitions and layouts before, if given."""
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
    """The table that a look showed, out of its record."""
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
    """The ways past its triggers by which rows of a table are changed."""

    what: str  # as it is now
    had_children: bool  # it may have had some; for ever true until it is analysed


# Partitions are beneath their root in the same catalog, and their rows are written one by one.
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
    """The tables that the last look over one connection brought."""

    _entries: EntryMemory = field(default_factory=EntryMemory)
    _tables: Mapping[int, QueuedTable] = field(default_factory=dict)

    def read(self, connection: Session, objects: Objects, oids: Sequence[int]) -> dict[int, QueuedTable]:
        """Look at these tables, by oid; one of which nothing is another is the very same as the last time."""
        found = read_tables(connection, objects, oids, self._entries)
        self._tables = {each.entry.oid: self._same(each) for each in found}
        return dict(self._tables)

    def _same(self, found: QueuedTable) -> QueuedTable:
        known = self._tables.get(found.entry.oid)
        # Not all of an entry is compared, but the very same one is the same in all of it.
        is_same = known is not None and known.catalog is found.catalog and known == found
        return known if known is not None and is_same else found

    def others(
        self, records: Mapping[str, TableDef], current: Mapping[int, QueuedTable]
    ) -> dict[str, TableEntry]:
        """The records, as entries, of which it is not known that they are what a look found."""
        self._entries.forget_records(records)
        return {
            key: entry_of(table.details)
            for key, table in records.items()
            if not self._entries.is_same(key, table.details, _entry(current.get(table.number)))
        }

    def denials(
        self, connection: Session, roots: Mapping[str, tuple[TableName, Sequence[Branch]]]
    ) -> dict[str, TableDenied]:
        """The error of each root of which a partition may not be read."""
        return self._entries.partitions.denials(connection, roots)

    def note_same(self, key: str, table: TableDef, current: QueuedTable) -> None:
        """Note that nothing differs between a record and what a look found, and nothing is news."""
        self._entries.note_same(key, table.details, current.entry)


def _entry(found: QueuedTable | None) -> TableEntry | None:
    return None if found is None else found.entry
