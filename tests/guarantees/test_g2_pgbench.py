"""G2 and G1 by the issue's own measure: pgbench with four clients before, during and after the snapshot.

On PostgreSQL 15 and 18, with every epoch as a Spark job and with tiny ones in the driver: the four sums
agree at every mark and at every distinct time of history, and the end equals the source row for row.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored
from headrace_testing.postgres import postgres
from headrace_testing.wholeness import balances

MARKS = 40


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("driver_epochs", [0, 20_000])
@pytest.mark.parametrize("version", ["15", "18"])
def test_g2_balances_agree_at_every_mark_and_time_under_load(
    tmp_path: Path, version: str, driver_epochs: int
) -> None:
    options = {"driver_epochs": driver_epochs}
    with postgres(version) as server, server.database() as database:
        database.pgbench_tables(2)
        with (
            database.pgbench(clients=4, rate=200) as load,
            Mirrored(tmp_path / "lake", database.url(user="app"), "public.*", options=options) as mirror,
        ):
            mirror.until_live()
            reached = mirror.lake.marks()[-1].epoch
            mirror.until(lambda: mirror.lake.at().mark.epoch >= reached + MARKS, "further marks")
            load.stop()
            assert mirror.stop() == 0, mirror.log()
            assert mirror.once() == 0, mirror.log()
            verdict = balances(mirror.lake, sample=None)
            assert verdict.violations == []
            assert verdict.marks >= MARKS
            assert verdict.times > 500
            assert validators.exact(mirror.lake, database.url()) == []
            counts = mirror.status().status.epochs
            assert counts is not None
            assert driver_epochs or not counts.driver
