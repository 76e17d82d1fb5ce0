"""Records of tables in the catalog; how many late files there are, and what an epoch writes of them again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.core.errors import Definite
from headrace.core.names import TableName
from headrace.core.records import from_record, to_record
from headrace.pipeline.state import records
from headrace.pipeline.state.records import (
    LATE_FILES_TOGETHER,
    MOST_LATE_BYTES,
    LateFile,
    TableRecord,
    files_to_replace,
)
from headrace.pipeline.state.table_state import State
from tests.places import place_at
from tests.unit.core.batches import text_table

LIVE = TableRecord(TableName("public", "t"), State.LIVE, 5, text_table(), {}, None, since=7)
ERROR = Definite("TABLE_CHANGED", "it is another", hint="copy it anew")
OTHER = Definite("LAKE_FOREIGN_COMMIT", "somebody wrote to it", hint="stop that program")


def test_a_table_that_stops_says_why_and_up_to_where_it_was_followed() -> None:
    stopped = LIVE.with_error(ERROR, place_at(0x15))
    assert (stopped.state, stopped.error, stopped.stopped_at) == (State.STOPPED, ERROR, place_at(0x15))
    assert stopped.stop is not None
    assert stopped.stop.detail == 'public.t was followed up to "0/15"'
    again = from_record(TableRecord, to_record(stopped))
    assert again.stop is not None
    assert str(again.stop) == str(stopped.stop)
    assert replace(again, error=ERROR) == stopped


def test_a_table_that_is_stopped_already_stays_where_it_stopped() -> None:
    first = LIVE.with_error(ERROR, place_at(0x15))
    stopped = first.with_error(OTHER, place_at(0x99))
    assert (stopped.error, stopped.stopped_at) == (OTHER, place_at(0x15))
    assert stopped.stopped_since == first.stopped_since is not None


NAMES = frozenset({TableName("public", "t")})


def _after(epochs: int, size: int) -> tuple[list[LateFile], int]:
    """The files after so many epochs of one size, and all bytes that were written."""
    files, written = list[LateFile](), 0
    for number in range(epochs):
        gone = files_to_replace(files)
        assert gone == tuple(files[len(files) - len(gone) :]), "others than the last"
        length = size + sum(file.length for file in gone)
        assert length <= MOST_LATE_BYTES + size
        level = max((file.level + 1 for file in gone), default=0)
        files[len(files) - len(gone) :] = [
            LateFile(str(number), place_at(number), NAMES, length, 1, False, length, level)
        ]
        written += length
    assert sum(file.length for file in files) == epochs * size
    return files, written


@pytest.mark.parametrize(
    ("epochs", "size", "most", "times"),
    [
        (86_400, 500, 4 * LATE_FILES_TOGETHER, 5),
        (20_000, 40_000, 60 + 3 * LATE_FILES_TOGETHER, 4),
        (500, MOST_LATE_BYTES, 500, 1),
    ],
)
def test_files_are_few_and_each_byte_is_written_a_few_times(
    epochs: int, size: int, most: int, times: int
) -> None:
    files, written = _after(epochs, size)
    assert len(files) <= most
    assert written <= times * epochs * size


def test_a_file_that_was_taken_in_is_known_to_the_catalog_no_more() -> None:
    """And the record tells of its level, so that the next run goes on where this one stopped."""
    one, other = (LateFile(name, place_at(8), NAMES, 9, 1, False, 20, 0) for name in ("1", "2"))
    both = LateFile("3", place_at(9), NAMES, 27, 3, False, 60, 1, frozenset({"1", "2"}))
    moved = records.late_file_changes({"1": one, "2": other}, {"3": both})
    assert moved == {"late/1": None, "late/2": None, "late/3": to_record(both)}
    again = records.late_files_of({"late/3": to_record(both)})["3"]
    assert (again.level, again.length, again.size) == (1, 60, 27)
