"""The sessions that hold locks on tables that we wait for, in the words of a message; the sizes of tables.

    measure         the sizes of tables; for a locked table the error that names the holder
    locked_error    the error of a locked table

A reader waits for ACCESS EXCLUSIVE alone. ALTER PUBLICATION waits for every lock that excludes ALTER TABLE. A
session that waits for such a lock makes us wait too, because the server queues requests for locks. A message
shows no query and no value, only the session and how long it has been open.

Sizes serve to cut copies and to show progress. `sizes` takes a lock on each table, and waits for any session
that holds it exclusively: call `measure` instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.errors import Transient
from headrace.core.names import TableName
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.values import COUNTED_SECONDS
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.shared.refusals import LockTimeout


@dataclass(frozen=True, slots=True)
class RelationSize:
    """The size of a table: exact bytes and pages, an estimate of its rows, and how often they change."""

    pages: int
    bytes: int  # with TOAST, without indexes
    rows: int
    changes_an_hour: float | None = None


def sizes(connection: Session, oids: Sequence[int]) -> dict[int, RelationSize]:
    """Measure these tables. Rows are estimated by the density in the statistics.

    Changes are counted since the statistics were last reset. A server that never reset them does not say
    since when; then the rate is that since its start, which is at least the true one. After less than
    `COUNTED_SECONDS` there is no rate: the tables may just have been loaded.
    """
    rows = query(
        connection,
        "SELECT c.oid::bigint, pg_relation_size(c.oid) / s.block,"
        " pg_table_size(c.oid), c.reltuples::float8, c.relpages,"
        " CASE WHEN s.seconds >= %s THEN (3600 / s.seconds *"
        " (pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid)"
        " + pg_stat_get_tuples_deleted(c.oid)))::float8 END"
        " FROM pg_class c,"
        " (SELECT current_setting('block_size')::int AS block, greatest(1, EXTRACT(epoch FROM now() -"
        " COALESCE(pg_stat_get_db_stat_reset_time(oid), pg_postmaster_start_time()))) AS seconds"
        " FROM pg_database WHERE datname = current_database()) s"
        " WHERE c.oid = ANY (%s::oid[]) AND pg_relation_size(c.oid) IS NOT NULL",
        [COUNTED_SECONDS, list(oids)],
    )
    return {
        oid: RelationSize(pages, size, _rows(pages, tuples, known), changes)
        for oid, pages, size, tuples, known, changes in rows
    }


def total(several: Iterable[RelationSize]) -> RelationSize:
    """The sum of several sizes."""
    sizes = list(several)
    rates = [s.changes_an_hour for s in sizes if s.changes_an_hour is not None]
    return RelationSize(
        sum(s.pages for s in sizes),
        sum(s.bytes for s in sizes),
        sum(s.rows for s in sizes),
        sum(rates) if rates else None,
    )


# Without statistics: about what the server's planner assumes for a narrow row.
_ROWS_A_PAGE = 100


def _rows(pages: int, tuples: float, known_pages: int) -> int:
    if tuples >= 0 and known_pages > 0:
        return round(tuples / known_pages * pages)
    return pages * _ROWS_A_PAGE


READERS_WAIT_FOR = ("AccessExclusiveLock",)
PUBLISHERS_WAIT_FOR = (
    "ShareUpdateExclusiveLock",
    "ShareLock",
    "ShareRowExclusiveLock",
    "ExclusiveLock",
    "AccessExclusiveLock",
)


def transaction(
    pid: int | None,
    gid: str | None,
    user: str | None,
    application: str | None,
    database: str | None,
    state: str | None,
    seconds: int | None,
    lock: str | None = None,
) -> str:
    """Name a transaction for a message."""
    who = f'prepared transaction "{gid}"' if pid is None else f"pid {pid}"
    about = [
        f"user {user}" if user else "",
        f'application "{application}"' if application else "",
        f"database {database}" if database else "",
        state or "",
        f"open for {seconds} s" if seconds is not None else "",
        lock or "",
    ]
    return f"{who} ({', '.join(part for part in about if part)})" if any(about) else who


_HOLDERS = """
SELECT l.relation::bigint, l.pid, p.gid, a.usename, a.application_name, COALESCE(a.datname, p.database),
a.state,
       round(EXTRACT(epoch FROM clock_timestamp() - COALESCE(a.xact_start, p.prepared)))::bigint,
       CASE WHEN l.granted THEN 'holds ' ELSE 'waits for ' END || l.mode
  FROM pg_locks l
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  -- A prepared transaction has no session: it is told by the xid that it holds beside the table.
  LEFT JOIN pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid'
                      AND x.virtualtransaction = l.virtualtransaction
  LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
 WHERE l.locktype = 'relation' AND l.mode = ANY (%s)
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND l.relation = ANY (%s::oid[]) AND l.pid IS DISTINCT FROM pg_backend_pid()
 ORDER BY l.relation, l.granted DESC, a.xact_start
"""

# CREATE, ALTER and DROP PUBLICATION also wait for one another.
_ALTERING = """
SELECT l.pid, NULL, a.usename, a.application_name, a.datname, a.state,
       round(EXTRACT(epoch FROM clock_timestamp() - a.xact_start))::bigint, 'alters a publication'
  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'object' AND l.classid = 'pg_publication'::regclass AND l.granted
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND l.pid IS DISTINCT FROM pg_backend_pid()
"""


def holders(
    connection: Session, oids: Sequence[int], modes: Sequence[str] = READERS_WAIT_FOR
) -> dict[int, list[str]]:
    """Name the sessions that hold these tables, or wait for them, in a mode that makes us wait."""
    found: dict[int, list[str]] = {}
    for oid, *who in query(connection, _HOLDERS, [list(modes), list(oids)]):
        found.setdefault(oid, []).append(transaction(*who))
    return found


def locked_error(table: TableName, who: Sequence[str]) -> TableBusy:
    """The error of a table that another session locks."""
    return TableBusy(
        "PG_TABLE_LOCKED",
        f"{table} is locked by another transaction",
        detail="; ".join(who[:5]) or "nobody holds it any more",
        hint="nothing to do: it is tried again; end that transaction (COMMIT, ROLLBACK PREPARED, "
        "pg_terminate_backend) if it lasts too long",
    )


def busy(connection: Session, tables: Mapping[str, tuple[int, TableName]]) -> dict[str, TableBusy]:
    """Find the errors of tables that a look found locked; a table that is free by now has none.

    A session that changes a type or a partition is not found: it does not lock the table.
    """
    if not tables:
        return {}
    modes = (*READERS_WAIT_FOR, "ShareUpdateExclusiveLock")
    found = holders(connection, sorted({oid for oid, _ in tables.values()}), modes)
    return {key: locked_error(name, found[oid]) for key, (oid, name) in tables.items() if oid in found}


def of_publication(connection: Session, tables: Mapping[int, TableName], error: LockTimeout) -> Transient:
    """The error of DDL on a publication that waited too long: for a table, or for other such DDL."""
    for oid, who in holders(connection, list(tables), PUBLISHERS_WAIT_FOR).items():
        return locked_error(tables[oid], who)
    others = [transaction(*row) for row in query(connection, _ALTERING)]
    return LockTimeout(error.code, error.primary, detail="; ".join(others) or error.detail, hint=error.hint)


@dataclass(frozen=True, slots=True)
class PostgresTableSizes:
    """The sizes of tables, by oid, and the errors of locked ones; a table in neither is gone."""

    sizes: dict[int, RelationSize]
    busy: dict[TableName, TableBusy]


def measure(connection: Session, tables: Mapping[int, TableName]) -> PostgresTableSizes:
    """Measure these tables; a locked one is not measured, since the statement would wait for its lock."""
    left = dict(tables)
    busy: dict[TableName, TableBusy] = {}
    while left:
        held = holders(connection, list(left))
        busy |= {left.pop(oid): locked_error(tables[oid], who) for oid, who in held.items()}
        try:
            return PostgresTableSizes(sizes(connection, list(left)), busy)
        except LockTimeout:
            if not holders(connection, list(left)):
                raise  # the lock is on none of the tables
    return PostgresTableSizes({}, busy)
