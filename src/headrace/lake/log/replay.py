"""The live files of a table as the lines of its log describe them, read without delta-rs.

delta-rs shows neither the descriptor of a deletion vector nor the text of statistics, and a line that changes
a file's vector repeats both. A table without vectors is never read this way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.errors import Definite
from headrace.lake.format.plan import DataFile
from headrace.lake.format.vector import FileRows, Vector, file_rows
from headrace.lake.store.contract import Store
from headrace.lake.store.many import at_once

_CHECKPOINT = re.compile(r"/(\d{20})\.checkpoint(?:\.\d{10}\.\d{10})?\.parquet\Z")
_COLUMNS = ["add.path", "add.size", "add.stats", "add.deletionVector"]


Live = dict[FileRows, DataFile]


def live_files(store: Store, folder: str, version: int) -> Live:
    """The live files at a version. A torn line may leave a path there twice, with two vectors."""
    start, live = _last_checkpoint(store, folder, version)
    keys = [f"{folder}/_delta_log/{number:020d}.json" for number in range(start + 1, version + 1)]
    for text in at_once(store.get, keys):
        if text is None:
            raise unreadable_error(folder, version)
        try:
            _apply(live, [json.loads(line) for line in text.splitlines() if line])
        except (ValueError, LookupError, TypeError):
            raise unreadable_error(folder, version) from None
    return live


def _apply(live: Live, actions: list[dict[str, Any]]) -> None:
    """Apply a line; a removal takes the file with exactly its vector."""
    for removal in (action["remove"] for action in actions if "remove" in action):
        live.pop(FileRows(unquote(removal["path"]), _vector(removal)), None)
    for addition in (action["add"] for action in actions if "add" in action):
        file = _file(addition)
        live[file_rows(file)] = file


def _file(addition: Mapping[str, Any]) -> DataFile:
    stats = addition.get("stats") or "{}"
    rows = json.loads(stats).get("numRecords") or 0
    return DataFile(unquote(addition["path"]), addition["size"], rows, stats, _vector(addition))


def _vector(action: Mapping[str, Any]) -> Vector | None:
    said = action.get("deletionVector")
    return None if said is None else Vector.from_descriptor(said)


def _last_checkpoint(store: Store, folder: str, version: int) -> tuple[int, Live]:
    """Read the newest checkpoint up to a version; -1 and no file where there is none that can be read."""
    found: dict[int, list[str]] = {}
    for key in store.list(f"{folder}/_delta_log"):
        match = _CHECKPOINT.search(key)
        if match and int(match[1]) <= version:
            found.setdefault(int(match[1]), []).append(key)
    for number in sorted(found, reverse=True):
        try:
            rows = [row for key in found[number] for row in _additions(store, key)]
        except (pa.ArrowException, OSError):
            continue  # torn: all lines that it stands for are still there
        return number, {file_rows(file): file for file in map(_file, rows)}
    return -1, {}


def _additions(store: Store, key: str) -> list[Mapping[str, Any]]:
    with store.open_input(key) as source:
        rows = pq.ParquetFile(source).read(columns=_COLUMNS)["add"]
    return [row for row in rows.to_pylist() if row is not None]


def unreadable_error(folder: str, version: int) -> Definite:
    return Definite(
        "LAKE_VECTORS_UNREADABLE",
        f'the log of the lake table at "{folder}" does not tell which rows are deleted',
        detail=f"a line up to version {version} is gone or damaged",
        hint="restore the table's _delta_log from a backup, or mirror into a new lake",
    )
