"""The file that makes a directory a lake: `_headrace/format.json`, with the version of all formats in it.

    {"format": 1, "lake_id": "…"}         2 as soon as a table has a deletion vector

Every command opens a lake through here before it looks at anything else. A place that is no lake, or whose
format is another than ours, is an error, and nothing is written there. Lakes of before the first release have
a "version" in the place of "format". The lake's id is what names of
upstream objects (slots, publications) are made of, so that two lakes of one source don't meet.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from headrace.core.errors import Misconfigured, Transient
from headrace.core.records import from_record, on_disk, to_record
from headrace.lake.format import layout
from headrace.lake.store.contract import Store
from headrace.lake.store.open import prove_atomic

FORMAT = 2  # the newest that we know
FIRST = 1  # of a new lake
VECTORS = 2  # of a lake that has deletion vectors, or had: earlier releases would show deleted rows


@dataclass(frozen=True, slots=True)
class Format:
    """The format of a lake, and the lake's own id."""

    number: int = field(metadata=on_disk("format"))
    lake_id: str


def open_lake(store: Store) -> Format:
    """Read the format of the lake at `store`; an error where there is none, or one that we do not know."""
    data = store.get(layout.FORMAT)
    if data is None:
        raise Misconfigured(
            "LAKE_ABSENT",
            f'there is no lake at "{store.url}"',
            hint="check the path; headrace run --lake makes a new lake in an empty or absent directory",
        )
    found = _parse(data)
    if found.number > FORMAT:
        raise Misconfigured(
            "LAKE_TOO_NEW",
            f'the lake at "{store.url}" was written by a newer headrace',
            detail=f"its format is {found.number}, this one knows up to {FORMAT}",
            hint="pip install --upgrade headrace",
        )
    return found


def is_new(store: Store) -> bool:
    """Tell whether a lake is still to be made there; an error where something else is."""
    if store.get(layout.FORMAT) is not None:  # the answer to a GET says why, that to a HEAD does not
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
    prove_atomic(store)
    # Two processes may do this at once; both then read what the first of them wrote.
    try:
        store.put_if_absent(layout.FORMAT, _text(Format(FIRST, uuid.uuid4().hex)))
    except Transient as error:
        if "://" in store.url or Path(store.url).is_dir():
            raise
        raise Misconfigured(
            "LAKE_UNMAKEABLE",
            f'no directory can be made at "{store.url}"',
            detail=error.detail,
            hint="name a directory on a disk that this user may write to, or a bucket",
        ) from error
    store.sync([layout.FORMAT])
    return open_lake(store)


def raise_to(store: Store, number: int) -> None:
    """Say that a release must know this format to read the lake; on the disk when this returns."""
    found = open_lake(store)
    if found.number < number:
        store.put(layout.FORMAT, _text(Format(number, found.lake_id)))
        store.sync([layout.FORMAT])


def rename(store: Store, lake_id: str) -> None:
    """Give the lake another id: a copy gets one of its own (`placefile`)."""
    store.put(layout.FORMAT, _text(Format(open_lake(store).number, lake_id)))
    store.sync([layout.FORMAT])


def _text(format: Format) -> bytes:
    return json.dumps(to_record(format)).encode()


def _parse(data: bytes) -> Format:
    try:
        record = json.loads(data)
        if "version" in record:
            raise _unreleased_error()
        return from_record(Format, {key: record[key] for key in ("format", "lake_id")})
    except (ValueError, LookupError, TypeError) as error:
        raise Misconfigured(
            "LAKE_FORMAT_DAMAGED",
            f'the file "{layout.FORMAT}" of this lake cannot be read',
            hint="restore it from a backup of the lake",
        ) from error


def _unreleased_error() -> Misconfigured:
    return Misconfigured(
        "LAKE_FORMAT_UNRELEASED",
        "the lake was written by a headrace of before its first release",
        hint="mirror into a new lake; headrace drop of the older headrace removes what it made upstream",
    )
