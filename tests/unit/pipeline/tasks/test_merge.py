"""The table of merges has one for every kind of group; the laws and `test_merge_keyed` show what they do."""

from __future__ import annotations

from headrace.pipeline.tasks.merge import MERGES
from headrace.pipeline.tasks.table_task import Merge


def test_every_kind_of_group_has_its_merge() -> None:
    assert MERGES.keys() == set(Merge)
