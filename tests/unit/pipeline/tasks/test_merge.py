"""What the table of merges promises; what they do is in the laws and in `test_merge_keyed`."""

from __future__ import annotations

from headrace.pipeline.tasks.merge import MERGES
from headrace.pipeline.tasks.table_task import Merge


def test_every_kind_of_group_has_its_merge() -> None:
    assert MERGES.keys() == set(Merge)
