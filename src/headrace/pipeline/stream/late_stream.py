"""What the stream has for tables that are still being copied, kept in the lake until they can take it.

    stream epoch    its stretches ─► only the messages of these tables ─► a file, named by the epoch's plan
    catch-up epoch  the files ─► stretches again ─► `split`, `merge`, with the table's handoff ─► files go

So the source is acknowledged while a copy takes hours, and the spool is given up: the lake has all that the
copy will need, as durable as anything that a mark rests on. Only for tables that say so (`kept` in their
record): for them every epoch since they were chosen has kept its part, and `applied` is how far they have
taken it. A file goes with the epoch after which no table needs it; the catalog says which there are.

A file holds the raw bytes of its pieces, one after the other, then what each piece must be told (the
layouts in force, the transaction that it begins in), as JSON, its length in the last eight bytes. Each piece
has a checksum: rows are never made of what a disk made up. Filtering reads the letters of messages and their
table's id, whole buffers at a time, and no row.
"""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.core.failpoint import failpoint
from headrace.core.names import TableName
from headrace.core.position import Lsn
from headrace.decode.kernel import Bytes, Flags
from headrace.decode.pgoutput import Messages, scan
from headrace.lake.format import layout
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.pipeline.state.kept_files import FOOTER_BYTES, Kept, needed
from headrace.pipeline.tasks.slices import Cut, damaged_file
from headrace.pipeline.tasks.table_task import KeptPiece, LakeAddress
from headrace.sources.postgres.decoding import Inside
from headrace.spool.reader import SpoolReader

_OID = slice(31, 35)  # of a layout as the spool keeps it
_BEGIN, _RELATION, _TRUNCATE = ord("B"), ord("R"), ord("T")
_CHANGES = (ord("I"), ord("U"), ord("D"))


# --- writing ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Account:
    """What is said of a file's pieces, and what they come to."""

    pieces: list[dict[str, Any]]
    size: int = 0
    changes: int = 0
    truncates: bool = False


def keep(
    store: Store,
    source: str,
    epoch: int,
    reached: Lsn,
    tables: Mapping[int, TableName],
    cuts: Iterable[Cut],
    reader: SpoolReader,
) -> Kept | None:
    """Write down what these stretches have for the tables (by oid); None where they have nothing."""
    pieces = _pieces(cuts, reader, tables)
    first = next(pieces, None)
    if first is None:
        return None
    name = f"{epoch:020d}-{uuid.uuid4().hex}"
    failpoint("late.keep.before")
    account = _Account([])
    with store.open_output(layout.late_key(source, name)) as sink:
        for cut, data, messages in (first, *pieces):
            sink.write(data.data)
            account.pieces.append(_told(cut, data, account.size, tables))
            account.size += len(data)
            account.changes += int(np.isin(messages.kind, _CHANGES).sum())
            account.truncates |= bool((messages.kind == _TRUNCATE).any())
        footer = json.dumps(account.pieces).encode()
        sink.write(footer + len(footer).to_bytes(FOOTER_BYTES, "big"))
    failpoint("late.keep.after")
    return Kept(name, reached, frozenset(tables.values()), account.size, account.changes, account.truncates)


def _pieces(
    cuts: Iterable[Cut], reader: SpoolReader, tables: Mapping[int, TableName]
) -> Iterator[tuple[Cut, Bytes, Messages]]:
    """The stretches without what is not for these tables; one that has nothing for them is left out."""
    oids = np.array(sorted(tables), np.int64)
    for cut in cuts:
        data = cut.read(reader)
        streamed = cut.inside is not None and cut.inside.streamed
        messages = scan(data, in_stream=streamed)
        wanted = _wanted(messages, oids)
        if wanted.any():
            yield cut, _only(data, messages, wanted), messages.take(wanted)


def _wanted(messages: Messages, oids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Flags:
    """The messages that say something of the tables, and the begins of their transactions."""
    kind, ours = messages.kind, np.isin(messages.relation, oids)
    changes = (np.isin(kind, _CHANGES) & ours) | (kind == _TRUNCATE)
    begins = kind == _BEGIN
    # Which transaction a message stands in: 0 is the one that was open before.
    number = np.cumsum(begins)
    concerned = np.zeros(int(number[-1]) + 1 if len(number) else 1, np.bool_)
    concerned[number[changes]] = True
    return np.asarray(changes | ((kind == _RELATION) & ours) | (begins & concerned[number]), np.bool_)


def _only(data: Bytes, messages: Messages, wanted: Flags) -> Bytes:
    """The bytes of these messages, by one running sum over all bytes."""
    edges = np.zeros(len(data) + 1, np.int8)
    edges[messages.frame_start[wanted]] += 1
    edges[messages.stop[wanted]] -= 1
    return data[np.cumsum(edges[:-1], dtype=np.int8).astype(np.bool_)]


def _told(cut: Cut, data: Bytes, start: int, tables: Mapping[int, TableName]) -> dict[str, Any]:
    layouts = [frame for frame in cut.relations if int.from_bytes(frame[_OID], "big") in tables]
    return {
        "start": start,
        "stop": start + len(data),
        "crc": zlib.crc32(data.data),
        "relations": [base64.b64encode(frame).decode() for frame in layouts],
        "inside": None if cut.inside is None else _inside_record(cut.inside, tables),
    }


def _inside_record(inside: Inside, tables: Mapping[int, TableName]) -> dict[str, Any]:
    return {
        "time": inside.time,
        "xid": inside.xid,
        "commit_ts": inside.commit_ts,
        "ordinals": [[oid, count] for oid, count in inside.ordinals.items() if oid in tables],
        "streamed": inside.streamed,
        "struck": list(inside.struck),
    }


# --- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Portion:
    """What a catch-up epoch takes: so many files, up to where that leads, and whether it is all there is."""

    files: tuple[Kept, ...]
    reached: Lsn
    all: bool

    @property
    def changes(self) -> int:
        return sum(file.changes for file in self.files)

    @property
    def truncates(self) -> bool:
        return any(file.truncates for file in self.files)


def portion(files: Iterable[Kept], behind: Mapping[TableName, Lsn], frontier: Lsn, limit: int) -> Portion:
    """The next files for tables that stand so, in order: one at least, and up to `limit` bytes."""
    waiting = [file for file in files if needed(file, behind)]
    sizes = np.cumsum([file.size for file in waiting])
    count = max(1, int(np.searchsorted(sizes, limit, side="right"))) if waiting else 0
    taken = tuple(waiting[:count])
    over = count == len(waiting)
    return Portion(taken, frontier if over else taken[-1].reached, over)


@dataclass(frozen=True, slots=True)
class Told:
    """A piece of a file, and what it must be told."""

    start: int
    stop: int
    relations: tuple[bytes, ...]
    inside: Inside | None
    kept: KeptPiece


def pieces_of(lake: LakeAddress, source: str, files: Sequence[Kept]) -> Iterator[Told]:
    """The pieces of the files, in order."""
    store = open_store(lake.url, dict(lake.options) or None)
    for file in files:
        key = layout.late_key(source, file.name)
        for piece in _footer(store, key, file.size):
            relations = tuple(map(base64.b64decode, piece["relations"]))
            place = KeptPiece(lake, key, piece["crc"])
            yield Told(piece["start"], piece["stop"], relations, _inside(piece["inside"]), place)


def _footer(store: Store, key: str, size: int) -> list[dict[str, Any]]:
    with store.open_input(key) as file:
        file.seek(size)
        told = file.read()
    footer, length = told[:-FOOTER_BYTES], int.from_bytes(told[-FOOTER_BYTES:], "big")
    if len(footer) != length:
        raise damaged_file(key)
    pieces: list[dict[str, Any]] = json.loads(footer)
    return pieces


def _inside(record: Mapping[str, Any] | None) -> Inside | None:
    if record is None:
        return None
    known = dict(record)
    known["ordinals"] = dict(known["ordinals"])
    known["struck"] = tuple(known["struck"])
    return Inside(**known)
