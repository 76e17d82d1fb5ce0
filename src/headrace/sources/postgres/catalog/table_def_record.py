"""A look at a table as a record of the lake's catalog, and back.

What the last look showed has to outlive the process: DDL that happened while nobody ran is found by
comparing the first look of the new run with the recorded one.

A record of an older release lacks what was not asked for then, and holds what no longer is. It is read
as a look whose unknown parts are None (`alteration` says what is compared instead), and is
replaced at the first look that shows more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from headrace.core.names import TableName
from headrace.sources.contract.values import TableDef
from headrace.sources.postgres.catalog.partition_tree import Branch
from headrace.sources.postgres.catalog.table_def import (
    PARTITIONED,
    Attribute,
    Membership,
    ReplicaIdentity,
    TableEntry,
    schema_of,
    sent_columns,
)
from headrace.sources.postgres.types.columns import TypeEntry, enum_of


def to_record(entry: TableEntry) -> dict[str, Any]:
    """The look as JSON can hold it."""
    record = asdict(entry)
    record["name"] = str(entry.name)
    # Of the moment of the look, and no part of what the table is.
    for of_the_moment in (record, *record["types"]):
        del of_the_moment["replacing"]
    for known in record["types"]:
        del known["as_made"]
    for branch in record["tree"]:
        del branch["empty"]
    return record


def definition(entry: TableEntry) -> TableDef:
    """The look as those above record it, with the columns that the lake will have."""
    return TableDef(entry.name, entry.oid, schema_of(entry), to_record(entry))


def from_record(record: Mapping[str, Any]) -> TableEntry:
    """The inverse of `to_record`, lists being tuples again."""
    return TableEntry(
        **{
            **_fields({key: value for key, value in record.items() if key != "bound"}),
            "name": TableName.parse(record["name"]),
            "identity": ReplicaIdentity(**_fields(record["identity"])),
            "attributes": tuple(Attribute(**a) for a in record["attributes"]),
            "memberships": tuple(_membership(m) for m in record["memberships"]),
            "types": tuple(TypeEntry(**_fields(t)) for t in record["types"]),
            "tree": tree_of(record),
        }
    )


def tree_of(record: Mapping[str, Any]) -> tuple[Branch, ...]:
    """The tree beneath a partitioned table, out of a look's record."""
    return tuple(Branch(**_fields(branch)) for branch in record.get("tree", ()))


def is_listed(record: Mapping[str, Any]) -> bool:
    """Tell whether a publication sent a list of the table's columns, by a look's record."""
    return any(member["columns"] is not None for member in record.get("memberships", ()))


def is_root(record: Mapping[str, Any]) -> bool:
    """Tell whether a look's record is of a partitioned table."""
    return bool(record.get("kind") == PARTITIONED)


def types_of(record: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """The types of the columns that are mirrored (oid and modifier), out of a look's record; () of none."""
    return tuple((a["type"], a["typmod"]) for a in mirrored_columns(record))


def labels_of(record: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, ...]:
    """Read for each mirrored column the labels that its values may have; None for other types than enums."""
    types = {known["oid"]: TypeEntry(**_fields(known)) for known in record.get("types", ())}
    if not types:
        return ()
    enums = [enum_of(a["type"], types) for a in mirrored_columns(record)]
    return tuple(None if enum is None else enum.labels for enum in enums) if any(enums) else ()


def mirrored_columns(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    sent = sent_columns([_membership(m) for m in record.get("memberships", ())])
    return [a for a in record.get("attributes", ()) if sent(a["number"], a["generated"])]


def _membership(record: Mapping[str, Any]) -> Membership:
    known = _fields(record)
    if "row_filter" in known:
        known["filtered"] = known.pop("row_filter") is not None
    return Membership(**known)


def _fields(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _tuples(value) for key, value in record.items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
