"""Files beside those of a task: exactly those whose times may overlap with theirs."""

from __future__ import annotations

import random

from headrace.spark.source.changes import _overlapping

Span = tuple[int | None, int | None]


def _meet(one: Span, other: Span) -> bool:
    if one[0] is None or one[1] is None or other[0] is None or other[1] is None:
        return True
    return one[0] <= other[1] and other[0] <= one[1]


def test_files_of_overlapping_times_are_found_however_they_lie() -> None:
    chance = random.Random(7)
    for _ in range(300):
        times: dict[str, Span] = {}
        for number in range(chance.randint(1, 8)):
            low = chance.randint(0, 20)
            times[f"f{number}"] = (low, low + chance.randint(0, 6))
            if chance.random() < 0.05:
                times[f"f{number}"] = (None, None)
        paths = sorted(chance.sample(sorted(times), chance.randint(1, len(times))))
        expected = [
            path
            for path in times
            if path not in paths and any(_meet(times[path], times[each]) for each in paths)
        ]
        assert list(_overlapping(times, paths, list(times))) == expected
