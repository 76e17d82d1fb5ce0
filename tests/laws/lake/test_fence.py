"""The commit machine's single promises, each by the shortest run that can break it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.core.errors import Definite, Misconfigured, Transient
from headrace.lake.format import layout
from headrace.lake.format.plan import Plan, TableStep
from headrace.lake.log.commit import Claim, EpochLog, UnfinishablePlan
from headrace.lake.log.marks import Mark
from headrace.lake.log.table import Stamp
from tests.laws.lake.scenes import Twin
from tests.laws.lake.world import TwinFiles, TwinMarks, TwinTable, World
from tests.laws.lake.writers import SOURCE, folder

A, B = folder("a"), folder("b")


def _log(world: World) -> EpochLog:
    return EpochLog(SOURCE, TwinFiles(world), TwinMarks(world), lambda path: TwinTable(world, path))


def _plan(world: World, epoch: int, *steps: TableStep, frontier: str = "9") -> Plan:
    return Plan(SOURCE, epoch, f"plan-{epoch}", "stream", 0, frontier, 8, steps=steps)


def _add(world: World, path: str, base: int, row: int, remove: tuple[str, ...] = ()) -> TableStep:
    return TableStep(path, base, (world.write_file(1, {row}),), remove)


def _published(log: EpochLog, plan: Plan) -> Mark:
    log.put_plan(plan)
    mark = log.finish(plan)
    assert isinstance(mark, Mark)
    return mark


def _blocked(log: EpochLog, plan: Plan) -> UnfinishablePlan:
    log.put_plan(plan)
    blocked = log.finish(plan)
    assert isinstance(blocked, UnfinishablePlan)
    return blocked


def test_after_a_takeover_the_older_writers_next_plan_is_refused() -> None:
    world = World()
    older, newer = _log(world), _log(world)
    epoch = older.takeover().mark.epoch
    newer.takeover()
    with pytest.raises(Misconfigured) as raised:
        older.put_plan(_plan(world, epoch + 1))
    assert raised.value.code == "LAKE_FENCED"


def test_who_holds_the_source_keeps_it_however_often_the_store_refuses_a_plan() -> None:
    world, claim = World(), Claim()

    class Full(TwinFiles):
        def put_if_absent(self, key: str, data: bytes) -> bool:
            raise Transient("LAKE_STORE", "the disk is full", hint="wait")

    def attempt(files: TwinFiles) -> EpochLog:
        return EpochLog(SOURCE, files, TwinMarks(world), lambda path: TwinTable(world, path), claim=claim)

    epoch = attempt(TwinFiles(world)).takeover().mark.epoch
    for number in range(50):
        refused = attempt(Full(world))
        assert refused.takeover().mark.epoch == epoch
        with pytest.raises(Transient):
            refused.put_plan(replace(_plan(world, epoch + 1), plan_id=f"refused-{number}"))
    last = attempt(TwinFiles(world))
    last.takeover()
    _published(last, _plan(world, epoch + 1))


def test_a_plan_put_where_plans_were_cleaned_away_is_refused() -> None:
    world = World()
    older, newer = _log(world), _log(world)
    epoch = older.takeover().mark.epoch

    class Sleeper(TwinFiles):
        """Sleeps just before the put: meanwhile the other takes over and cleans up."""

        def put_if_absent(self, key: str, data: bytes) -> bool:
            newer.takeover()
            world.blobs.clear()
            return super().put_if_absent(key, data)

    sleeper = EpochLog(SOURCE, Sleeper(world), TwinMarks(world), lambda path: TwinTable(world, path))
    with pytest.raises(Misconfigured) as raised:
        sleeper.put_plan(_plan(world, epoch + 1))
    assert raised.value.code == "LAKE_FENCED"


def test_a_successor_finishes_the_plan_that_it_finds() -> None:
    world = World()
    older, newer = _log(world), _log(world)
    epoch = older.takeover().mark.epoch + 1
    plan = _plan(world, epoch, _add(world, A, -1, 1))
    older.put_plan(plan)
    taken = newer.takeover()
    assert taken.mark.epoch == epoch + 1
    assert world.marks[epoch - 1].plan_id == plan.plan_id
    assert world.rows(A, 0) == {1: 1}
    with pytest.raises(Misconfigured) as raised:
        older.finish(plan)
    assert raised.value.code == "LAKE_FENCED"


def test_the_removal_of_a_dead_file_blocks_the_plan() -> None:
    world = World()
    log = _log(world)
    epoch = log.takeover().mark.epoch + 1
    _published(log, _plan(world, epoch, _add(world, A, -1, 1)))
    blocked = _blocked(log, _plan(world, epoch + 1, _add(world, A, 0, 2, remove=("gone.parquet",))))
    assert blocked.error.code == "LAKE_DEAD_FILE"
    assert not blocked.rewritten
    assert len(world.tables[A]) == 1


def test_a_lost_race_with_a_compaction_is_withdrawn_and_leaves_the_compaction_alone() -> None:
    world = World()
    log = _log(world)
    epoch = log.takeover().mark.epoch + 1
    before = _published(log, _plan(world, epoch, _add(world, A, -1, 1), _add(world, B, -1, 1)))
    Twin(world).disturb(B, 1, faithful=True)
    blocked = _blocked(
        log, _plan(world, epoch + 1, _add(world, A, 0, 2), _add(world, B, 0, 2), frontier="10")
    )
    assert blocked.rewritten
    assert blocked.step.path == B
    assert blocked.error.code == "LAKE_REWRITTEN"
    mark = log.withdraw(blocked)
    assert (mark.kind, mark.frontier, mark.epoch) == ("withdraw", before.frontier, epoch + 1)
    assert world.rows(A, len(world.tables[A]) - 1) == {1: 1}
    assert len(world.tables[B]) == 2, "nothing was committed over the compaction"


def test_a_withdrawal_goes_back_behind_all_steps_of_a_table() -> None:
    world = World()
    log = _log(world)
    epoch = log.takeover().mark.epoch + 1
    _published(log, _plan(world, epoch, _add(world, A, -1, 1), _add(world, B, -1, 1)))
    Twin(world).disturb(B, 1, faithful=True)
    steps = (_add(world, A, 0, 2), _add(world, A, 1, 3), _add(world, B, 0, 2))
    log.withdraw(_blocked(log, _plan(world, epoch + 1, *steps)))
    assert world.rows(A, len(world.tables[A]) - 1) == {1: 1}


def test_another_programs_change_blocks_the_plan_for_good() -> None:
    world = World()
    log = _log(world)
    epoch = log.takeover().mark.epoch + 1
    _published(log, _plan(world, epoch, _add(world, A, -1, 1)))
    Twin(world).disturb(A, 1, faithful=False)
    blocked = _blocked(log, _plan(world, epoch + 1, _add(world, A, 0, 2)))
    assert blocked.error.code == "LAKE_FOREIGN_COMMIT"
    assert not blocked.rewritten


def test_a_successor_withdraws_what_can_never_be_finished() -> None:
    world = World()
    older, newer = _log(world), _log(world)
    epoch = older.takeover().mark.epoch + 1
    _published(older, _plan(world, epoch, _add(world, A, -1, 1)))
    Twin(world).disturb(A, 1, faithful=False)
    _blocked(older, _plan(world, epoch + 1, _add(world, A, 0, 2)))
    taken = newer.takeover()
    assert [blocked.step.path for blocked in taken.unfinishable] == [A]
    assert [mark.kind for mark in world.marks][-2:] == ["withdraw", "takeover"]


class Faulty(TwinTable):
    """A table that a step cannot get into, or that fails once it is in."""

    def __init__(self, world: World, path: str, *, behind: bool = False) -> None:
        super().__init__(world, path)
        self.behind = behind

    def write(self, step: TableStep, stamp: Stamp) -> bool:
        if self.behind:
            super().write(step, stamp)
        raise AssertionError("a fault of ours")


def _faulty(world: World, at: str, *, behind: bool = False) -> EpochLog:
    def table(path: str) -> TwinTable:
        return Faulty(world, path, behind=behind) if path == at else TwinTable(world, path)

    return EpochLog(SOURCE, TwinFiles(world), TwinMarks(world), table)


def test_a_fault_of_ours_is_withdrawn_by_whoever_comes_with_what_the_plan_did_before_it() -> None:
    world = World()
    log = _log(world)
    epoch = log.takeover().mark.epoch + 1
    before = _published(log, _plan(world, epoch, _add(world, A, -1, 1), _add(world, B, -1, 1)))
    log.put_plan(_plan(world, epoch + 1, _add(world, A, 0, 2), _add(world, B, 0, 2), frontier="10"))
    [blocked] = _faulty(world, B).takeover().unfinishable
    assert (blocked.step.path, blocked.error.code, blocked.rewritten) == (B, "LAKE_STEP_FAILED", False)
    assert [(mark.kind, mark.frontier) for mark in world.marks[-2:]] == [
        ("withdraw", before.frontier),
        ("takeover", before.frontier),
    ]
    assert world.rows(A, len(world.tables[A]) - 1) == {1: 1}
    assert _log(world).unfinished_plan() is None


class Unrestored(TwinTable):
    """A table with a fault of ours in its restoration: in its planning, or where it is carried out."""

    planned = False

    def restoration(self, base: int) -> TableStep | None:
        if self.planned:
            raise AssertionError("a fault of ours")
        return super().restoration(base)

    def write(self, step: TableStep, stamp: Stamp) -> bool:
        if step.remove:
            raise AssertionError("a fault of ours")
        return super().write(step, stamp)


class Unplanned(Unrestored):
    planned = True


@pytest.mark.parametrize(("kind", "rows"), [(Unrestored, {1: 1}), (Unplanned, {1: 1, 2: 1})])
def test_a_withdrawal_that_meets_a_fault_of_ours_ends_coded_and_leaves_all_to_who_can(
    kind: type[Unrestored], rows: dict[int, int]
) -> None:
    """Without the fault it is taken back; where nobody began to, the plan itself may be carried out."""
    world = World()
    log = _log(world)
    epoch = log.takeover().mark.epoch + 1
    before = _published(log, _plan(world, epoch, _add(world, A, -1, 1), _add(world, B, -1, 1)))
    log.put_plan(_plan(world, epoch + 1, _add(world, A, 0, 2), _add(world, B, 0, 2), frontier="10"))
    kinds = {A: kind, B: Faulty}
    faulty = EpochLog(
        SOURCE, TwinFiles(world), TwinMarks(world), lambda path: kinds.get(path, TwinTable)(world, path)
    )
    blobs = None
    for _ in range(3):
        with pytest.raises(Definite) as raised:
            faulty.takeover()
        assert raised.value.code == "LAKE_WITHDRAWAL_FAILED"
        assert A in raised.value.primary
        assert "AssertionError" in str(raised.value.detail)
        assert world.marks[-1] == before
        assert blobs in (None, world.blobs.keys()), "nothing is put twice"
        blobs = set(world.blobs)
    _log(world).takeover()
    assert [world.rows(path, len(world.tables[path]) - 1) for path in (A, B)] == [rows, rows]


def test_a_fault_behind_a_step_that_is_in_the_log_blocks_nothing() -> None:
    world = World()
    epoch = _log(world).takeover().mark.epoch + 1
    log = _faulty(world, A, behind=True)
    _published(log, _plan(world, epoch, _add(world, A, -1, 1), _add(world, B, -1, 1)))
    assert world.rows(A, 0) == {1: 1}


def test_a_withdrawal_that_another_program_comes_between_is_tried_again() -> None:
    world = World()
    log = _log(world)
    epoch = log.takeover().mark.epoch + 1
    _published(log, _plan(world, epoch, _add(world, A, -1, 1), _add(world, B, -1, 1)))
    Twin(world).disturb(B, 1, faithful=True)
    plan = _plan(world, epoch + 1, _add(world, A, 0, 2), _add(world, B, 0, 2))
    blocked = _blocked(log, plan)

    class Busy(TwinFiles):
        """Another program compacts A each time a withdrawal has been put, twice."""

        def put_if_absent(self, key: str, data: bytes) -> bool:
            done = super().put_if_absent(key, data)
            if len(world.tables[A]) < 4:
                Twin(world).disturb(A, len(world.tables[A]), faithful=True)
            return done

    busy = EpochLog(SOURCE, Busy(world), TwinMarks(world), lambda path: TwinTable(world, path))
    mark = busy.withdraw(blocked)
    assert mark.epoch == plan.epoch
    assert world.rows(A, len(world.tables[A]) - 1) == {1: 1}
    assert layout.plan_key(SOURCE, plan.epoch, 2) in world.blobs


def test_the_same_plan_put_again_is_no_fence() -> None:
    world = World()
    log = _log(world)
    plan = _plan(world, log.takeover().mark.epoch + 1)
    log.put_plan(plan)
    log.put_plan(plan)
    with pytest.raises(Misconfigured):
        log.put_plan(replace(plan, plan_id="another"))


def test_two_steps_of_one_table_stand_behind_each_other() -> None:
    world = World()
    log = _log(world)
    epoch = log.takeover().mark.epoch + 1
    plan = _plan(world, epoch, _add(world, A, -1, 1), _add(world, A, 0, 2))
    mark = _published(log, plan)
    assert world.rows(A, 1) == {1: 1, 2: 1}
    assert log.finish(plan) == mark
    assert len(world.tables[A]) == 2


def test_a_log_that_lost_its_end_is_a_definite_error() -> None:
    world = World()
    log = _log(world)
    epoch = log.takeover().mark.epoch + 1
    _published(log, _plan(world, epoch, _add(world, A, -1, 1)))
    plan = _plan(world, epoch + 1, _add(world, A, 3, 2))
    log.put_plan(plan)
    with pytest.raises(Definite, match="LAKE_LOG_LOST"):
        log.finish(plan)
