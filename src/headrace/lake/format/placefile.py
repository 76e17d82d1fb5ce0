"""The place of a lake: `_headrace/place.json` remembers where it lies, and tells a copy from the original.

    {"url": "/srv/lake", "lake_id": "…"}                        as a run last knew it
    {"url": "/srv/copy", "lake_id": "…", "copy_of": "…"}        a copy, with an id of its own

Objects upstream bear a lake's id. A copy of its files would read through them as well, and take from the
original what it has yet to read. So whoever would touch the source asks here first. A lake that lies
elsewhere is refused until its user says once whether it was moved or copied.
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass, field
from enum import Enum

from headrace.core.errors import Misconfigured
from headrace.core.records import on_disk, parse, to_record
from headrace.lake.format import formatfile, layout
from headrace.lake.store.contract import Store


class Elsewhere(Enum):
    """The reason for which a lake lies elsewhere than it did, as its user says it."""

    MOVED = "moved"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class LakePlace:
    """The address of a lake, its id, and the id of the lake that it is a copy of."""

    url: str
    lake_id: str
    copy_of: str | None = field(default=None, metadata=on_disk(optional=True))


def require(store: Store) -> LakePlace:
    """Find the place of a lake that has one id and one place; one that lies elsewhere is refused."""
    known = read(store)
    if known is None:
        return LakePlace(_here(store), formatfile.open_lake(store).lake_id)
    if not _same(known.url, _here(store)):
        raise _elsewhere(store, known)
    return known


def settle(store: Store, why: Elsewhere | None = None) -> LakePlace:
    """Remember where the lake lies, for a run; `why` is the user's word for a lake that lies elsewhere."""
    known, here = read(store), _here(store)
    if known is None:
        known = LakePlace(here, formatfile.open_lake(store).lake_id)
    elif _same(known.url, here):
        if known.lake_id != formatfile.open_lake(store).lake_id:
            formatfile.rename(store, known.lake_id)  # a run that was ended amid
        return known
    elif why is None:
        raise _elsewhere(store, known)
    elif why is Elsewhere.MOVED:
        known = LakePlace(here, known.lake_id, known.copy_of)
    else:
        known = LakePlace(here, uuid.uuid4().hex, known.lake_id)
    store.put(layout.PLACE, json.dumps(to_record(known)).encode())
    store.sync([layout.PLACE])
    if known.lake_id != formatfile.open_lake(store).lake_id:
        formatfile.rename(store, known.lake_id)
    return known


def read(store: Store) -> LakePlace | None:
    """Read what a run last wrote; None for a lake that no run has remembered yet."""
    data = store.get(layout.PLACE)
    if data is None:
        return None
    try:
        return parse(LakePlace, data)
    except ValueError:
        raise Misconfigured(
            "LAKE_PLACE_DAMAGED",
            f'the file "{layout.PLACE}" of this lake cannot be read',
            hint="delete it if this is the original and no copy of it; headrace run writes it anew",
        ) from None


def _here(store: Store) -> str:
    return store.url if "://" in store.url else os.path.realpath(store.url)


def _same(known: str, here: str) -> bool:
    """Tell whether both name one place; a directory may be mounted under several names."""
    try:
        return known == here or ("://" not in known + here and os.path.samefile(known, here))
    except OSError:
        return False


def _elsewhere(store: Store, known: LakePlace) -> Misconfigured:
    return Misconfigured(
        "LAKE_ELSEWHERE",
        f'the lake at "{store.url}" lay elsewhere when it was last run',
        detail=f'it lay at "{known.url}"; a copy of a lake would take from the original what both read',
        hint="headrace run --lake DIR --moved if it lies here from now on, or --copy if the original goes on",
    )
