"""The files that keep the stream for tables which are still being copied, as the catalog names them.

    late/<name>    a record per file: the tables it holds something for, how far it reaches, how large it is

A file is deleted with the epoch after which no table needs it. This module has only the catalog's records;
`stream.late_stream` writes and reads the files.

A table that waits for a day beside small epochs would leave 86,000 of them. So an epoch's file takes in those
right before it, sixteen of a level at a time, as digits carry:

    level   2 1 1 0 0 0 + 0      fifteen of level 0 are there, and one comes: one of level 1
            2 1 1 1              and so on, up to `MOST_BYTES`: a larger file is never written again

Each byte is written once a level, an epoch writes at most `MOST_BYTES` of others, and n epochs leave some
fifteen files a level, or one in fifteen for each `MOST_BYTES`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import from_record, on_disk, to_record
from headrace.lake.format import layout
from headrace.lake.store.contract import Store
from headrace.pipeline.state.records import TableRecord

LATE_PREFIX = "late/"  # how the keys of these records begin in the catalog


FOOTER_BYTES = 8  # at the end of a file: the checksum and the length of the JSON about its pieces
LATE_FILES_TOGETHER = 16  # files of a level make one of the next
MOST_LATE_BYTES = 32 << 20  # of the files that go into one


@dataclass(frozen=True, slots=True)
class LateFile:
    """A file with the changes of one epoch, or of several in a row, for some tables."""

    name: str = field(metadata=on_disk(outside=True))
    # The frontier of its last epoch: all that it holds lies before.
    frontier: Position = field(metadata=on_disk("reached"))
    tables: frozenset[TableName]
    size: int  # of its pieces
    changes: int
    truncates: bool
    length: int  # of the whole file
    level: int
    # The files that it took in; only its own epoch knows them.
    replaces: frozenset[str] = field(default=frozenset(), metadata=on_disk(outside=True))

    @property
    def record_key(self) -> str:
        return LATE_PREFIX + self.name


def late_files_of(catalog: Mapping[str, Any]) -> dict[str, LateFile]:
    """The files that the catalog names, in the order of their epochs."""
    names = sorted(key[len(LATE_PREFIX) :] for key in catalog if key.startswith(LATE_PREFIX))
    return {name: from_record(LateFile, catalog[LATE_PREFIX + name], name=name) for name in names}


def late_file_changes(before: Mapping[str, LateFile], after: Mapping[str, LateFile]) -> dict[str, Any]:
    """Make the catalog's records of files that come and go."""
    gone: dict[str, Any] = {before[name].record_key: None for name in before.keys() - after.keys()}
    return gone | {file.record_key: to_record(file) for name, file in after.items() if name not in before}


def late_files_are_whole(store: Store, source: str, state: Mapping[str, Any]) -> bool:
    """Tell whether the files that an epoch's plan names are there, from their beginning to their end."""
    named = {key[len(LATE_PREFIX) :]: record for key, record in state.items() if key.startswith(LATE_PREFIX)}
    return all(
        _is_file_whole(store, layout.late_key(source, name), record["size"])
        for name, record in named.items()
        if record is not None
    )


def _is_file_whole(store: Store, key: str, size: int) -> bool:
    if not store.exists(key):
        return False
    with store.open_input(key) as file:
        length: int = file.size()
        if length < size + FOOTER_BYTES:
            return False
        file.seek(length - FOOTER_BYTES)
        return length == size + footer_length(file.read(FOOTER_BYTES)) + FOOTER_BYTES


def footer_ending(footer: bytes) -> bytes:
    """Return the last bytes of a file with this footer: its checksum and its length."""
    return zlib.crc32(footer).to_bytes(4, "big") + len(footer).to_bytes(4, "big")


def footer_length(ending: bytes) -> int:
    return int.from_bytes(ending[-4:], "big")


def is_footer(footer: bytes, ending: bytes) -> bool:
    """Tell whether the footer is as it was written."""
    return ending == footer_ending(footer)


def frontiers_behind(records: Iterable[TableRecord]) -> dict[TableName, Position]:
    """Find the position of each table for which the stream is kept."""
    return {r.name: r.frontier for r in records if r.state.keeps_stream and r.frontier is not None}


def is_file_needed(file: LateFile, behind: Mapping[TableName, Position]) -> bool:
    """Tell whether any of the tables has yet to apply the file."""
    return any(name in file.tables and applied < file.frontier for name, applied in behind.items())


def files_to_replace(files: Sequence[LateFile]) -> tuple[LateFile, ...]:
    """Choose which of the files, in the order of their epochs, the next one takes in: the last ones."""
    start, level, length = len(files), 0, 0
    while start >= LATE_FILES_TOGETHER - 1:
        run = files[start - LATE_FILES_TOGETHER + 1 : start]
        length += sum(file.length for file in run)
        if length > MOST_LATE_BYTES or any(file.level != level for file in run):
            break
        start, level = start - len(run), level + 1
    return tuple(files[start:])
