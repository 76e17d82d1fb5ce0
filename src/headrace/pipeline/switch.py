"""A switch of servers: another one of the same history goes on where the one was left that was followed.

    prove ─ the same ─────────────────────────────────────────────────────────► go on
       └─── another one: has it all that the lake holds, and what follows? ─► epoch "switch" ─► go on

What the lake holds is a set of transactions, and the same on both. Behind it their order may differ. A copy
that is still joining was taken somewhere in the order of the server that was left, so it is made again; a
table that stands at the mark goes on, and so does one whose copy had not begun. The spool is of the other
server, and goes with its identity (`spool.origin`).

Called once at the beginning of an attempt, before anything is received. Whether a server may go on is the
source's to say (`contract.mirror.Mirror.confirm`).
"""

from __future__ import annotations

from dataclasses import replace

from headrace.pipeline.commands import resync
from headrace.pipeline.first_run import Attempt
from headrace.pipeline.resync import replacement
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_state import State, TableEvent
from headrace.pipeline.tasks import raw_values
from headrace.pipeline.tasks.table_task import Outcome
from headrace.sources.contract.mirror import Mirror, Successor


def follow(attempt: Attempt) -> Mirror:
    """The mirror at the server that was followed, or at another one that takes its place."""
    ledger, source = attempt.ledger, attempt.ledger.source
    assert source is not None
    mirror = attempt.mirror()
    found = mirror.confirm(source.identity, ledger.position)
    if found is None:
        return mirror
    ledger.sync(ledger.publish(epoch(ledger, found)))
    return attempt.mirror()


def epoch(ledger: Ledger, successor: Successor) -> Epoch:
    """The source with another server, and the copies that are made again."""
    assert ledger.source is not None
    joining = [record for record in ledger.present if _is_joining(record)]
    outcomes: list[Outcome] = []
    for record in joining:
        outcomes += _emptying(ledger, record)
    return Epoch(
        "switch",
        ledger.frontier,
        records=tuple(_begin_anew(ledger, record) for record in joining),
        outcomes=tuple(outcomes),
        source=replace(ledger.source, identity=successor.identity, upstream=successor.upstream),
    )


def _is_joining(record: TableRecord) -> bool:
    """Tell whether something of it was copied, and the stream has yet to come as far as the copy."""
    begun = record.state.awaits_copy and record.handoff is not None
    return begun or record.state in (State.CATCHING_UP, State.JOINING)


def _begin_anew(ledger: Ledger, record: TableRecord) -> TableRecord:
    """The table as one that was chosen just now, or its new copy as one that was just asked for."""
    if record.copy_id is not None:
        return replacement.staged_record(record, resync.stage_of(ledger, record.name), ledger.position)
    return record.on(
        TableEvent.BEGUN_ANEW,
        frontier=ledger.position,
        handoff=None,
        since=None,
        held_transactions=0,
        raw_columns=(),
        late=True,
    )


def _emptying(ledger: Ledger, record: TableRecord) -> list[Outcome]:
    """Take its rows out of the lake, and its rows of errors/ with them; a new copy's are its own."""
    if record.copy_id is not None:
        return []
    live = tuple(ledger.live.table(ledger.task_folder(record.name)).files())
    task, epoch, time = ledger.outline(record), ledger.mark.epoch + 1, ledger.frontier.last
    errors = raw_values.standing(ledger.store, task, epoch, time) if record.raw_columns else ()
    return [Outcome(record.name, remove=live, errors=errors)]
