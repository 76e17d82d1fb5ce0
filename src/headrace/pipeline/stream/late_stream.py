"""The stream of tables that are still being copied, kept in the lake until they can take it.

    stream epoch    its slices ─► only what they have of these tables ─► a file, named by the epoch's plan
    catch-up epoch  the files ─► slices again ─► `split`, `merge`, with the table's handoff ─► files go

So the source is acknowledged while a copy takes hours, and the spool can be emptied: the lake has all that
the copy will need, as durable as all else that a mark rests on. For every table whose state says so
(`state.table_state`), each epoch since it was chosen has kept its part; the record's `frontier` says how far
the table has applied it. A file is deleted with the epoch after which no table needs it; the catalog lists
the files.

A file holds the raw bytes of its pieces, one after the other, then the context of each piece as JSON, then
the checksum and the length of that in the last eight bytes. Each piece has a checksum, too: bytes that a disk
damaged never become rows. The source's decoder selects the bytes to keep, whole buffers at a time, and reads
no row.

A copy that takes hours beside small epochs would leave a file for each. So a file takes in the files of the
epochs right before it (`state.records.files_to_replace`): their pieces come first, unchanged. The old
files are deleted like all that nobody needs, once the mark of the epoch that replaces them is durable; after
a crash before that, all of them are still there.

The driver reads files of small pieces, many at once and each whole, and their slices carry the bytes.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from headrace.core.errors import HeadraceError
from headrace.core.failpoint import failpoint
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.lake.format import layout
from headrace.lake.store.contract import Store
from headrace.lake.store.many import at_once
from headrace.pipeline.state.records import (
    FOOTER_BYTES,
    LateFile,
    files_to_replace,
    footer_ending,
    is_file_needed,
    is_footer,
)
from headrace.pipeline.tasks.slices import KeptDamaged, KeptPiece, Slice, damaged_file, open_kept, verify
from headrace.pipeline.tasks.table_task import LakeAddress
from headrace.sources.contract.decoder import Decoder, SelectedBytes
from headrace.spool.reader import SpoolReader

SMALL_BYTES = 128 << 10  # average size of a piece below which a file is read whole

# --- writing ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Account:
    """The account of a file's pieces, and their totals."""

    pieces: list[dict[str, Any]]
    tables: frozenset[int] = frozenset()
    size: int = 0
    changes: int = 0
    truncates: bool = False

    def take_in(self, file: LateFile, entries: Iterable[dict[str, Any]]) -> None:
        """Enter the pieces of another file behind the present ones."""
        moved = [{**e, "start": e["start"] + self.size, "stop": e["stop"] + self.size} for e in entries]
        self.pieces += moved
        self.size += file.size
        self.changes += file.changes
        self.truncates |= file.truncates


def keep(
    store: Store,
    source: str,
    epoch: int,
    frontier: Position,
    tables: Mapping[TableName, int],
    slices: Iterable[Slice],
    reader: SpoolReader,
    before: Sequence[LateFile] = (),
) -> LateFile | None:
    """Write the slices' bytes for the tables with these numbers into a file; None if there are none.

    The file names the tables for which it holds something: no other table needs it. Two of the names may have
    one number, as long as nobody knows yet that one of them has lost it. The file takes in the last of the
    files `before` it when it is their turn.
    """
    pieces = _select(slices, reader, frozenset(tables.values()))
    first = next(pieces, None)
    if first is None:
        return None
    name = f"{epoch:020d}-{uuid.uuid4().hex}"
    failpoint("late.keep.before")
    account, replaced = _Account([]), _whole_files(store, source, files_to_replace(before))
    with store.open_output(layout.late_key(source, name)) as sink:
        for file, data, entries in replaced:
            sink.write(data)
            account.take_in(file, entries)
        for piece in chain([first], pieces):
            sink.write(piece.data.data)
            account.pieces.append(_entry(piece, account.size))
            account.size += len(piece.data)
            account.tables |= piece.tables
            account.changes += piece.changes
            account.truncates |= piece.truncates
        footer = json.dumps(account.pieces).encode()
        sink.write(footer + footer_ending(footer))
    failpoint("late.keep.after")
    names = frozenset(name for name, number in tables.items() if number in account.tables)
    files = [file for file, _, _ in replaced]
    return LateFile(
        name,
        frontier,
        names.union(*(file.tables for file in files)),
        account.size,
        account.changes,
        account.truncates,
        account.size + len(footer) + FOOTER_BYTES,
        max((file.level + 1 for file in files), default=0),
        frozenset(file.name for file in files),
    )


_Entries = list[dict[str, Any]]


def _whole_files(
    store: Store, source: str, files: Sequence[LateFile]
) -> list[tuple[LateFile, bytes, _Entries]]:
    """Read the files; only those behind the last one that is damaged or cannot be read.

    The tables that need that one will stop at it; no other table depends on it.
    """
    found: list[tuple[LateFile, bytes, _Entries]] = []
    keys = [layout.late_key(source, file.name) for file in files]
    for file, key, raw in zip(files, keys, at_once(partial(_readable, store), keys), strict=True):
        try:
            if raw is None or len(raw) != file.length:
                raise damaged_file(key)
            entries = _footer(key, raw[file.size :])
            for each in entries:
                data = raw[each["start"] : each["stop"]]
                verify(each["crc"], key, data, each["stop"] - each["start"])
        except KeptDamaged:
            found.clear()
        else:
            found.append((file, raw[: file.size], entries))
    return found


def _readable(store: Store, key: str) -> bytes | None:
    try:
        return store.get(key)
    except HeadraceError:
        return None


def _select(slices: Iterable[Slice], reader: SpoolReader, tables: Collection[int]) -> Iterator[SelectedBytes]:
    """Reduce the slices to the bytes for these tables; leave out a slice that has none."""
    for each in slices:
        found = each.decoder.select(each.read(reader), each.context, tables)
        if found is not None:
            yield found


def _entry(piece: SelectedBytes, start: int) -> dict[str, Any]:
    place = {"start": start, "stop": start + len(piece.data), "crc": zlib.crc32(piece.data.data)}
    return place | to_record(piece.context)


# --- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Portion:
    """The portion of a catch-up epoch: its files, the frontier that they reach, and whether they are all."""

    files: tuple[LateFile, ...]
    frontier: Position
    all: bool

    @property
    def changes(self) -> int:
        return sum(file.changes for file in self.files)

    @property
    def truncates(self) -> bool:
        return any(file.truncates for file in self.files)


def portion(
    files: Iterable[LateFile], behind: Mapping[TableName, Position], frontier: Position, limit: int
) -> Portion:
    """Choose the next files for tables at these positions, in order: at least one, up to `limit` bytes."""
    waiting = [file for file in files if is_file_needed(file, behind)]
    sizes = np.cumsum([file.size for file in waiting])
    count = max(1, int(np.searchsorted(sizes, limit, side="right"))) if waiting else 0
    taken = tuple(waiting[:count])
    over = count == len(waiting)
    return Portion(taken, frontier if over else taken[-1].frontier, over)


def slices_of(lake: LakeAddress, source: str, files: Iterable[LateFile], decoder: Decoder) -> Iterator[Slice]:
    """Yield the pieces of the files, in order."""
    for pieces in at_once(partial(_pieces, lake, source, decoder), files):
        yield from pieces


def _pieces(lake: LakeAddress, source: str, decoder: Decoder, file: LateFile) -> list[Slice]:
    store, key, data = lake.open(), layout.late_key(source, file.name), None
    if file.size <= SMALL_BYTES:
        raw = store.get(key)
        if raw is None:
            raise damaged_file(key)
        entries, data = _footer(key, raw[file.size :]), raw[: file.size]
    else:
        with open_kept(store, key) as found:
            found.seek(file.size)
            entries = _footer(key, found.read())
            if file.size <= SMALL_BYTES * len(entries):
                found.seek(0)
                data = found.read(file.size)
    return [_slice(decoder, KeptPiece(lake, key, each["crc"]), each, data) for each in entries]


_PLACE = frozenset(("start", "stop", "crc"))  # of an entry; the rest is the context


def _slice(decoder: Decoder, place: KeptPiece, entry: dict[str, Any], data: bytes | None) -> Slice:
    """Make a slice of a piece; in a small file it carries its bytes, which are verified now."""
    start, stop = entry["start"], entry["stop"]
    context = decoder.restore({key: part for key, part in entry.items() if key not in _PLACE})
    if data is None:
        return Slice(decoder, context, start, stop, kept_piece=place)
    own = data[start:stop]
    verify(place.crc, place.key, own, stop - start)
    return Slice(decoder, context, start, stop, data=own)


def _footer(key: str, ending: bytes) -> _Entries:
    footer = ending[:-FOOTER_BYTES]
    if not is_footer(footer, ending[-FOOTER_BYTES:]):
        raise damaged_file(key)
    try:
        pieces: _Entries = json.loads(footer)
    except ValueError as error:
        raise damaged_file(key) from error
    return pieces
