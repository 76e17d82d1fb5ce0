"""A look into a slot that nobody reads: whether its stream holds a commit between two frontiers.

    confirmed ──────── reached ─ ─ ─ ─ ─ ─ wanted        quiet: no transaction of the publication commits
                                 ? ? ?                    in [reached, wanted)

The server decodes and moves nothing. It answers only up to what it has flushed, and what a transaction
without synchronous commit has written may be seen before it is, so that is waited for. It collects what it
decodes before it answers, so it is asked for one transaction first.

A transaction that it has not flushed even so is not told of: whoever takes the stream for quiet then and
compares, finds it as a difference.
"""

from __future__ import annotations

import time

from headrace.core.position import Position
from headrace.sources.postgres.lsn import Lsn
from headrace.sources.postgres.objects import PostgresUpstream
from headrace.sources.postgres.session.statements import Session, query

_FLUSH_SECONDS = 2.0  # three times wal_writer_delay is the most that the server promises; 0.2 s by default
_MOST_CHANGES = (1, 100_000)  # what the stream may bring again of transactions before `reached`, at the most

_PEEK = """
SELECT count(*), count(*) FILTER (WHERE get_byte(data, 0) = ascii('B')
                                    AND substring(data FROM 2 FOR 8) >= decode(%s, 'hex'))
  FROM pg_catalog.pg_logical_slot_peek_binary_changes(
       %s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', pg_catalog.quote_ident(%s))
"""


def quiet(connection: Session, upstream: PostgresUpstream, start: Position, stop: Position) -> bool:
    """Tell whether no transaction of the publication commits between the positions: in [reached, wanted)."""
    log, slot, publication = upstream.log, upstream.slot, upstream.publication
    return _quiet(connection, slot, publication, log.lsn(start), log.lsn(stop))


def _quiet(connection: Session, slot: str, publication: str, reached: Lsn, wanted: Lsn) -> bool:
    _await_flush(connection, wanted)
    for most in _MOST_CHANGES:
        [(changes, new)] = query(
            connection, _PEEK, [f"{int(reached):016x}", slot, str(wanted), most, publication]
        )
        if new:
            return False
        if changes < most:
            return True
    return False


def _await_flush(connection: Session, wanted: Lsn) -> None:
    """Until what is committed is flushed; the end of the log, if no commit is in it, may not be for long."""
    deadline = time.monotonic() + _FLUSH_SECONDS
    while time.monotonic() < deadline:
        [(done,)] = query(
            connection, "SELECT pg_catalog.pg_current_wal_flush_lsn() >= %s::pg_lsn", [str(wanted)]
        )
        if done:
            return
        time.sleep(0.05)
