"""The stream that is kept for some tables tells of them what the stream itself tells, and of no others.

The tests draw random transactions over three tables, in one piece or in two, with subtransactions that were
rolled back. They decode them from the whole bytes and from the kept stream.
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Definite
from headrace.lake.format import layout
from headrace.lake.store.local import LocalStore
from headrace.lake.store.many import AT_ONCE
from headrace.lake.store.open import open_store
from headrace.pipeline.state import records
from headrace.pipeline.stream import late_stream
from headrace.pipeline.tasks.slices import Slice
from headrace.pipeline.tasks.table_task import LakeAddress
from headrace.sources.postgres.decode.context import PostgresStreamContext
from headrace.spool.reader import SpoolReader
from tests.laws.sources.streams import DECODER, NAMES, TABLES, begin, insert, piece, plain, said, streamed
from tests.places import place_at

NOBODY = cast(SpoolReader, None)


def _said(each: Slice, oids: tuple[int, ...]) -> list[tuple[int, object]]:
    return list(said(each.read(NOBODY), each.context, oids))


def _rolled_back(each: Slice) -> bool:
    """Tell whether something of the slice's transaction was rolled back."""
    assert isinstance(each.context, PostgresStreamContext)
    return each.context.inside is not None and bool(each.context.inside.rolled_back)


@given(pieces=st.lists(st.one_of(plain(), streamed()), max_size=4), count=st.integers(1, 3))
def test_what_is_kept_says_the_same_of_its_tables(pieces: list[Slice], count: int) -> None:
    oids = TABLES[:count]
    tables = {NAMES[oid]: oid for oid in oids}
    with tempfile.TemporaryDirectory() as folder:
        kept = late_stream.keep(LocalStore(folder), "main", 1, place_at(9000), tables, pieces, NOBODY)
        files = [] if kept is None else [kept]
        again = late_stream.slices_of(LakeAddress(folder), "main", files, DECODER)
        found = [_said(each, oids) for each in again]
    expected = [told for each in pieces if (told := _said(each, oids))]
    assert [told for told in found if told] == expected
    of = {NAMES[oid] for told in expected for oid, _ in told}
    named = frozenset() if kept is None else kept.tables
    # What subtransactions did that were rolled back is kept, and says nothing.
    assert of == named or (of < named and any(_rolled_back(each) for each in pieces))


@pytest.mark.parametrize("in_footer", [False, True])
def test_a_piece_that_a_disk_made_up_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_footer: bool
) -> None:
    """Or a digit of what the file says of it: of a time, a number, a place."""
    store = open_store(tmp_path)
    damaged = piece(begin(1, 7) + insert(TABLES[0], b"x"), None)
    tables = {name: oid for oid, name in NAMES.items()}
    kept = late_stream.keep(store, "main", 1, place_at(9), tables, [damaged], NOBODY)
    assert kept is not None
    path = tmp_path / layout.late_key("main", kept.name)
    raw = bytearray(path.read_bytes())
    digits = [at for at in range(kept.size, len(raw) - records.FOOTER_BYTES) if chr(raw[at]) in "2468"]
    raw[digits[-1] if in_footer else 40] ^= 1
    path.write_bytes(raw)
    for small in (0, 1 << 20):  # read piece by piece, or at once
        monkeypatch.setattr(late_stream, "SMALL_BYTES", small)
        with pytest.raises(Definite) as caught:
            _read([kept], tmp_path)
        assert caught.value.code == "LATE_DAMAGED"


@pytest.mark.parametrize("fault", ["gone", "unreadable"])
def test_a_file_that_cannot_be_read_is_left_for_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The source goes on: what is kept next takes in the files behind it alone."""
    monkeypatch.setattr(records, "LATE_FILES_TOGETHER", 4)
    store, tables = open_store(tmp_path), {NAMES[TABLES[0]]: TABLES[0]}
    written = piece(begin(1, 7) + insert(TABLES[0], b"x"), None)
    files = list[records.LateFile]()
    for epoch in range(4):
        if epoch == 3:
            bad = tmp_path / layout.late_key("main", files[1].name)
            bad.unlink()
            if fault == "unreadable":
                bad.mkdir()
        made = late_stream.keep(store, "main", epoch, place_at(epoch), tables, [written], NOBODY, files)
        assert made is not None
        files.append(made)
    assert files[3].replaces == {files[2].name}
    assert _read([files[3]], tmp_path) == [written.read(NOBODY).tobytes()] * 2


def test_thousands_of_small_files_are_asked_for_many_at_once_and_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a bucket's answers, one after the other, would take minutes."""
    store, tables = LocalStore(str(tmp_path)), {NAMES[TABLES[0]]: TABLES[0]}
    written = piece(begin(1, 7) + insert(TABLES[0], b"x"), None)
    kept = [
        late_stream.keep(store, "main", epoch, place_at(epoch), tables, [written], NOBODY)
        for epoch in range(3 * AT_ONCE)
    ]
    bucket = _Bucket(store)
    monkeypatch.setattr(LakeAddress, "open", lambda _: bucket)
    found = _read([file for file in kept if file is not None], tmp_path)
    assert found == [written.read(NOBODY).tobytes()] * 3 * AT_ONCE
    assert len(bucket.asked) == 3 * AT_ONCE


def _read(files: list[records.LateFile], folder: Path) -> list[bytes]:
    slices = late_stream.slices_of(LakeAddress(str(folder)), "main", files, DECODER)
    return [each.read(NOBODY).tobytes() for each in slices]


class _Bucket:
    """A store that answers only when it is asked for much at once."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._all = threading.Barrier(AT_ONCE)
        self.asked: list[str] = []

    def get(self, key: str) -> bytes | None:
        self._all.wait(timeout=60)
        self.asked.append(key)
        return self._store.get(key)


def test_a_portion_is_a_prefix_of_what_its_tables_need() -> None:
    mine, other = NAMES[TABLES[0]], NAMES[TABLES[1]]
    sizes = ((100, mine, 5), (200, other, 5), (300, mine, 5), (400, mine, 50))
    files = [
        records.LateFile(f"{at}", place_at(at), frozenset({name}), size, 1, False, size + 8, 0)
        for at, name, size in sizes
    ]

    def taken(stands: int, limit: int) -> tuple[list[str], int, bool]:
        found = late_stream.portion(files, {mine: place_at(stands)}, place_at(1000), limit)
        return [file.name for file in found.files], found.frontier.time, found.all

    assert taken(0, 10) == (["100", "300"], 300, False)
    assert taken(100, 10) == (["300"], 300, False)
    assert taken(300, 10) == (["400"], 1000, True)  # one at least, however large
    assert taken(0, 100) == (["100", "300", "400"], 1000, True)
    assert taken(400, 100) == ([], 1000, True)
