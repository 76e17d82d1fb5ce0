"""DDL that is followed: a table that stopped because its shape changed is taken up as it is now, by itself.

    stopped, `ShapeChanged` ─► the deed of `headrace tables resync` ─► PENDING, copied ─► LIVE
                   ▲                                                        │
                   └──────────────── changed again meanwhile ◄──────────────┘

It leaves the marks at its last exact one, and returns in the mark that follows its copy, with an interval of
its own. Nothing is guessed: what it holds then was read at the source. A table that is not fit for that, or
is gone, stays stopped, says so in the status, and is asked for again from time to time. One that changes
again and again is taken up after pauses that grow, since each time costs the source a copy; where it was
refused, for want of a right, say, they stay short. One whose
stream still is not read after two copies waits for a person.

With `on_ddl = "stop"` all of that waits for a person.

A table that is new at the source, and that the patterns match, waits for `headrace tables add`. With
`new_tables = "add"` the run itself does what that command asks for (`NewTables`). New is a table of which the
lake has nothing: one that somebody dropped from the mirror stays away until somebody adds it.

Called once a turn by the loop of `loop`.
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
from headrace.pipeline.state.owner import Owner, Steps, Warner
from headrace.pipeline.state.place import RunContext
from headrace.pipeline.state.records import MOST_COPIES, TableRecord, copied_in_vain
from headrace.pipeline.state.table_state import State
from headrace.sources.shared.patterns import select

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
REFUSED_PAUSE = 15.0  # the longest where no copy was begun: to ask costs the source next to nothing


class TablesRun(Protocol):
    """A run's tables, and what it was configured to do."""

    @property
    def place(self) -> RunContext: ...
    @property
    def ledger(self) -> Ledger: ...


class FollowingRun(Owner, Protocol):
    """A run, as far as the following of DDL needs it."""

    @property
    def commands(self) -> CommandQueue: ...


@dataclass(slots=True)
class _Retry:
    """A table that was taken up, or was to be: the next time is not before this."""

    pause: float
    again_at: float


@dataclass(frozen=True, slots=True)
class Prospect:
    """The prospect of a table that stopped: whether it is taken up by itself, and in how many seconds."""

    follows: bool
    retry_in: float | None
    is_gone: bool


@dataclass(slots=True)
class TableFollower:
    """The tables that one attempt has taken up."""

    retries: dict[TableName, _Retry] = field(default_factory=dict)
    refusals: Mapping[TableName, HeadraceError] = field(default_factory=dict)  # when they were tried last

    def turn(self, run: FollowingRun) -> None:
        """Take up what has changed, unless a request is under way that may be about the same tables."""
        if not run.commands.may_ask_oneself:
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
        run.commands.ask_oneself(run, self._taken_up(run, due))

    def _taken_up(self, run: FollowingRun, due: Sequence[TableName]) -> Steps:
        begun: resync.ResyncStart = yield from resync.copied_anew(run, due)
        left = {name: error for name, error in self.refusals.items() if name not in due}
        self.refusals = {**left, **begun.refusals}
        for name in begun.refusals:
            tried = self.retries[name]
            tried.again_at = min(tried.again_at, time.monotonic() + REFUSED_PAUSE)
        return {}

    def reason(self, record: TableRecord) -> HeadraceError | None:
        """The error of a table: of one that can't be taken up now the reason for that, and why it stopped."""
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
        """Say whether a table that stopped is taken up again by itself."""
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
        """Say why a table that stopped was not taken up when it was last tried, or never is again."""
        if _is_hopeless(record):
            return _in_vain(record.name)
        return self.refusals.get(record.name) if record.state is State.STOPPED else None

    def stop(self, record: TableRecord) -> HeadraceError:
        """The error of a run that ends with this table stopped."""
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
        # Who has been quiet for long enough begins at the beginning.
        calm = last is None or now - last.again_at > LONGEST_PAUSE
        pause = FIRST_PAUSE if last is None or calm else min(2 * last.pause, LONGEST_PAUSE)
        self.retries[name] = _Retry(pause, now + pause)


class BesideTables(Protocol):
    """The tables that the patterns match and nobody mirrors, each with the code that says why."""

    unmirrored_tables: dict[str, str]
    coming: frozenset[str] | None


class NewTablesReporter(Warner, Protocol):
    """The status of a run, as far as new tables need it."""

    @property
    def beside(self) -> BesideTables: ...


class NewTablesRun(FollowingRun, Protocol):
    """A run, as far as new tables need it."""

    @property
    def reporter(self) -> NewTablesReporter: ...


@dataclass(slots=True)
class NewTables:
    """The tables that came while a run was there, and that it adds by itself."""

    pauses: TableFollower = field(default_factory=TableFollower)
    refusals: set[TableName] = field(default_factory=set)

    def turn(self, run: NewTablesRun) -> None:
        """Add what is new, unless a request is under way."""
        if not run.commands.may_ask_oneself:
            return
        now, tried, new = time.monotonic(), self.pauses.retries, _new(run)
        run.reporter.beside.coming = frozenset(str(name) for name in new if name not in self.refusals)
        due = [name for name in new if name not in tried or tried[name].again_at <= now]
        # One that was refused may have kept others away: it is tried again alone.
        due = [name for name in due if name not in tried] or due[:1]
        if due:
            for name in due:
                self.pauses.note(name, now)
            run.commands.ask_oneself(run, self._add(run, due))

    def busy(self, run: NewTablesRun) -> bool:
        """Tell whether a table may still be added before a run ends that only catches up."""
        return any(name not in self.pauses.retries for name in _new(run))

    def _add(self, run: NewTablesRun, names: Sequence[TableName]) -> Steps:
        try:
            yield from add_drop.choose(run, tuple(map(str, names)))
        except HeadraceError as error:
            if run.ledger.torn:
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
    """The tables that the patterns match and of which the lake has nothing."""
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
    """The tables that stopped because they are others by now."""
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
