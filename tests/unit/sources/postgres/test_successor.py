"""A history that may be followed holds everything that the lake holds, on the branch that was followed."""

from __future__ import annotations

import pytest

from headrace.core.errors import HeadraceError
from headrace.sources.postgres.position import Fork, Forks, Lsn
from headrace.sources.postgres.successor import refuse_fork

TWO, THREE = Fork(1, 100), Fork(2, 200)


@pytest.mark.parametrize(
    ("forks", "followed", "known", "frontier"),
    [
        ((TWO,), 1, (), 96),
        ((TWO,), 1, (), 100),  # all before a frontier is there, and nothing at it is needed
        ((TWO, THREE), 1, (), 100),  # two failovers since
        ((TWO, THREE), 2, (TWO,), 200),
        ((TWO, THREE), 2, None, 200),  # a lake of an earlier version
    ],
)
def test_a_timeline_that_has_all_is_followed(
    forks: Forks, followed: int, known: Forks | None, frontier: int
) -> None:
    refuse_fork(forks, followed, known, Lsn(frontier))


@pytest.mark.parametrize(
    ("forks", "followed", "known", "frontier"),
    [
        ((TWO,), 1, (), 104),
        ((TWO, THREE), 1, (), 150),  # the later fork says nothing about the first timeline
        ((TWO, THREE), 2, (TWO,), 208),
        ((Fork(1, 96), THREE), 2, (TWO,), 120),  # another timeline 2
        ((TWO, Fork(3, 300)), 2, (TWO,), 120),  # promoted beside ours
        ((), 1, (), 8),
    ],
)
def test_a_timeline_that_lacks_something_or_is_another_branch_is_refused(
    forks: Forks, followed: int, known: Forks | None, frontier: int
) -> None:
    with pytest.raises(HeadraceError) as refused:
        refuse_fork(forks, followed, known, Lsn(frontier))
    assert refused.value.code == "PG_TIMELINE_CHANGED"
