"""Entry memory: the last looks are remembered, so that the next one reads only what came in other words.

    the text of a table, the types with it   ──►  its entry          `definitions.read_entries`
    the rows of the types                    ──►  the types          likewise
    a record of the lake, an entry           ──►  they do not differ `ddl.schema_check`

The server is asked for all of it each time: nothing here is believed of it. What stands on the right is a
function of what stands on the left and of nothing else, and is taken only where that is the same, text by
text, or is the very same object. One per connection; never shared by threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.sources.contract.values import Json
from headrace.sources.postgres.catalog.rights import ReadablePartitions
from headrace.sources.postgres.catalog.table_def import TableEntry
from headrace.sources.postgres.types.columns import TypeEntry

Types = Mapping[int, TypeEntry]
_SPARE = 100  # tables that are remembered although the last look was not at them, beside as many as it was at


@dataclass(slots=True)
class TableRow:
    """A table as the server's text says it, and what that text was read as."""

    text: str
    types: frozenset[int]  # of its columns, of which more has to be asked
    _with: Types | None = None
    _entry: TableEntry | None = None

    def entry(self, types: Types, read: Callable[[str, Types], TableEntry]) -> TableEntry:
        """The entry, which is read anew where a type that it may reach is another one."""
        if self._entry is None or (self.types and self._with is not types):
            self._with, self._entry = types, read(self.text, types)
        return self._entry


@dataclass(slots=True)
class EntryMemory:
    """The tables and types that the last looks over one connection brought."""

    _rows: dict[int, TableRow] = field(default_factory=dict)
    _types: tuple[Sequence[tuple[Any, ...]], Types] = ((), {})
    _same: dict[str, tuple[Json, TableEntry]] = field(default_factory=dict)
    partitions: ReadablePartitions = field(default_factory=ReadablePartitions)

    def row(self, oid: int, text: str, unread: Callable[[str], TableRow]) -> TableRow:
        """The table's row, as it is remembered if the server says the same."""
        row = self._rows.get(oid)
        if row is None or row.text != text:
            row = self._rows[oid] = unread(text)
        return row

    def types(self, rows: Sequence[tuple[Any, ...]], read: Callable[[Sequence[Any]], TypeEntry]) -> Types:
        """The types by oid: the very same mapping as before if the server says the same."""
        known, types = self._types
        if list(known) != list(rows):
            types = {entry.oid: entry for entry in map(read, rows)}
            self._types = (rows, types)
        return types

    def forget(self, asked_oids: Collection[int], found_oids: Collection[int]) -> None:
        """Forget the tables that are gone, and others that nobody has asked about for long."""
        if len(self._rows) > 2 * len(asked_oids) + _SPARE:
            self._rows = {oid: self._rows[oid] for oid in found_oids}

    def note_same(self, key: str, details: Json, entry: TableEntry) -> None:
        """Note that nothing differs between a record and an entry, and nothing is news."""
        self._same[key] = (details, entry)

    def is_same(self, key: str, details: Json, entry: TableEntry | None) -> bool:
        """Tell whether that was noted of these very two."""
        known = self._same.get(key)
        return known is not None and known[0] is details and known[1] is entry

    def forget_records(self, keys: Iterable[str]) -> None:
        """Forget all records but these, where there are many others."""
        wanted = set(keys)
        if len(self._same) > 2 * len(wanted) + _SPARE:
            self._same = {key: known for key, known in self._same.items() if key in wanted}
