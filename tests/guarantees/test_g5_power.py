"""G5, G1, G4: what a power cut tears was never acknowledged, and is taken back; the rest is there.

A lake that the pipeline's own ledger writes (`household`), on a disk that forgets what was not synced. The
source is the household's memory: after a cut it goes on from where the newest mark stands, as a slot would.
In the full run the same with a server, whose slot does.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.core import failpoint
from headrace.core.errors import Transient
from headrace.core.position import Position
from headrace.lake.log import recovery
from headrace.lake.log.table import LakeTable
from headrace.pipeline.state import last_config
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ownership import mend
from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored, interpreter
from headrace_testing.postgres import Database
from headrace_testing.powercut import Disk
from tests.integration.lake.household import NAMES, START, Household

STEPS = (
    "lake.plan.before",
    "lake.plan.after",
    "lake.table.before",
    "lake.table.after",
    "lake.mark.before",
    "lake.mark.after",
    "lake.sync.before",
    "lake.sync.after",
)
RECOVERY = ("lake.recovery.before", "lake.recovery.between", "lake.recovery.after")
SEEDS = range(1)
MANY_SEEDS = range(12)


@dataclass
class Unsynced(Household):
    """A household of which the last epochs may be published and not synced."""

    lazy: bool = False
    acknowledged: Position = field(default=START)

    def publish(self, epoch: Epoch) -> None:
        plan = self.ledger.publish(epoch)
        if not self.lazy:
            self.ledger.sync(plan)
            self.acknowledged = self.ledger.frontier

    def after_the_cut(self) -> None:
        """Another run takes over; the source goes on from its mark, and what came after never was."""
        self.again()
        self.frontier = self.ledger.frontier
        time = self.frontier.last
        self.states = {known: rows for known, rows in self.states.items() if known <= time}
        self.held = {name: dict(rows) for name, rows in self.state(time).items()}
        self.lazy = False


def _fail_at(monkeypatch: pytest.MonkeyPatch, step: str | None) -> None:
    failpoint._fired.clear()
    if step is None:
        monkeypatch.delenv(failpoint.VARIABLE, raising=False)
    else:
        monkeypatch.setenv(failpoint.VARIABLE, f"{step}=error")


def _lived(house: Unsynced, dice: random.Random, step: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some epochs that are synced, some that are not, the last of which ends at a step."""
    house.live(dice.randint(1, 3))
    if dice.random() < 0.5:
        house.maintained(grace="0s")
    house.lazy = step is None or not step.startswith("lake.sync")
    house.live(dice.randint(0, 2))
    if dice.random() < 0.3:
        # Files are put together, and the old ones stay: the epochs that replaced them may be taken back.
        house.live(2)
    _fail_at(monkeypatch, step)
    with suppress(Transient):
        house.live(1)
    _fail_at(monkeypatch, None)


def _cut_again(
    disk: Disk, house: Unsynced, dice: random.Random, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Sometimes the power goes again while that is being mended."""
    _fail_at(monkeypatch, dice.choice([*RECOVERY, None]))
    with suppress(Transient):
        house.again()
    _fail_at(monkeypatch, None)
    return disk.cut(dice)


def _survives(
    tmp_path: Path, seed: int, step: str | None, monkeypatch: pytest.MonkeyPatch, *, cuts: int
) -> None:
    dice = random.Random(f"{seed}{step}")
    disk = Disk(tmp_path / "lake", tmp_path / "journal")
    with disk.watched():
        house = Unsynced(disk.root, seed)
        for _ in range(cuts):
            _lived(house, dice, step, monkeypatch)
            told = disk.cut(dice)
            told += _cut_again(disk, house, dice, monkeypatch)
            house.after_the_cut()
            assert house.ledger.frontier >= house.acknowledged, told
            assert house.wrong() == [], told
        house.live(2, every=timedelta(seconds=1))
        house.maintained(grace="0s")
    assert house.wrong() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_g5_a_power_cut_takes_back_only_what_was_not_acknowledged(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _survives(tmp_path, seed, None, monkeypatch, cuts=1)


@pytest.mark.full
@pytest.mark.parametrize("seed", MANY_SEEDS)
@pytest.mark.parametrize("step", STEPS)
def test_g5_a_power_cut_at_any_durable_step_leaves_an_exact_lake(
    tmp_path: Path, step: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _survives(tmp_path, seed, step, monkeypatch, cuts=2)


@pytest.mark.parametrize(
    "torn", ["mark", "table", *(pytest.param(each, marks=pytest.mark.full) for each in ("history", "log"))]
)
def test_g5_one_empty_file_of_an_unsynced_epoch_takes_it_back_and_no_version_comes_again(
    tmp_path: Path, torn: str
) -> None:
    house = Unsynced(tmp_path / "lake", 3)
    house.live(2)
    before, house.lazy = house.ledger.mark, True
    [folder, *_] = [house.ledger.task_folder(name) for name in NAMES]
    versions = {name: house.ledger.live.table(house.ledger.task_folder(name)).version for name in NAMES}
    while house.ledger.live.table(folder).version == versions[NAMES[0]]:
        house.live(1)
    reader = LakeTable(house.place.store, folder)
    reader.refresh()
    patterns = {
        "mark": "marks/main/e*.parquet",
        "table": f"{folder}/e*.parquet",
        "history": f"{folder.replace('tables', 'history')}/1/e*.parquet",
        "log": f"{folder}/_delta_log/*.json",
    }
    newest = max((tmp_path / "lake").glob(patterns[torn]), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(b"")
    if torn == "mark":  # a command comes first, and mends it as a run does
        assert list(last_config.sources(str(house.path))) == ["main"]
    house.after_the_cut()
    assert house.ledger.frontier >= before.position
    assert house.wrong() == []
    # Who had the table open before is brought to what it holds now.
    reader.refresh()
    assert reader.live() == house.ledger.live.table(folder).live()
    house.live(2)
    assert house.wrong() == []


@pytest.mark.parametrize(
    "torn",
    ["line", "file", *(pytest.param(each, marks=pytest.mark.full) for each in ("first", "checkpoint"))],
)
def test_g5_what_another_program_left_torn_is_undone_and_ours_stays(tmp_path: Path, torn: str) -> None:
    """It put files together, once or twice, and neither it nor we have synced that when the power goes."""
    house = Unsynced(tmp_path / "lake", 3)
    folder = tmp_path / "lake" / house.ledger.task_folder(NAMES[0])
    house.live(4)
    other = DeltaTable(str(folder))
    other.optimize.compact()
    line, files = folder / f"_delta_log/{other.version():020d}.json", set(other.file_uris())
    if torn == "first":
        other.optimize.compact(target_size=1 << 30)
        other.vacuum(0, enforce_retention_duration=False, dry_run=True)
    if torn == "checkpoint":
        other.create_checkpoint()
    for path in files if torn == "file" else [line]:
        Path(path).write_bytes(b"")
    house.again()
    assert house.ledger.foreign() == {}
    assert house.wrong() == []
    house.live(3)
    house.again()
    assert house.wrong() == []


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.full) for n in MANY_SEEDS)])
def test_g5_epochs_on_top_of_what_another_program_wrote_are_durable_or_go_with_it(
    tmp_path: Path, seed: int, synced: bool
) -> None:
    disk = Disk(tmp_path / "lake", tmp_path / "journal")
    with disk.watched():
        house = Unsynced(disk.root, seed)
        house.live(4)
        for name in NAMES:
            DeltaTable(str(disk.root / house.ledger.task_folder(name))).optimize.compact()
        house.learn()
        house.lazy = not synced
        house.live(3)
        told = disk.cut(random.Random(seed))
        house.after_the_cut()
        assert house.ledger.frontier >= house.acknowledged, told
        assert house.wrong() == [], told
        house.live(2)
        assert house.wrong() == [], told


@pytest.mark.parametrize("epochs", [2, pytest.param(0, marks=pytest.mark.full)])
def test_g5_who_mends_while_another_did_and_went_on_leaves_the_lake_alone(
    tmp_path: Path, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = Unsynced(tmp_path / "lake", 3)
    house.live(2)
    house.lazy = True
    house.live(2)
    torn = max((tmp_path / "lake").glob("marks/main/e*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    torn.write_bytes(b"")

    def meanwhile(_: str) -> None:
        monkeypatch.undo()
        house.after_the_cut()
        house.live(epochs)

    monkeypatch.setattr(recovery, "failpoint", meanwhile)
    with pytest.raises(Transient):
        mend(house.place.store, "main")
    assert house.wrong() == []
    house.live(1)
    house.again()
    assert house.wrong() == []


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("step", [*STEPS, "acknowledge.before", "acknowledge.after"])
def test_g5_a_machine_that_loses_power_at_any_durable_step_mirrors_on_exactly(
    database: Database, tmp_path: Path, step: str
) -> None:
    dice = random.Random(step)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", user="app")
    database.execute(
        "CREATE TABLE u (id int PRIMARY KEY, n int); ALTER TABLE u REPLICA IDENTITY FULL", user="app"
    )
    for table in "tu":
        database.execute(f"INSERT INTO {table} SELECT i, 0 FROM generate_series(1, 1000) i", user="app")
    disk = Disk(tmp_path / "lake", tmp_path / "journal")
    mirror = Mirrored(disk.root, database.url(user="app"), "public.*", program=interpreter(*disk.command))
    try:
        assert mirror.once() == 0, mirror.log()
        for _ in range(2):
            database.execute("UPDATE t SET n = n + 1; DELETE FROM u WHERE id % 7 = 0", user="app")
            mirror.start("--once", environment={"HEADRACE_FAILPOINT": f"{step}=kill"})
            assert mirror.wait() == -9, mirror.log()
            told = disk.cut(dice)
            database.execute("UPDATE u SET n = n + 1", user="app")
            assert mirror.once() == 0, f"{told}\n{mirror.log()}"
            assert validators.exact(mirror.lake, database.url()) == [], told
            assert validators.definite(mirror.lake) == [], told
    finally:
        mirror.close()
