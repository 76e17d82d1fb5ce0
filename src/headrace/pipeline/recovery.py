"""Recovery: new copies of all tables after the place in the source's stream is lost, if the user allows it.

    slot gone or lost · log purged · timeline switched · server restored, reset, replaced · publication remade
                                           │  `headrace run --reconcile`, or reconcile = "auto"
                                           ▼
    publication, slot ─► every table gets a new copy (`replacement`), on a new stream ─► one mark with all
                                                                                         differences

Until that mark, marks show the last exact state: epochs in between repeat its frontier and its versions,
while the new copies stand at a position of their own (`SourceRecord.recovering`). After a crash in between,
the next run continues the recovery, even if the first of these epochs was not durable yet (`was_begun`): the
user need not ask a second time.

A server that was set back uses positions a second time. Its source maps them to times later than all that was
reached, and counts another life (`contract.mirror.StreamOrigin`).

No place is lost if another server of the same history takes over: it goes on where the old one was left.

    prove ─ the same ─────────────────────────────────────────────────────────► go on
       └─── another one: has it all that the lake holds, and what follows? ─► epoch "switch" ─► go on

The lake holds a set of transactions, which is the same on both servers. The order of later transactions may
differ. A copy that is still joining belongs to the old server's order, so it is made again; a table that
stands at the mark goes on, and so does one whose copy had not begun. The spool belongs to the old server's
identity and is dropped with it (`spool.reader.prepare`). The source decides whether a server may go on
(`contract.mirror.Mirror.confirm`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.core.errors import Definite, HeadraceError, Misconfigured, PositionDoubtful, PositionLost
from headrace.core.position import Position
from headrace.core.records import from_record, to_record
from headrace.ingest.last_commits import LastCommits
from headrace.lake.format import layout
from headrace.pipeline.commands import resync
from headrace.pipeline.first_run import Attempt
from headrace.pipeline.resync import replacement
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import SourceRecord, TableRecord
from headrace.pipeline.state.table_state import State, TableEvent
from headrace.pipeline.tasks import raw_values
from headrace.pipeline.tasks.table_task import Outcome
from headrace.sources.contract.mirror import Mirror, StreamOrder, StreamOrigin, Successor
from headrace.sources.contract.values import ExaminedTables
from headrace.spool.layout import erase


@dataclass(slots=True)
class RecoveryPolicy:
    """The permission of a run to reconcile after a lost position, and whether it shall do so now."""

    on_request: bool  # by the command line, for this run
    auto: bool  # by the configuration, for ever
    has_begun: bool = False  # by an earlier run that ended before anything of it was durable
    now: HeadraceError | None = None

    def fits(self, error: HeadraceError) -> bool:
        """Accept an error that a recovery heals; each request allows one try."""
        if self.now is not None or not (
            (isinstance(error, PositionLost) and (self.on_request or self.auto or self.has_begun))
            # The address may be wrong, or the log may still be wanted: only a person can tell.
            or (isinstance(error, PositionDoubtful) and self.on_request)
        ):
            return False
        self.now = error
        return True

    def use_up(self) -> None:
        """Use the permission up once new copies have begun; the next loss needs another one."""
        self.now, self.on_request, self.has_begun = None, False, False

    def apply(self, attempt: Attempt) -> SourceRecord:
        """Begin the recovery if it is due, and return the source."""
        self.has_begun = was_begun(attempt.ledger)
        if self.now is not None:
            begin(attempt)
            self.use_up()
        assert attempt.ledger.source is not None
        return attempt.ledger.source


def was_begun(ledger: Ledger) -> bool:
    """Tell whether an earlier run began to leave this position, and ended before that was durable."""
    note = ledger.store.get(layout.recovery_note_key(ledger.name))
    if note is None or ledger.source is None:
        return False
    return from_record(Position, json.loads(note)["start"]).time == ledger.source.start.time


def _note(source: SourceRecord) -> bytes:
    """Note the start of the source that is left: a renewed source has another start."""
    return json.dumps({"start": to_record(source.start)}).encode()


def begin(attempt: Attempt) -> None:
    """Leave the lost position: publication and slot as on a first run, new copies for all tables."""
    ledger, place, mirror = attempt.ledger, attempt.place, attempt.mirror()
    source = ledger.source
    assert source is not None
    known = _tables_to_copy(ledger)
    found = mirror.examine([record.name for record in known])
    _copied_anew(ledger, known, found, ledger.position)  # raise before anything is given up
    # The slot is another from here on; until a durable mark says so, only this note tells that it is ours.
    note = layout.recovery_note_key(ledger.name)
    place.store.put(note, _note(source))
    place.store.sync([note])
    order = StreamOrder(found.fit_defs, received_until=ledger.position, left_identity=source.identity)
    origin = mirror.establish(order, attempt.waiting)
    erase(place.spool)
    again = renew(source, origin)
    found = found.then(origin.tables)
    records = _copied_anew(ledger, known, found, again.start)
    anew = {record.name for record in records if record.copy_id is not None}
    gone = tuple(copy for name, copy in ledger.staged.items() if name not in anew)
    plan = ledger.publish(
        Epoch(
            "lost",
            ledger.frontier,
            records=tuple(records),
            removed_tables=gone,
            source=again,
            commits=LastCommits(again.start.time),
            begun_at=origin.begun_at,
        )
    )
    ledger.sync(plan)
    place.store.delete(note)


def _copied_anew(
    ledger: Ledger, known: Sequence[TableRecord], found: ExaminedTables, start: Position
) -> list[TableRecord]:
    """Make the records of the new copies; a table that can't have one stops, and the others go on."""
    records = [_anew(ledger, record, found, start) for record in known]
    if not any(record.copy_id is not None for record in records):
        raise next(record.error for record in records if record.error is not None)
    return records


def _tables_to_copy(ledger: Ledger) -> list[TableRecord]:
    """Select the tables to copy anew: a stopped one only if its new copy was asked for before."""
    tables = ledger.tables.values()
    return [r for r in tables if r.state is not State.STOPPED or r.name in ledger.staged]


def renew(source: SourceRecord, origin: StreamOrigin) -> SourceRecord:
    """Return the source's record at the place where its stream begins anew."""
    return replace(
        source,
        identity=origin.identity,
        upstream=origin.upstream,
        start=origin.start,
        recovering=origin.start,
        incarnation=source.incarnation + origin.another_life,
    )


def _anew(ledger: Ledger, record: TableRecord, found: ExaminedTables, start: Position) -> TableRecord:
    """Make the record of a table's new copy, or stop the table if it can't be copied or followed."""
    try:
        return replace(resync.new_copy_record(ledger, record, found), frontier=start)
    except (Definite, Misconfigured) as error:
        return record.with_error(error, ledger.frontier)


# --- another server ------------------------------------------------------------------------------


def follow_server(attempt: Attempt) -> Mirror:
    """Return the mirror at the server that was followed, or at another one that takes its place."""
    ledger, source = attempt.ledger, attempt.ledger.source
    assert source is not None
    mirror = attempt.mirror()
    found = mirror.confirm(source.identity, ledger.position)
    if found is None:
        return mirror
    ledger.sync(ledger.publish(switch_epoch(ledger, found)))
    return attempt.mirror()


def switch_epoch(ledger: Ledger, successor: Successor) -> Epoch:
    """Make the epoch that gives the source another server and begins its unfinished copies again."""
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
    """Tell whether some of its rows were copied, and the stream has yet to come as far as the copy."""
    begun = record.state.awaits_copy and record.handoff is not None
    return begun or record.state in (State.CATCHING_UP, State.JOINING)


def _begin_anew(ledger: Ledger, record: TableRecord) -> TableRecord:
    """Reset the record to that of a table just chosen, or of a new copy just asked for."""
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
    """Take a table's rows out of the lake, and its rows out of errors/; a new copy has its own folder."""
    if record.copy_id is not None:
        return []
    live = tuple(ledger.live.table(ledger.task_folder(record.name)).files())
    task, epoch, time = ledger.outline(record), ledger.mark.epoch + 1, ledger.frontier.last
    errors = raw_values.standing(ledger.store, task, epoch, time) if record.raw_columns else ()
    return [Outcome(record.name, remove=live, errors=errors)]
