"""Columns that were added at the source, NULL in every row from before: the table goes on, and no file is
written.

    look ─► `RecordsCheck.wider_tables` ─► epoch "widen": the folder's newest version has them ─► the stream's

That epoch stands where the last mark stood, and shows the same rows, with NULL in the new columns. From
there the table has an interval of its own, with history in the folder of the next number: marks and times
from before keep the columns that they had. The stream brings changes without the new columns for as long as
it has not come to the DDL; their place is NULL (`TableSchema.earlier`).

A crash after the epoch costs nothing: the record has the columns, and the stream goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.core.names import TableName
from headrace.pipeline.state.alterations import Alteration, Way
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.history_version import history_version
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import TableRecord
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
