"""A direct stream: offsets survive JSON and are ordered; batches of any limit partition the transactions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import HeadraceError
from headrace.spark.source.direct.cutting import within
from headrace.spark.source.direct.offsets import DirectOffset
from headrace.spool.layout import RECORD

_batches = st.integers(min_value=0, max_value=2**40)


@given(_batches, _batches)
def test_offsets_are_ordered_by_their_batch_and_survive_json(first: int, second: int) -> None:
    offsets = [DirectOffset(first, "a"), DirectOffset(second, "a")]
    assert [DirectOffset.from_json(json.loads(json.dumps(each.as_json()))) for each in offsets] == offsets
    assert (offsets[0] < offsets[1]) is (first < second)


def test_an_offset_of_another_source_is_refused() -> None:
    with pytest.raises(HeadraceError, match="STREAM_OFFSET_MALFORMED"):
        DirectOffset.from_json({"lake": "x", "epoch": 3})


@given(st.lists(st.integers(min_value=1, max_value=100), min_size=1), st.integers(min_value=1, max_value=300))
def test_batches_of_any_limit_partition_the_transactions(sizes: list[int], limit: int) -> None:
    found = np.zeros(len(sizes), RECORD)
    found["stop"] = np.cumsum(sizes)
    found["start"] = found["stop"] - sizes
    batches = []
    while len(found):
        batches.append(within(found, limit))
        found = found[len(batches[-1]) :]
    assert [stop for batch in batches for stop in batch["stop"]] == np.cumsum(sizes).tolist()
    for batch, behind in zip(batches, [*batches[1:], None], strict=True):
        size = int((batch["stop"] - batch["start"]).sum())
        assert size <= limit or len(batch) == 1
        assert behind is None or size + int(behind["stop"][0] - behind["start"][0]) > limit
