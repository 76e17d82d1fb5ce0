"""A line of a Delta table's log, written by hand: for what delta-rs does not do, or only at a higher cost.

commitInfo · protocol · metaData · remove ... · add ... · txn        one version, one JSON text a line
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from headrace.lake.format.plan import DataFile
from headrace.lake.format.vector import Vector

Action = Mapping[str, Any]
READER_VERSION, WRITER_VERSION = 3, 7  # those that name features one by one


def text(*actions: Action, **info: object) -> bytes:
    """A line of a log; `info` is what it says of itself."""
    said = {"timestamp": _now(), "operation": "WRITE", **info}
    return "".join(f"{json.dumps(action)}\n" for action in ({"commitInfo": said}, *actions)).encode()


def protocol(readers: Collection[str], writers: Iterable[str]) -> Action:
    """The features that a program must know that reads the table, or that writes it."""
    if not readers:  # all that a writer needs was there before features had names
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    return {
        "protocol": {
            "minReaderVersion": READER_VERSION,
            "minWriterVersion": WRITER_VERSION,
            "readerFeatures": sorted(readers),
            "writerFeatures": sorted(writers),
        }
    }


def remove(path: str, *, changes: bool, size: int | None = None, vector: Vector | None = None) -> Action:
    """`changes`: rows go with the file; `vector` is the one that the file has, else the file stays."""
    said: dict[str, Any] = {"path": quote(path), "deletionTimestamp": _now(), "dataChange": changes}
    if size is not None:  # then it says all that the file's own line did
        said |= {"extendedFileMetadata": True, "partitionValues": {}, "size": size}
    if vector is not None:
        said["deletionVector"] = vector.descriptor()
    return {"remove": said}


def add(file: DataFile, *, changes: bool) -> Action:
    """`changes`: rows come with the file."""
    said: dict[str, Any] = {"path": quote(file.path), "size": file.size, "stats": file.stats}
    said |= {"partitionValues": {}, "modificationTime": _now(), "dataChange": changes}
    if file.vector is not None:
        said |= {"stats": _loose(file.stats), "deletionVector": file.vector.descriptor()}
    return {"add": said}


def metadata(schema: str, settings: Mapping[str, str | None]) -> Action:
    """The columns and settings of a new table."""
    return {
        "metaData": {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "configuration": dict(settings),
            "createdTime": _now(),
        }
    }


def _loose(stats: str) -> str:
    """Say of statistics that their bounds hold for all rows of the file, also for deleted ones."""
    if not (said := json.loads(stats)):
        return '{"tightBounds":false}'
    return stats if "tightBounds" in said else f'{stats[:-1]},"tightBounds":false}}'


def _now() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
