"""Rows that wait to be decoded: those that memory does not hold wait in a file that nobody can read."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.schema import Column
from headrace.sources.mysql.copy import selection
from headrace.sources.mysql.copy.selection import FetchedRows
from headrace.sources.mysql.session.result_set import ResultRows

CANARY = b"canary-77ab01"
ROW = bytes([len(CANARY)]) + CANARY


def test_a_file_of_rows_shows_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MEMORY_BYTES", 0)
    found = FetchedRows([Column("mail", pa.string(), "text", "text")])
    for rows in (1, 3):
        edges = np.arange(rows + 1, dtype=np.int64) * len(ROW)
        found.add(ResultRows(np.frombuffer(ROW * rows, np.uint8), edges))
    file = found._file
    assert file is not None
    file.flush()
    written = os.pread(file.fileno(), 1 << 16, 0)
    assert len(written) > 4 * len(ROW)
    assert CANARY not in written
    assert written[-len(ROW) :] != written[-2 * len(ROW) : -len(ROW)]
    texts = [text for copied in found.decode() for text in copied.rows["mail"].to_pylist()]
    assert texts == [CANARY.decode()] * 4
