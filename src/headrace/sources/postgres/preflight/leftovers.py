"""Preflight of what earlier lakes left behind: a slot that nobody reads holds back log for ever.

A slot of ours that is not being read may belong to a lake that rests, or to one that was deleted: the
server cannot tell, so the statement stands in the hint, for a person who knows, and never among those that
a script runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core.errors import Misconfigured
from headrace.core.names import quote_identifier
from headrace.sources.contract.findings import Finding, Level
from headrace.sources.postgres.preflight.wish import PostgresWish
from headrace.sources.postgres.session.log_end import WAL_END
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.upstream import OURS

_SLOTS = f"""
SELECT s.slot_name, s.database, pg_wal_lsn_diff({WAL_END}, s.restart_lsn)::bigint
  FROM pg_replication_slots s
 WHERE s.slot_name ~ %s AND NOT s.active AND NOT s.temporary AND s.slot_name IS DISTINCT FROM %s
 ORDER BY 1
"""
_PUBLICATIONS = """
SELECT p.pubname FROM pg_publication p
 WHERE p.pubname ~ %s AND p.pubname IS DISTINCT FROM %s
   AND NOT EXISTS (SELECT 1 FROM pg_replication_slots s WHERE s.slot_name = p.pubname)
 ORDER BY 1
"""


def check_leftovers(connection: Session, wish: PostgresWish) -> Iterator[Finding]:
    """Slots of ours that nobody reads, and publications of ours in this database that have no slot."""
    for slot, database, retained in query(connection, _SLOTS, [OURS, wish.slot]):
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "PG_SLOT_UNUSED",
                f'nobody reads the slot "{slot}", which a lake made',
                detail=f'it is of database "{database}" and holds back {retained or 0:,} bytes of log',
                hint="headrace run goes on with its lake; if that is gone: "
                f"SELECT pg_drop_replication_slot('{slot}')",
            ),
        )
    for (name,) in query(connection, _PUBLICATIONS, [OURS, wish.publication]):
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "PG_PUBLICATION_UNUSED",
                f'the publication "{name}", which a lake made, has no slot',
                hint=f"if its lake is gone: DROP PUBLICATION {quote_identifier(name)}",
            ),
        )
