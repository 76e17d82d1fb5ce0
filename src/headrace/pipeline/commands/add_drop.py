"""Tables come and go while a source is mirrored: what `headrace tables add` and `drop` ask for.

    add     examined ─► published upstream, committed ─► epoch "add": PENDING, copied beside the stream
    drop    epoch "drop": no later mark names it ─► taken out of our publication, which is then asked again
            of a table that a crash left there

The publication comes first for a table that joins, as at the beginning (`first_run`): changes are captured
one by one, so the copy looks for the transactions that were open then (W) only after the change has
committed. What a transaction that was open across it had written before is in no message; all of it is in
the copy, since no snapshot that shows less is accepted. So nothing before the snapshot is applied or told: a
table that comes late has its history from its own snapshot on, whatever its identity.

A table that leaves stays readable at the marks that name it, files and history. If it comes back its folder
is emptied by the epoch that chooses it: older versions keep their files, and history goes on in the same
folder, where the new `since` keeps the two intervals apart. Under other columns the epoch gives the folder's
newest version those too, older versions keep theirs, and history goes on in a folder of the next number.

A publication of the user's is never altered: a table has to be in it before it can be added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.core.errors import Misconfigured
from headrace.core.failpoint import failpoint
from headrace.core.history import history_schema
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.schema import TableSchema
from headrace.lake.format import layout
from headrace.pipeline.commands import resync
from headrace.pipeline.state import choice, last_config
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.owner import Owner, Steps
from headrace.pipeline.state.records import SourceRecord, TableRecord
from headrace.pipeline.tasks import raw_values
from headrace.pipeline.tasks.table_task import Errors, Outcome
from headrace.sources import registry
from headrace.sources.contract.findings import Report, Wish
from headrace.sources.contract.record import Json
from headrace.sources.contract.session import Address, Session
from headrace.sources.contract.source import Source
from headrace.sources.contract.tables import Examined, TableDef
from headrace.sources.patterns import Pattern, select


@dataclass(frozen=True, slots=True)
class _Published:
    """Tables whose changes are captured, and a position that was read after."""

    found: Examined
    position: Position


@dataclass(frozen=True, slots=True)
class _Place:
    """The source as the owner has it, for work on a connection of its own."""

    source: Source
    address: Address
    identity: Json
    upstream: Json

    @classmethod
    def of(cls, owner: Owner) -> _Place:
        known = _source(owner.ledger)
        source = registry.by_kind(known.kind)
        return cls(source, owner.session.address, owner.session.identity, known.upstream)

    @contextmanager
    def connected(self) -> Iterator[Session]:
        with closing(self.source.connect(self.address, role="publish")) as session:
            session.prove(self.identity)
            yield session


def add(owner: Owner, arguments: Mapping[str, Any]) -> Steps:
    """Choose further tables: those that the patterns name and that are not mirrored yet."""
    resync.refuse_while_recovering(owner.ledger)
    patterns = tuple(arguments["tables"])
    ledger, place = owner.ledger, _Place.of(owner)
    wish = Wish(
        patterns,
        owner.place.config.options,
        connections=owner.place.config.snapshot_connections,
        upstream=place.upstream,
        identity=place.identity,
    )
    report = yield partial(place.source.examine, place.address, wish)
    already = select(patterns, ledger.tables).names
    report = _of_new(report, ledger)
    if report.errors or not already:
        choice.refuse(report)
    published = yield partial(_publish, place, [table.name for table in report.tables])
    failpoint("tables.add.before")
    for error in published.found.errors.values():
        raise error
    new = [table for name, table in published.found.defs.items() if name not in ledger.tables]
    if new:
        start = max(published.position, ledger.frontier)
        owner.publish(_epoch(ledger, [_arrival(ledger, table, start) for table in new]))
    last_config.tables_come(owner.place.store, ledger.name, patterns)
    failpoint("tables.add.after")
    return {
        "added": [str(table.name) for table in new],
        "already": _standing(ledger, already),
        "left_out": {str(name): error.as_record() for name, error in report.left_out.items()},
    }


def drop(owner: Owner, arguments: Mapping[str, Any]) -> Steps:
    """Let tables go; what the lake has of them stays readable at the marks that name them."""
    resync.refuse_while_recovering(owner.ledger)
    ledger, source = owner.ledger, _source(owner.ledger)
    chosen = select(arguments["tables"], ledger.tables).checked()
    leaving = chosen.names
    ours = registry.by_kind(source.kind).owns_capture(source.upstream)
    unknown = [pattern.text for pattern in chosen.empty if not pattern.excludes]
    if unknown and not ours:
        raise _not_mirrored(unknown[0])
    if leaving:
        time = ledger.frontier.time  # behind the last mark that names them, at which the texts stand
        outcomes = (_without_errors(ledger, ledger.tables[name], time) for name in leaving)
        with_errors = tuple(outcome for outcome in outcomes if outcome.errors is not None)
        gone = [known[name] for known in (ledger.tables, ledger.staged) for name in leaving if name in known]
        owner.publish(Epoch("drop", ledger.frontier, outcomes=with_errors, removed=tuple(gone)))
    last_config.tables_go(owner.place.store, ledger.name, leaving)
    failpoint("tables.drop.between")
    if ours:
        yield partial(_withdraw, _Place.of(owner), leaving, unknown)
    return {"dropped": [str(name) for name in leaving]}


# --- adding -------------------------------------------------------------------------------------


def _source(ledger: Ledger) -> SourceRecord:
    assert ledger.source is not None
    return ledger.source


def _of_new(report: Report, ledger: Ledger) -> Report:
    """Pick from a preflight the tables that are not mirrored yet and that the lake can take."""
    new = replace(
        report,
        tables=tuple(table for table in report.tables if table.name not in ledger.tables),
        findings=tuple(f for f in report.findings if not f.concerned or f.concerned - ledger.tables.keys()),
    )
    return new.without(layout.unfit_tables([table.name for table in new.tables], ledger.tables))


def _standing(ledger: Ledger, names: Sequence[TableName]) -> dict[str, str]:
    return {str(name): ledger.tables[name].state.value for name in sorted(names)}


def _publish(place: _Place, names: Sequence[TableName]) -> _Published:
    """See that changes of the tables are captured; committed when this returns."""
    with place.connected() as session:
        found = session.tables(place.upstream).capture(names)
        return _Published(found, session.behind_all(place.upstream))


def _epoch(ledger: Ledger, arrivals: Sequence[_Arrival]) -> Epoch:
    replaced = frozenset(each.record.name for each in arrivals if each.other_columns)
    return Epoch(
        "add",
        ledger.frontier,
        records=tuple(each.record for each in arrivals),
        outcomes=tuple(each.emptied for each in arrivals if each.emptied is not None),
        created=tuple(replaced),
        replaced=replaced,
    )


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A table that is added: its record, and what becomes of a folder that it had before."""

    record: TableRecord
    emptied: Outcome | None  # takes the rows of an earlier interval out of the newest version
    other_columns: bool  # the folder's newest version gets these columns


def _arrival(ledger: Ledger, arriving: TableDef, start: Position) -> _Arrival:
    record = replace(choice.chosen(arriving, start), late=True)
    name, table = arriving.name, ledger.live.table(layout.table_folder(ledger.name, arriving.name))
    other = table.version >= 0 and not _alike(table.schema(), record.schema.arrow())
    live = tuple(table.files())
    schema = replace(record.schema, version=_history_version(ledger, name, record.schema))
    emptied = Outcome(name, remove=live) if live or other else None
    return _Arrival(replace(record, schema=schema), emptied, other)


def _alike(known: pa.Schema, new: pa.Schema) -> bool:
    return list(zip(known.names, known.types, strict=True)) == list(zip(new.names, new.types, strict=True))


def _history_version(ledger: Ledger, name: TableName, schema: TableSchema) -> int:
    """The history that goes on: the last one, or where its columns are others the next. They have no gaps."""
    version = 1
    while (history := ledger.live.table(layout.history_folder(ledger.name, name, version))).version >= 0:
        following = ledger.live.table(layout.history_folder(ledger.name, name, version + 1))
        if following.version < 0 and _alike(history.schema(), history_schema(schema)):
            return version
        version += 1
    return version


# --- dropping -----------------------------------------------------------------------------------


def _not_mirrored(text: str) -> Misconfigured:
    return Misconfigured(
        "TABLE_NOT_MIRRORED",
        f'"{text}" names no table that this source mirrors',
        hint="headrace status lists the tables",
    )


def _without_errors(ledger: Ledger, record: TableRecord, time: int) -> Outcome:
    """Rows of errors/ go with the rows that they are about."""
    standing: Errors = ()
    if record.raw_columns and record.state.has_rows:
        epoch = ledger.mark.epoch + 1
        standing = raw_values.standing(ledger.store, ledger.outline(record), epoch, time)
    return Outcome(record.name, errors=standing)


def _withdraw(place: _Place, leaving: Sequence[TableName], unknown: Sequence[str]) -> None:
    """Capture tables no longer; of `unknown`, those that a drop left there when it was ended."""
    with place.connected() as session:
        tables = session.tables(place.upstream)
        listed = tables.captured()
        left = {text: Pattern.parse(text).of(listed) for text in unknown}
        tables.release([*leaving, *(name for found in left.values() for name in found)])
    for text, found in left.items():
        if not found:
            raise _not_mirrored(text)
