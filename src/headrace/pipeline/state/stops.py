"""The epoch in which a table stops with an error, while the others go on.

    stop_tables    stops tables at the newest mark
    stop_copies    stops new copies that can't be finished, at the stream's position; their tables stay
    stop_blocked   stops tables at which a plan failed that the takeover withdrew
    not_followed   the error of a bug of ours in following DDL; the table is copied instead

These epochs come between two epochs of the stream. If an epoch of the stream finds an error of a table, its
own record of the table says so (`TableRecord.with_error`).
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
    """Stop tables where the newest mark stands."""
    records = [ledger.tables[name].with_error(error, ledger.frontier) for name, error in failures.items()]
    return Epoch("stop", ledger.frontier, records=tuple(records))


def stop_copies(ledger: Ledger, failures: Failures) -> Epoch:
    """Stop new copies of tables."""
    records = [ledger.staged[name].with_error(error, ledger.position) for name, error in failures.items()]
    return Epoch("stop", ledger.frontier, records=tuple(records))


def stop_blocked(ledger: Ledger) -> Iterator[Epoch]:
    """Stop the tables, one by one, at which plans failed by a bug of ours; all tables share errors/."""
    for blocked in ledger.blocked:
        if not isinstance(blocked.error, StepFailed):
            continue
        record = _at(ledger, blocked.step.path)
        if record is None:
            raise blocked.error
        stop = stop_tables if record.copy_id is None else stop_copies
        yield stop(ledger, {record.name: _reason(blocked, blocked.error, record)})


def _at(ledger: Ledger, path: str) -> TableRecord | None:
    """Find the table, or new copy, whose rows or history lie in this folder."""
    for record in (*ledger.tables.values(), *ledger.staged.values()):
        folders = folders_of(ledger.name, record)
        if path in (folders.rows, folders.history):
            return record
    return None


def _reason(blocked: UnfinishablePlan, error: StepFailed, record: TableRecord) -> HeadraceError:
    """Have the table copied if following its DDL failed; if the copy failed too, ask a person."""
    rewritten = record.state.awaits_copy and record.old_rows is not None
    follows = blocked.plan.kind in ("widen", "rewrite") or rewritten
    return not_followed(record.name, error) if follows else error


def not_followed(name: TableName, fault: Exception) -> ShapeChanged:
    """Make the error of a table whose DDL can't be followed because of a bug of ours."""
    where = fault.detail if isinstance(fault, StepFailed) else place_of(fault)
    return ShapeChanged(
        "TABLE_NOT_FOLLOWED",
        f"a change of the columns of {name} was not followed, by a fault of headrace",
        detail=where,
        hint=f"headrace tables resync {name} copies it from the source; a run does so by itself: "
        "please report it with the detail",
    )
