"""Following DDL: a run mirrors a table again, in its new shape, after it stopped because its shape changed.

    stopped, `ShapeChanged` ─► the work of `headrace tables resync` ─► PENDING, copied ─► LIVE
                   ▲                                                        │
                   └──────────────── changed again meanwhile ◄──────────────┘

The table leaves the marks after its last exact one, and returns in the mark after its copy, with a new
interval. Nothing is guessed: all its rows were read at the source. A table that cannot be mirrored, or is
gone, stays stopped; the status says so, and the run tries again from time to time. If a table changes again
and again, the pauses grow, since each copy is a cost to the source; after a refusal, for example for a
missing privilege, they stay short. If the stream of a table still cannot be read after two copies, it waits
for a person.

With `on_ddl = "stop"` all of this waits for a person.

A new table at the source that the patterns match waits for `headrace tables add`. With `new_tables = "add"`
the run itself does the work of that command (`NewTables`). A table is new if the lake has nothing of it: one
that somebody dropped from the mirror stays away until somebody adds it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.core.errors import Definite, HeadraceError, ShapeChanged, TableMissing
from headrace.core.names import TableName
from headrace.core.records import from_record, to_record
from headrace.lake.format import layout
from headrace.lake.log import histories
from headrace.pipeline.commands import add_drop, resync
from headrace.pipeline.commands.serve import CommandQueue
from headrace.pipeline.state import last_config
from headrace.pipeline.state.choice import NOT_ADDED
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.owner import Owner, RunContext, Steps, Warner
from headrace.pipeline.state.records import MOST_COPIES, TableRecord, copied_in_vain
from headrace.pipeline.state.table_state import State
from headrace.sources.shared.patterns import select

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
REFUSED_PAUSE = 15.0  # the longest pause if no copy was begun: a try costs the source next to nothing


class TablesRun(Protocol):
    """The tables of a run, and its configuration."""

    @property
    def place(self) -> RunContext: ...
    @property
    def ledger(self) -> Ledger: ...


class FollowingRun(Owner, Protocol):
    """The part of a run that following DDL needs."""

    @property
    def commands(self) -> CommandQueue: ...


@dataclass(slots=True)
class _Retry:
    """The earliest time of the next try for a table that was taken up or refused."""

    pause: float
    again_at: float


@dataclass(frozen=True, slots=True)
class Prospect:
    """The prospect of a table that stopped: whether the run takes it up, and in how many seconds."""

    follows: bool
    retry_in: float | None
    is_gone: bool


@dataclass(slots=True)
class TableFollower:
    """The tables that one attempt has taken up."""

    retries: dict[TableName, _Retry] = field(default_factory=dict)
    refusals: Mapping[TableName, HeadraceError] = field(default_factory=dict)  # when they were tried last

    def turn(self, run: FollowingRun) -> None:
        """Take up changed tables, unless a running request may concern them."""
        if not run.commands.may_run_internal:
            return
        now = time.monotonic()
        due = [
            name
            for name in _changed_tables(run)
            if name not in self.retries or self.retries[name].again_at <= now
        ]
        if not due:
            return
        for name in due:
            self.note(name, now)
        run.commands.run_internal(run, self._taken_up(run, due))

    def _taken_up(self, run: FollowingRun, due: Sequence[TableName]) -> Steps:
        begun: resync.ResyncStart = yield from resync.copied_anew(run, due)
        left = {name: error for name, error in self.refusals.items() if name not in due}
        self.refusals = {**left, **begun.refusals}
        for name in begun.refusals:
            tried = self.retries[name]
            tried.again_at = min(tried.again_at, time.monotonic() + REFUSED_PAUSE)
        return {}

    def reason(self, record: TableRecord) -> HeadraceError | None:
        """Return a table's error; if it can't be taken up now, also the reason for that."""
        refused = self._refusal(record)
        if refused is None or record.error is None:
            return record.error
        error = refused.adding(f"it stopped: {record.error.code}: {record.error.primary}")
        if _is_hopeless(record):
            return error
        return from_record(
            HeadraceError, {**to_record(error), "hint": f"it is tried again by itself; {refused.hint}"}
        )

    def prospect(self, run: TablesRun, record: TableRecord) -> Prospect:
        """Tell whether the run takes up a table that stopped."""
        anew = run.ledger.staged.get(record.name)
        if record.state is State.STOPPED and anew is not None and anew.state is not State.STOPPED:
            return Prospect(follows=True, retry_in=None, is_gone=False)  # by its new copy, which is there
        refused, tried = self._refusal(record), self.retries.get(record.name)
        follows = record.name in _changed_tables(run)
        again_at = None if refused is None or tried is None or not follows else tried.again_at
        return Prospect(
            follows=follows,
            retry_in=None if again_at is None else again_at - time.monotonic(),
            is_gone=isinstance(refused, TableMissing),
        )

    def _refusal(self, record: TableRecord) -> HeadraceError | None:
        """Tell why the last try to take up a stopped table failed, or why there are no more tries."""
        if _is_hopeless(record):
            return _in_vain(record.name)
        return self.refusals.get(record.name) if record.state is State.STOPPED else None

    def stop(self, record: TableRecord) -> HeadraceError:
        """Return the error of a run that ends with this table stopped."""
        stop = record.stop
        if stop is None:
            return Definite("TABLE_STOPPED", f"{record.name} is stopped", hint="headrace status shows why")
        refused = self._refusal(record)
        if refused is None:
            return stop
        return stop.adding(f"it can't be taken up as it is now: {refused.code}: {refused.primary}")

    def busy(self, run: FollowingRun) -> bool:
        """Tell whether a table may still be taken up before a run ends that only catches up."""
        return run.commands.is_busy or any(name not in self.retries for name in _changed_tables(run))

    def note(self, name: TableName, now: float) -> None:
        """Note that a table is taken up now."""
        last = self.retries.get(name)
        # After a long quiet time the pauses begin anew.
        calm = last is None or now - last.again_at > LONGEST_PAUSE
        pause = FIRST_PAUSE if last is None or calm else min(2 * last.pause, LONGEST_PAUSE)
        self.retries[name] = _Retry(pause, now + pause)


class BesideTables(Protocol):
    """The unmirrored tables that the patterns match, each with the code that says why."""

    unmirrored_tables: dict[str, str]
    coming: frozenset[str] | None


class NewTablesReporter(Warner, Protocol):
    """The part of a run's status that new tables need."""

    @property
    def beside(self) -> BesideTables: ...


class NewTablesRun(FollowingRun, Protocol):
    """The part of a run that new tables need."""

    @property
    def reporter(self) -> NewTablesReporter: ...


@dataclass(slots=True)
class NewTables:
    """The tables that were created during a run, and that it adds by itself."""

    pauses: TableFollower = field(default_factory=TableFollower)
    refusals: set[TableName] = field(default_factory=set)

    def turn(self, run: NewTablesRun) -> None:
        """Add new tables, unless a request is under way."""
        if not run.commands.may_run_internal:
            return
        now, tried, new = time.monotonic(), self.pauses.retries, _new(run)
        run.reporter.beside.coming = frozenset(str(name) for name in new if name not in self.refusals)
        due = [name for name in new if name not in tried or tried[name].again_at <= now]
        # A refused table may have kept others away: try it again alone.
        due = [name for name in due if name not in tried] or due[:1]
        if due:
            for name in due:
                self.pauses.note(name, now)
            run.commands.run_internal(run, self._add(run, due))

    def busy(self, run: NewTablesRun) -> bool:
        """Tell whether a table may still be added before a run ends that only catches up."""
        return any(name not in self.pauses.retries for name in _new(run))

    def _add(self, run: NewTablesRun, names: Sequence[TableName]) -> Steps:
        try:
            yield from add_drop.choose(run, tuple(map(str, names)))
        except HeadraceError as error:
            if run.ledger.is_incomplete:
                raise
            self.refusals |= set(names)
            told = ", ".join(map(str, names[:5]))
            run.reporter.warn(NOT_ADDED, f"{told} could not be added: {error.code}: {error.primary}")
        else:
            run.reporter.clear(NOT_ADDED)
            left = run.reporter.beside.unmirrored_tables.items()
            mirrored = set(map(str, run.ledger.tables))
            # Another dictionary: the reporter's thread may be reading this one.
            run.reporter.beside.unmirrored_tables = {
                name: code for name, code in left if name not in mirrored
            }
        return {}


def _new(run: NewTablesRun) -> list[TableName]:
    """Find the tables that the patterns match and of which the lake has nothing."""
    ledger, store = run.ledger, run.place.store
    if run.place.config.new_tables != "add" or ledger.recovering:
        return []
    codes = run.reporter.beside.unmirrored_tables
    found = {TableName.parse(text) for text, code in codes.items() if code == NOT_ADDED}
    found -= ledger.tables.keys()
    if not found or ledger.source is None:
        return []
    found -= set(histories.tables_under(store, layout.tables_folder(ledger.name)))
    # Somebody may have dropped one before its copy was in.
    _, wanted = last_config.recall(store)[ledger.name]
    return list(select(wanted.tables, found, case_insensitive=ledger.source.facts.case_insensitive).names)


def _changed_tables(run: TablesRun) -> Iterator[TableName]:
    """Find the tables that stopped because their shape changed or they were replaced."""
    ledger = run.ledger
    if run.place.config.on_ddl != "follow" or ledger.recovering:
        return
    for name, record in ledger.tables.items():
        if (
            record.state is State.STOPPED
            and name not in ledger.staged
            and isinstance(record.error, ShapeChanged)
            and not _is_hopeless(record)
        ):
            yield name


def _is_hopeless(record: TableRecord) -> bool:
    return record.state is State.STOPPED and copied_in_vain(record.error, record.alteration)


def _in_vain(name: TableName) -> Definite:
    return Definite(
        "TABLE_COPIED_IN_VAIN",
        f"{name} was copied {MOST_COPIES} times, and its changes still can't be read",
        hint=f"please report it; headrace tables drop {name} leaves it out, headrace tables resync {name} "
        "copies it once more",
    )
