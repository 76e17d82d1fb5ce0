"""A slice reads the same wherever its bytes lie, and wherever it is read."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from headrace.decode.kernel import Bytes
from headrace.lake.store.open import open_store
from headrace.pipeline.stream import late_stream
from headrace.pipeline.tasks.slices import Slice, SmallTransaction
from headrace.pipeline.tasks.table_task import LakeAddress
from headrace.sources.contract.decoder import RunningTransaction
from headrace.spool.reader import SpoolReader, prepare
from headrace.spool.running_files import TransactionName
from headrace.spool.writer import SpoolWriter
from tests.laws.sources.streams import DECODER, NAMES, TABLES, begin, insert, relation
from tests.places import place_at

NOBODY = cast(SpoolReader, None)
RAN = TransactionName(0, 7)
BETWEEN = DECODER.between([relation(TABLES[0])])
WITHIN = DECODER.within(RunningTransaction(RAN.number, 2000, 946_684_800_000_007))
WHOLE = begin(1000, 1) + insert(TABLES[0], b"a")
PART = insert(TABLES[0], b"b", struct.pack(">I", RAN.number))


def _array(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[SpoolReader]:
    folder = tmp_path / "spool"
    prepare(folder, {"system": "1", "slot": "s"}, 0)
    with SpoolWriter(folder, 1 << 30) as writer:
        writer.append(_array(WHOLE))
        writer.streamed.append(RAN, _array(PART))
        yield SpoolReader(folder)


def test_a_slice_is_read_where_it_lies_and_where_it_was_sent(
    spool: SpoolReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = SmallTransaction(RAN, len(PART), WITHIN)
    common = Slice(DECODER, BETWEEN, 0, len(WHOLE))
    store = open_store(tmp_path / "lake")
    tables = {NAMES[TABLES[0]]: TABLES[0]}
    kept = late_stream.keep(store, "main", 1, place_at(9), tables, [common], spool)
    assert kept is not None
    [carried] = late_stream.slices_of(LakeAddress(str(tmp_path / "lake")), "main", [kept], DECODER)
    monkeypatch.setattr(late_stream, "SMALL_BYTES", 0)
    [of_lake] = late_stream.slices_of(LakeAddress(str(tmp_path / "lake")), "main", [kept], DECODER)
    as_whole = begin(2000, RAN.number, time=7) + insert(TABLES[0], b"b")
    for piece, expected in (
        (common, WHOLE),
        (Slice(DECODER, WITHIN, 0, len(PART), own=RAN), PART),
        (Slice(DECODER, DECODER.between(()), 0, 2 * len(PART), several=(small, small)), 2 * as_whole),
        (of_lake, WHOLE),
        (carried, WHOLE),
    ):
        assert piece.read(spool).tobytes() == expected
        assert piece.read(spool, 30).tobytes() == expected[:30]
        sent = pickle.loads(pickle.dumps(piece.carrying(spool)))
        assert sent.read(NOBODY).tobytes() == expected
        assert sent.context == piece.context
