"""Columns and statistics as Iceberg writes them.

A column has the lake's name and the field id that its data files have. Files without field ids are read by
the name mapping, which every table has. Statistics come from Delta's log. Bounds are given for whole numbers,
dates, timestamps and texts, whose bounds there are exact or rounded outwards; without a bound a reader only
reads more.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa

from headrace.core.errors import Definite
from headrace.lake.format import layout

Json = Any

_DEEPER = 1_000_000  # as `lake.format.schemas` numbers the elements of lists
_PLAIN: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.timestamp("us", tz="UTC"): "timestamptz",
    pa.timestamp("us"): "timestamp",
}
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class TableShape:
    """A table's columns under their field ids."""

    schema: pa.Schema
    ids: tuple[int, ...]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The field ids by the columns' names in the lake."""
        names = [layout.lake_column(name) for name in self.schema.names]
        return dict(zip(names, self.ids, strict=True))

    @cached_property
    def fields(self) -> list[Json]:
        """The columns as a schema of Iceberg has them. All may be NULL there: Iceberg can't tighten them."""
        kinds = zip(self.numbers.items(), self.schema.types, strict=True)
        return [
            {"id": number, "name": name, "required": False, "type": _type(kind, number)}
            for (name, number), kind in kinds
        ]

    @property
    def last_id(self) -> int:
        """The highest field id, elements of lists included."""
        return max(_last(field["type"], field["id"]) for field in self.fields)


def _type(kind: pa.DataType, number: int) -> Json:
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        element = {"element-id": number + _DEEPER, "element-required": False}
        return {"type": "list", **element, "element": _type(kind.value_type, number + _DEEPER)}
    return _PLAIN[kind]


def _last(kind: Json, number: int) -> int:
    return number if isinstance(kind, str) else _last(kind["element"], kind["element-id"])


def name_mapping(schemas: Sequence[Json]) -> str:
    """The field ids of columns in files that have none, for readers of each of these schemas, newest last.

    A name can have one id. Of two columns that had it one after the other, the later one has it.
    """
    names: dict[int, dict[str, Any]] = {}
    used = set()
    for field in (field for schema in reversed(schemas) for field in schema["fields"]):
        known = names.setdefault(field["id"], _mapping([], field["type"], field["id"]))
        if field["name"] not in used:
            used.add(field["name"])
            known["names"].append(field["name"])
    return json.dumps([each for each in names.values() if each["names"]])


def _mapping(names: list[str], kind: Json, number: int) -> dict[str, Any]:
    found: dict[str, Any] = {"field-id": number, "names": names}
    if not isinstance(kind, str):
        found["fields"] = [_mapping(["element"], kind["element"], kind["element-id"])]
    return found


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A data file as a manifest describes it."""

    path: str  # relative to the lake
    rows: int
    size: int
    nulls: Mapping[int, int]
    low: Mapping[int, bytes]
    high: Mapping[int, bytes]


def describe(folder: str, shape: TableShape, facts: pa.Table) -> dict[str, FileFacts]:
    """The live files of a folder, as Delta's log describes them, by their path in the lake."""
    kinds = dict(zip(shape.numbers, shape.schema.types, strict=True))
    found = {}
    for row in facts.to_pylist():
        path, rows = f"{folder}/{row['path']}", row["num_records"]
        if rows is None:
            raise _uncounted_error(path)
        nulls = {n: int(row[f"null_count.{c}"]) for c, n in shape.numbers.items() if _is_stated(row, c)}
        bounds = [_bounds(shape.numbers, kinds, row, side) for side in ("min", "max")]
        found[path] = FileFacts(path, rows, row["size_bytes"], nulls, *bounds)
    return found


def _uncounted_error(path: str) -> Definite:
    return Definite(
        "ICEBERG_ROWS_UNKNOWN",
        "a data file of the table has no number of rows in Delta's log, and Iceberg needs it",
        detail=path,
        hint="headrace tables resync --lake DIR TABLE copies the table anew; all other tables are exported",
    )


def _is_stated(row: Mapping[str, Any], column: str) -> bool:
    return row.get(f"null_count.{column}") is not None


def _bounds(
    numbers: Mapping[str, int], kinds: Mapping[str, pa.DataType], row: Mapping[str, Any], side: str
) -> dict[int, bytes]:
    values = ((name, row.get(f"{side}.{name}")) for name in numbers)
    packed = ((name, _pack(kinds[name], value)) for name, value in values if value is not None)
    return {numbers[name]: data for name, data in packed if data is not None}


def _pack(kind: pa.DataType, value: Any) -> bytes | None:
    """A bound as Iceberg writes single values; None for a type of which no bound is given."""
    if pa.types.is_integer(kind):
        return struct.pack("<q" if kind == pa.int64() else "<i", int(value))
    if pa.types.is_string(kind):
        return str(value).encode()
    if pa.types.is_date(kind) and isinstance(value, date):
        return struct.pack("<i", (value - _EPOCH.date()).days)
    if pa.types.is_timestamp(kind) and isinstance(value, datetime):
        plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        since = plain - _EPOCH
        return struct.pack("<q", (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
    return None
