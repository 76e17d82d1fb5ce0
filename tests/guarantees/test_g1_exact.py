"""G1: at every mark each table equals the source at that frontier, row for row, duplicates included."""

from __future__ import annotations

from headrace_testing import validators
from tests.guarantees.conftest import TABLES, Stormy


def test_g1_after_every_fault_each_table_equals_its_source(stormy: Stormy) -> None:
    newest = stormy.lake.marks()[-1]
    assert len(newest.versions) == TABLES
    assert validators.exact(stormy.lake, stormy.url) == []


def test_g1_some_of_these_tables_had_deletion_vectors(stormy: Stormy) -> None:
    logs = stormy.path.glob("tables/**/_delta_log/*.json")
    assert any('"deletionVector"' in log.read_text() for log in logs)


def test_g1_the_comparison_counts_rows_that_are_really_there(stormy: Stormy) -> None:
    cut = stormy.lake.at()
    rows = {name: cut.arrow(name).num_rows for name in cut.tables()}
    assert len(rows) == TABLES
    assert min(rows.values()) > 0, rows
