"""A switch of servers: another one of the same history goes on where the one was left that was followed.

    prove ─ the same ─────────────────────────────────────────────────────────► go on
       └─── another one: has it all that the lake holds, and what follows? ─► epoch "switch" ─► go on

What the lake holds is a set of transactions, and the same on both. Behind it their order may differ. A copy
that is still joining was taken somewhere in the order of the server that was left, so it is made again; a
table that stands at the mark goes on, and so does one whose copy had not begun. The spool is of the other
server, and goes with its identity (`spool.origin`).

Called once at the beginning of an attempt, before anything is received. Whether a server may go on is the
source's to say (`contract.session.Session.confirm`).
"""

from __future__ import annotations

from dataclasses import replace

from headrace.pipeline.carried_over import begun_anew, emptied
from headrace.pipeline.first_run import Met
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import SourceRecord, TableRecord
from headrace.pipeline.state.table_state import State
from headrace.pipeline.tasks.table_task import Outcome
from headrace.sources.contract.session import Successor


def follow(met: Met) -> SourceRecord:
    """See that the server is the one that was followed, or let another one take its place."""
    ledger, source = met.ledger, met.ledger.source
    assert source is not None
    found = met.session.confirm(source.identity, source.upstream, ledger.position)
    if found is None:
        return source
    ledger.sync(ledger.publish(epoch(ledger, found)))
    assert ledger.source is not None
    return ledger.source


def epoch(ledger: Ledger, found: Successor) -> Epoch:
    """The source with another server, and the copies that are made again."""
    assert ledger.source is not None
    joining = [record for record in ledger.present if _is_joining(record)]
    outcomes: list[Outcome] = []
    for record in joining:
        outcomes += emptied(ledger, record)
    return Epoch(
        "switch",
        ledger.frontier,
        records=tuple(begun_anew(ledger, record) for record in joining),
        outcomes=tuple(outcomes),
        source=replace(ledger.source, identity=found.identity, upstream=found.upstream),
    )


def _is_joining(record: TableRecord) -> bool:
    """Tell whether something of it was copied, and the stream has yet to come as far as the copy."""
    begun = record.state.awaits_copy and record.handoff is not None
    return begun or record.state in (State.CATCHING_UP, State.JOINING)
