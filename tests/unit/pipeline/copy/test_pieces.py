"""Sizes of the pieces of a copy."""

from __future__ import annotations

import pytest

from headrace.pipeline.copy.snapshot import piece_bytes
from headrace.pipeline.tasks.copy import FILE_BYTES


@pytest.mark.parametrize("readers", [1, 2, 3, 8])
@pytest.mark.parametrize("files", [0.0, 0.3, 0.9, 1.1, 3.5, 7.0, 7.1, 63.0, 1000.2])
def test_each_reader_has_as_many_pieces_none_larger_than_a_file(readers: int, files: float) -> None:
    total = round(files * FILE_BYTES)
    size = piece_bytes(total, readers)
    assert FILE_BYTES // 2 <= size <= FILE_BYTES
    pieces = -(-total // size)
    assert pieces % readers == 0 or size == FILE_BYTES // 2, pieces
