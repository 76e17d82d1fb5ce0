"""Tables that an earlier version left waiting for their copy, and whose stream it did not keep.

    it held the source's acknowledgement back instead, and would have read the stream again from `applied`

Nothing before the newest mark is streamed again any more. A table that still stands where the mark stands has
missed nothing: from here on its part is kept. One that stands further back is begun anew, as a table that
comes late: what was copied of it goes, and its next copy shows all that came before.

Called once at the beginning of an attempt, before anything is received.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.pipeline.commands import resync
from headrace.pipeline.resync import replacement
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_state import Event, State
from headrace.pipeline.tasks import raw_values
from headrace.pipeline.tasks.table_task import Outcome


def carry_over(ledger: Ledger) -> Epoch | None:
    """Decide about such tables; None where there are none, as in every lake of this version."""
    records, outcomes = [], []
    for record in ledger.present:
        behind = record.state is State.JOINING and record.applied is not None
        if not behind and record.key not in ledger.held_back:
            continue
        if record.applied is None or record.applied >= ledger.position:
            records.append(replace(record, applied=None) if behind else record)
        else:
            records.append(begun_anew(ledger, record))
            outcomes += emptied(ledger, record)
    if not records:
        return None
    return Epoch("adopt", ledger.frontier, records=tuple(records), outcomes=tuple(outcomes))


def begun_anew(ledger: Ledger, record: TableRecord) -> TableRecord:
    """The table as one that was chosen just now, or its new copy as one that was just asked for."""
    if record.copy_id is not None:
        return replacement.staged(record, resync.stage_of(ledger, record.name), ledger.position)
    return record.on(
        Event.BEGUN_ANEW,
        applied=ledger.position,
        handoff=None,
        since=None,
        held=0,
        raw_columns=(),
        late=True,
    )


def emptied(ledger: Ledger, record: TableRecord) -> list[Outcome]:
    """Take its rows out of the lake, and its rows of errors/ with them; a new copy's are its own."""
    if record.copy_id is not None:
        return []
    live = tuple(ledger.live.table(ledger.task_folder(record.name)).files())
    task, epoch, time = ledger.outline(record), ledger.mark.epoch + 1, ledger.frontier.last
    errors = raw_values.standing(ledger.store, task, epoch, time) if record.raw_columns else ()
    return [Outcome(record.name, remove=live, errors=errors)]
