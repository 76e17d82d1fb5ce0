"""The births of a large epoch: each gets about as much, however few keys were looked at."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.core.names import TableName
from headrace.pipeline.stream.splits import Sample, _with
from headrace.pipeline.tasks.routing import WIDTH, Routes
from headrace.pipeline.tasks.table_task import TableTask
from tests.laws.core.worlds import KEYED

TASK = TableTask(TableName("public", "t"), KEYED, "t", "h", "e", Routes.over(()), 0)


def _sample(first: int, count: int, births: float) -> Sample:
    keys = [f"{key:08}".encode() for key in range(first, first + count)]
    return np.array(keys, f"S{WIDTH}"), births


def _births(*samples: Sample) -> list[int]:
    return [int(cut) for cut in _with(TASK, samples).routes.births]


def test_keys_that_come_in_order_are_cut_between_the_places_that_were_looked_at() -> None:
    """Each look stands for a stretch of 1000 keys; a birth is to have two of them."""
    cuts = _births(*(_sample(start, 10, 0.05) for start in range(0, 20_000, 1000)))
    assert len(cuts) == 9
    widths = np.diff([0, *cuts, 20_000])
    assert widths.min() >= 1000
    assert widths.max() <= 3000


def test_where_rows_are_wide_ranges_are_narrow() -> None:
    cuts = _births(_sample(0, 100, 0.01), _sample(1000, 100, 0.092))
    assert len(cuts) == 9
    assert sum(cut >= 1000 for cut in cuts) >= 8


@pytest.mark.parametrize("samples", [[], [_sample(0, 0, 1.0)], [_sample(0, 10, 0.19)]])
def test_of_few_rows_there_are_no_births(samples: list[Sample]) -> None:
    assert _births(*samples) == []
