"""The newest commits of a source's stream, as the lake remembers them, to know the source again by.

A server that was set back (a volume or file-system snapshot, restored while nobody was connected) keeps its
identity and its timeline, and once it has written past our position its log is long enough as well. Only
this tells that its life is another one:

    [since, position of the mark)     which commits lay there: those that come again have to be the same

One commit would do, the newest: where the server was set back to before it, it does not come again; where to
behind it, nothing else may come before the position that we had reached. A few more say from where on the
lives differ. Written by `stream.epoch` with the epoch that brings them, so that they hold without a spool and
on another machine; compared by the receiver (`replay_check`).

`newest` is the largest id of their transactions, as history has it: a server that has not come so far, or
where it was rolled back, is in another life too, whatever it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.core.records import from_record
from headrace.spool.layout import Records

COMMITS_KEY = "commits"  # in the lake's catalog
MOST = 8


class Commit(NamedTuple):
    """A transaction that changed something of ours, as its commit in the stream names it."""

    time: int
    number: int  # as the stream numbers it
    commit_ts: int


@dataclass(frozen=True, slots=True)
class LastCommits:
    """All commits with changes from the time `since` on, to the position that the lake has."""

    since: int
    commits: tuple[Commit, ...] = ()
    newest: int | None = None

    def followed_by(self, transactions: Records, id_of: Callable[[int], int]) -> LastCommits:
        """With those of an epoch; the oldest are let go. `id_of` is `Decoder.transaction_id`."""
        rows = transactions[transactions["changes"] > 0][["time", "transaction", "commit_ts"]].tolist()
        if not rows:
            return self
        every = (*self.commits, *(Commit(*row) for row in rows))
        newest = every[-MOST:]
        since = self.since if len(newest) == len(every) else newest[0].time
        ids = [id_of(commit.number) for commit in newest]
        return LastCommits(since, newest, max(*ids, self.newest or 0))


def last_commits_of(catalog: Mapping[str, Any]) -> LastCommits | None:
    """Read the last commits from the catalog of a source; None in a lake of a version that kept none."""
    record = catalog.get(COMMITS_KEY)
    return None if record is None else from_record(LastCommits, record)
