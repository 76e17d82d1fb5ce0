"""DDL in the stream: the statements that altered tables, and the epochs by which tables follow them.

    look ─┬─► `RecordsCheck.wider_tables` ─► epoch "widen":   the folder's newest version has the columns
          └─► `RecordsCheck.rewritten`    ─► epoch "rewrite": the table leaves the marks, its rows from before
                                                              are the old version of its folder
                `copy.from_lake`: files ─► converted ─► files ─► CATCHING UP ─► LIVE, as after a copy

Both epochs stand where the last mark stood. The stream brings changes under the old columns until it comes to
the DDL (`TableSchema.earlier`).

widen     Readers see the same rows, with NULL in the new columns; no file is written. A new interval of the
          table begins there, with its history in the folder of the next number: earlier marks and times keep
          their columns.
rewrite   The lake keeps the stream for the table from there on, as for any table that is being copied, and
          the new interval begins there: nothing is missing in between. The source is not read. If another
          DDL comes meanwhile, the look finds it before the table returns, and the table is copied from the
          source.

A crash after either costs nothing: the record has the columns, and the stream goes on.

Some streams have the DDL statements at their own places (`Decoder.statements`). There the statements and the
look together prove what DDL did to the rows. The look is later than the batch, so it may show statements that
the stream has yet to bring:

    the batch has none of them       the mark omits the table (`state.schema_check.AwaitedTables`)
    the batch has some of them       the mark waits for a moment, so that one batch has them all; else the
                                     table is copied

A batch without such statements costs nothing: its transactions say so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.core.errors import RowsUntold, ShapeChanged
from headrace.core.names import TableName
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import Alteration, OldRows, TableRecord, Way
from headrace.pipeline.state.schema_check import AlteredTable, AwaitedTables, RecordsCheck
from headrace.pipeline.state.table_epochs import Arrival, arrival_epoch, history_version, take_up
from headrace.pipeline.state.table_state import State
from headrace.pipeline.stream import batches
from headrace.pipeline.stream.batches import EpochBatch
from headrace.pipeline.stream.epoch import EpochRunner
from headrace.pipeline.tasks.table_task import Outcome
from headrace.sources.contract.values import StatementEffect, StatementLog


def widening(ledger: Ledger, wider: Mapping[TableName, AlteredTable]) -> Epoch:
    """Make the epoch in which tables get the columns that they have at the source by now."""
    records = tuple(_widen(ledger, ledger.tables[name], each) for name, each in wider.items())
    names = tuple(record.name for record in records)
    return Epoch(
        "widen",
        ledger.frontier,
        records=records,
        outcomes=tuple(Outcome(name) for name in names),
        new_tables=names,
        replaced_tables=frozenset(names),
    )


def _widen(ledger: Ledger, record: TableRecord, wider: AlteredTable) -> TableRecord:
    now = wider.now
    schema = replace(now.schema, version=history_version(ledger, record.name, now.schema))
    altered = Alteration(ledger.mark.epoch + 1, ledger.frontier, Way.ADDED, wider.what)
    return replace(
        record.with_definition(replace(now, schema=schema)), since=ledger.frontier.time, alteration=altered
    )


# --- rows that are written again ---------------------------------------------------------------


def rewriting(ledger: Ledger, rewritten: Mapping[TableName, AlteredTable]) -> Epoch:
    """Make the epoch in which the rewrite of tables begins, under the columns that they have by now."""
    return arrival_epoch("rewrite", ledger, [_begin(ledger, name, each) for name, each in rewritten.items()])


def _begin(ledger: Ledger, name: TableName, rewritten: AlteredTable) -> Arrival:
    known = ledger.tables[name]
    version = ledger.live.table(ledger.task_folder(name)).version
    old = OldRows(version, known.schema.at_time(ledger.frontier.time), rewritten.conversion)
    arrival = take_up(ledger, known, rewritten.now, ledger.frontier)
    altered = Alteration(ledger.mark.epoch + 1, ledger.frontier, Way.REWRITTEN, rewritten.what)
    record = replace(arrival.record, old_rows=old, since=ledger.frontier.time, alteration=altered)
    return replace(arrival, record=record)


# --- statements, held against the look before a mark --------------------------------------------


PATIENCE_SECONDS = 2.0


@dataclass(slots=True)
class Statements:
    """The statements of one attempt, and the tables whose statements have yet to come."""

    awaited_tables: AwaitedTables = field(default_factory=AwaitedTables)
    _since: float | None = None  # since when a mark waits

    def statement_log(
        self, ledger: Ledger, runner: EpochRunner, batch: EpochBatch, records: Sequence[TableRecord]
    ) -> StatementLog | None:
        """Collect the batch's statements on these tables; None if the source's stream has no statements."""
        if runner.source.decoder().statements is None:
            return None
        told = _effects(ledger, runner, batch, records) if batch.truncates else {}
        return StatementLog(ledger.position, batch.frontier, told)

    def wait(self, check: RecordsCheck, batch: EpochBatch) -> bool:
        """Tell whether the mark waits for the rest of the statements."""
        if not check.half_told or batch.more:
            self._since = None
            return False
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since < PATIENCE_SECONDS:
            return True
        self._since = None
        return False


def with_replaced(ledger: Ledger, runner: EpochRunner, batch: EpochBatch, epoch: Epoch) -> Epoch:
    """Have tables copied that stopped because nobody knows their rows, and that were then replaced.

    A person would resync them: the doubtful rows went with the table that was replaced.
    """
    after = {**ledger.tables, **{r.name: r for r in epoch.records if r.copy_id is None}}
    stopped = [r for r in after.values() if r.state is State.STOPPED and isinstance(r.error, RowsUntold)]
    if not stopped or not batch.truncates or ledger.recovering:
        return epoch
    told = _effects(ledger, runner, batch, stopped)
    gone = {key for key, found in told.items() if any(each.replaces for each in found)}
    replaced = {r.key: r.with_error(_replaced_error(r), ledger.position) for r in stopped if r.key in gone}
    others = tuple(record for record in epoch.records if record.key not in replaced)
    return replace(epoch, records=(*others, *replaced.values()))


def _replaced_error(record: TableRecord) -> ShapeChanged:
    assert record.error is not None
    return ShapeChanged(
        "TABLE_ALTERED",
        f"{record.name} was dropped or replaced",
        detail=f"it stopped before: {record.error.code}: {record.error.primary}",
        hint=f"headrace tables resync {record.name}",
    )


def _effects(
    ledger: Ledger, runner: EpochRunner, batch: EpochBatch, records: Sequence[TableRecord]
) -> Mapping[str, Sequence[StatementEffect]]:
    """Return the statements on each record's table, by its key; a table and its new copy get equal ones."""
    decoder = runner.source.decoder(0)
    slices = list(batches.slices(runner.reader, batch.transactions, decoder))
    found: dict[str, list[StatementEffect]] = {}
    for are_copies in (False, True):
        some = {record.number: record for record in records if (record.copy_id is not None) == are_copies}
        wanted = {number: ledger.outline(record).table_filter() for number, record in some.items()}
        for each in slices if wanted else ():
            read = each.decoder.statements
            told = {} if read is None else read(each.read(runner.reader), each.context, wanted)
            for number, brought in told.items():
                found.setdefault(some[number].key, []).extend(brought)
    return {key: sorted(told, key=lambda each: each.time) for key, told in found.items()}
