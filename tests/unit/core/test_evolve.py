"""Which changes of a schema a table may go on under."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.core.evolve import AddedNullable, Incompatible, Same, evolve
from headrace.core.schema import Column, TableSchema

ID = Column("id", pa.int64(), "int", "bigint", nullable=False)
NAME = Column("name", pa.string(), "text", "character varying(2)")
MORE = Column("more", pa.int32(), "int", "integer")
OLD = TableSchema((ID, NAME), ("id",), full=False)


@pytest.mark.parametrize(
    "new",
    [
        replace(OLD, version=2),
        replace(OLD, columns=(ID, replace(NAME, source_type="character varying(20)"))),
        replace(OLD, columns=(ID, replace(NAME, nullable=False))),
    ],
)
def test_what_stores_and_decodes_alike_is_the_same(new: TableSchema) -> None:
    assert evolve(OLD, new) == Same()


@pytest.mark.parametrize("columns", [(ID, NAME, MORE), (MORE, ID, NAME), (ID, MORE, NAME)])
def test_added_columns_that_may_be_null_are_named(columns: tuple[Column, ...]) -> None:
    assert evolve(OLD, replace(OLD, columns=columns)) == AddedNullable((MORE,))


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (replace(OLD, columns=(ID,)), 'column "name" is gone'),
        (replace(OLD, columns=(ID, replace(NAME, name="title"))), 'column "name" is gone'),
        (replace(OLD, columns=(NAME, ID)), "the columns are in another order"),
        (
            replace(OLD, columns=(ID, replace(NAME, type=pa.int32(), form="int", source_type="integer"))),
            'column "name" was character varying(2) and is integer',
        ),
        (
            replace(OLD, columns=(ID, replace(NAME, form="json", source_type="json"))),
            'column "name" was character varying(2) and is json',
        ),
        (replace(OLD, columns=(replace(ID, nullable=True), NAME)), 'column "id" may be NULL now'),
        (replace(OLD, key=("name",)), 'the key was ("id") and is ("name")'),
        (replace(OLD, full=True), "whole old rows are sent now"),
        (
            replace(OLD, columns=(ID, NAME, replace(MORE, nullable=False))),
            'column "more" was added and can\'t be NULL',
        ),
    ],
)
def test_what_cannot_follow_says_why(new: TableSchema, reason: str) -> None:
    assert evolve(OLD, new) == Incompatible(reason)
