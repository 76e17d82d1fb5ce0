"""A spool gives back what was put in, whatever its writer and its files went through."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace.core.errors import Transient
from headrace.spool.layout import (
    BLOCK,
    RECORD,
    Bytes,
    Kind,
    Records,
    erase,
    segment_path,
    segments,
)
from headrace.spool.reader import SpoolReader, prepare
from headrace.spool.running_files import TransactionName
from headrace.spool.writer import SpoolWriter

ORIGIN = {"system": "1", "slot": "s"}
SMALL = 4096  # bytes of a segment, so that a test has many


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    prepare(folder, ORIGIN, 0)
    return folder


@pytest.fixture
def writer(folder: Path) -> Iterator[SpoolWriter]:
    with SpoolWriter(folder, 1 << 30, segment_bytes=SMALL, index_records=8) as writer:
        yield writer


def random_bytes(seed: int, size: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def transaction(time: int, start: int, stop: int) -> Records:
    record = np.zeros(1, dtype=RECORD)
    record["time"], record["end"], record["start"], record["stop"] = time, time + 8, start, stop
    record["kind"], record["transaction"], record["changes"] = Kind.TRANSACTION, time % 1000, 1
    return record


def put(writer: SpoolWriter, seed: int, size: int) -> Bytes:
    """Append one transaction of random bytes; its time is its seed times ten."""
    data = random_bytes(seed, size)
    start = writer.append(data)
    writer.commit(transaction(seed * 10, start, writer.address))
    return data


def test_transactions_come_back_whole_and_in_order(folder: Path, writer: SpoolWriter) -> None:
    sizes = [1, 100, SMALL * 3, 0, 7, BLOCK + 1, 5000]
    data = [put(writer, i, size) for i, size in enumerate(sizes)]
    reader = SpoolReader(folder)
    found = reader.transactions(0)
    assert found["time"].tolist() == [i * 10 for i in range(len(sizes))]
    for record, expected in zip(found, data, strict=True):
        assert np.array_equal(reader.read(int(record["start"]), int(record["stop"])), expected)
    assert np.array_equal(reader.read(0, writer.address), np.concatenate(data))
    assert len(segments(folder)) == 3


def test_a_transaction_may_lie_across_segments(folder: Path, writer: SpoolWriter) -> None:
    parts = [random_bytes(i, SMALL - 1) for i in range(5)]
    start = writer.append(parts[0])
    for part in parts[1:]:
        writer.append(part)
    reader = SpoolReader(folder)
    assert len(reader.transactions(0)) == 0
    writer.commit(transaction(10, start, writer.address))
    (record,) = reader.transactions(0)
    assert np.array_equal(reader.read(int(record["start"]), int(record["stop"])), np.concatenate(parts))


def test_a_reader_that_follows_sees_each_transaction_once(folder: Path, writer: SpoolWriter) -> None:
    reader = SpoolReader(folder)
    after, seen = 0, []
    for i in range(200):
        put(writer, i, i * 3 + 1)
        if i % 3 == 0:
            writer.progress(i * 10 + 8)
        if i % 7 == 0:
            found = reader.transactions(after, limit=5)
            seen += found["time"].tolist()
            after = int(found["stop"][-1])
    while len(found := reader.transactions(after, limit=5)):
        seen += found["time"].tolist()
        after = int(found["stop"][-1])
    assert seen == [i * 10 for i in range(200)]


def test_the_frontier_follows_commits_and_progress(folder: Path) -> None:
    reader = SpoolReader(folder)
    assert reader.frontier() is None
    with SpoolWriter(folder, 1 << 30, frontier=40) as writer:
        assert reader.frontier() == 40
        put(writer, 5, 10)
        assert reader.frontier() == 58
        writer.note_source_end(source_end=99, source_ts=7)
        writer.progress(77)
        newest = reader.newest()
        assert newest is not None
        assert (newest["end"], newest["source_end"], newest["source_ts"]) == (77, 99, 7)
        writer.progress(60)
        assert reader.frontier() == 77


def test_no_index_grows_for_ever(folder: Path, writer: SpoolWriter) -> None:
    for i in range(30):
        put(writer, i, 1)
    for i in range(30):
        writer.progress(1000 + i)
    sizes = [segment_path(folder, i, "index").stat().st_size for i in segments(folder)]
    assert max(sizes) == 8 * RECORD.itemsize
    assert sum(sizes) >= 60 * RECORD.itemsize


def test_an_idle_source_does_not_fill_the_disk(folder: Path, writer: SpoolWriter) -> None:
    put(writer, 1, 10)
    reader = SpoolReader(folder)
    for i in range(100):
        writer.progress(100 + i)
        reader.discard(writer.address)
    assert len(segments(folder)) == 1
    assert reader.frontier() == 199
    put(writer, 50, 10)
    assert reader.transactions(10)["time"].tolist() == [500]


def test_a_new_writer_goes_on_behind_what_a_killed_one_left(folder: Path) -> None:
    first = SpoolWriter(folder, 1 << 30)
    kept = put(first, 1, 300)
    first.append(random_bytes(2, 500))  # an open transaction: never committed
    first.close()
    # What a kill in the middle of a write leaves: a part of a record, a segment without a head.
    with segment_path(folder, 0, "index").open("ab") as index:
        index.write(b"\1" * (RECORD.itemsize - 1))
    segment_path(folder, 1, "raw").write_bytes(b"orphan")
    with SpoolWriter(folder, 1 << 30) as second:
        assert second.session == first.session + 1
        assert second.frontier == 18
        assert second.address == 800
        put(second, 3, 100)
        reader = SpoolReader(folder)
        found = reader.transactions(0)
        assert found["time"].tolist() == [10, 30]
        assert found["session"].tolist() == [1, 2]
        assert np.array_equal(reader.read(0, 300), kept)
        assert np.array_equal(reader.read(800, 900), random_bytes(3, 100))


def test_a_second_writer_is_refused(folder: Path, writer: SpoolWriter) -> None:
    with pytest.raises(Transient) as caught:
        SpoolWriter(folder, 1 << 30)
    assert caught.value.code == "SPOOL_BUSY"


def test_relations_are_those_of_the_session_before_the_address(folder: Path) -> None:
    with SpoolWriter(folder, 1 << 30, segment_bytes=SMALL) as writer:
        writer.layout(7, 0, b"seven")
        put(writer, 1, SMALL)
        put(writer, 2, SMALL)
        writer.layout(8, writer.address, b"eight")
        here = writer.address
        put(writer, 3, SMALL)
        writer.layout(7, writer.address, b"seven changed")
        put(writer, 4, SMALL)
        reader = SpoolReader(folder)
        assert reader.layouts_before(0) == [b"seven"]
        assert reader.layouts_before(here - 1) == [b"seven"]
        assert reader.layouts_before(here) == [b"seven", b"eight"]
        assert reader.layouts_before(writer.address - 1) == [b"seven changed", b"eight"]
        assert reader.discard(3 * SMALL) == 3
        assert sorted(reader.layouts_before(writer.address - 1)) == [b"eight", b"seven changed"]
    with SpoolWriter(folder, 1 << 30) as writer:
        writer.append(random_bytes(5, 10))
        assert SpoolReader(folder).layouts_before(writer.address - 1) == []


def test_discarded_segments_are_gone_and_the_rest_stays(folder: Path, writer: SpoolWriter) -> None:
    data = [put(writer, i, SMALL) for i in range(10)]
    reader = SpoolReader(folder)
    held = reader.held_bytes()
    assert reader.discard(5 * SMALL + 1) == 5
    assert reader.held_bytes() < held - 5 * SMALL
    assert np.array_equal(reader.read(6 * SMALL, 7 * SMALL), data[6])
    assert reader.transactions(6 * SMALL)["time"].tolist() == [60, 70, 80, 90]
    assert SpoolReader(folder).transactions(6 * SMALL)["time"].tolist() == [60, 70, 80, 90]
    with pytest.raises(Transient) as caught:
        reader.read(SMALL, 2 * SMALL)
    assert caught.value.code == "SPOOL_DISCARDED"


def test_full_until_the_driver_frees_something(folder: Path) -> None:
    with SpoolWriter(folder, 10 * SMALL, segment_bytes=SMALL) as writer:
        count = 0
        while not writer.full():
            put(writer, count, SMALL)
            count += 1
        assert 9 <= count <= 10
        SpoolReader(folder).discard(5 * SMALL)
        assert not writer.full()


def test_what_is_rolled_back_may_vanish_while_the_driver_looks(folder: Path, writer: SpoolWriter) -> None:
    """Two processes use the spool at once: here two threads, of which one rolls back all the time."""
    over = threading.Event()

    def roll_back() -> None:
        for number in itertools.count(10):
            if over.is_set():
                return
            which = TransactionName(writer.segment, number)
            writer.streamed.append(which, random_bytes(number, 10))
            if number % 2:
                writer.streamed.end(which, 1 << 40, [])
            writer.streamed.drop(which)

    thread = threading.Thread(target=roll_back)
    thread.start()
    try:
        reader = SpoolReader(folder)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            reader.held_bytes()
            reader.running()
    finally:
        over.set()
        thread.join()


def test_a_transaction_larger_than_the_limit_passes_through(folder: Path) -> None:
    with SpoolWriter(folder, 4 * SMALL, segment_bytes=SMALL) as writer:
        put(writer, 1, SMALL)
        start = writer.address
        for i in range(20):
            writer.append(random_bytes(i, SMALL))
        assert writer.full(start)  # the driver can still free the segment before it
        SpoolReader(folder).discard(start)
        assert not writer.full(start)
        writer.commit(transaction(10, start, writer.address))
        assert writer.full()


def test_streamed_transactions_count_and_only_what_has_ended_can_be_freed(folder: Path) -> None:
    running, ended = TransactionName(0, 7), TransactionName(0, 8)
    with SpoolWriter(folder, 4 * SMALL, segment_bytes=SMALL) as writer:
        writer.streamed.append(running, random_bytes(1, 6 * SMALL))
        assert not writer.full()  # nothing that waiting could free
        writer.streamed.append(ended, random_bytes(2, SMALL))
        start = writer.append(random_bytes(3, 60))
        writer.streamed.end(ended, start, [9])
        record = transaction(10, start, writer.address)
        record["kind"], record["transaction"], record["length"] = Kind.STREAMED, 8, SMALL
        writer.commit(record)
        assert writer.full()
        SpoolReader(folder).discard(writer.address)
        assert not writer.full()
        assert SpoolReader(folder).running() == {running: 6 * SMALL}
    with SpoolWriter(folder, 4 * SMALL, segment_bytes=SMALL) as writer:
        assert SpoolReader(folder).running() == {}
        assert not writer.full()


@pytest.mark.parametrize(("suffix", "at"), [("raw", 1000), ("sums", 9), ("index", RECORD.itemsize + 40)])
def test_a_damaged_byte_is_found(folder: Path, writer: SpoolWriter, suffix: str, at: int) -> None:
    put(writer, 1, 2000)
    path = segment_path(folder, 0, suffix)
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(Transient) as caught:
        read_everything(folder)
    assert caught.value.code == "SPOOL_DAMAGED"


@pytest.mark.parametrize(("suffix", "keep"), [("raw", 1999), ("sums", 0), ("index", RECORD.itemsize)])
def test_a_lost_tail_is_found_or_forgotten(folder: Path, suffix: str, keep: int) -> None:
    with SpoolWriter(folder, 1 << 30, segment_bytes=SMALL) as writer:
        put(writer, 1, 2000)
    with segment_path(folder, 0, suffix).open("rb+") as file:
        file.truncate(keep)
    with SpoolWriter(folder, 1 << 30) as writer:
        if suffix == "index":  # then nothing says that anything is lost, and it is streamed again
            assert writer.frontier == 0
            return
        with pytest.raises(Transient) as caught:
            read_everything(folder)
        assert caught.value.code == "SPOOL_DAMAGED"


def test_a_lost_record_in_the_middle_is_found(folder: Path, writer: SpoolWriter) -> None:
    for i in range(4):
        put(writer, i, 10)
    path = segment_path(folder, 0, "index")
    content = path.read_bytes()
    size = RECORD.itemsize
    path.write_bytes(content[: 2 * size] + content[3 * size :])
    with pytest.raises(Transient) as caught:
        read_everything(folder)
    assert caught.value.code == "SPOOL_DAMAGED"


def test_lost_records_at_the_end_of_a_segment_are_found(folder: Path, writer: SpoolWriter) -> None:
    for i in range(4):
        put(writer, i, SMALL)
    path = segment_path(folder, 1, "index")
    path.write_bytes(path.read_bytes()[: -RECORD.itemsize])
    with pytest.raises(Transient) as caught:
        read_everything(folder)
    assert caught.value.code == "SPOOL_DAMAGED"


def read_everything(folder: Path) -> None:
    reader = SpoolReader(folder)
    for record in reader.transactions(0):
        reader.read(int(record["start"]), int(record["stop"]))


def test_prepare_keeps_a_spool_of_the_same_origin_and_erases_another(folder: Path) -> None:
    with SpoolWriter(folder, 1 << 30) as writer:
        put(writer, 1, 100)
    assert prepare(folder, ORIGIN, 0)
    assert len(SpoolReader(folder).transactions(0)) == 1
    assert not prepare(folder, {**ORIGIN, "slot": "other"}, 0)
    assert SpoolReader(folder).newest() is None
    erase(folder)
    assert [path.name for path in folder.iterdir() if path.name != "lock"] == []


def test_prepare_erases_a_spool_that_begins_behind_the_frontier(folder: Path) -> None:
    with SpoolWriter(folder, 1 << 30, segment_bytes=SMALL) as writer:
        for i in range(1, 5):
            put(writer, i, SMALL)
        SpoolReader(folder).discard(2 * SMALL)
    assert prepare(folder, ORIGIN, 28)  # the third transaction has the time 30
    assert SpoolReader(folder).oldest() is not None
    assert not prepare(folder, ORIGIN, 27)
    assert SpoolReader(folder).oldest() is None


def test_a_spool_that_is_taken_away_is_noticed(folder: Path, writer: SpoolWriter) -> None:
    put(writer, 1, 100)
    reader = SpoolReader(folder)
    assert reader.frontier() == 18
    for path in folder.glob("0*"):
        path.unlink()
    for ask in (reader.frontier, lambda: reader.transactions(0), lambda: reader.read(0, 100)):
        with pytest.raises(Transient) as caught:
            ask()
        assert caught.value.code == "SPOOL_DISCARDED"


def test_a_folder_that_cannot_be_used_is_a_coded_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Transient) as caught:
        prepare(tmp_path / "file" / "spool", ORIGIN, 0)
    assert caught.value.code == "SPOOL_UNWRITABLE"


def test_a_full_disk_is_a_coded_error(folder: Path, writer: SpoolWriter) -> None:
    # /dev/full answers every write with ENOSPC, as a full disk does.
    files = writer._files
    assert files is not None
    descriptor = os.open("/dev/full", os.O_WRONLY)
    os.dup2(descriptor, files.raw)
    os.close(descriptor)
    with pytest.raises(Transient) as caught:
        put(writer, 1, 100)
    assert caught.value.code == "SPOOL_FULL"
    assert len(SpoolReader(folder).transactions(0)) == 0
