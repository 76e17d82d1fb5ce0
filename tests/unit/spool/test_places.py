"""Positions that only the stream knows are found by their times, whatever became of segments and writers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.core.position import Position
from headrace.spool.layout import SpoolSpoilt, segment_path, segments
from headrace.spool.places import MOST_BYTES, Places
from headrace.spool.reader import SpoolReader, prepare
from headrace.spool.writer import SpoolWriter

BYTES = np.zeros(100, np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    prepare(tmp_path / "spool", {"system": "1"}, 0)
    return tmp_path / "spool"


def test_each_is_found_by_its_time_in_whatever_segment(folder: Path) -> None:
    places = Places(folder)
    with SpoolWriter(folder, 1 << 30, segment_bytes=1) as writer:
        assert places.upto(1000) is None
        for time in (10, 20, 30):
            writer.places.say(Position(time, f"at {time}"))
            writer.places.say(Position(time - 5, "what is sent again"))
            writer.append(BYTES)
        assert [places.upto(time) for time in (9, 10, 19, 20, 1000)] == [
            None,
            *(Position(time, f"at {time}") for time in (10, 10, 20, 30)),
        ]
        assert [places.behind(time) for time in (9, 10, 30)] == [
            Position(10, "at 10"),
            Position(20, "at 20"),
            None,
        ]


def test_the_next_writer_goes_on_with_the_newest_one(folder: Path) -> None:
    with SpoolWriter(folder, 1 << 30) as writer:
        writer.places.say(Position(10, "at 10"))
        writer.progress(10)
        writer.places.say(Position(20, "written, but no record reached it"))
    with SpoolWriter(folder, 1 << 30) as writer:
        assert writer.places.newest == Position(10, "at 10")
        SpoolReader(folder).discard(writer.address)
    assert Places(folder).upto(1000) == Position(10, "at 10")


def test_what_is_looked_through_is_bounded(folder: Path) -> None:
    text = "x" * MOST_BYTES
    with SpoolWriter(folder, 1 << 30) as writer:
        for time in range(3):
            writer.places.say(Position(time, text))
            writer.progress(time)
    assert len(segments(folder)) == 4  # the last one begins with what is known
    assert [Places(folder).upto(time) for time in range(3)] == [Position(time, text) for time in range(3)]


@pytest.mark.parametrize("at", [0, 13, 20])
def test_a_damaged_byte_of_it_is_found(folder: Path, at: int) -> None:
    with SpoolWriter(folder, 1 << 30) as writer:
        writer.places.say(Position(10, "at ten"))
    path = segment_path(folder, 0, "places")
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(SpoolSpoilt) as caught:
        Places(folder).upto(1000)
    assert caught.value.code == "SPOOL_DAMAGED"


def test_one_that_is_being_written_is_not_read_yet(folder: Path) -> None:
    with SpoolWriter(folder, 1 << 30) as writer:
        writer.places.say(Position(10, "at ten"))
        writer.places.say(Position(20, "at twenty"))
    path = segment_path(folder, 0, "places")
    path.write_bytes(path.read_bytes()[:-1])
    assert Places(folder).upto(1000) == Position(10, "at ten")
