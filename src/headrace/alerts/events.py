"""The events of a source: what a hook knows of it, and a new status, make the events between them. Pure.

status, proofs  +  KnownStates  ─►  events  +  KnownStates        one event a state, not one a status

source_stopped     its run failed, or has waited for the source for `CONTACT_SECONDS`; again only for
                   another failure
source_recovered   it runs again, after that was told
table_stopped      a person must look; a table that the run takes up by itself is none
table_live         it is live again, after that was told
ddl_followed       a table's shape changed, and the mirror went along
lag_over           it may be behind by more than the hook's `lag`
lag_under          it has been below that for as long as `lag` says. Lag grows by a second a second, so
                   epochs that take longer than `lag` are one event, and not one each
log_over           the source holds back more than the hook's share of the log that it may
verify_differs     the last `headrace verify` found that a table differs from its source
run_started        a run began; also where the one before ended without a word, which is told first
run_ended          a run ended, with the code of the error that ended it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from headrace.alerts.hooks import Hook
from headrace.core.durations import duration_text
from headrace.core.records import from_record
from headrace.lake.format.prooffile import TableProof
from headrace.lake.format.status import CONTACT_SECONDS, SourceStatus, TableStatus, seconds_since

MOST_TEXT = 1500  # characters: chat hooks refuse long texts
TEST = "test"
_WAITING = "waiting"
_FALLEN = 0.9  # of the share: the log that is held back has to fall below that to be told of again


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a source."""

    kind: str
    source: str
    text: str
    table: str | None = None
    code: str | None = None
    hint: str | None = None
    mark: int | None = None
    at: str = ""


@dataclass(frozen=True, slots=True)
class KnownStates:
    """The states of a source that a hook was told of; what is not in here is as it should be."""

    run: str = ""  # when the newest run began
    run_over: bool = False
    stop_cause: str = ""  # a code, or that its run waits
    tables: Mapping[str, str] = field(default_factory=dict)  # stopped, with their codes
    is_late: bool = False
    is_near_limit: bool = False
    differing: tuple[str, ...] = ()
    newest_change: int = 0  # the epoch of the newest change of a table's shape
    on_time_since: str | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> KnownStates:
        """Read a record; what another release wrote otherwise is as if it were not known."""
        return from_record(cls, record, lenient=True)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A new status, held against what a hook knows."""

    hook: Hook
    lake: str
    states: KnownStates
    status: SourceStatus
    proofs: Mapping[str, TableProof]
    now: datetime

    def events(self) -> tuple[list[Event], KnownStates]:
        """The events that the hook asks for, and what it knows after them."""
        found: list[Event] = []
        states = self.states
        for step in _STEPS:
            made, states = step(replace(self, states=states))
            found += made
        return [event for event in found if event.kind in self.hook.kinds], states

    def event(self, kind: str, what: str, **more: Any) -> Event:
        epochs, hint = self.status.epochs, more.get("hint")
        todo = f"; what to do: {hint}" if hint else ""
        text = f'headrace, source "{self.status.source}" of {self.lake}: {what}{todo}'
        at = self.now.astimezone(UTC).isoformat(timespec="milliseconds")
        mark = None if epochs is None else epochs.newest
        return Event(kind, self.status.source, text[:MOST_TEXT], mark=mark, at=at, **more)


_Step = tuple[list[Event], KnownStates]


def test_event(source: str, lake: str) -> Event:
    """An event that says nothing but that events arrive."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Event(TEST, source, f"headrace, {lake}: this is a test; alerts arrive here", at=at)


def _run(look: Comparison) -> _Step:
    known, said, found = look.states, look.status, []
    begun = str(said.owner.get("started_at", ""))
    if begun and begun != known.run:
        if known.run and not known.run_over:
            found.append(look.event("run_ended", "the run before ended without a word: it was killed"))
        where = f"process {said.owner.get('pid')} on {said.owner.get('host')}"
        found.append(look.event("run_started", f"a run began, {where}"))
        known = replace(known, run=begun, run_over=False)
    if said.state in ("stopped", "failed") and not known.run_over:
        error = said.error if said.state == "failed" else None
        what = "the run was stopped" if error is None else f"the run ended with {_line(error)}"
        found.append(look.event("run_ended", what, **_code_and_hint(error)))
        known = replace(known, run_over=True)
    return found, known


def _source(look: Comparison) -> _Step:
    known, said = look.states, look.status
    if said.state == "running":
        if not known.stop_cause:
            return [], known
        recovered = look.event("source_recovered", "the source is mirrored again")
        return [recovered], replace(known, stop_cause="")
    waited = seconds_since(said.state_since, look.now) or 0.0
    if said.error is None or said.state not in ("failed", "waiting"):
        return [], known
    if said.state == "waiting" and (known.stop_cause or waited < CONTACT_SECONDS):
        return [], known
    cause = _WAITING if said.state == "waiting" else str(said.error.get("code"))
    if known.stop_cause == cause:
        return [], known
    what = "the source stopped" if said.state == "failed" else "the source is waited for"
    stopped = look.event("source_stopped", f"{what}: {_line(said.error)}", **_code_and_hint(said.error))
    return [stopped], replace(known, stop_cause=cause)


def _tables(look: Comparison) -> _Step:
    tables = look.status.tables
    if tables is None:
        return [], look.states
    found, stopped = [], dict(look.states.tables)
    for name in [name for name in stopped if name not in tables]:
        del stopped[name]  # nobody mirrors it any more
    for name, table in tables.items():
        code = _stop_code(table)
        if code is not None and stopped.get(name) != code:
            stopped[name] = code
            where = f" at {table.stopped_at}" if table.stopped_at else ""
            what = f"table {name} stopped{where}: {_line(table.error or {})}"
            found.append(look.event("table_stopped", what, table=name, **_code_and_hint(table.error)))
        elif table.state == "live" and name in stopped:
            del stopped[name]
            found.append(look.event("table_live", f"table {name} is live again", table=name))
    return found, replace(look.states, tables=stopped)


def _stop_code(table: TableStatus) -> str | None:
    """The code for which a table stopped; None where no person has to look."""
    if table.state != "stopped" or table.follows or table.is_missing:
        return None
    return str((table.error or {}).get("code"))


def _alterations(look: Comparison) -> _Step:
    newest = look.states.newest_change
    fresh = [each for each in look.status.alterations if each.epoch > newest]
    found = [
        look.event("ddl_followed", f"table {each.table} was altered, and the mirror followed: {each.what}",
                   table=each.table)
        for each in fresh
    ]  # fmt: skip
    return found, replace(look.states, newest_change=max([newest, *(each.epoch for each in fresh)]))


def _lag(look: Comparison) -> _Step:
    known, limit = look.states, look.hook.lag
    lag = look.status.lag_seconds(look.now)
    if lag is None or look.status.state not in ("running", "waiting"):
        return [], known
    if lag > limit:
        late = replace(known, is_late=True, on_time_since=None)
        what = f"it may be {duration_text(lag)} behind its source, more than {duration_text(limit)}"
        hint = "headrace status shows what it waits for"
        return ([] if known.is_late else [look.event("lag_over", what, hint=hint)]), late
    if not known.is_late:
        return [], known
    now = look.now.isoformat()
    since = min(known.on_time_since or now, now)  # a clock may be set back
    if (seconds_since(since, look.now) or 0.0) < limit:
        return [], replace(known, on_time_since=since)
    what = f"it is {duration_text(lag)} behind its source, and was on time for {duration_text(limit)}"
    return [look.event("lag_under", what)], replace(known, is_late=False, on_time_since=None)


def _log(look: Comparison) -> _Step:
    known, upstream, limit = look.states, look.status.upstream, look.hook.max_wal
    if look.status.state != "running" or upstream is None or upstream.retained_bytes is None:
        return [], known
    share = upstream.retained_bytes / upstream.limit_bytes if upstream.limit_bytes else 0.0
    if share > limit and not known.is_near_limit:
        what = f"the database holds back {share:.0%} of the log that it may"
        hint = "beyond its limit the mirror loses its place, and all tables are copied anew: headrace status"
        return [look.event("log_over", what, hint=hint)], replace(known, is_near_limit=True)
    return [], replace(known, is_near_limit=known.is_near_limit and share > _FALLEN * limit)


def _proofs(look: Comparison) -> _Step:
    now = tuple(sorted(name for name, proof in look.proofs.items() if proof.outcome == "different"))
    found = [
        look.event("verify_differs", f"table {name} differs from its source, as headrace verify found",
                   table=name, code="VERIFY_DIFFERENT", hint=f"headrace tables resync {name}")
        for name in now
        if name not in look.states.differing
    ]  # fmt: skip
    return found, replace(look.states, differing=now)


def _line(error: Mapping[str, Any]) -> str:
    detail = f" ({error['detail']})" if error.get("detail") else ""
    return f"{error.get('code')}: {error.get('primary')}{detail}"


def _code_and_hint(error: Mapping[str, Any] | None) -> dict[str, str | None]:
    return {} if error is None else {"code": error.get("code"), "hint": error.get("hint")}


_STEPS = (_run, _source, _tables, _alterations, _lag, _log, _proofs)
