"""The end of the server's log: how far it goes, and a step beyond where nobody else writes.

For callers that need a position behind all that has happened. Only `emit_wal` writes: an empty transaction.
"""

from __future__ import annotations

from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.session.statements import Session, query

# How far the log goes that can be decoded, on a primary and on a standby.
WAL_END = """
(CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
      ELSE pg_catalog.pg_current_wal_lsn() END)
"""


def wal_end(connection: Session) -> Lsn:
    """Ask how far the log goes."""
    [(end,)] = query(connection, f"SELECT {WAL_END}::text")
    return Lsn.parse(end)


def behind_all(connection: Session) -> Lsn:
    """A position behind everything that has happened, written or not; on a standby, that is seen there."""
    [(end,)] = query(
        connection,
        "SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()"
        " ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text",
    )
    return Lsn.parse(end)


def emit_wal(connection: Session) -> None:
    """Move the end of the log a little, on a primary where nobody else does: an empty transaction."""
    query(connection, "SELECT pg_current_xact_id()")
