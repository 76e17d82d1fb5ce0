"""A table's number follows from its name alone, the same on every machine."""

from __future__ import annotations

from headrace.core.names import TableName
from headrace.sources.mysql.catalog.table_def import table_number


def test_a_number_is_of_48_bits_and_the_same_for_ever() -> None:
    assert table_number(TableName("shop", "orders")) == 0x273B481B0B74
    assert table_number(TableName("shop", "кассы")) < 1 << 48


def test_where_the_database_ends_makes_a_difference() -> None:
    assert table_number(TableName("a", "bc")) != table_number(TableName("ab", "c"))
