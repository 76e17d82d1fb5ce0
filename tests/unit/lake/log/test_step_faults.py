"""The hint for a person after a step of a plan failed by a fault of ours."""

from __future__ import annotations

import pytest

from headrace.core.names import TableName
from headrace.lake.format import layout
from headrace.lake.log.commit import _after_fault

T = TableName("public", "t")


@pytest.mark.parametrize(
    "folder",
    [
        layout.table_folder("main", T),
        layout.history_folder("main", T, 1),
        layout.staged_folder("main", "5-0"),
    ],
)
def test_a_tables_own_folder_is_made_anew_by_a_copy(folder: str) -> None:
    assert "tables resync" in _after_fault(folder)


@pytest.mark.parametrize("folder", [layout.errors_folder("main"), layout.marks_folder("main")])
def test_no_copy_makes_what_all_tables_share(folder: str) -> None:
    assert "resync" not in _after_fault(folder)
