"""Size of a lake by its marks: what the defaults keep, held against a week at a mark a second.

Time is real and marks are sparse: one stands for the three hundred that would come in its five minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.lake.format import delta_line
from headrace.lake.format.plan import TableStep
from headrace.lake.log import table
from headrace.lake.log.table import LakeTable, Stamp
from headrace.lake.retain import sweep
from headrace.lake.retain.sweep import Sweeper
from headrace.lake.retain.thinning import Keeping
from headrace.lake.store.contract import Store
from headrace.pipeline.commands.upkeep import EVERY_MARKS
from tests.integration.lake.household import Household

MOST_FILES = 100_000
MOST_BYTES = 2_000_000_000
# Of a mark that touches three tables of some thousand rows: `bench/cadence.py`.
FILES, BYTES = 16, 330_000
EVERY = timedelta(minutes=5)
BEFORE, SINCE = 24, 13  # marks before the last hour, and of it


@dataclass
class Hours:
    """Three hours of marks, thinned out an hour ago; the logs tell the times of the lake's own clock."""

    household: Household
    made: int  # files before anything was maintained

    @property
    def store(self) -> Store:
        store: Store = self.household.place.store
        return store

    @property
    def files(self) -> int:
        """Without the lines of logs: those go by checkpoints, for which these marks are too few."""
        return sum("_delta_log" not in key for key in self.store.list(""))


@pytest.fixture
def hours(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> Hours:
    household = Household(tmp_path / "lake", seed)
    times: dict[tuple[str, int], datetime] = {}
    write = LakeTable.write

    def noted(self: LakeTable, step: TableStep, stamp: Stamp) -> bool:
        times[self.folder, step.base + 1] = household.now
        return write(self, step, stamp)

    monkeypatch.setattr(table, "time", SimpleNamespace(time=lambda: household.now.timestamp()))
    monkeypatch.setattr(delta_line, "_now", lambda: int(household.now.timestamp() * 1000))
    monkeypatch.setattr(LakeTable, "write", noted)
    monkeypatch.setattr(table, "_OUR_INTERVAL", 25)  # a checkpoint among these few marks
    monkeypatch.setattr(sweep, "_commit_time", lambda log, at: times.get((log.folder, at), household.now))
    hours = Hours(household, 0)
    household.live(BEFORE, ago=(BEFORE + SINCE) * EVERY, every=EVERY)
    hours.made = hours.files
    household.now = datetime.now(UTC) - SINCE * EVERY
    household.maintained()
    household.live(SINCE, ago=SINCE * EVERY, every=EVERY)
    return hours


def test_the_defaults_keep_a_week_within_its_budget_and_a_sweep_that_is_late_takes_nothing(
    hours: Hours,
) -> None:
    household = hours.household
    _late(hours)
    household.maintained()
    kept = hours.files
    assert household.wrong() == []
    household.maintained(marks="0s", grace="0s")
    seconds = (kept - hours.files) / (hours.made / BEFORE) * EVERY.total_seconds()
    assert seconds >= Keeping().grace.total_seconds()
    # A mark goes when it is old enough at one maintenance; its files when that is long enough ago at another.
    marks = seconds + Keeping().marks.total_seconds() + 2 * EVERY_MARKS
    assert marks * FILES < MOST_FILES, seconds
    assert marks * BYTES < MOST_BYTES, seconds


def _late(hours: Hours) -> None:
    """Marks that were young when a sweep began would be taken for old ones after a while."""
    newest, now = hours.household.ledger.mark.epoch, datetime.now(UTC)
    sweeper = Sweeper(hours.store, "main", Keeping(), newest, now, frozenset(), dry=True)
    assert sweeper.sweep(lambda folder, error: None).log > 0
    late = replace(sweeper, now=now - timedelta(minutes=11)).sweep(lambda folder, error: None)
    assert (late.files, late.log) == (0, 0)
