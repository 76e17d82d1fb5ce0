"""The records of the lake's catalog: of a source, its tables, and the files that keep the stream for them.

The catalog (`headrace.lake.log.catalog`) stores opaque JSON records under keys; here they become values. They
change only inside a plan, so the records and the contents of the tables always belong to the same epoch.

    source               SourceRecord
    table/<schema.name>  TableRecord
    staged/<schema.name> TableRecord of its new copy, while there is one (`resync.replacement`)
    late/<name>          LateFile: a file for tables that are still being copied (`stream.late_stream` writes
                         and reads them): the tables, how far it reaches, how large it is

A table's record holds the last change of its shape that was followed (`Alteration`). The epoch of that change
writes it, so a reader finds it in the catalog of that mark and of later ones, until the next change replaces
it.

A late file is deleted with the epoch after which no table needs it. A table that waits for a day beside small
epochs would leave 86,000 of them. So an epoch's file takes in those right before it, sixteen of a level at a
time, as digits carry:

    level   2 1 1 0 0 0 + 0      fifteen of level 0 are there, and one comes: one of level 1
            2 1 1 1              and so on, up to `MOST_LATE_BYTES`: a larger file is never written again

Each byte is written once a level, an epoch writes at most `MOST_LATE_BYTES` of others, and n epochs leave
some fifteen files a level, or one in fifteen for each `MOST_LATE_BYTES`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from headrace.core.chunks import AnyHandoff, ByChunk, TableHandoff, exact_from
from headrace.core.conversion import Conversion
from headrace.core.errors import HeadraceError, LayoutUnknown, ShapeChanged
from headrace.core.handoff import ByPosition
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import from_record, on_disk, to_record
from headrace.core.schema import TableSchema
from headrace.lake.format import layout
from headrace.lake.store.contract import Store
from headrace.pipeline.state.table_state import State, TableEvent, after
from headrace.sources import registry
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.contract.values import Json, TableDef, UpstreamFacts

SOURCE_KEY = "source"
TABLE_PREFIX = "table/"
STAGED_PREFIX = "staged/"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The record of a source: its server, our objects there, and the start of the stream.

    `address` is the connection string without its secrets: with the password it is enough to go on.
    `identity` and `upstream` belong to the source (`sources.contract`): the lasting identity of the server,
    and the objects there through which the stream is read. `recovering` is the position of the new copies
    during a recovery of a lost position (`recovery`): until it ends, the marks stay at the last frontier.
    `incarnation` counts such breaks.
    """

    kind: str
    address: str
    identity: Json
    upstream: Json
    start: Position
    patterns: tuple[str, ...]
    recovering: Position | None = field(default=None, metadata=on_disk(optional=True))
    incarnation: int = 1

    def at(self, time: int, near: Position) -> Position:
        """Return the position at a time; `near` is the newest known one, with no commit between the two."""
        return self.exactly_at(time) or Position(time, near.text)

    def exactly_at(self, time: int) -> Position | None:
        """Return the position at a time; None if only the stream knows it."""
        at = registry.stream_source(self.kind).at
        return None if at is None else at(self.upstream, time)

    @property
    def facts(self) -> UpstreamFacts:
        """Return the facts of its objects upstream, without a connection."""
        return registry.by_kind(self.kind).describe(self.upstream)

    @property
    def column_rules(self) -> ColumnRules:
        """Return the rules of columns that the lake keeps."""
        return ColumnRules.of_record(self.upstream)

    def with_columns(self, rules: ColumnRules) -> SourceRecord:
        """Return the record with these rules of columns."""
        return replace(self, upstream=rules.into(self.upstream))

    def with_columns_of(self, tables: Iterable[TableDef]) -> SourceRecord:
        """Return the record with the columns of these tables written into their rules."""
        rules = self.column_rules
        known = rules.fix_columns({table.name: table.schema.names for table in tables})
        return self if known == rules else self.with_columns(known)


@dataclass(frozen=True, slots=True)
class OldRows:
    """The rows of a table under its old columns: the contents of a version of its folder.

    `last_file` is the path of the last file, in the order of names, whose rows were rewritten and committed.
    """

    version: int
    schema: TableSchema
    conversion: Conversion  # to the columns that it has now
    last_file: str = field(default="", metadata=on_disk("done", optional=True))


@dataclass(frozen=True, slots=True)
class TableRecord:
    """The record of a table: its definition, the way it was joined to the stream, and its place in it.

    * `number` is its number in the stream; `details` are the source's own, for comparison with its catalog.
    * `raw_columns` are the columns that ever got a value without a lake form (`pipeline.tasks.raw_values`).
    * `frontier` is where the part of the kept stream begins that the table has not applied yet
      (`stream.late_stream`); None: the table stands where the source stands.
    * `since` is the time from which its history is exact. A table that came `late`, when the stream had begun
      already, has no history from before its copy (`told_from`).
    * `stopped_at` is the frontier of the mark before it stopped with `error`.
    * `copy_id` names the folder of a new copy, which is to replace the table and is in no mark.
    * `old_rows` are the rows in the lake that a table which waits for its rows is rewritten from; None: it is
      copied from its source.
    * `alteration` is the last change of its shape that was followed.
    """

    name: TableName
    state: State
    number: int
    schema: TableSchema
    details: Json
    frontier: Position | None = field(metadata=on_disk("applied"))
    handoff: TableHandoff | None = None
    since: int | None = None
    held_transactions: int = field(default=0, metadata=on_disk("held"))
    raw_columns: tuple[int, ...] = ()
    error: HeadraceError | None = None
    stopped_at: Position | None = None
    stopped_since: datetime | None = field(default=None, metadata=on_disk(sparse=True))  # by our clock
    late: bool = field(default=False, metadata=on_disk("added_live"))
    copy_id: str | None = None
    old_rows: OldRows | None = field(default=None, metadata=on_disk(optional=True))
    alteration: Alteration | None = field(default=None, metadata=on_disk(optional=True))

    @property
    def key(self) -> str:
        return (TABLE_PREFIX if self.copy_id is None else STAGED_PREFIX) + str(self.name)

    @property
    def definition(self) -> TableDef:
        """Return the table as its source defined it."""
        return TableDef(self.name, self.number, self.schema, self.details)

    @property
    def join(self) -> str:
        """Return the way in which the copy joins the stream: rewind if there are full before-images."""
        return "rewind" if self.schema.full else "skip"

    @property
    def complete_from(self) -> int:
        """Return the time before which its copy holds everything and history has nothing; else 0."""
        told = not self.late and self.copy_id is None
        return 0 if told or not isinstance(self.handoff, ByPosition) else self.handoff.frontier.time

    def with_definition(self, table: TableDef) -> TableRecord:
        """Return the record with the table's present definition."""
        schema = table.schema if table.schema.field_ids else table.schema.numbered_after(self.schema)
        return replace(self, number=table.number, schema=schema, details=table.details)

    def on(self, event: TableEvent, **changes: Any) -> TableRecord:
        """Return the record after an event of `table_state`."""
        return replace(self, state=after(self.state, event), **changes)

    def with_error(self, error: HeadraceError | None, at: Position) -> TableRecord:
        """Return the record of a table that stops here; a stopped table keeps the place where it stopped."""
        if self.state is State.STOPPED:
            return self.on(TableEvent.FAILED, error=error or self.error)
        return self.on(TableEvent.FAILED, error=error, stopped_at=at, stopped_since=datetime.now(UTC))

    @property
    def stop(self) -> HeadraceError | None:
        """Tell a person why it stopped, and where."""
        if self.error is None or self.stopped_at is None:
            return self.error
        return self.error.adding(f'{self.name} was followed up to "{self.stopped_at}"')


def tables_of(catalog: Mapping[str, Any], prefix: str = TABLE_PREFIX) -> dict[TableName, TableRecord]:
    """Return all table records of a source's catalog, or those of new copies, by name."""
    records = (from_record(TableRecord, r) for k, r in catalog.items() if k.startswith(prefix))
    return {record.name: record for record in records}


def source_of(catalog: Mapping[str, Any]) -> SourceRecord | None:
    """Return the source's own record, or None before its first epoch."""
    record = catalog.get(SOURCE_KEY)
    return None if record is None else from_record(SourceRecord, record)


def told_from(handoff: AnyHandoff) -> Position:
    """Return the frontier from which the stream has all changes of a table that came late.

    Its first snapshot is accepted only once all transactions have ended that were open when it was published.
    """
    first = handoff.chunks if isinstance(handoff, ByChunk) else ()
    return min((exact_from(chunk.handoff) for chunk in first), default=exact_from(handoff))


# --- changes of a table's shape -----------------------------------------------------------------


MOST_COPIES = 2  # of a table for the same reason: after that, another copy would not help


class Way(StrEnum):
    """The way in which the rows of a table follow its new shape."""

    ADDED = "added"  # they stay: columns were added that are NULL in them
    REWRITTEN = "rewritten"  # they are written again in the lake
    COPIED = "copied"  # they are read at the source anew


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change of shape that was followed from a position on; `epoch` is the first with this entry."""

    epoch: int
    at: Position
    way: Way
    what: str
    # The number of copies in a row for this reason.
    times: int = field(default=1, metadata=on_disk(sparse=True))


def entry_of_copy(
    epoch: int, at: Position, error: HeadraceError | None, last: Alteration | None
) -> Alteration | None:
    """Make the entry of a table that is copied anew after this error; the last entry if it is no DDL."""
    if not isinstance(error, ShapeChanged):
        return last
    again = last is not None and (last.way, last.what) == (Way.COPIED, error.primary)
    return Alteration(epoch, at, Way.COPIED, error.primary, last.times + 1 if last and again else 1)


def copied_in_vain(error: HeadraceError | None, last: Alteration | None) -> bool:
    """Tell whether a table has stopped again for a reason for which it was copied `MOST_COPIES` times."""
    known = isinstance(error, LayoutUnknown) and last is not None and last.way is Way.COPIED
    return bool(known and last and error and last.what == error.primary and last.times >= MOST_COPIES)


# --- the files that keep the stream ---------------------------------------------------------------


LATE_PREFIX = "late/"  # how the keys of these records begin in the catalog


FOOTER_BYTES = 8  # at the end of a file: the checksum and the length of the JSON about its pieces
LATE_FILES_TOGETHER = 16  # files of a level make one of the next
MOST_LATE_BYTES = 32 << 20  # of the files that go into one


@dataclass(frozen=True, slots=True)
class LateFile:
    """A file with the changes of one epoch, or of several in a row, for some tables."""

    name: str = field(metadata=on_disk(outside=True))
    # The frontier of its last epoch: all that it holds lies before.
    frontier: Position = field(metadata=on_disk("reached"))
    tables: frozenset[TableName]
    size: int  # of its pieces
    changes: int
    truncates: bool
    length: int  # of the whole file
    level: int
    # The files that it took in; only its own epoch knows them.
    replaces: frozenset[str] = field(default=frozenset(), metadata=on_disk(outside=True))

    @property
    def record_key(self) -> str:
        return LATE_PREFIX + self.name


def late_files_of(catalog: Mapping[str, Any]) -> dict[str, LateFile]:
    """The files that the catalog names, in the order of their epochs."""
    names = sorted(key[len(LATE_PREFIX) :] for key in catalog if key.startswith(LATE_PREFIX))
    return {name: from_record(LateFile, catalog[LATE_PREFIX + name], name=name) for name in names}


def late_file_changes(before: Mapping[str, LateFile], after: Mapping[str, LateFile]) -> dict[str, Any]:
    """Make the catalog's records of files that come and go."""
    gone: dict[str, Any] = {before[name].record_key: None for name in before.keys() - after.keys()}
    return gone | {file.record_key: to_record(file) for name, file in after.items() if name not in before}


def late_files_are_whole(store: Store, source: str, state: Mapping[str, Any]) -> bool:
    """Tell whether the files that an epoch's plan names are there, from their beginning to their end."""
    named = {key[len(LATE_PREFIX) :]: record for key, record in state.items() if key.startswith(LATE_PREFIX)}
    return all(
        _is_file_whole(store, layout.late_key(source, name), record["size"])
        for name, record in named.items()
        if record is not None
    )


def _is_file_whole(store: Store, key: str, size: int) -> bool:
    if not store.exists(key):
        return False
    with store.open_input(key) as file:
        length: int = file.size()
        if length < size + FOOTER_BYTES:
            return False
        file.seek(length - FOOTER_BYTES)
        return length == size + footer_length(file.read(FOOTER_BYTES)) + FOOTER_BYTES


def footer_ending(footer: bytes) -> bytes:
    """Return the last bytes of a file with this footer: its checksum and its length."""
    return zlib.crc32(footer).to_bytes(4, "big") + len(footer).to_bytes(4, "big")


def footer_length(ending: bytes) -> int:
    return int.from_bytes(ending[-4:], "big")


def is_footer(footer: bytes, ending: bytes) -> bool:
    """Tell whether the footer is as it was written."""
    return ending == footer_ending(footer)


def frontiers_behind(records: Iterable[TableRecord]) -> dict[TableName, Position]:
    """Find the position of each table for which the stream is kept."""
    return {r.name: r.frontier for r in records if r.state.keeps_stream and r.frontier is not None}


def is_file_needed(file: LateFile, behind: Mapping[TableName, Position]) -> bool:
    """Tell whether any of the tables has yet to apply the file."""
    return any(name in file.tables and applied < file.frontier for name, applied in behind.items())


def files_to_replace(files: Sequence[LateFile]) -> tuple[LateFile, ...]:
    """Choose which of the files, in the order of their epochs, the next one takes in: the last ones."""
    start, level, length = len(files), 0, 0
    while start >= LATE_FILES_TOGETHER - 1:
        run = files[start - LATE_FILES_TOGETHER + 1 : start]
        length += sum(file.length for file in run)
        if length > MOST_LATE_BYTES or any(file.level != level for file in run):
            break
        start, level = start - len(run), level + 1
    return tuple(files[start:])
