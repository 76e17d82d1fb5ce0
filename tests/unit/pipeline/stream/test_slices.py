"""An epoch's slices: few for many transactions, and none in which a layout would be missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace.pipeline.stream import batches
from headrace.sources import registry
from headrace.spool import running_files
from headrace.spool.layout import RECORD, Kind, Records
from headrace.spool.reader import SpoolReader, prepare
from headrace.spool.running_files import TransactionName
from headrace.spool.writer import SpoolWriter

SIZE = 100
DECODER = registry.by_kind("postgres").decoder()
TABLE = 16384


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    prepare(tmp_path / "spool", {"system": "1", "slot": "s"}, 0)
    return tmp_path / "spool"


@pytest.fixture
def writer(folder: Path) -> Iterator[SpoolWriter]:
    with SpoolWriter(folder, 1 << 30) as writer:
        yield writer


def _bytes() -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.zeros(SIZE, np.uint8)


def whole(writer: SpoolWriter, time: int) -> None:
    start = writer.append(_bytes())
    writer.commit(_record(Kind.TRANSACTION, time, start, writer.address))


def streamed_one(writer: SpoolWriter, time: int, layout: bytes | None = None) -> TransactionName:
    """Its changes lie in files of its own, the end of it between the whole ones."""
    which = TransactionName(0, time)
    writer.streamed.append(which, _bytes())
    start = writer.append(_bytes())
    writer.streamed.end(which, start, [])
    if layout is not None:
        writer.layout(TABLE, start, layout)
    writer.commit(_record(Kind.STREAMED, time, start, writer.address))
    return which


def _record(kind: Kind, time: int, start: int, stop: int) -> Records:
    record = np.zeros(1, dtype=RECORD)
    record["kind"], record["time"], record["end"], record["transaction"] = kind, time, time + 1, time
    record["start"], record["stop"] = start, stop
    record["length"] = SIZE if kind == Kind.STREAMED else 0
    return record


def test_streamed_transactions_between_whole_ones_do_not_cut_them(folder: Path, writer: SpoolWriter) -> None:
    for time in range(0, 400, 4):
        whole(writer, time)
        streamed_one(writer, time + 2)
    reader = SpoolReader(folder)
    whole_ones, streamed_ones = batches.slices(reader, reader.transactions(0), DECODER)
    assert (whole_ones.start, whole_ones.stop) == (0, 199 * SIZE)
    assert [small.own.number for small in streamed_ones.several] == list(range(2, 402, 4))


def test_a_layout_that_a_streamed_transaction_brought_begins_a_slice(
    folder: Path, writer: SpoolWriter
) -> None:
    layouts = {4: b"one", 12: b"other", 16: b"other"}
    for time in range(0, 24, 2):
        streamed_one(writer, time, layouts[time]) if time in layouts else whole(writer, time)
    reader = SpoolReader(folder)
    found = [each for each in batches.slices(reader, reader.transactions(0), DECODER) if not each.several]
    # Said again it changes nothing.
    assert [each.context for each in found] == [DECODER.between(said) for said in ([], [b"one"], [b"other"])]
    assert [(each.start // SIZE, each.stop // SIZE) for each in found] == [(0, 2), (3, 6), (7, 12)]


def test_a_slice_is_of_one_size_and_one_session(
    folder: Path, writer: SpoolWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "SLICE_BYTES", 3 * SIZE)
    for time in range(0, 10, 2):
        whole(writer, time)
    writer.close()
    with SpoolWriter(folder, 1 << 30) as again:
        for time in range(10, 18, 2):
            whole(again, time)
        reader = SpoolReader(folder)
        found = list(batches.slices(reader, reader.transactions(0), DECODER))
    assert [(each.start // SIZE, each.stop // SIZE) for each in found] == [(0, 3), (3, 5), (5, 8), (8, 9)]


def test_the_end_of_a_streamed_transaction_is_read_once(
    folder: Path, writer: SpoolWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often a reader looks what is still running, and gives up what it has."""
    first = streamed_one(writer, 2)
    running = TransactionName(0, 99)
    writer.streamed.append(running, _bytes())
    asked: list[TransactionName] = []
    words = running_files._words

    def counted(folder: Path, which: TransactionName) -> object:
        asked.append(which)
        return words(folder, which)

    monkeypatch.setattr(running_files, "_words", counted)
    reader = SpoolReader(folder)
    for _ in range(3):
        assert reader.running() == {running: SIZE}
        reader.discard(0)
    edge = writer.address
    second = streamed_one(writer, 4)
    assert reader.running() == {running: SIZE}
    assert asked == [first, second]
    reader.discard(edge)  # what begins there is still wanted
    assert running_files.known_transactions(folder) == [second, running]
    reader.discard(writer.address)
    assert running_files.known_transactions(folder) == [running]
