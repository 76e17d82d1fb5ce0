"""The forks of a server's log: where it left each earlier timeline.

    timeline 1 ────────┬─────── ─ ─     the old primary went on behind the fork, and no standby had that
                       └─ 2 ─────┬───   a standby was promoted; up to the fork both have the same log
                                 └─ 3

Each promotion begins a timeline. Two standbys that are promoted apart give their timelines the same number,
so a number says nothing without the forks that lead to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import pq

from headrace.sources.postgres.position import Fork, Forks, Lsn
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import replication
from headrace.sources.postgres.session.identity import PostgresIdentity, identify, verify
from headrace.sources.postgres.session.statements import ask

FIRST = 1  # the timeline of a new cluster: the only one without a history


def read_forks(address: PostgresAddress, identity: PostgresIdentity) -> Forks:
    """Read the forks of a server over a connection of its own, unless it is on its first timeline."""
    if identity.timeline == FIRST:
        return ()
    pgconn = replication(address, role="timeline")
    try:
        verify(identify(pgconn), identity)
        return forks_of(pgconn, identity.timeline)
    finally:
        pgconn.finish()


def forks_of(pgconn: pq.abc.PGconn, timeline: int) -> Forks:
    """The forks that lead to a timeline, the oldest first; `pgconn` is a replication connection."""
    if timeline == FIRST:
        return ()
    [(_, text)] = ask(pgconn, f"TIMELINE_HISTORY {timeline}")
    return tuple(_parse(text or ""))


def _parse(text: str) -> Iterator[Fork]:
    """Read a history file: a line for each fork, `1<tab>0/3000148<tab>reason`."""
    for line in text.splitlines():
        fields = line.split("#")[0].split(None, 2)
        if len(fields) >= 2:
            yield Fork(int(fields[0]), int(Lsn.parse(fields[1])))
