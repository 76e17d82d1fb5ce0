"""A line of a Delta table's log, written by hand: for what delta-rs does not do, or only at a higher cost.

commitInfo · protocol · metaData · remove ... · add ... · txn        one version, one JSON text a line
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from headrace.lake.format.plan import DataFile

Action = Mapping[str, Any]
READER_VERSION, WRITER_VERSION = 3, 7  # those that name features one by one


def text(*actions: Action, **info: object) -> bytes:
    """A line of a log; `info` is what it says of itself."""
    said = {"timestamp": _now(), "operation": "WRITE", **info}
    return "".join(f"{json.dumps(action)}\n" for action in ({"commitInfo": said}, *actions)).encode()


def protocol(readers: Iterable[str], writers: Iterable[str]) -> Action:
    """The features that a program must know that reads the table, or that writes it."""
    return {
        "protocol": {
            "minReaderVersion": READER_VERSION,
            "minWriterVersion": WRITER_VERSION,
            "readerFeatures": sorted(readers),
            "writerFeatures": sorted(writers),
        }
    }


def remove(path: str, *, changes: bool, size: int | None = None) -> Action:
    """`changes`: rows go with the file."""
    said: dict[str, Any] = {"path": quote(path), "deletionTimestamp": _now(), "dataChange": changes}
    if size is not None:  # then it says all that the file's own line did
        said |= {"extendedFileMetadata": True, "partitionValues": {}, "size": size}
    return {"remove": said}


def add(file: DataFile, *, changes: bool) -> Action:
    """`changes`: rows come with the file."""
    said = {"path": quote(file.path), "size": file.size, "stats": file.stats, "partitionValues": {}}
    return {"add": said | {"modificationTime": _now(), "dataChange": changes}}


def _now() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
