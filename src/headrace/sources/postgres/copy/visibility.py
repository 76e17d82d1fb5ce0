"""The view of a transaction of ours: its snapshot as a handoff, and whether it may be used at all.

    BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ
    SELECT pg_current_snapshot() ...            the snapshot, fixed from here on
    SELECT pg_current_wal_insert_lsn()          read after it: every commit that it shows lies before

A snapshot is accepted only if it shows every transaction of W (`writers`), but for those that rolled back:

* one that was open while its table got into the publication is in the stream in part only;
* one whose commit hangs, on a synchronous standby that is away, may lie before the position from which
  the stream is applied, and yet no snapshot shows it. It keeps its locks meanwhile, so it is in W.

The insert position may stand just behind a page's header, where nothing was written yet. The server never
reports to have read that far until something is: such a position is taken for the page's beginning. No
record starts inside of a header, so both cover the same commits.
"""

from __future__ import annotations

from collections.abc import Set

from psycopg import pq

from headrace.core.errors import Misconfigured, Transient
from headrace.core.handoff import ByXid
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from headrace.sources.postgres.session.identity import PostgresIdentity
from headrace.sources.postgres.session.statements import ask

_PAGE_HEADERS = (24, 40)  # of a page, and of the first page of a segment


class SnapshotBarred(Transient):
    """A snapshot may not be used: it does not show a transaction of W."""


def see(pgconn: pq.abc.PGconn, barred_xids: Set[int]) -> ByXid:
    """The handoff of the snapshot that this REPEATABLE READ transaction holds, or takes by this."""
    ((visible,),) = ask(pgconn, "SELECT pg_current_snapshot()::text")
    accept(pgconn, visible or "", barred_xids)
    ((insert, block),) = ask(pgconn, "SELECT pg_current_wal_insert_lsn(), current_setting('wal_block_size')")
    until = page_start(Lsn.parse(insert or ""), int(block or ""))
    return ByXid.parse(visible or "", PostgresTimeline().position(until))


def page_start(insert: Lsn, block: int) -> Lsn:
    """The position, or the beginning of its page where nothing of the page is written yet."""
    within = int(insert) % block
    return Lsn(int(insert) - within) if within in _PAGE_HEADERS else insert


def unseen_xids(visible: str, xids: Set[int]) -> frozenset[int]:
    """Find the transactions that the snapshot (`pg_current_snapshot()` as text) does not show.

    Not only those of its list: one that is the newest of all may run at or above xmax, unlisted.
    """
    _, xmax, listed = visible.split(":")
    running = {int(xid) for xid in listed.split(",") if xid}
    return frozenset(xid for xid in xids if xid >= int(xmax) or xid in running)


def accept(pgconn: pq.abc.PGconn, visible: str, barred_xids: Set[int]) -> None:
    """Refuse the snapshot if it does not show a transaction of W, unless that has rolled back."""
    for xid in sorted(unseen_xids(visible, barred_xids)):
        ((status,),) = ask(pgconn, f"SELECT pg_xact_status('{xid}'::xid8)")
        if status != "aborted":
            raise SnapshotBarred(
                "PG_SNAPSHOT_BARRED",
                "a transaction that wrote a table before the table was published is still open",
                detail=f"transaction {xid} is {status or 'unknown'}",
                hint="wait for it, or end it (COMMIT, ROLLBACK PREPARED, pg_terminate_backend)",
            )


def refuse_standby(identity: PostgresIdentity) -> None:
    """On a standby `pg_current_snapshot()` lists no running transaction: what it shows can't be told."""
    if identity.standby:
        raise Misconfigured(
            "PG_HANDOFF_STANDBY",
            "the server is a standby, where only a slot can join a snapshot to the stream",
            detail="a standby does not list the transactions that run",
            hint='set handoff = "slot", or give the address of the primary',
        )


BEGIN = "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ"
