"""The leader of a snapshot: one moment of the source, held open while followers copy it.

    driver     Leader      BEGIN REPEATABLE READ, by slot or by xid ─► the handoff
                           pg_export_snapshot() ─► id
                           ... stays open, answers alive() ... COMMIT, last of all
    executors  following   BEGIN REPEATABLE READ; SET TRANSACTION SNAPSHOT id; LOCK; COPY a ctid range

`by="slot"`: CREATE_REPLICATION_SLOT tmp ... USE_SNAPSHOT is the first statement of the leader's transaction,
and puts it on a point of the log. The snapshot holds exactly the commits with
`commit_lsn < consistent_point`; the stream has all others. The slot would hold back the log, so it is dropped
at once; the transaction keeps its snapshot. The server makes the slot only after every transaction that has
an xid has ended, in all its databases.

`by="xid"`: any moment will do, and no transaction delays it. The snapshot holds the transactions that it
shows (`visibility`). This is not possible on a standby.

Either snapshot is accepted only if it shows every transaction of W (`writers`): such a transaction changed a
table before the table's changes were captured.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Set
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Literal, TypeVar

from psycopg import pq

from headrace.core.errors import Transient
from headrace.core.handoff import ByPosition, ByXid
from headrace.core.names import quote_identifier
from headrace.sources.contract.values import ALONE, Waiting
from headrace.sources.postgres.copy.visibility import BEGIN, SnapshotBarred, accept, refuse_standby, see
from headrace.sources.postgres.position import PostgresTimeline
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect, plain, replication
from headrace.sources.postgres.session.identity import PostgresIdentity, identify, verify
from headrace.sources.postgres.session.statements import Session, ask
from headrace.sources.postgres.slot import PLUGIN, SlotWaits, bound_wait, create_slot, release_slot

T = TypeVar("T")


class PostgresLeader:
    """A moment of the source, held open. `lead` makes it; close it when every follower is done."""

    def __init__(self, pgconn: pq.abc.PGconn, snapshot_id: str, handoff: ByPosition | ByXid) -> None:
        self._pgconn = pgconn
        self.snapshot_id = snapshot_id  # for SET TRANSACTION SNAPSHOT
        self.handoff = handoff  # which transactions the snapshot holds

    def __enter__(self) -> PostgresLeader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def alive(self) -> bool:
        """Tell whether the snapshot is still held; the query also keeps the connection from timing out."""
        try:
            ask(self._pgconn, "SELECT 1")
        except Transient:
            return False
        return True

    def close(self) -> None:
        """Commit. Followers that have imported the snapshot can go on."""
        try:
            if self._pgconn.status == pq.ConnStatus.OK:
                ask(self._pgconn, "COMMIT")
        except Transient:
            return  # the connection is gone, and the snapshot with it: as intended
        finally:
            self._pgconn.finish()


By = Literal["slot", "xid"]
_AGAIN = 0.2  # seconds until a barred snapshot is tried again
ATTEMPT_SECONDS = 3600.0  # for one attempt to make a slot
_INSTEAD = ', or set handoff = "xid", which waits only for writers of the tables that are copied'


def lead(
    address: PostgresAddress,
    identity: PostgresIdentity,
    name: str,
    *,
    by: By = "slot",
    barred_xids: Set[int] = frozenset(),
    seconds: float = 600.0,
    waiting: Waiting = ALONE,
) -> PostgresLeader:
    """Open a snapshot; a temporary slot, where one is needed, is named after `name`.

    Waits at most `seconds` for the transactions that prevent a slot, and for those of `barred_xids` (W) that
    still run.
    """
    deadline = time.monotonic() + seconds
    with closing(connect(address, role="snapshot observer")) as observer:
        verify(identify(observer), identity)

        def take() -> PostgresLeader:
            if by == "xid":
                return _by_xid(address, identity, barred_xids)
            left = min(max(deadline - time.monotonic(), 0.1), ATTEMPT_SECONDS)
            return _by_slot(address, identity, observer, name, barred_xids, left, waiting)

        return until_shown(take, waiting, seconds)


def until_shown(take: Callable[[], T], waiting: Waiting, seconds: float = math.inf) -> T:
    """Take a snapshot as soon as one shows all of W; raises the last refusal when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return take()
        except (SlotWaits, SnapshotBarred) as error:
            if time.monotonic() > deadline:
                raise
            waiting.tell(error)
        waiting.check()
        time.sleep(_AGAIN)


def _by_slot(
    address: PostgresAddress,
    identity: PostgresIdentity,
    observer: Session,
    name: str,
    barred: Set[int],
    seconds: float,
    waiting: Waiting,
) -> PostgresLeader:
    with _lead(replication(address, role="snapshot"), identity) as pgconn:
        # Ask this before BEGIN: USE_SNAPSHOT must be the first statement of the transaction.
        bound_wait(pgconn, seconds)
        ask(pgconn, BEGIN)
        slot = f"{name[:50]}_{secrets.token_hex(5)}"
        description = f"{quote_identifier(slot)} TEMPORARY LOGICAL {PLUGIN} USE_SNAPSHOT"
        point = create_slot(pgconn, observer, description, seconds, waiting, instead=_INSTEAD)
        ((visible,),) = ask(pgconn, "SELECT pg_current_snapshot()::text")
        accept(pgconn, visible or "", barred)
        snapshot_id = _export(pgconn)
        release_slot(pgconn, slot)
        return PostgresLeader(pgconn, snapshot_id, ByPosition(PostgresTimeline().position(point)))


def _by_xid(address: PostgresAddress, identity: PostgresIdentity, barred: Set[int]) -> PostgresLeader:
    refuse_standby(identity)
    with _lead(plain(address, role="snapshot"), identity) as pgconn:
        ask(pgconn, BEGIN)
        handoff = see(pgconn, barred)
        return PostgresLeader(pgconn, _export(pgconn), handoff)


@contextmanager
def _lead(pgconn: pq.abc.PGconn, identity: PostgresIdentity) -> Iterator[pq.abc.PGconn]:
    """Connect to this very source; any error in the block closes the connection."""
    try:
        verify(identify(pgconn), identity)
        yield pgconn
    except BaseException:
        pgconn.finish()
        raise


def _export(pgconn: pq.abc.PGconn) -> str:
    ((snapshot_id,),) = ask(pgconn, "SELECT pg_export_snapshot()")
    return snapshot_id or ""
