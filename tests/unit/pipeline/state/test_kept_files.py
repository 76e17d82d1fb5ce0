"""Files that keep the stream for tables: how many there are, and what each epoch writes of others again."""

from __future__ import annotations

import pytest

from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.pipeline.state import kept_files
from headrace.pipeline.state.kept_files import (
    LATE_FILES_TOGETHER,
    MOST_LATE_BYTES,
    LateFile,
    files_to_replace,
)
from tests.places import place_at

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
    moved = kept_files.late_file_changes({"1": one, "2": other}, {"3": both})
    assert moved == {"late/1": None, "late/2": None, "late/3": to_record(both)}
    again = kept_files.late_files_of({"late/3": to_record(both)})["3"]
    assert (again.level, again.length, again.size) == (1, 60, 27)
