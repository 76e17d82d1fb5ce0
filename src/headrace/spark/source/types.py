"""Schemas of the lake as Spark names them, and as its Arrow wants the batches of a data source.

Types of Spark are made one by one, not from a line of DDL: in that a session's `spark.sql.timestampType`
decides what TIMESTAMP means. Every column may be NULL for Spark, whatever the lake says: a batch whose
schema differs from Spark's own idea of it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.core.spark_types import spark_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def struct(schema: pa.Schema) -> StructType:
    """The schema as Spark knows it."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(each.name, _type(each.name, each.type)) for each in schema])


def _type(name: str, kind: pa.DataType) -> DataType:
    from pyspark.sql import types

    if pa.types.is_list(kind):
        return types.ArrayType(_type(name, kind.value_type))
    if pa.types.is_map(kind):
        return types.MapType(_type(name, kind.key_type), _type(name, kind.item_type))
    if pa.types.is_decimal128(kind):
        return types.DecimalType(kind.precision, kind.scale)
    plain: dict[str, DataType] = {
        "BOOLEAN": types.BooleanType(),
        "TINYINT": types.ByteType(),
        "SMALLINT": types.ShortType(),
        "INT": types.IntegerType(),
        "BIGINT": types.LongType(),
        "FLOAT": types.FloatType(),
        "DOUBLE": types.DoubleType(),
        "STRING": types.StringType(),
        "BINARY": types.BinaryType(),
        "DATE": types.DateType(),
        "TIMESTAMP_NTZ": types.TimestampNTZType(),
        "TIMESTAMP": types.TimestampType(),
    }
    return plain[spark_type(name, kind)]


def batch_schema(schema: pa.Schema) -> pa.Schema:
    """The schema as the batches of a data source have it."""
    return pa.schema([pa.field(each.name, _plain(each.type)) for each in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), pa.field("value", _plain(kind.item_type)))
    return kind
