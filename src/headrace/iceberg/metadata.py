"""A table's metadata file, of Iceberg's format version 2: columns, snapshots, tags.

A metadata file is never changed: each export writes the next one, whose name has the epoch of its mark. So a
look at the catalog's row tells which mark it is at, and that the last commit was ours:

    iceberg/<source>/<schema>/<table>/metadata/<epoch, twelve digits>-<uuid without dashes>.metadata.json

Trino reads no file whose name does not begin with a number; earlier versions of ours began with `headrace-`.
Other programs write five digits, and dashes.

Every snapshot that it lists is shown by a tag. Earlier metadata files are listed for the grace time after
they were replaced, so that whoever opened one goes on reading.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from headrace.core.errors import Definite
from headrace.iceberg.shapes import Json, TableShape, name_mapping

_NAME = re.compile(r"/metadata/(?:headrace-)?(\d{12})-[0-9a-f]{32}\.metadata\.json\Z")
_OWN = "headrace."  # how the names of our properties begin
_TAG = re.compile(r"mark-(\d+)\Z")


def new_name(epoch: int) -> str:
    return f"{epoch:012d}-{uuid.uuid4().hex}.metadata.json"


def epoch_of(address: str) -> int | None:
    """The epoch of the mark that a metadata file of ours was written for; None for another program's."""
    match = _NAME.search(address)
    return None if match is None else int(match[1])


def lost_error(address: str) -> Definite:
    """The error of a table of which a file of metadata cannot be read."""
    return Definite(
        "ICEBERG_METADATA_LOST",
        "a metadata file of an Iceberg table is gone, or cannot be read",
        detail=address[address.rfind("/iceberg/") + 1 :],
        hint="headrace iceberg rebuild --lake DIR makes the tables of the source anew",
    )


def tag(epoch: int) -> str:
    return f"mark-{epoch}"


def new_snapshot_id() -> int:
    return random.SystemRandom().getrandbits(62)


def tags_of(metadata: Json) -> dict[int, int]:
    """The epochs of a table's tags, each with the snapshot that it shows."""
    found = ((_TAG.match(name), ref["snapshot-id"]) for name, ref in metadata["refs"].items())
    return {int(match[1]): snapshot for match, snapshot in found if match is not None}


def current(metadata: Json) -> Json | None:
    """The newest snapshot."""
    wanted = metadata["current-snapshot-id"]
    return next((each for each in metadata["snapshots"] if each["snapshot-id"] == wanted), None)


def new_table(location: str, properties: Mapping[str, str]) -> Json:
    """The metadata of a table without columns and snapshots."""
    return {
        "format-version": 2,
        "table-uuid": str(uuid.uuid4()),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": 0,
        "schemas": [],
        "current-schema-id": -1,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": dict(properties),
        "current-snapshot-id": -1,
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {},
    }


def with_columns(metadata: Json, shape: TableShape) -> Json:
    """The metadata whose current columns are these; a schema that it had is found again."""
    known = next((s for s in metadata["schemas"] if s["fields"] == shape.fields), None)
    if known is None:
        number = max((s["schema-id"] for s in metadata["schemas"]), default=-1) + 1
        known = {"type": "struct", "schema-id": number, "fields": shape.fields}
        metadata = metadata | {"schemas": [*metadata["schemas"], known]}
    return metadata | {
        "current-schema-id": known["schema-id"],
        "last-column-id": max(metadata["last-column-id"], shape.last_id),
        "properties": metadata["properties"]
        | {"schema.name-mapping.default": name_mapping(metadata["schemas"])},
    }


def schema_of(metadata: Json) -> Json:
    """The current columns."""
    wanted = metadata["current-schema-id"]
    return next(schema for schema in metadata["schemas"] if schema["schema-id"] == wanted)


def with_snapshot(metadata: Json, snapshot: Json) -> Json:
    """The metadata whose newest snapshot is this one, under the current columns."""
    number, moment = snapshot["snapshot-id"], snapshot["timestamp-ms"]
    return metadata | {
        "current-snapshot-id": number,
        "last-sequence-number": snapshot["sequence-number"],
        "snapshots": [*metadata["snapshots"], snapshot],
        "snapshot-log": [*metadata["snapshot-log"], {"snapshot-id": number, "timestamp-ms": moment}],
        "refs": metadata["refs"] | {"main": {"snapshot-id": number, "type": "branch"}},
    }


def with_tag(metadata: Json, epoch: int, kept_epochs: Collection[int]) -> Json:
    """The metadata with a mark's tag on its newest snapshot; of earlier tags only `kept_epochs` stay."""
    number = metadata["current-snapshot-id"]
    tags = {e: snapshot for e, snapshot in tags_of(metadata).items() if e in kept_epochs} | {epoch: number}
    shown = {number, *tags.values()}
    snapshots = [each for each in metadata["snapshots"] if each["snapshot-id"] in shown]
    schemas = {each["schema-id"] for each in snapshots} | {metadata["current-schema-id"]}
    return metadata | {
        "refs": {
            "main": {"snapshot-id": number, "type": "branch"},
            **{tag(e): {"snapshot-id": snapshot, "type": "tag"} for e, snapshot in tags.items()},
        },
        "snapshots": snapshots,
        "snapshot-log": [each for each in metadata["snapshot-log"] if each["snapshot-id"] in shown],
        "schemas": [schema for schema in metadata["schemas"] if schema["schema-id"] in schemas],
    }


def without_tag(metadata: Json) -> Json:
    """A new table's metadata before it has the tag of its mark."""
    properties = {name: each for name, each in metadata["properties"].items() if not name.startswith(_OWN)}
    refs = {name: ref for name, ref in metadata["refs"].items() if name == "main"}
    return metadata | {"refs": refs, "properties": properties}


def is_of_a_server(key: str) -> bool:
    """Tell whether a metadata file was written by the server of a REST catalog, which removes it, too."""
    return key.endswith(".metadata.json") and epoch_of(f"/{key}") is None


def following(metadata: Json, address: str | None, now: int, grace: int) -> Json:
    """The metadata as the successor of the file at this address; times are in milliseconds.

    Files that were replaced before the grace time leave the list.
    """
    log = metadata["metadata-log"]
    if address is not None:
        log = [*log, {"timestamp-ms": metadata["last-updated-ms"], "metadata-file": address}]
    replaced = [*(each["timestamp-ms"] for each in log[1:]), now] if log else []
    young = [each for each, until in zip(log, replaced, strict=True) if until > now - grace]
    return metadata | {"metadata-log": young, "last-updated-ms": max(now, metadata["last-updated-ms"])}


def lists_of(metadata: Any) -> set[str]:
    """The addresses of the lists of manifests of all snapshots."""
    return {each["manifest-list"] for each in metadata["snapshots"]}
