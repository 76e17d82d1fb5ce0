"""A table's log read and written line by line, without delta-rs, which refuses a log with a torn line.

whole       a line that parses; a Parquet file of the size that its line says, with its end
torn        a line, or a file, that a power cut left empty, cut, or without its name
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from headrace.lake.log.table import PLAN_ID, line_key
from headrace.lake.store.contract import Store

_LINE = re.compile(r"/(\d{20})\.json\Z")
_CHECKPOINT = re.compile(r"/(\d{20})\.checkpoint\.parquet\Z")
_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Line:
    """One version in a table's log, read without delta-rs, which refuses a log with a torn line."""

    plan_id: str | None
    epoch: int | None  # None: another program's
    files: tuple[tuple[str, int], ...]  # that it adds: path and size


def files_whole(store: Store, folder: str, files: Iterable[tuple[str, int]]) -> bool:
    return all(parquet_whole(store, f"{folder}/{path}", size) for path, size in files)


def parquet_whole(store: Store, key: str, size: int | None = None) -> bool:
    if not store.exists(key):
        return False
    with store.open_input(key) as file:
        length: int = file.size()
        if length < 2 * len(_MAGIC) or size not in (None, length):
            return False
        file.seek(length - len(_MAGIC))
        return bytes(file.read(len(_MAGIC))) == _MAGIC


def line(store: Store, folder: str, version: int) -> Line | None:
    """One version of the log; None where it is not there, or torn."""
    text = store.get(line_key(folder, version))
    try:
        actions = [json.loads(line) for line in (text or b"").splitlines() if line]
    except ValueError:
        return None
    if not actions:
        return None
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    txns = [action["txn"] for action in actions if "txn" in action]
    epochs = [txn["version"] for txn in txns if str(txn["appId"]).startswith("headrace/")]
    adds = [action["add"] for action in actions if "add" in action]
    return Line(
        infos[0].get(PLAN_ID) if infos else None,
        epochs[0] if epochs else None,
        tuple((unquote(add["path"]), add["size"]) for add in adds),
    )


def is_whole(store: Store, folder: str, version: int) -> bool:
    """Tell whether one version is there, with all files that it adds."""
    found = line(store, folder, version)
    return found is not None and files_whole(store, folder, found.files)


def versions(store: Store, folder: str) -> list[int]:
    return sorted(int(match[1]) for key in log(store, folder) if (match := _LINE.search(key)))


def log(store: Store, folder: str) -> tuple[str, ...]:
    return store.list(f"{folder}/_delta_log")


def fill(store: Store, folder: str, versions: Iterable[int], filler: bytes) -> None:
    """Put a commit that does nothing wherever a line of the log is torn or gone."""
    for version in versions:
        if line(store, folder, version) is None:
            store.delete(line_key(folder, version))
            store.put_if_absent(line_key(folder, version), filler)


def spare_checkpoints(store: Store, folder: str, above: int | None = None) -> None:
    """Delete the checkpoints of a log that are torn, and all above a version, if one is given."""
    names = [(key, int(match[1])) for key in log(store, folder) if (match := _CHECKPOINT.search(key))]
    for key, version in names:
        if (above is not None and version > above) or not parquet_whole(store, key):
            store.delete(key)
    hint = f"{folder}/_delta_log/_last_checkpoint"
    try:
        version = json.loads(store.get(hint) or b"")["version"]
        lasts = store.exists(f"{folder}/_delta_log/{version:020d}.checkpoint.parquet")
    except (ValueError, KeyError, TypeError):
        lasts = False
    if not lasts:
        store.delete(hint)
