"""The look ahead for truncations, over slices that hold those of one time in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.core.names import TableName
from headrace.core.truncation import Truncation, Truncations
from headrace.pipeline.stream.epoch import with_truncations
from headrace.pipeline.tasks.routing import Routes
from headrace.pipeline.tasks.slices import Slice
from headrace.pipeline.tasks.table_task import TableTask
from headrace.spool.reader import SpoolReader
from tests.laws.core.worlds import FULL

TASK = TableTask(TableName("public", "t"), FULL, "t", "h", "e", Routes.over(()), 0)


@dataclass(frozen=True)
class _Found:
    """A decoder of one slice, as far as it is asked here."""

    found: Truncations

    def truncations(self, data: Any, context: Any, tables: Mapping[int, int]) -> dict[int, Truncations]:
        return {7: self.found} if self.found else {}


def test_truncations_are_in_the_order_of_the_log_whatever_slices_hold_them(tmp_path: Path) -> None:
    first, second, third = (Truncation(8, ordinal, 100, 0) for ordinal in (3, 5, 9))
    slices = [_slice(some) for some in ((third,), (), (second, first))]
    found = with_truncations(SpoolReader(tmp_path), slices, {7: TASK})
    assert found[7].truncations == (first, second, third)


def _slice(found: Truncations) -> Slice:
    decoder: Any = _Found(found)
    context: Any = None
    return Slice(decoder, context, 0, 0, data=b"")
