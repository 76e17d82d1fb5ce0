"""Changes of a schema that a table may go on under, and what they make of rows from before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.core.conversion import Conversion, Part, Take, Value
from headrace.core.evolve import Converts, CopyNeeded, evolve
from headrace.core.records import from_record, to_record
from headrace.core.schema import Column, TableSchema

ID = Column("id", pa.int64(), "int", "bigint", nullable=False)
NAME = Column("name", pa.string(), "text", "character varying(2)")
MORE = Column("more", pa.int32(), "int", "integer")
LAST = Column("last", pa.string(), "text", "text")
PRICE = Column("price", pa.decimal128(10, 2), "decimal", "numeric(10,2)")
OLD = TableSchema((ID, NAME), ("id",), full=False)
UNTIL = 800
NONE = Value.of(pa.scalar(None, pa.int32()))
NO_TEXT = Value.of(pa.scalar(None, pa.string()))
SEVEN = Value.of(pa.scalar(7, pa.int32()))
BOTH = (Take(0), Take(1))


def _step(new: TableSchema, parts: Sequence[Part], old: TableSchema = OLD) -> Converts:
    step = evolve(old, new, parts, UNTIL)
    assert isinstance(step, Converts), step
    return step


def test_columns_that_are_null_in_old_rows_leave_files_as_they_are() -> None:
    step = _step(replace(OLD, columns=(ID, NAME, MORE)), (*BOTH, NONE))
    assert not step.rewrites
    assert step.schema.earlier == (Conversion(("id", "name"), (*BOTH, NONE), UNTIL),)


def test_columns_may_be_added_one_by_one() -> None:
    step = _step(replace(OLD, columns=(ID, NAME, MORE, LAST)), (*BOTH, NONE, NO_TEXT))
    assert [known.names for known in step.schema.earlier] == [("id", "name"), ("id", "name", "more")]
    assert step.schema.earlier[1].parts == (*BOTH, Take(2), NO_TEXT)


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ((ID, NAME, MORE), (*BOTH, SEVEN)),
        ((ID,), (Take(0),)),
        ((ID, replace(NAME, name="title")), BOTH),
        ((NAME, ID), (Take(1), Take(0))),
        ((ID, MORE, NAME), (Take(0), NONE, Take(1))),
    ],
)
def test_other_columns_need_other_files(columns: tuple[Column, ...], parts: tuple[Part, ...]) -> None:
    assert _step(replace(OLD, columns=columns), parts).rewrites


def test_more_digits_in_front_need_other_files() -> None:
    old = replace(OLD, columns=(ID, PRICE))
    wider = replace(old, columns=(ID, replace(PRICE, type=pa.decimal128(14, 2))))
    assert _step(wider, BOTH, old).rewrites


def test_rows_without_a_key_are_found_by_all_of_their_columns() -> None:
    bag = replace(OLD, key=(), full=True)
    assert _step(replace(bag, columns=(ID, NAME, MORE)), (*BOTH, NONE), bag).rewrites


def test_a_column_keeps_its_field_id_and_none_has_that_of_another() -> None:
    renamed = _step(replace(OLD, columns=(ID, replace(NAME, name="title"))), BOTH).schema
    assert (renamed.ids, renamed.last_id) == ((1, 2), 2)
    dropped = _step(replace(OLD, columns=(ID,)), (Take(0),), renamed.at_time(UNTIL)).schema
    assert (dropped.ids, dropped.last_id) == ((1,), 2)
    again = _step(replace(OLD, columns=(ID, NAME)), (Take(0), NO_TEXT), dropped.at_time(UNTIL)).schema
    assert (again.ids, again.last_id) == ((1, 3), 3)
    assert from_record(TableSchema, to_record(again)).ids == (1, 3)
    assert OLD.numbered_after(again).ids == (1, 3), "a copy of the same columns"
    assert replace(OLD, columns=(ID, MORE)).numbered_after(again).ids == (4, 5), "and of others"


def test_what_the_stream_may_still_bring_comes_along() -> None:
    first = _step(replace(OLD, columns=(ID, NAME, MORE)), (*BOTH, NONE)).schema
    then = evolve(first, replace(first, columns=(ID, NAME, MORE, LAST)), (*BOTH, Take(2), NO_TEXT), 1600)
    assert isinstance(then, Converts)
    assert [(known.names, known.until) for known in then.schema.earlier] == [
        (("id", "name"), UNTIL),
        (("id", "name", "more"), 1600),
    ]
    assert [known.names for known in then.schema.at_time(UNTIL).earlier] == [("id", "name", "more")]
    assert from_record(TableSchema, to_record(then.schema)) == then.schema


@pytest.mark.parametrize(
    ("new", "parts", "reason"),
    [
        (
            replace(OLD, columns=(ID, replace(NAME, type=pa.int32(), form="int", source_type="integer"))),
            BOTH,
            'column "name" was character varying(2) and is integer',
        ),
        (
            replace(OLD, columns=(ID, replace(NAME, form="json", source_type="json"))),
            BOTH,
            'column "name" was character varying(2) and is json',
        ),
        (replace(OLD, columns=(replace(ID, nullable=True), NAME)), BOTH, 'column "id" may be NULL now'),
        (replace(OLD, key=("name",)), BOTH, 'the key was ("id") and is ("name")'),
        (replace(OLD, columns=(MORE,)), (NONE,), "no column is left of those before"),
        (OLD, BOTH, "its columns are those that they were"),
        (replace(OLD, full=True), BOTH, "whole old rows are sent now"),
        (
            replace(OLD, columns=(ID, NAME, replace(MORE, nullable=False))),
            (*BOTH, NONE),
            'column "more" was added and can\'t be NULL',
        ),
        (
            OLD,
            (Take(0), NO_TEXT),
            "its columns have the names of others before: a row does not show which it has",
        ),
    ],
)
def test_what_cannot_follow_says_why(new: TableSchema, parts: tuple[Part, ...], reason: str) -> None:
    assert evolve(OLD, new, parts, UNTIL) == CopyNeeded(reason)


def test_what_went_is_told_apart_once_the_stream_has_come_to_the_change_before() -> None:
    """Rows that are still to come may have had the new names while they meant other columns."""
    first = _step(replace(OLD, columns=(ID, NAME, MORE)), (*BOTH, NONE)).schema
    dropped, parts = replace(OLD, columns=(ID, MORE)), (Take(0), Take(2))
    assert isinstance(evolve(first, dropped, parts, 1600), CopyNeeded)
    assert isinstance(evolve(first.at_time(UNTIL), dropped, parts, 1600), Converts)
