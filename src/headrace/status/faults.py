"""The faults of a source, for monitoring: `headrace status --check`, `/readyz` and the page.

    the run failed                  its own error
    a table stopped                 STATUS_TABLE_STOPPED      a person must look
    nobody runs the source          STATUS_NOT_RUNNING
    too far behind                  STATUS_BEHIND             or the loop hangs, or a table is in no mark

A table that the run takes up again by itself is no stop; after a while it is too far behind. A table that is
gone at the source is no fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core.durations import duration_text
from headrace.core.errors import Definite, HeadraceError, Transient
from headrace.core.records import from_record
from headrace.lake.format.status import seconds_since
from headrace.status.picture import DROPPED, NEVER_RUN, SourcePicture


def faults(source: SourcePicture, max_lag: float) -> Iterator[HeadraceError]:
    """The faults of a source, the worst first; more than `max_lag` seconds is too far behind."""
    said = source.status
    if said.state == "failed" and said.error is not None:
        yield from_record(HeadraceError, dict(said.error))
    for name, table in source.tables.items():
        if table.state == "stopped" and not (table.follows or table.is_missing):
            why = f"{table.error['code']}: {table.error['primary']}" if table.error else None
            yield Definite(
                "STATUS_TABLE_STOPPED",
                f"{name} is stopped",
                detail=why,
                hint=str(table.error["hint"]) if table.error else "headrace status shows why",
            )
    if is_left(source):
        yield not_running(source)
    yield from behind(source, max_lag, patience=0.0)


def is_left(source: SourcePicture) -> bool:
    """Tell whether nobody runs the source, though no error ended its run (the error has its own hint)."""
    return not source.runs and source.status.state != "failed"


def not_running(source: SourcePicture) -> Transient:
    """The fault that nobody runs the source: since when, its run's last error, how to go on."""
    last = source.status.error
    said = "" if last is None else f"; its run said last: {last['code']}: {last['primary']}"
    return Transient(
        "STATUS_NOT_RUNNING",
        f'nobody runs source "{source.name}"',
        detail=f"{_end_of_run(source)}{said}",
        hint="headrace run --lake DIR --reconcile takes it up again"
        if source.status.state == DROPPED
        else "headrace run --lake DIR goes on",
    )


def _end_of_run(source: SourcePicture) -> str:
    if source.status.state in (NEVER_RUN, DROPPED) or source.age is None:
        return f"it is {source.status.state}" if source.status.state == DROPPED else "nobody ever did"
    if source.is_silent:
        return f"last seen {duration_text(source.age)} ago, {source.status.state}"
    return f"{source.state}, {duration_text(source.age)} ago"


def behind(source: SourcePicture, max_lag: float, patience: float | None = None) -> Iterator[Transient]:
    """Yield the reasons why the lake is, or may be, more than `max_lag` seconds behind its source.

    `patience` is how long a run may have mirrored nothing yet; the default is `max_lag`.
    """
    lag, turned = source.lag_seconds or 0.0, source.turn_age or 0.0
    waited = seconds_since(source.status.state_since, source.now) or 0.0
    if source.runs and source.lag_seconds is None and waited >= (max_lag if patience is None else patience):
        yield _too_late(
            f'the run of source "{source.name}" has mirrored nothing yet, for {duration_text(waited)}',
            None if source.status.error is None else str(source.status.error["primary"]),
        )
    if lag > max_lag:
        silent = source.contact_age or 0.0
        yield _too_late(
            f'source "{source.name}" may be {duration_text(lag)} behind',
            f"it last answered {duration_text(silent)} ago",
        )
    elif turned > max_lag:
        work = source.status.work
        yield _too_late(
            f'the run of source "{source.name}" has done no turn for {duration_text(turned)}',
            None if work is None else f"busy: {work.what}",
        )
    for name, table in source.tables.items():
        waits = table.follows and not table.is_missing  # for what its error names
        error = table.error if waits and table.error is not None else {}
        age = seconds_since(table.stopped_since if waits else table.unseen_since, source.now)
        if age is not None and age > max_lag:
            why = f"{error['code']}: {error['primary']}" if error else table.holder
            yield _too_late(f"{name} is in no mark for {duration_text(age)}", why, error.get("hint"))


def _too_late(primary: str, detail: str | None, hint: str | None = None) -> Transient:
    hint = hint or "headrace status --lake DIR shows what it waits for"
    return Transient("STATUS_BEHIND", primary, detail=detail, hint=hint)
