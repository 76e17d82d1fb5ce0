"""The snapshot of one of our transactions: as a handoff, and the test that it may be used.

    BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ
    SELECT pg_current_snapshot() ...            the snapshot, fixed from here on
    SELECT pg_current_wal_insert_lsn()          read after it: every commit that it shows lies before

A snapshot is accepted only if it shows every transaction of W (`writers`) that did not roll back:

* If a transaction was open while its table was added to the publication, the stream has only a part of it.
* If a commit waits for a synchronous standby that is away, it may lie before the position from which the
  stream is applied, and yet no snapshot shows it. It keeps its locks meanwhile, so it is in W.

The insert position may lie just behind a page header, where nothing is written yet. The server does not
report that it has read so far until something is written there. So such a position is replaced by the page's
start. No record starts inside a header, so both positions cover the same commits.
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
    """The snapshot may not be used: it does not show a transaction of W."""


def see(pgconn: pq.abc.PGconn, barred_xids: Set[int]) -> ByXid:
    """Read the handoff of this REPEATABLE READ transaction's snapshot; the first query takes one."""
    ((visible,),) = ask(pgconn, "SELECT pg_current_snapshot()::text")
    accept(pgconn, visible or "", barred_xids)
    ((insert, block),) = ask(pgconn, "SELECT pg_current_wal_insert_lsn(), current_setting('wal_block_size')")
    until = page_start(Lsn.parse(insert or ""), int(block or ""))
    return ByXid.parse(visible or "", PostgresTimeline().position(until))


def page_start(insert: Lsn, block: int) -> Lsn:
    """Return the position, or the start of its page if only the page's header is written."""
    within = int(insert) % block
    return Lsn(int(insert) - within) if within in _PAGE_HEADERS else insert


def unseen_xids(visible: str, xids: Set[int]) -> frozenset[int]:
    """Find the transactions that the snapshot (`pg_current_snapshot()` as text) does not show.

    The list of running ones is not enough: a newer transaction runs at or above xmax, unlisted.
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
    """Refuse a standby: there `pg_current_snapshot()` lists no running transaction, so it is no handoff."""
    if identity.standby:
        raise Misconfigured(
            "PG_HANDOFF_STANDBY",
            "the server is a standby, where only a slot can join a snapshot to the stream",
            detail="a standby does not list the transactions that run",
            hint='set handoff = "slot", or give the address of the primary',
        )


BEGIN = "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ"
