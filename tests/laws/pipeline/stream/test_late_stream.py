"""What is kept of a stream for some tables says the same of them as the stream itself, and nothing of others.

Random transactions over three tables, in one piece or in two, with subtransactions that were rolled back;
decoded from the whole bytes and from what was kept of them.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Definite
from headrace.core.names import TableName
from headrace.core.position import Lsn
from headrace.core.schema import Column, TableSchema
from headrace.decode.kernel import Bytes
from headrace.lake.format import layout
from headrace.lake.store.local import LocalStore
from headrace.lake.store.open import open_store
from headrace.pipeline.state import kept_files
from headrace.pipeline.stream import batches, late_stream
from headrace.pipeline.tasks.slices import Cut
from headrace.pipeline.tasks.table_task import LakeAddress
from headrace.sources.postgres import decoding
from headrace.sources.postgres.decoding import Inside, Wanted
from headrace.spool.reader import SpoolReader

TABLES = (16400, 16401, 16402)
NAMES = {oid: TableName("public", f"t{oid}") for oid in TABLES}
NOBODY = cast(SpoolReader, None)


def _frame(message: bytes) -> bytes:
    payload = b"w" + struct.pack(">QQQ", 0, 0, 0) + message
    return b"d" + struct.pack(">i", len(payload) + 4) + payload


def _relation(oid: int, xid: bytes = b"") -> bytes:
    columns = struct.pack(">HB", 1, 1) + b"a\0" + struct.pack(">Ii", 25, -1)
    named = b"public\0" + f"t{oid}".encode() + b"\0d"
    return _frame(b"R" + xid + struct.pack(">I", oid) + named + columns)


def _insert(oid: int, text: bytes, xid: bytes = b"") -> bytes:
    row = b"N" + struct.pack(">HcI", 1, b"t", len(text)) + text
    return _frame(b"I" + xid + struct.pack(">I", oid) + row)


def _truncate(oids: tuple[int, ...], xid: bytes = b"") -> bytes:
    named = b"".join(struct.pack(">I", oid) for oid in oids)
    return _frame(b"T" + xid + struct.pack(">IB", len(oids), 0) + named)


@dataclass(frozen=True)
class Piece:
    """A stretch whose bytes are at hand."""

    data: bytes
    inside: Inside | None
    relations: tuple[bytes, ...] = tuple(map(_relation, TABLES))

    def read(self, _reader: object) -> Bytes:
        return np.frombuffer(self.data, np.uint8)


texts = st.binary(max_size=8).map(lambda raw: raw.hex().encode())
changes = st.one_of(
    st.tuples(st.sampled_from(TABLES), texts), st.lists(st.sampled_from(TABLES), min_size=1, unique=True)
)


@st.composite
def plain(draw: st.DrawFn) -> Piece:
    """Whole transactions, the first of which may have begun before."""
    begun = draw(st.booleans())
    parts = [b""]
    for number in range(draw(st.integers(1, 5))):
        if number or not begun:
            lsn = 1000 + 10 * number
            parts.append(_frame(b"B" + struct.pack(">QqI", lsn, lsn * 7, 700 + number)))
        for change in draw(st.lists(changes, max_size=6)):
            if draw(st.integers(0, 3)) == 0:
                parts.append(_relation(draw(st.sampled_from(TABLES))))
            parts.append(_truncate(tuple(change)) if isinstance(change, list) else _insert(*change))
        parts.append(_frame(b"C" + struct.pack(">BQQq", 0, 1000, 1005, 7)))
    ordinals = {oid: draw(st.integers(0, 9)) for oid in TABLES}
    return Piece(b"".join(parts), Inside(990, 699, 5, ordinals) if begun else None)


@st.composite
def streamed(draw: st.DrawFn) -> Piece:
    """A piece of a transaction that was streamed while it ran."""
    parts = [b""]
    for change in draw(st.lists(changes, max_size=12)):
        xid = struct.pack(">I", 800 + draw(st.integers(0, 3)))
        parts.append(_truncate(tuple(change), xid) if isinstance(change, list) else _insert(*change, xid))
    struck = tuple(draw(st.lists(st.integers(801, 803), unique=True)))
    return Piece(b"".join(parts), Inside(2000, 800, 5, {}, streamed=True, struck=struck))


def _told(cut: Cut | Piece, oids: tuple[int, ...]) -> Iterator[tuple[int, Any]]:
    """All that a piece says of the tables."""
    data = cut.read(NOBODY)
    schema = TableSchema((Column("a", pa.string(), "text", "text"),), ("a",), False)
    wanted = {oid: Wanted(NAMES[oid], schema, 0) for oid in oids}
    layouts = decoding.relations_of(cut.relations)
    for found in decoding.decode(data, layouts, wanted, inside=cut.inside, xid_reference=700):
        assert found.changes is not None
        yield found.oid, found.changes.batch.to_pylist()
    zero = dict.fromkeys(oids, 0)
    yield from decoding.truncations(data, zero, inside=cut.inside, xid_reference=700).items()


@given(pieces=st.lists(st.one_of(plain(), streamed()), max_size=4), count=st.integers(1, 3))
def test_what_is_kept_says_the_same_of_its_tables(pieces: list[Piece], count: int) -> None:
    oids = TABLES[:count]
    names = {oid: NAMES[oid] for oid in oids}
    with tempfile.TemporaryDirectory() as folder:
        kept = late_stream.keep(LocalStore(folder), "main", 1, Lsn(9000), names, cast(Any, pieces), NOBODY)
        files = [] if kept is None else [kept]
        found = [list(_told(cut, oids)) for cut in batches.kept_cuts(LakeAddress(folder), "main", files)]
    expected = [told for piece in pieces if (told := list(_told(piece, oids)))]
    assert [told for told in found if told] == expected


def test_a_piece_that_a_disk_made_up_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    piece = Piece(_frame(b"B" + struct.pack(">QqI", 1, 7, 7)) + _insert(TABLES[0], b"x"), None)
    kept = late_stream.keep(store, "main", 1, Lsn(9), NAMES, cast(Any, [piece]), NOBODY)
    assert kept is not None
    path = tmp_path / layout.late_key("main", kept.name)
    raw = bytearray(path.read_bytes())
    raw[40] ^= 1
    path.write_bytes(raw)
    [cut] = batches.kept_cuts(LakeAddress(str(tmp_path)), "main", [kept])
    with pytest.raises(Definite) as caught:
        cut.read(NOBODY)
    assert caught.value.code == "LATE_DAMAGED"


def test_a_portion_is_a_prefix_of_what_its_tables_need() -> None:
    mine, other = NAMES[TABLES[0]], NAMES[TABLES[1]]
    sizes = ((100, mine, 5), (200, other, 5), (300, mine, 5), (400, mine, 50))
    files = [kept_files.Kept(f"{at}", Lsn(at), frozenset({name}), size, 1, False) for at, name, size in sizes]

    def taken(stands: int, limit: int) -> tuple[list[str], int, bool]:
        found = late_stream.portion(files, {mine: Lsn(stands)}, Lsn(1000), limit)
        return [file.name for file in found.files], int(found.reached), found.all

    assert taken(0, 10) == (["100", "300"], 300, False)
    assert taken(100, 10) == (["300"], 300, False)
    assert taken(300, 10) == (["400"], 1000, True)  # one at least, however large
    assert taken(0, 100) == (["100", "300", "400"], 1000, True)
    assert taken(400, 100) == ([], 1000, True)
