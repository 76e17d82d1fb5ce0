"""The choice of marks that stay: all for a while, then one an hour, then one a day; none before the reach.

    now ◄──── marks ────► ◄──────── a week ────────► ◄────── ...
    │││││││││││││││││││││ │   │   │   │   │   │   │   │        │        │
    every mark            the last of each hour       the last of each day

Thinning loses nothing: contents between two marks are a mark plus or minus history. So a mark may go only
where history leads back to it, for each table that it names, from the next mark that stays and names the
table: the table was exact all the while from the mark before the gap on (`since`), and its schema did not
change. That mark need not be the neighbour: a table that somebody holds now and then is missing in some.
Where history does not lead back to all marks of a gap between two that stay, the one in its middle stays as
well, and both halves are asked again: a table that leaves or changes costs a handful of marks around the
place.

A mark that stays takes over what the marks before it told that went: the latest and the earliest commit
timestamp, by which a time of day is found, and the numbers of transactions and changes. Its place, its
versions and its epoch never change.

A mark ends the prefix of each moment until which it is complete (`read.resolve`). Where what follows it
carries a timestamp no later than that, nothing else tells so, and the mark stays.

Pure: called by `mark_files`, with marks in the order of their epochs. What is known of the tables at a mark
is handed in, since only the pipeline can read its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.core.durations import duration
from headrace.core.errors import Misconfigured

if TYPE_CHECKING:  # it loads Arrow and Delta, and the configuration needs none of them
    from headrace.lake.log.marks import Mark

# By table: from which frontier on it is exact, and whatever must not have changed for history to lead on.
Known = Mapping[str, tuple[int | None, object]]

# A mark a second leaves some fifteen files: what is kept for each of them decides how large a lake is.
MARKS, GRACE = "5m", "45m"
HOURLY = timedelta(days=7)
# Delta's checkpoints remember for seven days when a file was removed; what is to be kept for longer after its
# removal would look like a file that nobody knows.
LONGEST = timedelta(days=6)


@dataclass(frozen=True, slots=True)
class Keeping:
    """The times that things are kept. `retention` of None: history goes back to the beginning, for ever."""

    retention: timedelta | None = None
    marks: timedelta = field(default_factory=lambda: duration(MARKS, "marks"))
    grace: timedelta = field(default_factory=lambda: duration(GRACE, "grace"))

    @classmethod
    def of(cls, retention: str | None = None, marks: str = MARKS, grace: str = GRACE) -> Keeping:
        """From the words of a configuration or of a command line."""
        found = cls(
            None if retention is None else duration(retention, "retention"),
            duration(marks, "marks"),
            duration(grace, "grace"),
        )
        for what, text, value in (("grace", grace, found.grace), ("marks", marks, found.marks)):
            if value > LONGEST:
                raise Misconfigured(
                    "KEEPING_TOO_LONG",
                    f'"{text}" is longer than {what} can be: a log forgets when a file was removed',
                    hint=f"give at most {LONGEST.days}d; history leads to every moment, marks or not",
                )
        return found

    @property
    def dense(self) -> timedelta:
        """For how long files that were removed are kept, whatever names them."""
        return max(self.grace, self.marks)


def thin_marks(
    marks: Sequence[Mark], now: datetime, keeping: Keeping, known_of: Callable[[Mark], Known]
) -> list[Mark]:
    """The marks that stay of these; the first and the last always do."""
    if len(marks) < 3:
        return list(marks)
    stay = sorted({0, len(marks) - 1, *_last_of_each(marks, now, keeping), *_needed_for_times(marks)})
    gaps = _Gaps(marks, known_of)
    also = [middle for first, last in reversed([*pairwise(stay)]) for middle in gaps.middles(first, last)]
    return fold_marks(marks, sorted({*stay, *also}))


def fold_marks(marks: Sequence[Mark], stay: Sequence[int]) -> list[Mark]:
    """The marks at these indices, each with what those before it told that go."""
    starts = [0, *(index + 1 for index in stay)]
    return [_together(marks[start : index + 1]) for start, index in zip(starts, stay, strict=False)]


def _last_of_each(marks: Sequence[Mark], now: datetime, keeping: Keeping) -> Iterator[int]:
    """The indices of the last mark of each hour, later of each day; of the young ones all."""
    periods = [_period(mark.published_at, now, keeping) for mark in marks]
    for index, (period, following) in enumerate(pairwise([*periods, None])):
        if period is None or period != following:
            yield index


def _needed_for_times(marks: Sequence[Mark]) -> Iterator[int]:
    """The indices of marks behind which a transaction follows that was dated back behind them."""
    for index, (mark, following) in enumerate(pairwise(marks)):
        until, earliest = mark.complete_until, following.upstream_earliest_commit_ts
        if until is not None and earliest is not None and earliest <= until:
            yield index


def _period(published: datetime, now: datetime, keeping: Keeping) -> tuple[int, ...] | None:
    age = now - published
    if age < keeping.marks:
        return None
    day = (published.year, published.month, published.day)
    return day if age > HOURLY else (*day, published.hour)


class _Gaps:
    """The gaps between marks that stay; the last one is asked first, and the others in order after it."""

    def __init__(self, marks: Sequence[Mark], known: Callable[[Mark], Known]) -> None:
        self._marks = marks
        self._known = known
        self._next: dict[str, Mark] = {}  # by table, the next mark that stays and names it

    def middles(self, first: int, last: int) -> Iterator[int]:
        """Find what has to stay between two marks so that history leads back to all that goes."""
        self._next.update(dict.fromkeys(self._marks[last].versions, self._marks[last]))
        if last - first < 2 or self._calm(first, last):
            return
        middle = (first + last) // 2
        yield from self.middles(middle, last)
        yield middle
        yield from self.middles(first, middle)

    def _calm(self, first: int, last: int) -> bool:
        """Tell whether history leads back to each of the marks between, for all that they name."""
        before = self._marks[first]
        if before.incarnation != self._marks[last].incarnation:
            return False
        named: dict[str, Mark] = {}
        for mark in self._marks[first + 1 : last]:
            for name in mark.versions:
                named.setdefault(name, mark)
        return all(self._leads_back(name, before, mark) for name, mark in named.items())

    def _leads_back(self, name: str, before: Mark, mark: Mark) -> bool:
        after = self._next.get(name)
        if after is None or after.incarnation != mark.incarnation:
            return False
        earlier, later = self._known(before).get(name), self._known(after).get(name)
        if earlier is None or later is None or later[0] is None or earlier[1] != later[1]:
            return False
        # Marks between that went before are read by way of those that go now.
        ends = [earlier[0], before.time + 1 if name in before.versions else None]
        return any(end is not None and later[0] <= end for end in ends) and later[0] <= mark.time + 1


def _together(marks: Sequence[Mark]) -> Mark:
    """The last of them, with what all of them brought."""
    if len(marks) == 1:
        return marks[0]
    latest = [mark.upstream_commit_ts for mark in marks if mark.upstream_commit_ts is not None]
    dated = [mark.upstream_earliest_commit_ts for mark in marks]
    return replace(
        marks[-1],
        upstream_commit_ts=max(latest, default=None),
        upstream_earliest_commit_ts=min((moment for moment in dated if moment is not None), default=None),
        transactions=sum(mark.transactions for mark in marks),
        changes=sum(mark.changes for mark in marks),
    )
