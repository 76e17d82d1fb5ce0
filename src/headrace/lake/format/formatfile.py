"""The mark of a lake: `_headrace/format.json`, with the version of these formats.

    {"version": 2, "lake_id": "…"}

Every command opens a lake through here before it looks at anything else. A place that is no lake, or one
that a newer Headrace wrote, is an error, and nothing is written there. The lake's id is what names of
upstream objects (slots, publications) are made of, so that two lakes of one source don't meet.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

from headrace.core.errors import Misconfigured
from headrace.lake.format import layout
from headrace.lake.store.contract import Store

VERSION = 2


@dataclass(frozen=True, slots=True)
class Format:
    """The version of a lake's formats, and the lake's own id."""

    version: int
    lake_id: str


def open_lake(store: Store) -> Format:
    """The format of the lake at `store`; an error where there is none, or one too new for us."""
    data = store.get(layout.FORMAT)
    if data is None:
        raise Misconfigured(
            "LAKE_ABSENT",
            f'there is no lake at "{store.url}"',
            hint="check the path; headrace run --lake makes a new lake in an empty or absent directory",
        )
    found = _parse(data)
    if found.version > VERSION:
        raise Misconfigured(
            "LAKE_TOO_NEW",
            f'the lake at "{store.url}" was written by a newer headrace',
            detail=f"its format is {found.version}, this one knows up to {VERSION}",
            hint="pip install --upgrade headrace",
        )
    return found


def is_new(store: Store) -> bool:
    """Tell whether a lake is still to be made there; an error where something else is."""
    if store.exists(layout.FORMAT):
        return False
    if not store.empty():
        raise Misconfigured(
            "LAKE_NOT_EMPTY",
            f'"{store.url}" holds something else than a lake',
            hint="give the path of a lake, or of a directory that is empty or not there yet",
        )
    return True


def create_lake(store: Store) -> Format:
    """Open the lake at `store`, or make one where there is nothing at all."""
    if not is_new(store):
        return open_lake(store)
    new = {"version": VERSION, "lake_id": uuid.uuid4().hex}
    # Two processes may do this at once; both then read what the first of them wrote.
    store.put_if_absent(layout.FORMAT, json.dumps(new).encode())
    store.sync([layout.FORMAT])
    return open_lake(store)


def upgrade(store: Store) -> None:
    """Raise the version of an older lake to ours, before anything is written that only we can read."""
    known = open_lake(store)
    if known.version < VERSION:
        # Whoever does the same beside us writes the same.
        store.put(layout.FORMAT, json.dumps({"version": VERSION, "lake_id": known.lake_id}).encode())
        store.sync([layout.FORMAT])


def _parse(data: bytes) -> Format:
    try:
        record = json.loads(data)
        return Format(version=int(record["version"]), lake_id=str(record["lake_id"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Misconfigured(
            "LAKE_FORMAT_DAMAGED",
            f'the file "{layout.FORMAT}" of this lake cannot be read',
            hint="restore it from a backup of the lake",
        ) from error
