"""From types of the catalog to columns of the lake: the table in `types`, row by row."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.sources.postgres.types.columns import (
    TypeEntry,
    column_of,
    doubtful_key,
    enum_of,
    form_of,
    is_same_form,
)


def numeric(precision: int, scale: int) -> int:
    """The type modifier of numeric(precision, scale)."""
    return (precision << 16 | scale & 0x7FF) + 4


TYPES = {
    entry.oid: entry
    for entry in (
        TypeEntry(1007, "b", element=23),
        TypeEntry(1231, "b", element=1700),
        TypeEntry(1020, "b", element=603, delimiter=";"),
        TypeEntry(22, "b"),  # int2vector has elements and is no array
        TypeEntry(5001, "d", base=1700, base_typmod=numeric(10, 2)),
        TypeEntry(5002, "d", base=5001),
        TypeEntry(5003, "b", element=5002),
        TypeEntry(5004, "e", labels=("a", "b")),
        TypeEntry(5005, "b", element=5004),
        TypeEntry(5006, "d", base=1007),
        TypeEntry(5007, "b", element=5006),
    )
}


@pytest.mark.parametrize(
    ("oid", "typmod", "arrow", "form"),
    [
        (16, -1, pa.bool_(), "bool"),
        (21, -1, pa.int16(), "int"),
        (23, -1, pa.int32(), "int"),
        (20, -1, pa.int64(), "int"),
        (26, -1, pa.int64(), "int"),
        (700, -1, pa.float32(), "float"),
        (701, -1, pa.float64(), "float"),
        (1700, numeric(12, 2), pa.decimal128(12, 2), "decimal"),
        (1700, numeric(38, 38), pa.decimal128(38, 38), "decimal"),
        (1700, -1, pa.string(), "text"),
        (1700, numeric(39, 0), pa.string(), "text"),
        (1700, numeric(3, -2), pa.string(), "text"),
        (1700, numeric(2, 4), pa.string(), "text"),
        (17, -1, pa.binary(), "bytea"),
        (1082, -1, pa.date32(), "date"),
        (1114, 3, pa.timestamp("us"), "timestamp"),
        (1184, -1, pa.timestamp("us", tz="UTC"), "timestamptz"),
        (25, -1, pa.string(), "text"),
        (1042, 8, pa.string(), "text"),
        (1083, -1, pa.string(), "text"),
        (1007, -1, pa.list_(pa.int32()), "array(int)"),
        (1231, numeric(5, 1), pa.list_(pa.decimal128(5, 1)), "array(decimal)"),
        (1020, -1, pa.string(), "text"),
        (22, -1, pa.string(), "text"),
        (5001, -1, pa.decimal128(10, 2), "decimal"),
        (5002, -1, pa.decimal128(10, 2), "decimal"),
        (5003, -1, pa.list_(pa.decimal128(10, 2)), "array(decimal)"),
        (5004, -1, pa.string(), "text"),
        (5005, -1, pa.list_(pa.string()), "array(text)"),
        (5006, -1, pa.list_(pa.int32()), "array(int)"),
        (5007, -1, pa.list_(pa.string()), "array(text)"),
        (99999, -1, pa.string(), "text"),
    ],
)
def test_a_type_has_its_place_in_the_lake(oid: int, typmod: int, arrow: pa.DataType, form: str) -> None:
    assert form_of(oid, typmod, TYPES) == (arrow, form)


def test_keys_that_may_hold_what_the_lake_cannot_are_known() -> None:
    doubtful = {oid for oid in (16, 23, 25, 701, 1082, 1114, 1184) if _doubtful(oid)}
    assert doubtful == {701, 1082, 1114, 1184}


def _doubtful(oid: int) -> bool:
    return doubtful_key(column_of("c", oid, -1, "shown", {})) is not None


VARCHAR, TEXT, CHAR = 1043, 25, 1042


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ((VARCHAR, 14), (VARCHAR, 24), True),
        ((VARCHAR, 14), (VARCHAR, -1), True),
        ((VARCHAR, 14), (TEXT, -1), True),
        ((CHAR, 14), (CHAR, 24), False),  # padded
        ((CHAR, 14), (TEXT, -1), False),
        ((1114, 3), (1114, 6), True),
        ((1114, -1), (1184, -1), False),  # one has an offset
        ((23, -1), (20, -1), False),
        ((1700, numeric(10, 2)), (1700, numeric(10, 2)), True),
        ((1700, numeric(10, 2)), (1700, numeric(12, 2)), False),  # another decimal
        ((1700, numeric(50, 2)), (1700, -1), True),
        ((1231, numeric(10, 2)), (1231, numeric(12, 2)), False),
        ((1231, numeric(10, 2)), (1231, numeric(10, 2)), True),
    ],
)
def test_a_modifier_matters_where_it_changes_the_text_or_the_column(
    one: tuple[int, int], other: tuple[int, int], alike: bool
) -> None:
    assert is_same_form(one, other) == is_same_form(other, one) == alike


def test_the_labels_of_an_enum_are_told_by_themselves_or_in_a_list() -> None:
    types = TYPES | {
        entry.oid: entry
        for entry in (
            TypeEntry(5008, "d", base=5005),
            TypeEntry(5009, "b", element=5008),
            TypeEntry(5010, "c", attributes=((1, "a", 5004, -1),)),
            TypeEntry(5011, "r", subtype=5004),
        )
    }
    told = [oid for oid in sorted(types) if enum_of(oid, types) is not None]
    assert told == [5004, 5005, 5008]
    assert enum_of(25, types) is None
