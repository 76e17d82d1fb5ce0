"""A queue and its schema stay what they are for a mirror; the pauses of its ticks are of each run."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.core.errors import Misconfigured
from headrace.core.records import to_record
from headrace.sources.queue.stream_source import QueueStreamSource
from headrace.sources.queue.upstream import QueueUpstream, options_of, plan


@pytest.mark.parametrize(
    ("options", "pauses"),
    [
        ({}, (0.1, 0.5)),
        ({"tick": "0.25"}, (0.25, 0.5)),
        ({"tick": "2"}, (2.0, 2.0)),
        ({"idle_tick": "60"}, (0.1, 60.0)),
    ],
    ids=["default", "tick", "above_idle", "idle"],
)
def test_a_stream_is_read_with_the_pauses_of_its_run(
    options: Mapping[str, str], pauses: tuple[float, float]
) -> None:
    known = plan("01JABCDEFG", "main", {"tick": "7", "idle_tick": "9", "queue": "ours"})
    picked = QueueUpstream.of(QueueStreamSource().picking(to_record(known), (), options))
    assert (picked.pause, picked.idle_pause) == pauses
    assert picked.queue == "ours"


def test_a_mirror_is_held_to_its_queue_and_schema_alone() -> None:
    known = plan("01JABCDEFG", "main", {"tick": "7", "queue": "ours", "schema": "theirs"})
    assert options_of(known) == {"queue": "ours", "schema": "theirs"}


@pytest.mark.parametrize("text", ["0", "never", "nan", "1e9", "-1"])
def test_a_pause_that_cannot_be_is_refused_by_each_run(text: str) -> None:
    known = to_record(plan("01JABCDEFG", "main", {}))
    with pytest.raises(Misconfigured) as refused:
        QueueStreamSource().picking(known, (), {"idle_tick": text})
    assert refused.value.code == "QUEUE_PAUSE_MALFORMED"
