"""Tables come and go while a source is mirrored: what `headrace tables add` and `drop` ask for.

    add     examined ─► published upstream, committed ─► epoch "add": PENDING, copied beside the stream
    drop    epoch "drop": no later mark names it ─► taken out of our publication, which is then asked again
            of a table that a crash left there

The publication comes first for a table that joins, as at the beginning (`first_run`): changes are captured
one by one, so the copy looks for the transactions that were open then (W) only after the change has
committed. What a transaction that was open across it had written before is in no message; all of it is in
the copy, since no snapshot that shows less is accepted. So nothing before the snapshot is applied or told: a
table that comes late has its history from its own snapshot on, whatever its identity.

A table that leaves stays readable at the marks that name it, files and history. How it comes back is said in
`state.table_epochs`.

A publication of the user's is never altered: a table has to be in it before it can be added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.core.errors import Misconfigured
from headrace.core.failpoint import failpoint
from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.lake.format import layout
from headrace.pipeline.commands import resync
from headrace.pipeline.commands.capture import Capturing, SourcePlace
from headrace.pipeline.state import last_config
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.owner import Owner, Steps
from headrace.pipeline.state.records import SourceRecord
from headrace.pipeline.state.table_epochs import arrival_epoch, new_arrival, without_errors
from headrace.sources.contract.column_rules import held_values_error
from headrace.sources.contract.findings import CheckReport, Wish, refuse
from headrace.sources.contract.mirror import CapturedTables
from headrace.sources.contract.values import TableDef
from headrace.sources.shared.patterns import Pattern, select


def add(owner: Owner, arguments: Mapping[str, Any]) -> Steps:
    """Choose further tables: those that the patterns name and that are not mirrored yet."""
    patterns = tuple(arguments["tables"])
    answer = yield from choose(owner, patterns)
    last_config.tables_come(owner.place.store, owner.ledger.name, patterns)
    failpoint("tables.add.after")
    return answer


def choose(owner: Owner, patterns: tuple[str, ...]) -> Steps:
    """Have tables mirrored whose patterns need not be remembered."""
    resync.refuse_while_recovering(owner.ledger)
    ledger, place = owner.ledger, SourcePlace.of(owner)
    wish = Wish(
        patterns,
        owner.place.config.options,
        connections=owner.place.config.snapshot_connections,
        upstream=place.record.upstream,
        identity=place.identity,
    )
    report = yield partial(place.source.examine, place.address, wish)
    folds = place.record.facts.case_insensitive
    already = select(patterns, ledger.tables, case_insensitive=folds).names
    report = _of_new(report, ledger)
    _refuse_held_values(ledger, place.record, report.tables)
    if report.errors or not already:
        refuse(report)
    captured: CapturedTables = yield Capturing([table.name for table in report.tables], place.capture)
    failpoint("tables.add.before")
    for error in captured.examined_tables.errors.values():
        raise error
    new = [table for name, table in captured.examined_tables.defs.items() if name not in ledger.tables]
    if new:
        start = max(captured.position, ledger.frontier)
        epoch = arrival_epoch("add", ledger, [new_arrival(ledger, table, start) for table in new])
        record = place.record.with_columns_of(new)
        owner.publish(epoch if record == place.record else replace(epoch, source=record))
    return {
        "added": [str(table.name) for table in new],
        "already": _standing(ledger, already),
        "left_out": {str(name): to_record(error) for name, error in report.left_out.items()},
    }


def drop(owner: Owner, arguments: Mapping[str, Any]) -> Steps:
    """Let tables go; what the lake has of them stays readable at the marks that name them."""
    resync.refuse_while_recovering(owner.ledger)
    ledger, place = owner.ledger, SourcePlace.of(owner)
    facts = place.record.facts
    chosen = select(arguments["tables"], ledger.tables, case_insensitive=facts.case_insensitive).check()
    leaving = chosen.names
    unknown = [pattern.text for pattern in chosen.empty if not pattern.excludes]
    if unknown and not facts.owns_capture:
        raise _not_mirrored(unknown[0], ledger.tables)
    if leaving:
        time = ledger.frontier.time  # behind the last mark that names them, at which the texts stand
        outcomes = (without_errors(ledger, ledger.tables[name], time) for name in leaving)
        with_errors = tuple(outcome for outcome in outcomes if outcome.errors is not None)
        gone = [known[name] for known in (ledger.tables, ledger.staged) for name in leaving if name in known]
        owner.publish(Epoch("drop", ledger.frontier, outcomes=with_errors, removed_tables=tuple(gone)))
    last_config.tables_go(owner.place.store, ledger.name, leaving, case_insensitive=facts.case_insensitive)
    failpoint("tables.drop.between")
    if facts.owns_capture:
        yield partial(_withdraw, place, leaving, unknown)
    return {"dropped": [str(name) for name in leaving]}


# --- adding -------------------------------------------------------------------------------------


def _of_new(report: CheckReport, ledger: Ledger) -> CheckReport:
    """Pick from a preflight the tables that are not mirrored yet and that the lake can take."""
    new = replace(
        report,
        tables=tuple(table for table in report.tables if table.name not in ledger.tables),
        findings=tuple(
            f for f in report.findings if not f.concerned_tables or f.concerned_tables - ledger.tables.keys()
        ),
    )
    return new.without(layout.unfit_tables([table.name for table in new.tables], ledger.tables))


def _refuse_held_values(ledger: Ledger, record: SourceRecord, tables: Iterable[TableDef]) -> None:
    """Refuse a table with a rule of columns that the lake held without it: its older versions stay."""
    rules = record.column_rules
    for table in tables:
        rule, folder = rules.tables.get(table.name), layout.table_folder(ledger.name, table.name)
        if rule is not None and not rule.columns and ledger.live.table(folder).version >= 0:
            raise held_values_error(table.name)


def _standing(ledger: Ledger, names: Sequence[TableName]) -> dict[str, str]:
    return {str(name): ledger.tables[name].state.value for name in sorted(names)}


# --- dropping -----------------------------------------------------------------------------------


def _not_mirrored(text: str, known: Iterable[TableName]) -> Misconfigured:
    return Misconfigured(
        "TABLE_NOT_MIRRORED",
        f'"{text}" names no table that this source mirrors',
        detail=Pattern.parse(text).near(known),
        hint="headrace status lists the tables",
    )


def _withdraw(place: SourcePlace, leaving: Sequence[TableName], unknown: Sequence[str]) -> None:
    """Capture tables no longer; of `unknown`, those that a drop left there when it was ended."""
    with place.connect() as mirror:
        captures = mirror.captures
        listed = frozenset() if captures is None else captures.captured_tables()
        left = {text: Pattern.parse(text).of(listed) for text in unknown}
        if captures is not None:
            captures.release([*leaving, *(name for found in left.values() for name in found)])
    for text, found in left.items():
        if not found:
            raise _not_mirrored(text, listed)
