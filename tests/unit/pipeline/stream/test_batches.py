"""Batches say what an epoch takes out of the spool, and how far the spool is not needed any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline.stream import batches
from headrace.spool.cut_places import CutPlaces
from headrace.spool.layout import Kind
from headrace.spool.places import Places
from headrace.spool.reader import SpoolReader, prepare
from headrace.spool.segment import Segment
from headrace.spool.writer import SpoolWriter
from tests.places import place_at
from tests.unit.pipeline.stream.test_slices import SIZE, _bytes, _record, whole

LIMIT = 4_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    prepare(tmp_path / "spool", {"system": "1", "slot": "s"}, 0)
    return tmp_path / "spool"


def _batch(
    reader: SpoolReader, address: int, before: int = 0, confirmed: int | None = None
) -> batches.EpochBatch:
    found = batches.next_batch(
        reader, address, place_at(before), CutPlaces(Places(Path()), place_at), confirmed
    )
    assert found is not None
    return found


def test_a_source_that_is_idle_for_us_reads_its_index_once_and_frees_its_spool(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart the cursor is at nothing, though the spool has been kept."""
    with SpoolWriter(folder, LIMIT, index_records=10) as writer:
        whole(writer, 5)
        for position in range(10, 60):
            writer.progress(position)
        assert writer.full()
        reader = SpoolReader(folder)
        assert reader.discard(0) == 0
        batch = _batch(reader, 0, before=9)  # the transaction is in the lake
        assert (len(batch.transactions), batch.frontier) == (0, place_at(59))
        assert batch.next_address == writer.address
        read: list[int] = []
        records = Segment.records

        def counted(segment: Segment, start: int, stop: int) -> object:
            read.append(stop - start)
            return records(segment, start, stop)

        monkeypatch.setattr(Segment, "records", counted)
        again = _batch(reader, batch.next_address, before=9)
        assert sum(read) <= 1  # the newest one, which tells the frontier
        assert reader.discard(again.next_address) == 5
        assert not writer.full()


def test_after_what_was_seen_to_be_idle_nothing_is_passed_over(folder: Path) -> None:
    with SpoolWriter(folder, 1 << 30, segment_bytes=SIZE) as writer:
        whole(writer, 5)
        writer.progress(9)
        reader = SpoolReader(folder)
        batch = _batch(reader, 0, before=9)  # what is there is in the lake
        assert not len(batch.transactions)
        start = writer.append(_bytes())
        writer.append(_bytes())  # begins a segment in the middle of the transaction
        batch = _batch(reader, batch.next_address, before=9)
        assert not len(batch.transactions)
        writer.commit(_record(Kind.TRANSACTION, 20, start, writer.address))
        found = _batch(reader, batch.next_address, before=9)
        assert found.transactions["time"].tolist() == [20]
        assert found.next_address == writer.address


def test_an_epoch_tells_whether_it_leaves_something(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SpoolWriter(folder, 1 << 30) as writer:
        for time in (2, 4, 6):
            whole(writer, time)
        reader = SpoolReader(folder)
        assert not _batch(reader, 0).more
        monkeypatch.setattr(batches, "EPOCH_BYTES", 2 * SIZE)
        batch = _batch(reader, 0)
        assert (batch.more, batch.next_address) == (True, 2 * SIZE)


def test_an_epoch_takes_only_what_the_server_has_sent_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be another life of the server, in which the rest of the spool never happened."""
    with SpoolWriter(folder, 1 << 30) as writer:
        for time in (2, 4, 6, 20):
            whole(writer, time)
        writer.progress(30)
        reader = SpoolReader(folder)
        batch = _batch(reader, 0, before=4, confirmed=4)
        assert (len(batch.transactions), batch.frontier, batch.next_address, batch.more) == (
            0,
            place_at(4),
            0,
            False,
        )
        batch = _batch(reader, 0, before=4, confirmed=5)
        assert batch.transactions["time"].tolist() == [4]
        assert (batch.frontier, batch.next_address, batch.more) == (place_at(5), 2 * SIZE, False)
        batch = _batch(reader, batch.next_address, before=7, confirmed=15)  # nothing lies between
        assert (len(batch.transactions), batch.frontier, batch.next_address) == (0, place_at(15), 3 * SIZE)
        batch = _batch(reader, 0, confirmed=25)
        assert (batch.transactions["time"].tolist(), batch.frontier) == ([2, 4, 6, 20], place_at(25))
        assert _batch(reader, batch.next_address, before=25).frontier == place_at(30)
        monkeypatch.setattr(batches, "EPOCH_BYTES", 2 * SIZE)
        batch = _batch(reader, 0, confirmed=7)
        assert (batch.transactions["time"].tolist(), batch.more) == ([2, 4], True)


def _by_places(folder: Path, before: int = 0, confirmed: int | None = None) -> tuple[list[int], int]:
    """The times that the next epoch takes of a source whose stream alone knows its positions, and its end."""
    places = CutPlaces(Places(folder), lambda time: None)
    found = batches.next_batch(SpoolReader(folder), 0, place_at(before), places, confirmed)
    assert found is not None
    assert found.frontier == place_at(found.frontier.time)
    return found.transactions["time"].tolist(), found.frontier.time


def test_an_epoch_ends_where_the_stream_said_its_position(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SpoolWriter(folder, 1 << 30) as writer:
        writer.places.say(place_at(0))
        for time in (2, 4, 6, 8):
            whole(writer, time)
            if time == 6:
                writer.places.say(place_at(7))
        assert _by_places(folder) == ([2, 4, 6], 7)
        monkeypatch.setattr(batches, "EPOCH_BYTES", SIZE)
        assert _by_places(folder) == ([2, 4, 6], 7)  # sooner it cannot end
        assert _by_places(folder, confirmed=5) == ([], 0)
        assert _by_places(folder, before=7) == ([], 7)
        writer.places.say(place_at(20))
        writer.progress(20)
        assert _by_places(folder, before=7) == ([8], 20)


def test_an_epoch_waits_for_all_that_lies_before_its_end(folder: Path) -> None:
    """The receiver says a position first, and its records can be seen one by one."""
    with SpoolWriter(folder, 1 << 30) as writer:
        writer.places.say(place_at(0))
        writer.places.say(place_at(7))
        for time, taken in ((2, ([], 0)), (4, ([], 0)), (6, ([2, 4, 6], 7))):
            whole(writer, time)
            assert _by_places(folder) == taken


def test_an_epoch_reads_on_to_the_only_place_where_it_can_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "EPOCH_TRANSACTIONS", 2)
    with SpoolWriter(folder, 1 << 30) as writer:
        writer.places.say(place_at(0))
        writer.places.say(place_at(11))
        for time in (2, 4, 6, 8, 10, 12):
            whole(writer, time)
        assert _by_places(folder) == ([2, 4, 6, 8, 10], 11)
