"""The durable epoch: up to which mark a source survives a power cut, written down in the lake.

    _headrace/durable/<source>.json
        {"epoch": 41}                            all up to mark 41 is on the disk
        {"epoch": 41, "until": 44, "id": ...}    42 to 44 are being taken back

`lake.log.commit` writes it after each sync and before the acknowledgement, durably itself: so it is never
ahead of the disk, and never behind what was acknowledged. `lake.log.recovery` reads it when a source is taken
over, and looks only at later epochs. A file is deleted only when no epoch after its last use can be taken
back.

A store whose writes are durable when they are answered needs none of it, and has no such file. A lake in a
directory that has marks and no such file is from before there was one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from headrace.core.records import on_disk, parse, to_record
from headrace.lake.format import layout


class DurableFiles(Protocol):
    """The part of a `Store` that is needed here."""

    @property
    def durable_at_once(self) -> bool: ...

    def put(self, key: str, data: bytes, /) -> None: ...

    def get(self, key: str) -> bytes | None: ...

    def sync(self, keys: Iterable[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class Durable:
    """All up to the mark of `epoch` is durable; with `until`, the epochs after it up to that one go."""

    epoch: int
    until: int | None = field(default=None, metadata=on_disk(sparse=True))
    # The id of the repair, which stands in its commits.
    id: str = field(default="", metadata=on_disk(sparse=True))


def read(files: DurableFiles, source: str) -> Durable | None:
    """Read the newest of these notes; None where there is none."""
    data = files.get(layout.durable_key(source))
    if data is None:
        return None
    return parse(Durable, data)


def write(files: DurableFiles, source: str, durable: Durable) -> None:
    """Write it down, durably."""
    if files.durable_at_once:
        return
    key = layout.durable_key(source)
    files.put(key, json.dumps(to_record(durable)).encode())
    files.sync([key])
