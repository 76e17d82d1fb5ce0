"""Columns that were dropped, renamed, or added with a constant: the rows of the lake are written again.

    look ─► `RecordsCheck.rewritten` ─► epoch "rewrite": the table leaves the marks   ─► the stream's
                                              │ its rows from before are the old version of its folder
                                              ▼
            `copy.from_lake`: files ─► converted ─► files ─► CATCHING UP ─► LIVE, as after a copy

That epoch stands where the last mark stood. From there the stream is kept for the table, as for any that is
being copied, and from there its new interval goes: nothing is missing between the two. The source is not
read. The stream brings rows under the old columns for as long as it has not come to the DDL
(`TableSchema.earlier`). Where another DDL comes meanwhile, the look finds it before the table returns, and it
is copied from the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.core.names import TableName
from headrace.pipeline.state import arrivals
from headrace.pipeline.state.alterations import Alteration, Way
from headrace.pipeline.state.arrivals import Arrival
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import OldRows
from headrace.pipeline.state.schema_check import AlteredTable


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
