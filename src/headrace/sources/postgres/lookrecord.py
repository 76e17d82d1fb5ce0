"""A look at a table as a record of the lake's catalog, and back.

What the last look showed has to outlive the process: DDL that happened while nobody ran is found by
comparing the first look of the new run with the recorded one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from headrace.core.names import TableName
from headrace.sources.postgres.catalog import Attribute, Membership, ReplicaIdentity, TableLook
from headrace.sources.postgres.types import TypeLook


def to_record(look: TableLook) -> dict[str, Any]:
    """The look as JSON can hold it."""
    record = asdict(look)
    record["name"] = str(look.name)
    return record


def from_record(record: Mapping[str, Any]) -> TableLook:
    """The inverse of `to_record`, lists being tuples again."""
    raw = {key: _tuples(value) for key, value in record.items()}
    identity = {key: _tuples(value) for key, value in record["identity"].items()}
    return TableLook(
        **{
            **raw,
            "name": TableName.parse(record["name"]),
            "identity": ReplicaIdentity(**identity),
            "attributes": tuple(Attribute(**a) for a in record["attributes"]),
            "memberships": tuple(Membership(**_fields(m)) for m in record["memberships"]),
            "types": tuple(TypeLook(**_fields(t)) for t in record["types"]),
        }
    )


def _fields(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _tuples(value) for key, value in record.items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
