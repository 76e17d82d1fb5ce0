"""The check that a server sends again what was received of it before.

After a restart the server sends again what was not acknowledged. A server that now tells another history
at the same positions was restored or replaced: that is a definite error, whatever its identity says.

    since          stream's start                                  until
      │ known ...... │ known, known, known ......................... │ new
                     └── each of them comes, in order, with nothing ─┘
                         in between, before anything later: another
                         commit, or the word that there is none

What is known is complete within [since, until): what the spool holds, and what the lake remembers of its
newest marks (`last_commits`), so that it holds where the spool was lost too. Commits are the same if their
position, transaction and timestamp are: two lives that began at one moment may well agree in the first two.

How far it has come is `confirmed_until`: up to there the spool holds what the server sends again, and the
driver publishes no more of it than that. One known commit that comes again shows that the lives are one up to
there.

Of a transaction that changed nothing of ours, or took it all back, the server may tell or not: nothing if it
comes whole, its commit if it was streamed while it ran, and which of the two it is depends on what else the
server had in its memory. Such transactions are left out on both sides. Of a table that is
captured no more what came before that comes again: PostgreSQL reads its catalog as it was then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.core.errors import HeadraceError
from headrace.ingest.last_commits import Commit, LastCommits
from headrace.spool.layout import Records
from headrace.spool.reader import SpoolReader
from headrace.spool.segment import complete_from

MOST_KNOWN = 1_000_000  # transactions that are remembered for comparison

Commits = npt.NDArray[np.void]
_COMMIT = np.dtype([("time", "<i8"), ("transaction", "<i8"), ("commit_ts", "<i8")])

# The source's error, by the times of transactions that came once, and of those that come in their place.
Changed = Callable[[Sequence[int], Sequence[int]], HeadraceError]


class RecentTransactions:
    """The newest transactions that are known when a session begins, to compare with."""

    def __init__(self, commits: Commits, since: int, until: int, changed: Changed) -> None:
        self._commits = commits
        self._since = since
        self._until = until
        self._changed = changed
        self._next = 0  # which must come next
        self._reached = 0  # everything before this position has come

    @classmethod
    def of(
        cls, spool: Path, on_change: Changed, last: LastCommits | None = None, position: int = 0
    ) -> RecentTransactions:
        """The transactions that the spool holds, and those that the lake remembers from before `position`."""
        spooled = cls._of_spool(spool, on_change)
        if last is None:
            return spooled
        lake = cls(_as_commits(last.commits), last.since, position, on_change)
        return lake._join(spooled)

    @classmethod
    def _of_spool(cls, folder: Path, changed: Changed) -> RecentTransactions:
        reader = SpoolReader(folder)
        until = reader.frontier() or 0  # asked first: what is discarded from now on is missed
        since = complete_from(folder)
        found = _as_commits(())
        after = 0
        while len(records := reader.transactions(after)):
            mine = records[(records["changes"] > 0) & (records["time"] >= since)]
            found = np.concatenate([found, _commits(mine)])
            if len(found) > MOST_KNOWN:
                found = found[-MOST_KNOWN:]
                since = int(found["time"][0])
            after = int(records["stop"][-1])
        return cls(found, since, until, changed)

    def _join(self, other: RecentTransactions) -> RecentTransactions:
        """Both together; of two between which something may be missing, the one that reaches further."""
        first, second = sorted((self, other), key=lambda known: (known._until, -known._since))
        if first._until < second._since:
            return second
        both = np.concatenate([first._commits, second._commits])
        _, places = np.unique(both["time"], return_index=True)
        return RecentTransactions(
            both[places], min(first._since, second._since), second._until, self._changed
        )

    def from_start(self, start: int) -> RecentTransactions:
        """The transactions that a server has to send again if it begins at this position."""
        again = self._commits[self._commits["time"] >= start]
        return RecentTransactions(again, max(self._since, start), self._until, self._changed)

    def compare(self, ends: Records) -> None:
        """Refuse a server that sends other transactions than it did before."""
        came = _commits(ends[ends["changes"] > 0])
        if not len(came) or self.is_over:
            return
        times = came["time"]
        mine = came[(times >= self._since) & (times < self._until)]
        self._expect(mine, self._before(int(times[-1]) + 1))

    def pass_frontier(self, frontier: int) -> None:
        """Refuse a server that has sent all there is before this position, if that lacks something."""
        if not self.is_over:
            self._expect(_as_commits(()), self._before(frontier))

    @property
    def is_over(self) -> bool:
        """Tell whether all has come that can be compared: it is the server that was followed."""
        return max(self._reached, self._since) >= self._until

    @property
    def confirmed_until(self) -> int | None:
        """Up to which position this is the server that was followed; None where nothing is left to ask."""
        if self.is_over:
            return None
        return self._reached if self._reached > self._since else 0

    def _before(self, frontier: int) -> int:
        """Count the known ones that have come when everything before this position has."""
        self._reached = max(self._reached, frontier)
        return int(np.searchsorted(self._commits["time"], self._reached))

    def _expect(self, came: Commits, upto: int) -> None:
        due = self._commits[self._next : upto]
        self._next = upto
        if not np.array_equal(came, due):
            raise self._changed(due["time"].tolist(), came["time"].tolist())


def _commits(records: Records) -> Commits:
    found = np.empty(len(records), _COMMIT)
    for name in _COMMIT.names or ():
        found[name] = records[name]
    return found


def _as_commits(commits: Sequence[Commit]) -> Commits:
    return np.array([tuple(commit) for commit in commits], _COMMIT)
