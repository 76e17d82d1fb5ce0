"""A table stops with an error, and the others go on: the epoch that says so.

    stop_tables    tables, where the newest mark stands
    stop_copies    new copies that can't be finished, where the stream has come to; their tables stay
    stop_blocked   what a plan failed at that was withdrawn when the source was taken over
    not_followed   a fault of ours in following its DDL, by which it is copied instead

Made by the `loop` and by whoever works for it between two epochs of the stream; an epoch that finds a table
at fault while it is made says so in the record that it brings anyway (`TableRecord.with_error`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.core.errors import HeadraceError, ShapeChanged, place_of
from headrace.core.names import TableName
from headrace.lake.log.commit import StepFailed, UnfinishablePlan
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.live_tables import folders_of
from headrace.pipeline.state.records import TableRecord

Failures = Mapping[TableName, HeadraceError]


def stop_tables(ledger: Ledger, failures: Failures) -> Epoch:
    """Tables stop where the newest mark stands."""
    records = [ledger.tables[name].with_error(error, ledger.frontier) for name, error in failures.items()]
    return Epoch("stop", ledger.frontier, records=tuple(records))


def stop_copies(ledger: Ledger, failures: Failures) -> Epoch:
    """New copies of tables stop."""
    records = [ledger.staged[name].with_error(error, ledger.position) for name, error in failures.items()]
    return Epoch("stop", ledger.frontier, records=tuple(records))


def stop_blocked(ledger: Ledger) -> Iterator[Epoch]:
    """Stop the tables, one by one, at which plans failed by a fault of ours; the errors are everybody's."""
    for blocked in ledger.blocked:
        if not isinstance(blocked.error, StepFailed):
            continue
        record = _at(ledger, blocked.step.path)
        if record is None:
            raise blocked.error
        stop = stop_tables if record.copy_id is None else stop_copies
        yield stop(ledger, {record.name: _reason(blocked, blocked.error, record)})


def _at(ledger: Ledger, path: str) -> TableRecord | None:
    """The table, or new copy, whose rows or history lie there."""
    for record in (*ledger.tables.values(), *ledger.staged.values()):
        folders = folders_of(ledger.name, record)
        if path in (folders.rows, folders.history):
            return record
    return None


def _reason(blocked: UnfinishablePlan, error: StepFailed, record: TableRecord) -> HeadraceError:
    """Have the table copied where DDL was to be followed; where that failed too, ask a person."""
    rewritten = record.state.awaits_copy and record.old_rows is not None
    follows = blocked.plan.kind in ("widen", "rewrite") or rewritten
    return not_followed(record.name, error) if follows else error


def not_followed(name: TableName, fault: Exception) -> ShapeChanged:
    """The error of a table whose DDL can't be followed by a fault of ours."""
    where = fault.detail if isinstance(fault, StepFailed) else place_of(fault)
    return ShapeChanged(
        "TABLE_NOT_FOLLOWED",
        f"a change of the columns of {name} was not followed, by a fault of headrace",
        detail=where,
        hint=f"headrace tables resync {name} copies it from the source; a run does so by itself: "
        "please report it with the detail",
    )
