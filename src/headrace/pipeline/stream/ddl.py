"""The epochs by which tables follow their DDL: columns that came with NULL, and rows that are written again.

    look ─┬─► `RecordsCheck.wider_tables` ─► epoch "widen":   the folder's newest version has the columns
          └─► `RecordsCheck.rewritten`    ─► epoch "rewrite": the table leaves the marks, its rows from before
                                                              are the old version of its folder
                `copy.from_lake`: files ─► converted ─► files ─► CATCHING UP ─► LIVE, as after a copy

Either stands where the last mark stood. The stream brings changes under the old columns for as long as it has
not come to the DDL (`TableSchema.earlier`).

widen     The same rows are shown, with NULL in the new columns; no file is written. From there the table has
          an interval of its own, with history in the folder of the next number: marks and times from before
          keep the columns that they had.
rewrite   From there the stream is kept for the table, as for any that is being copied, and from there its new
          interval goes: nothing is missing between the two. The source is not read. Where another DDL comes
          meanwhile, the look finds it before the table returns, and it is copied from the source.

A crash after either costs nothing: the record has the columns, and the stream goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.core.names import TableName
from headrace.pipeline.state import arrivals
from headrace.pipeline.state.arrivals import Arrival, history_version
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import Alteration, OldRows, TableRecord, Way
from headrace.pipeline.state.schema_check import AlteredTable
from headrace.pipeline.tasks.table_task import Outcome


def widening(ledger: Ledger, wider: Mapping[TableName, AlteredTable]) -> Epoch:
    """The epoch in which tables get the columns that they have at the source by now."""
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
    """The epoch in which tables begin to be written again under the columns that they have by now."""
    return arrivals.epoch("rewrite", ledger, [_begin(ledger, name, each) for name, each in rewritten.items()])


def _begin(ledger: Ledger, name: TableName, rewritten: AlteredTable) -> Arrival:
    known = ledger.tables[name]
    version = ledger.live.table(ledger.task_folder(name)).version
    old = OldRows(version, known.schema.at_time(ledger.frontier.time), rewritten.conversion)
    arrival = arrivals.taken_up(ledger, known, rewritten.now, ledger.frontier)
    altered = Alteration(ledger.mark.epoch + 1, ledger.frontier, Way.REWRITTEN, rewritten.what)
    record = replace(arrival.record, old_rows=old, since=ledger.frontier.time, alteration=altered)
    return replace(arrival, record=record)
