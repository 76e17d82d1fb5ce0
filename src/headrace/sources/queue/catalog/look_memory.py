"""Look memory: what the last looks at the tables brought, so that what came in other words alone is compared.

    the catalog's texts     ──►  the entries of tables        `postgres.catalog.entry_memory`
    entry, triggers, parts  ──►  the very same table as before, where nothing of it is another
    a record, that table    ──►  they do not differ, and nothing is news

The server is asked for all of it each time. Whether a record is what a look found is a function of the two
alone: where both are the very objects of which it was noted, it holds. One per connection; never shared by
threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.core.names import TableName
from headrace.sources.contract.errors import TableDenied
from headrace.sources.contract.values import TableDef
from headrace.sources.postgres.catalog.entry_memory import EntryMemory
from headrace.sources.postgres.catalog.partition_tree import Branch
from headrace.sources.postgres.catalog.table_def import TableEntry
from headrace.sources.postgres.session.statements import Session
from headrace.sources.queue.catalog.definitions import QueuedTable, entry_of, read_tables
from headrace.sources.queue.objects import Objects


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
