"""The commit protocol: how an epoch of one source gets into the lake, exactly once, despite any crash.

    data files ──► plan N ──► each table: one Delta commit at exactly base+1 ──► mark N ──► acknowledge
                     │                                                              │
                     │ put-if-absent, only on top of mark N-1;                      │ appended only on
                     │ then the newest mark is read again                           │ top of mark N-1
                     ▼                                                              ▼
              from here on epoch N is *this plan*                        from here on it is public

Every step is idempotent, so whoever finds plan N without mark N (the writer after a crash, a retry after
a lost answer, a successor) carries out that plan and never another one. Two writers that finish the same
plan at the same time do no harm: each Delta commit and the mark have one place, and one of them gets it.

**Fence.** A writer owns the source until somebody else's plan takes its next epoch number. A successor
(`takeover`) finishes what it finds and then publishes an empty epoch of its own, so the older writer's next
`put_plan` fails, whenever that comes: either the number is taken, or (where old plans were cleaned away) the
newest mark, read again after the put, is already there. Any work that it did before belongs to the plan that
the successor finished. A process that begins again after an error (`Claim`) goes on without such an epoch as
long as the newest mark and the newest plan are its own; otherwise it takes nothing back from a successor.

**Power.** After a sync, the durable epoch is written down (`headrace.lake.log.durable`), and only then
acknowledged. A power cut may tear later epochs, and `headrace.lake.log.recovery` judges them before anybody
takes over.

**Withdrawal.** A plan may be impossible to finish: another program's commit sits at base+1 of a table, for
ever; or a step fails by a bug of ours (`StepFailed`), as it would in every run. Then no writer can ever get
past that step, and none has touched the tables that come after it. `withdraw` puts attempt k+1 of the same
epoch beside the plan: it restores the contents of the tables that attempt k has touched, changes no state,
and its mark repeats the frontier and the versions of mark N-1. Then the pipeline plans anew, or stops the
table if the other program changed data.

            finish(plan) ──► Mark                    published
                         └─► Blocked ──► withdraw ──► Mark (kind "withdraw"); then plan anew
                                                 └─► WithdrawalFailed, if a bug of ours stops that too

After a failed withdrawal, write nothing more: a table that was not restored holds rows of no mark. The source
waits for a release that can restore it, and the next writer continues from there.

The protocol sees tables, marks and files only through the `Protocol` classes below, so that tests run it
unchanged against an in-memory twin under every order of steps (`tests/laws/lake`). It never retries by
itself: `Transient` goes to the caller, who calls the same method again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Protocol

from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient, is_fault, place_of
from headrace.core.failpoint import failpoint
from headrace.core.position import ORIGIN, Position
from headrace.lake.format import layout
from headrace.lake.format.plan import Plan, TableStep, attempts
from headrace.lake.log import durable
from headrace.lake.log.durable import FencedOut, Syncing, fenced_error
from headrace.lake.log.marks import Mark, Marks, mark_of, repeating
from headrace.lake.log.table import Entry, LakeTable, Stamp, tables_of
from headrace.lake.store.contract import Store

_ROUNDS = 20


class DeltaTables(durable.Table, Protocol):
    """One Delta table as the protocol needs it; `headrace.lake.log.table` explains each operation."""

    @property
    def version(self) -> int: ...

    def refresh(self) -> int: ...

    def live(self) -> frozenset[str]: ...

    def entry(self, version: int) -> Entry | None: ...

    def write(self, step: TableStep, stamp: Stamp) -> bool: ...

    def restoration(self, base: int) -> TableStep | None: ...


class PublishingMarkLog(durable.MarkLog, Protocol):
    """The marks of the source; see `headrace.lake.log.marks`."""

    def newest(self) -> Mark | None: ...

    def append(self, mark: Mark) -> bool: ...


class PlanFiles(durable.SyncedFiles, Protocol):
    """The part of a `Store` that keeps plans."""

    def put_if_absent(self, key: str, data: bytes) -> bool: ...


class StepFailed(Definite):
    """A step of a plan fails by a bug of ours, as it would for every writer."""

    codes = ("LAKE_STEP_FAILED",)


class WithdrawalFailed(Definite):
    """A plan that can't be finished can't be withdrawn either, by a bug of ours."""

    codes = ("LAKE_WITHDRAWAL_FAILED",)


@dataclass(frozen=True, slots=True)
class UnfinishablePlan:
    """A plan that can never be finished: at which step, and why.

    `rewritten`: another program only rewrote files, so plan anew on the new version. Otherwise it changed
    data, or the step failed by a bug of ours, and the table stops with `error`.
    """

    plan: Plan
    step: TableStep
    error: HeadraceError
    rewritten: bool


@dataclass(frozen=True, slots=True)
class Takeover:
    """The outcome of a takeover: the mark of its own empty epoch, and the plans withdrawn before it."""

    mark: Mark
    unfinishable: tuple[UnfinishablePlan, ...] = ()


@dataclass(slots=True)
class Claim:
    """The claim of a process to the source that it took over; it lasts over all its attempts."""

    is_held: bool = False  # the newest plan is ours: so is the source, until another writer puts one
    plan_ids: set[str] = field(default_factory=set)  # our last plan that was put, and those tried since


class EpochLog:
    """The epochs of one source, as one of possibly several writers sees them."""

    def __init__(
        self,
        source: str,
        files: PlanFiles,
        marks: PublishingMarkLog,
        table: Callable[[str], DeltaTables],
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        claim: Claim | None = None,
    ) -> None:
        self.source = source
        self._files = files
        self._marks = marks
        self._table = table
        self._clock = clock
        self._new_id = new_id
        self._claim = claim or Claim()
        self._published: Mark | None = None  # by us, last
        self._put: str | None = None  # the plan that was put last, until it is carried out
        self.syncing = Syncing(source, files, marks, table)
        self.durations: dict[str, float] = {}  # of the newest epoch's steps, in seconds

    def newest_mark(self) -> Mark | None:
        return self._marks.newest()

    def unfinished_plan(self) -> Plan | None:
        """Return the plan that has no mark yet, in its last attempt; finish it before anything else."""
        tried = self._attempts(_epoch(self._marks.newest()) + 1)
        return tried[-1] if tried else None

    def put_plan(self, plan: Plan) -> None:
        """Claim the plan's epoch for it, or raise `LAKE_FENCED` if another writer was there first."""
        if _epoch(self._published) != plan.epoch - 1:
            newest = _epoch(self._marks.newest())
            if newest >= plan.epoch:
                raise _fenced_error(self.source, plan.epoch)
            if newest != plan.epoch - 1:
                raise AssertionError("a plan stands on the mark before it")
        begun = monotonic()
        failpoint("lake.plan.before")
        key = layout.plan_key(self.source, plan.epoch)
        data = plan.to_json().encode()
        self._claim.plan_ids.add(plan.plan_id)
        # Equal bytes are our own: a store may refuse the repetition of a request whose answer was lost.
        if not self._files.put_if_absent(key, data) and self._files.get(key) != data:
            raise _fenced_error(self.source, plan.epoch)
        failpoint("lake.plan.after")
        # The number may have been free only because old plans are cleaned away.
        if _epoch(self._marks.newest()) >= plan.epoch:
            raise _fenced_error(self.source, plan.epoch)
        self._claim.is_held, self._claim.plan_ids = True, {plan.plan_id}
        self._put = plan.plan_id
        self.durations = {"plan": monotonic() - begun}

    def finish(self, plan: Plan) -> Mark | UnfinishablePlan:
        """Carry out a plan that was put, from any step on, and publish its mark.

        Acknowledge the frontier of the mark that is returned, and only after `Syncing.sync`.
        """
        looked, self._put = self._put == plan.plan_id, None
        if not looked and (published := self._mark_of(plan)) is not None:
            return published
        stamp = Stamp(app=f"headrace/{self.source}", epoch=plan.epoch, plan_id=plan.plan_id)
        begun = monotonic()
        for step in plan.steps:
            place = layout.place(step.path)
            failpoint("lake.table.before", place)
            blocked = _apply(self._table(step.path), plan, step, stamp)
            if blocked is not None:
                return blocked
            failpoint("lake.table.after", place)
        committed = monotonic()
        mark = self._publish(plan)
        self.durations |= {"commit": committed - begun, "publish": monotonic() - committed}
        return mark

    def withdraw(self, problem: UnfinishablePlan) -> Mark:
        """Withdraw a plan that can never be finished; its epoch ends where the one before ended."""
        epoch = problem.plan.epoch
        for _ in range(_ROUNDS):
            tried = self._attempts(epoch)
            if tried[-1].plan_id == problem.plan.plan_id:
                key = layout.plan_key(self.source, epoch, len(tried))
                withdrawal = self._withdrawal(tried[0])
                _check_progress(problem, withdrawal)
                self._claim.plan_ids.add(withdrawal.plan_id)
                failpoint("lake.withdrawal.before")
                self._files.put_if_absent(key, withdrawal.to_json().encode())
                failpoint("lake.withdrawal.after")
            # Carry out the withdrawal that was put first.
            outcome = self.finish(self._attempts(epoch)[-1])
            if isinstance(outcome, Mark):
                # No later sync names these files, but every later acknowledgement depends on them.
                self.syncing.forget()
                return outcome
            problem = outcome
        raise _restless(self.source)

    def takeover(self, *, origin: Position = ORIGIN) -> Takeover:
        """Become the source's writer: finish the older writer's plan, then publish an empty epoch of our own.

        `origin` is the frontier of a new source's first mark. If this process holds the source already
        (`Claim`), it publishes no such epoch. Raise `LAKE_FENCED` if another writer came in between.
        """
        blocked: list[UnfinishablePlan] = []
        for _ in range(_ROUNDS):
            plan, newest = self.unfinished_plan(), self._marks.newest()
            last = plan or newest
            held = self._claim.is_held and last is not None
            if held and last is not None and last.plan_id not in self._claim.plan_ids:
                raise _fenced_error(self.source, last.epoch)
            if plan is not None:
                blocked.extend(self._settle(plan))
            elif held and newest is not None:
                self.syncing.begin(newest.epoch)
                return Takeover(newest, tuple(blocked))
            own = self._empty(origin)
            if not held and self._claims(own):
                mark = self.finish(own)
                assert isinstance(mark, Mark), "a plan without steps cannot be blocked"
                self.syncing.begin(mark.epoch)
                return Takeover(mark, tuple(blocked))
        raise _restless(self.source)

    def _settle(self, plan: Plan) -> list[UnfinishablePlan]:
        """Finish or withdraw the plan that an older writer left; that one may be alive and do it as well."""
        try:
            outcome = self.finish(plan)
            if isinstance(outcome, Mark):
                return []
            self.withdraw(outcome)
        except FencedOut:
            # The older writer went on meanwhile: the next round finds its newest plan.
            return []
        return [outcome]

    def _claims(self, plan: Plan) -> bool:
        try:
            self.put_plan(plan)
        except FencedOut:
            return False
        return True

    def _mark_of(self, plan: Plan) -> Mark | None:
        """Return the plan's mark if it has one; a later mark, or one of another plan, is another writer's."""
        newest = self._marks.newest()
        if newest is None or newest.epoch < plan.epoch:
            return None
        if newest.plan_id != plan.plan_id:
            raise _fenced_error(self.source, plan.epoch)
        return newest

    def _publish(self, plan: Plan) -> Mark:
        for _ in range(_ROUNDS):
            mark = mark_of(plan, self._clock())
            failpoint("lake.mark.before")
            if self._marks.append(mark):  # on top of what the last look saw
                failpoint("lake.mark.after")
                self._published = mark
                return mark
            published = self._mark_of(plan)
            if published is not None:
                return published
        raise _restless(self.source)

    def _empty(self, origin: Position) -> Plan:
        newest = self._marks.newest()
        if newest is None:
            return Plan(self.source, 1, self._new_id(), "takeover", 0, origin.text, origin.last)
        return self._repeating(newest, "takeover")

    def _withdrawal(self, first: Plan) -> Plan:
        """Make the plan that restores every table that `first` touched to its contents before."""
        newest = self._marks.newest()
        if newest is None or newest.epoch >= first.epoch:
            raise _fenced_error(self.source, first.epoch)
        bases: dict[str, int] = {}
        for step in first.steps:
            bases.setdefault(step.path, step.base)
        steps = [
            _restoration_or_end(self._table(path), path, base, first.plan_id) for path, base in bases.items()
        ]
        plan = self._repeating(newest, "withdraw")
        return replace(plan, steps=tuple(step for step in steps if step is not None))

    def _repeating(self, mark: Mark, kind: str) -> Plan:
        """Make a plan without steps whose mark repeats `mark`."""
        return repeating(mark, self.source, mark.epoch + 1, self._new_id(), kind)

    def _attempts(self, epoch: int) -> list[Plan]:
        """Return the plan of an epoch and its withdrawals, in order."""
        return attempts(self._files, self.source, epoch)


def _fenced_error(source: str, epoch: int) -> Misconfigured:
    return fenced_error(source, f"epoch {epoch} is not ours")


def _restless(source: str) -> Transient:
    return Transient(
        "LAKE_RESTLESS",
        f'other programs keep committing to the tables of source "{source}"',
        hint="stop what else writes into this lake; the work resumes by itself",
    )


def _epoch(mark: Mark | None) -> int:
    return 0 if mark is None else mark.epoch


def _apply(table: DeltaTables, plan: Plan, step: TableStep, stamp: Stamp) -> UnfinishablePlan | None:
    """Commit the step to the table's log, unless it is there; tell why if it can never be committed."""
    try:
        return _apply_step(table, plan, step, stamp)
    except Exception as fault:
        if not is_fault(fault):
            raise
        # This error would end every run: withdraw the plan instead.
        return _step_failure(table, plan, step, fault)


def _step_failure(
    table: DeltaTables, plan: Plan, step: TableStep, fault: Exception
) -> UnfinishablePlan | None:
    """Tell why the step can never be committed, unless the log has it and something after it failed."""
    newest = table.refresh()
    entry = table.entry(step.base + 1) if newest > step.base else None
    if entry is not None and entry.plan_id == plan.plan_id:
        return None
    return UnfinishablePlan(plan, step, _fault(step, fault), rewritten=False)


def _apply_step(table: DeltaTables, plan: Plan, step: TableStep, stamp: Stamp) -> UnfinishablePlan | None:
    # The write itself finds out whether somebody was there first, unless the table is to be made.
    if (step.base >= 0 and table.version == step.base) or table.refresh() == step.base:
        dead = set(step.remove) - table.live()
        if dead:
            return UnfinishablePlan(plan, step, _dead_file(step, len(dead)), rewritten=False)
        if table.write(step, stamp):
            return None
    return _judge(table, plan, step)


def _judge(table: DeltaTables, plan: Plan, step: TableStep) -> UnfinishablePlan | None:
    """Judge the commit that stands in this step's place."""
    newest = table.refresh()
    entries = [table.entry(version) for version in range(step.base + 1, newest + 1)]
    if not entries or entries[0] is None:
        raise Definite(
            "LAKE_LOG_LOST",
            f'the log of the lake table at "{step.path}" ends before the version that it had',
            detail=f"version {step.base + 1} is not there",
            hint="restore the table's folder from a backup, or mirror into a new lake",
        )
    if entries[0].plan_id == plan.plan_id:
        return None
    rewritten = all(entry is not None and entry.rewrite for entry in entries)
    return UnfinishablePlan(plan, step, _foreign(step, rewritten), rewritten)


def plan_base(table: DeltaTables) -> int:
    """Return the version to plan the next change of a table on: its newest (-1: there is none yet).

    Another program's commits on top of our last one may only rewrite files, with equal rows.
    """
    newest = table.refresh()
    for version in range(newest, -1, -1):
        entry = table.entry(version)
        if entry is None or entry.plan_id is not None:
            break
        if not entry.rewrite:
            raise Definite(
                "LAKE_FOREIGN_COMMIT",
                "another program changed a table of this lake",
                detail=f"version {version} of the table is not ours",
                hint="stop that program, then headrace tables resync",
            )
    return newest


def _restoration(table: DeltaTables, base: int, plan_id: str) -> TableStep | None:
    newest = table.refresh()
    entry = table.entry(base + 1) if newest > base else None
    touched = entry is not None and entry.plan_id == plan_id
    return table.restoration(base) if touched else None


def _restoration_or_end(table: DeltaTables, path: str, base: int, plan_id: str) -> TableStep | None:
    """Make the step that restores a table; if that fails by a bug of ours, the error names the table."""
    try:
        return _restoration(table, base, plan_id)
    except Exception as fault:
        if not is_fault(fault):
            raise
        raise _not_withdrawn(path, place_of(fault)) from fault


def _check_progress(blocked: UnfinishablePlan, withdrawal: Plan) -> None:
    """Raise if a withdrawal failed by a bug of ours and the next one would do exactly the same."""
    again = blocked.plan.kind == withdrawal.kind and blocked.plan.steps == withdrawal.steps
    if again and isinstance(blocked.error, StepFailed):
        raise _not_withdrawn(blocked.step.path, blocked.error.detail)


def _fault(step: TableStep, fault: Exception) -> StepFailed:
    return StepFailed(
        "LAKE_STEP_FAILED",
        f'a step of a plan for the lake table at "{step.path}" failed by a fault of headrace',
        detail=place_of(fault),
        hint=_after_fault(step.path),
    )


def _after_fault(path: str) -> str:
    """Say how to go on after a failed step: a copy makes only a table's own folder anew."""
    if path.startswith(("tables/", "history/", "_headrace/staged/")):
        return "headrace tables resync copies the table anew; please report it with the detail"
    return "headrace run tries again; if it ends so again, upgrade headrace: please report it with the detail"


def _not_withdrawn(path: str, detail: str | None) -> WithdrawalFailed:
    return WithdrawalFailed(
        "LAKE_WITHDRAWAL_FAILED",
        f'an epoch could not be taken back: the lake table at "{path}" was not restored, '
        "by a fault of headrace",
        detail=detail,
        hint="headrace run tries again; if it ends so again, upgrade headrace, or mirror into a new lake: "
        "please report it with the detail",
    )


def _dead_file(step: TableStep, count: int) -> Definite:
    return Definite(
        "LAKE_DEAD_FILE",
        f'a plan removes files that the lake table at "{step.path}" does not hold',
        detail=f"{count} of {len(step.remove)} files are not live at version {step.base}",
        hint="mirror into a new lake",
    )


def _foreign(step: TableStep, rewritten: bool) -> HeadraceError:
    if rewritten:
        return Transient(
            "LAKE_REWRITTEN",
            f'another program rewrote files of the lake table at "{step.path}"',
            detail=f"version {step.base + 1}",
            hint="nothing is lost: the epoch is planned anew; let headrace maintain compact instead",
        )
    return Definite(
        "LAKE_FOREIGN_COMMIT",
        f'another program changed the lake table at "{step.path}"',
        detail=f"version {step.base + 1}",
        hint="stop that program, then headrace tables resync",
    )


def open_log(
    store: Store,
    source: str,
    table: Callable[[str], LakeTable] | None = None,
    *,
    claim: Claim | None = None,
) -> EpochLog:
    """Open the epochs of a source in a lake; `table` shares open tables with the caller."""
    return EpochLog(source, store, Marks(store, source), table or tables_of(store), claim=claim)
