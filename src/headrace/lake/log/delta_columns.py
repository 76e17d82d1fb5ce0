"""Judges how a step changes the columns of a Delta table, which decides who writes its line (`table`)."""

from __future__ import annotations

from deltalake import DeltaTable, Schema
from deltalake.schema import Field

from headrace.lake.format import schemas
from headrace.lake.format.plan import TableStep


def added_columns(delta: DeltaTable, step: TableStep) -> list[Field]:
    """Return the columns that the step adds at the end, if that is all that it does."""
    assert step.schema is not None
    new, old = delta_schema(step.schema).fields, delta.schema().fields
    return new[len(old) :] if widens(delta, step) and new[: len(old)] == old else []


def widens(delta: DeltaTable, step: TableStep) -> bool:
    """Tell if the step adds columns that are NULL in every row, in any place, and does nothing else."""
    assert step.schema is not None
    new, old = delta_schema(step.schema).fields, delta.schema().fields
    added = [field for field in new if field not in old]
    alone = not step.add and not step.remove and len(new) == len(old) + len(added)
    return alone and bool(added) and all(field.nullable for field in added)


def needs_own_line(delta: DeltaTable, schema: str) -> bool:
    """Tell if delta-rs would replace the columns and leave their order or the protocol as they were."""
    return bool(missing_features(delta, schema)) or _reorders(delta, schema)


def _reorders(delta: DeltaTable, schema: str) -> bool:
    """Tell if the columns are those that the table has, in another order."""
    new, old = delta_schema(schema).fields, delta.schema().fields
    return new != old and sorted(new, key=str) == sorted(old, key=str)


def missing_features(delta: DeltaTable, schema: str) -> frozenset[str]:
    """Return the features that these columns need and the table's protocol has not."""
    return schemas.features(schemas.decode(schema)) - frozenset(delta.protocol().reader_features or ())


def delta_schema(text: str) -> Schema:
    return Schema.from_arrow(schemas.to_lake(schemas.decode(text)))
