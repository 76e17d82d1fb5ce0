"""The records of the lake's catalog: one of a source, one of each of its tables.

The catalog (`headrace.lake.log.catalog`) stores opaque JSON records under keys and knows nothing of
them; here they become values. They change only inside a plan, so that what is remembered and what
the tables hold are always of the same epoch.

    source               SourceRecord
    table/<schema.name>  TableRecord
    staged/<schema.name> TableRecord of its new copy, while there is one (`resync.replacement`)

A change of a table's shape that was followed is an entry of its record (`Alteration`). The plan of its own
epoch brings the entry, so whoever reads the lake finds it in the catalog of that mark and of those after it,
until another takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from headrace.core.chunks import AnyHandoff, ByChunk, TableHandoff, exact_from
from headrace.core.conversion import Conversion
from headrace.core.errors import HeadraceError, LayoutUnknown, ShapeChanged
from headrace.core.handoff import ByPosition
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import from_record, on_disk
from headrace.core.schema import TableSchema
from headrace.pipeline.state.table_state import State, TableEvent, after
from headrace.sources import registry
from headrace.sources.contract.values import Json, TableDef, UpstreamFacts

SOURCE_KEY = "source"
TABLE_PREFIX = "table/"
STAGED_PREFIX = "staged/"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The record of a source: which server, which objects of ours there, and where the stream began.

    `address` is the connection string without its secrets: with the password it is enough to go on.
    `identity` and `upstream` are the source's own (`sources.contract`): what of the server lasts, and the
    objects there that the stream is read through. `recovering` is where the new copies of its tables stand
    while they are made for a position that was lost (`recovery`): the marks stay at the last frontier until
    then. `incarnation` counts such breaks.
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
        """The position at a time; `near` is the newest one that is known, no commit lies between the two."""
        return self.exactly_at(time) or Position(time, near.text)

    def exactly_at(self, time: int) -> Position | None:
        """The position at a time; None where only the stream knows that."""
        at = registry.stream_source(self.kind).at
        return None if at is None else at(self.upstream, time)

    @property
    def facts(self) -> UpstreamFacts:
        """The facts of its objects upstream, without a connection."""
        return registry.by_kind(self.kind).describe(self.upstream)


@dataclass(frozen=True, slots=True)
class OldRows:
    """The rows of a table under the columns that it had: what a version of its folder holds.

    `last_file` is the path of the last of its files, by name, whose rows are written again and committed.
    """

    version: int
    schema: TableSchema
    conversion: Conversion  # to the columns that it has now
    last_file: str = field(default="", metadata=on_disk("done", optional=True))


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One table: how it is defined, how it was joined to the stream, where it stands.

    `number` is how the stream numbers it, and `details` are the source's own, which it is compared with.
    `raw_columns` are the columns that ever met a value without a lake form (`pipeline.tasks.raw_values`).
    `frontier` is the table's own while its part of the stream is kept for it (`stream.late_stream`):
    what it has not taken yet begins there; None means that it stands where the source stands. `since` is the
    time from which its history is exact. A table that came `late`, while the stream was there already, has
    none from before its copy (`told_from`). `stopped_at` is how far the stream had been followed when it
    stopped with `error`: the frontier of the mark before. `copy_id` names the folder of a new copy, which is
    to replace the table and is in no mark. Of a table that waits for its rows `old_rows` are those of the
    lake that it is made of again; None: it is copied from its source. `alteration` is the last change of its
    shape that was followed.
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
    late: bool = field(default=False, metadata=on_disk("added_live"))
    copy_id: str | None = None
    old_rows: OldRows | None = field(default=None, metadata=on_disk(optional=True))
    alteration: Alteration | None = field(default=None, metadata=on_disk(optional=True))

    @property
    def key(self) -> str:
        return (TABLE_PREFIX if self.copy_id is None else STAGED_PREFIX) + str(self.name)

    @property
    def definition(self) -> TableDef:
        """The table as its source defined it."""
        return TableDef(self.name, self.number, self.schema, self.details)

    @property
    def join(self) -> str:
        """The way in which the copy is joined to the stream: full before-images allow the exact rewind."""
        return "rewind" if self.schema.full else "skip"

    @property
    def complete_from(self) -> int:
        """A time below which its copy holds all that happened, and history tells nothing of it; else 0."""
        told = not self.late and self.copy_id is None
        return 0 if told or not isinstance(self.handoff, ByPosition) else self.handoff.frontier.time

    def with_definition(self, table: TableDef) -> TableRecord:
        """The record of the same table as it is defined by now."""
        return replace(self, number=table.number, schema=table.schema, details=table.details)

    def on(self, event: TableEvent, **changes: Any) -> TableRecord:
        """The record after an event of `table_state`."""
        return replace(self, state=after(self.state, event), **changes)

    def with_error(self, error: HeadraceError | None, at: Position) -> TableRecord:
        """The record of a table that stops here; one that is stopped already stays where it is."""
        if self.state is State.STOPPED:
            return self.on(TableEvent.FAILED, error=error or self.error)
        return self.on(TableEvent.FAILED, error=error, stopped_at=at)

    @property
    def stop(self) -> HeadraceError | None:
        """Say for a person why it stopped, and where."""
        if self.error is None or self.stopped_at is None:
            return self.error
        return self.error.adding(f'{self.name} was followed up to "{self.stopped_at}"')


def tables_of(catalog: Mapping[str, Any], prefix: str = TABLE_PREFIX) -> dict[TableName, TableRecord]:
    """All table records of a source's catalog, or those of new copies, by name."""
    records = (from_record(TableRecord, r) for k, r in catalog.items() if k.startswith(prefix))
    return {record.name: record for record in records}


def source_of(catalog: Mapping[str, Any]) -> SourceRecord | None:
    """The source's own record, or None before its first epoch."""
    record = catalog.get(SOURCE_KEY)
    return None if record is None else from_record(SourceRecord, record)


def told_from(handoff: AnyHandoff) -> Position:
    """The frontier from which on all changes of a table that came late are in the stream, whole.

    Its first snapshot was accepted only when all had ended that were open while it was published.
    """
    first = handoff.chunks if isinstance(handoff, ByChunk) else ()
    return min((exact_from(chunk.handoff) for chunk in first), default=exact_from(handoff))


# --- changes of a table's shape -----------------------------------------------------------------


MOST_COPIES = 2  # of a table whose stream is read otherwise than its catalog


class Way(StrEnum):
    """The way in which the table's rows follow."""

    ADDED = "added"  # nothing: columns came that are NULL in them
    REWRITTEN = "rewritten"  # they are written again in the lake
    COPIED = "copied"  # they are read at the source anew


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change that was followed from a position on; `epoch` is the one that tells of it first."""

    epoch: int
    at: Position
    way: Way
    what: str
    # How often in a row it was copied for this reason.
    times: int = field(default=1, metadata=on_disk(sparse=True))


def entry_of_copy(
    epoch: int, at: Position, error: HeadraceError | None, last: Alteration | None
) -> Alteration | None:
    """The entry of a table that is copied anew after this error; the last one if that is no DDL."""
    if not isinstance(error, ShapeChanged):
        return last
    again = last is not None and (last.way, last.what) == (Way.COPIED, error.primary)
    return Alteration(epoch, at, Way.COPIED, error.primary, last.times + 1 if last and again else 1)


def copied_in_vain(error: HeadraceError | None, last: Alteration | None) -> bool:
    """Tell whether a table was copied as often as may help for the reason for which it stopped again."""
    known = isinstance(error, LayoutUnknown) and last is not None and last.way is Way.COPIED
    return bool(known and last and error and last.what == error.primary and last.times >= MOST_COPIES)
