"""The law between the stream and the decoder: what one writes, the other reads, frame by frame."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings

from headrace.decode.mysql import framing
from headrace.sources.mysql.stream import frames
from tests.laws.sources.mysql.test_transactions import binlogs
from tests.unit.sources.mysql.stream import logged
from tests.unit.sources.mysql.stream.test_transactions import Feed, shown

LAWS = settings(max_examples=100, deadline=None)


@LAWS
@given(binlogs())
def test_the_decoder_finds_the_frames_and_transactions_that_the_stream_wrote(sent: list[bytes]) -> None:
    received = Feed().send(*sent)
    for data in (received.data, *received.running.values()):
        events = framing.scan(data)
        assert events.tail == len(data)
        assert len(events) == len(shown(data))
    events = framing.scan(received.data)
    begun = framing.begins(received.data, events)
    assert begun.time.tolist() == received.transactions["time"].tolist()
    assert begun.commit_ts.tolist() == received.transactions["commit_ts"].tolist()
    names = begun.name.binary(pa.string()).to_pylist()
    assert len(names) == len(begun.row)
    assert all(name.startswith(f"{logged.SERVER}:") for name in names)
    assert events.start[begun.row].tolist() == received.transactions["start"].tolist()
    changes = events.is_rows | np.isin(events.kind, [framing.TRUNCATE, framing.ALTERED])
    whole = received.transactions[~received.transactions["ran"]]
    assert changes.sum() == whole["changes"].sum()


def test_both_number_the_frames_alike() -> None:
    assert (frames.BEGIN, frames.TRUNCATE, frames.ALTERED) == (
        framing.BEGIN,
        framing.TRUNCATE,
        framing.ALTERED,
    )
