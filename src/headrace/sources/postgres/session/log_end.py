"""The end of the server's log, and a way to move it if nobody else writes.

It serves callers that need a position behind everything that has happened. Only `emit_wal` writes: an empty
transaction.
"""

from __future__ import annotations

from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.session.statements import Session, query

# The end of the log that can be decoded, on a primary and on a standby.
WAL_END = """
(CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
      ELSE pg_catalog.pg_current_wal_lsn() END)
"""


def wal_end(connection: Session) -> Lsn:
    """The end of the log that can be decoded."""
    [(end,)] = query(connection, f"SELECT {WAL_END}::text")
    return Lsn.parse(end)


def behind_all(connection: Session) -> Lsn:
    """A position behind everything that has happened, written or not; on a standby, that was replayed."""
    [(end,)] = query(
        connection,
        "SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()"
        " ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text",
    )
    return Lsn.parse(end)


def emit_wal(connection: Session) -> None:
    """Move the end of a primary's log a little, by an empty transaction."""
    query(connection, "SELECT pg_current_xact_id()")
