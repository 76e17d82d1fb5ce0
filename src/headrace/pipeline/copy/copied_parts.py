"""The finished parts of copies, gathered and made into one epoch.

Whole tables are committed at once. Portions of a table are gathered for a moment, so that not each of them
makes an epoch; portions that are lost with the process are copied again.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from headrace.core.chunks import AnyHandoff, ByChunk, TableHandoff
from headrace.core.failpoint import failpoint
from headrace.core.names import TableName
from headrace.pipeline.copy.context import ChunkCopied, CopiedTable, Portion, RewriteDone
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import TableRecord, is_file_needed, told_from
from headrace.pipeline.state.table_state import TableEvent
from headrace.pipeline.tasks.table_task import Outcome, Outcomes

GATHER_SECONDS = 2.0


@dataclass(slots=True)
class CopiedParts:
    """Finished parts of a copy that are in no epoch yet."""

    tables: list[CopiedTable] = field(default_factory=list)
    chunks: dict[TableName, list[ChunkCopied]] = field(default_factory=dict)
    rewritten: dict[TableName, list[RewriteDone]] = field(default_factory=dict)
    since: float = 0.0

    def add(self, part: CopiedTable | Portion) -> None:
        if not self:
            self.since = time.monotonic()
        if isinstance(part, CopiedTable):
            self.tables.append(part)
        elif isinstance(part, RewriteDone):
            self.rewritten.setdefault(part.name, []).append(part)
        else:
            self.chunks.setdefault(part.name, []).append(part)

    def __bool__(self) -> bool:
        return bool(self.tables or self.chunks or self.rewritten)

    @property
    def names(self) -> frozenset[TableName]:
        """Return the tables with parts that wait."""
        return frozenset({*self.chunks, *self.rewritten, *(each.name for each in self.tables)})

    def forget(self, names: Collection[TableName]) -> None:
        """Drop the parts of these tables: they left."""
        self.tables = [each for each in self.tables if each.name not in names]
        self.chunks = {name: parts for name, parts in self.chunks.items() if name not in names}
        self.rewritten = {name: parts for name, parts in self.rewritten.items() if name not in names}

    def ripe(self, *, over: bool) -> bool:
        """Tell whether an epoch is due: a table is whole, no more parts will come, or one has waited."""
        return bool(self) and (over or bool(self.tables) or time.monotonic() - self.since >= GATHER_SECONDS)

    def epoch(self, ledger: Ledger) -> Epoch | None:
        """Make one epoch of all parts; None if their tables have been stopped meanwhile.

        A stopped table may be copied anew by now, into another folder: parts of the old copy do not count.
        """
        awaited, folders = ledger.awaited_tables, awaited_folders(ledger)
        tables = [each for each in self.tables if folders.get(each.name) == each.folder]
        chunks = {n: [p for p in parts if folders.get(n) == p.folder] for n, parts in self.chunks.items()}
        written = {n: [p for p in parts if folders.get(n) == p.folder] for n, parts in self.rewritten.items()}
        self.tables, self.chunks, self.rewritten = [], {}, {}
        portions = [_portion(awaited[name], parts) for name, parts in written.items() if parts]
        awaited |= {record.name: record for record, _ in portions}
        copied = [_with_copy(ledger, awaited[each.name], each) for each in tables]
        whole = {record.name for record in copied}
        records = [*copied, *(record for record, _ in portions if record.name not in whole)]
        outcomes = Outcomes()
        for each in tables:
            outcomes.take(Outcome(each.name, add=each.files, rows=each.rows, errors=each.errors))
        for _, outcome in portions:
            outcomes.take(outcome)
        for name in (name for name, parts in chunks.items() if parts):
            records.append(_with_chunks(ledger, awaited[name], chunks[name]))
            outcomes.take(_outcome(chunks[name]))
        if not records:
            return None
        return Epoch(
            kind="copy",
            frontier=ledger.frontier,
            records=tuple(records),
            outcomes=tuple(o for o in outcomes.tables.values() if awaited[o.table].copy_id is None),
            staged_outcomes=tuple(
                o for o in outcomes.tables.values() if awaited[o.table].copy_id is not None
            ),
            new_tables=tuple(r.name for r in records if r.state.has_rows and _absent(ledger, r)),
        )


def awaited_folders(ledger: Ledger) -> dict[TableName, str]:
    """Return the folders of the copies that tables wait for: drop a part in any other folder."""
    return {name: ledger.outline(record).folder for name, record in ledger.awaited_tables.items()}


def _with_copy(ledger: Ledger, record: TableRecord, copied: CopiedTable) -> TableRecord:
    if record.old_rows is not None:
        failpoint("evolve.join.before", str(record.name))
    assert isinstance(copied.handoff, TableHandoff)
    whole = replace(record, handoff=copied.handoff, raw_columns=copied.raw_columns, old_rows=None)
    return _complete(ledger, whole)


def _complete(ledger: Ledger, record: TableRecord) -> TableRecord:
    """Return the record of a copied table. It joins at once if the stream is there and has nothing for it."""
    assert record.handoff is not None
    copied = record.on(TableEvent.COPIED, since=_since(record, record.handoff))
    stands = record.frontier or ledger.position
    is_behind = any(is_file_needed(file, {record.name: stands}) for file in ledger.kept.values())
    # Earlier changes that the stream has yet to bring may have other columns.
    is_ahead = stands > ledger.position
    return copied if is_behind or is_ahead else copied.on(TableEvent.CAUGHT_UP, frontier=None)


def _since(record: TableRecord, handoff: AnyHandoff) -> int | None:
    """Return from when the stream has all changes of a late table; for others that is its start."""
    return record.since or told_from(handoff).time if record.late and record.schema.full else record.since


def _with_chunks(ledger: Ledger, record: TableRecord, parts: list[ChunkCopied]) -> TableRecord:
    known = record.handoff if isinstance(record.handoff, ByChunk) else ByChunk()
    handoff = known.plus(chunk for part in parts for chunk in part.chunks)
    raw_columns = tuple(
        sorted({*record.raw_columns, *(column for part in parts for column in part.range_done.unfit_columns)})
    )
    after = replace(record, handoff=handoff, raw_columns=raw_columns)
    return _complete(ledger, after) if handoff.complete else after


def _portion(record: TableRecord, parts: list[RewriteDone]) -> tuple[TableRecord, Outcome]:
    """The table with more of its rows written again."""
    assert record.old_rows is not None
    files = tuple(file for part in parts for file in part.files)
    outcome = Outcome(record.name, add=files, rows=sum(part.rows for part in parts))
    return replace(record, old_rows=replace(record.old_rows, last_file=parts[-1].last_file)), outcome


def _outcome(parts: list[ChunkCopied]) -> Outcome:
    outcomes = Outcomes()
    for part in parts:
        done = part.range_done
        outcomes.take(Outcome(part.name, add=done.files, rows=done.rows, errors=done.errors))
    return outcomes.tables[parts[0].name]


def _absent(ledger: Ledger, record: TableRecord) -> bool:
    """Tell whether the table has no folder in the lake yet: an empty one has no file that would make it."""
    return ledger.live.table(ledger.outline(record).folder).version < 0
