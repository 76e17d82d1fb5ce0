"""Tables that arrive in the marks: chosen for the first time, once more, or as they are after a change.

    captured     in a thread: their changes are captured upstream, and a position that was read after that
    arrival      a table that nobody mirrors at the moment
    taken_up     one that is mirrored, and is another one at the source by now: it leaves the marks until
                 its copy is in
    epoch        says all of it at once

A folder that the table had before is emptied by that epoch: older versions keep their files, and history
goes on in the same folder, where the new `since` keeps the two intervals apart. Under other columns the
epoch gives the folder's newest version those too, older versions keep theirs, and history goes on in a
folder of the next number.

Nothing that the stream brings from before the position is applied: it may be of columns that the table had
then.

Called by the deeds `add_drop` and `resync`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.lake.format import layout
from headrace.pipeline.state import choice
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.history_version import alike, history_version
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.owner import Owner
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_state import Event
from headrace.pipeline.tasks import raw_values
from headrace.pipeline.tasks.table_task import Errors, Outcome
from headrace.sources import registry
from headrace.sources.contract.record import Json
from headrace.sources.contract.session import Address, Session
from headrace.sources.contract.source import Source
from headrace.sources.contract.tables import Examined, TableDef


@dataclass(frozen=True, slots=True)
class Captured:
    """Tables whose changes are captured, and a position that was read after."""

    found: Examined
    position: Position


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """The source as the owner has it, for work on a connection of its own."""

    source: Source
    address: Address
    identity: Json
    upstream: Json

    @classmethod
    def of(cls, owner: Owner) -> SourcePlace:
        known = owner.ledger.source
        assert known is not None
        source = registry.by_kind(known.kind)
        return cls(source, owner.session.address, owner.session.identity, known.upstream)

    @contextmanager
    def connected(self, role: str = "publish") -> Iterator[Session]:
        with closing(self.source.connect(self.address, role=role)) as session:
            session.prove(self.identity)
            yield session

    def capture(self, names: Sequence[TableName]) -> Captured:
        """See that changes of the tables are captured; committed when this returns."""
        with self.connected() as session:
            found = session.tables(self.upstream).capture(names)
            return Captured(found, session.behind_all(self.upstream))

    def capture_again(self, names: Sequence[TableName]) -> Captured:
        """The same of tables that have been mirrored: those that are still fit for it."""
        with self.connected("resync") as session:
            tables = session.tables(self.upstream)
            found = tables.examine(names)
            found = found.then(tables.capture(found.fit))
            return Captured(found, session.behind_all(self.upstream))


@dataclass(frozen=True, slots=True)
class Arrival:
    """A table that arrives: its record, and what becomes of a folder that it had before."""

    record: TableRecord
    emptied: Outcome | None  # takes the rows of an earlier interval out of the newest version
    other_columns: bool  # the folder's newest version gets these columns


def arrival(ledger: Ledger, arriving: TableDef, start: Position) -> Arrival:
    """A table that the marks do not have."""
    record = replace(choice.chosen(arriving, start), late=True)
    name, table = arriving.name, ledger.live.table(layout.table_folder(ledger.name, arriving.name))
    other = table.version >= 0 and not alike(table.schema(), record.schema.arrow())
    live = tuple(table.files())
    schema = replace(record.schema, version=history_version(ledger, name, record.schema))
    emptied = Outcome(name, remove=live) if live or other else None
    return Arrival(replace(record, schema=schema), emptied, other)


def taken_up(ledger: Ledger, record: TableRecord, now: TableDef, start: Position) -> Arrival:
    """A table as it is now, in the place of what it was."""
    ledger.live.forget(ledger.task_folder(record.name))  # another program may have changed its files
    new = arrival(ledger, now, start)
    begun = replace(new.record, state=record.on(Event.TAKEN_UP).state)
    gone = without_errors(ledger, record, ledger.frontier.time)
    if gone.errors:
        gone = gone if new.emptied is None else replace(new.emptied, errors=gone.errors)
        return Arrival(begun, gone, new.other_columns)
    return Arrival(begun, new.emptied, new.other_columns)


def epoch(
    kind: str, ledger: Ledger, arrivals: Sequence[Arrival], others: Sequence[TableRecord] = ()
) -> Epoch:
    """The epoch in which tables arrive; other records change with it."""
    replaced = frozenset(each.record.name for each in arrivals if each.other_columns)
    return Epoch(
        kind,
        ledger.frontier,
        records=(*(each.record for each in arrivals), *others),
        outcomes=tuple(each.emptied for each in arrivals if each.emptied is not None),
        created=tuple(replaced),
        replaced=replaced,
        begun_anew=frozenset(each.record.name for each in arrivals),
    )


def without_errors(ledger: Ledger, record: TableRecord, time: int) -> Outcome:
    """Rows of errors/ go with the rows that they are about."""
    standing: Errors = ()
    if record.raw_columns and record.state.has_rows:
        standing = raw_values.standing(ledger.store, ledger.outline(record), ledger.mark.epoch + 1, time)
    return Outcome(record.name, errors=standing)
