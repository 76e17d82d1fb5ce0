"""Schemas on their way between Arrow, Delta and Spark.

A schema travels in a plan as text (`encode`/`decode`); it stands in Delta's log and in Parquet under the
lake's spelling of the columns (`to_lake`/`from_lake`: `headrace.lake.format.layout` says why); Spark is told
it as a line of DDL (`spark_ddl`), so that this room needs no Spark.

Only types that Delta holds without loss are let in. A column of another type is refused here, once, with
its name, before anything is written.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import pyarrow as pa

from headrace.core.spark_types import spark_type
from headrace.lake.format import layout


def encode(schema: pa.Schema) -> str:
    """An Arrow schema as it stands in `TableStep.schema`."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def decode(text: str) -> pa.Schema:
    """The inverse of `encode`."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def to_lake(schema: pa.Schema) -> pa.Schema:
    """Spell the columns as the lake does, all of types that Delta holds."""
    for field in schema:
        spark_type(field.name, field.type)
    return pa.schema([field.with_name(layout.lake_column(field.name)) for field in schema])


_FIELD_ID = b"PARQUET:field_id"
_DEEPER = 1_000_000  # the field id of a list's elements is that of the list and this


def with_field_ids(schema: pa.Schema, ids: Sequence[int]) -> pa.Schema:
    """The schema that has Parquet write these field ids."""
    fields = [_with_id(field, number) for field, number in zip(schema, ids, strict=True)]
    return pa.schema(fields, metadata=schema.metadata)


def _with_id(field: pa.Field, number: int) -> pa.Field:
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_with_id(kind.value_field, number + _DEEPER))
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_with_id(kind.value_field, number + _DEEPER))
    return pa.field(field.name, kind, field.nullable, {_FIELD_ID: str(number).encode()})


def field_ids(schema: pa.Schema) -> dict[str, int]:
    """The field ids that a file's schema has, by the columns' names in the lake."""
    stated = {field.name: (field.metadata or {}).get(_FIELD_ID) for field in schema}
    return {name: int(number) for name, number in stated.items() if number is not None}


def from_lake(schema: pa.Schema) -> pa.Schema:
    """The inverse of `to_lake`; what readers return for text and bytes is brought to one kind of each."""
    return pa.schema(
        [
            pa.field(layout.unquote(field.name), _plain(field.type), nullable=field.nullable)
            for field in schema
        ]
    )


def spark_ddl(schema: pa.Schema) -> str:
    """The schema as `spark.read.schema` takes it."""
    return ", ".join(
        f"`{field.name.replace('`', '``')}` {spark_type(field.name, field.type)}" for field in schema
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(_plain(kind.value_type))
    return kind


def features(schema: pa.Schema) -> frozenset[str]:
    """The features of Delta that a table's protocol must name if it has these columns."""
    return frozenset({"timestampNtz"}) if any(map(_has_local_times, schema.types)) else frozenset()


def writer_features(schema: pa.Schema) -> frozenset[str]:
    """The features that it must name for writers; without them Delta's connector does not even read it."""
    has_rules = any(not field.nullable for field in schema)
    return features(schema) | (frozenset({"invariants"}) if has_rules else frozenset())


def _has_local_times(kind: pa.DataType) -> bool:
    """Tell whether there is a timestamp without a time zone."""
    if pa.types.is_map(kind):
        return _has_local_times(kind.key_type) or _has_local_times(kind.item_type)
    if pa.types.is_list(kind):
        return _has_local_times(kind.value_type)
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)
