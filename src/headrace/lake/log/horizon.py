"""The reach of a source's history into the past: `_headrace/reach/<source>.json`.

    {"time": T, "since": "2026-11-22T00:00:00+00:00", "gone": G}

    told      whoever opens a cut from now on finds times before T refused
    gone      a grace time later: history up to G may be gone, for everybody

Each is written before what it announces. A cut takes notice of `time` when it is opened, and of `gone_before`
each time that it has looked into history: so it reads on for the grace time, and is never shown a part of
what was there. Both only ever move on.

Written by the source's owner (`headrace maintain`), read by `read.intervals`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime

from headrace.core.records import on_disk, parse, to_record
from headrace.lake.format import layout
from headrace.lake.store.contract import Store


@dataclass(frozen=True, slots=True)
class Reach:
    """History is whole after `time`, told at `since`; what lies up to `gone_before` has begun to go."""

    time: int
    since: datetime
    gone_before: int | None = field(default=None, metadata=on_disk("gone"))


def read(store: Store, source: str) -> Reach | None:
    """The reach as it stands now; None where nothing was ever let go."""
    data = store.get(layout.reach_key(source))
    if data is None:
        return None
    return parse(Reach, data)


def write(store: Store, source: str, reach: Reach) -> None:
    """Move the reach on, durably."""
    key = layout.reach_key(source)
    store.put(key, json.dumps(to_record(reach)).encode())
    store.sync([key])
