"""The holders of what we wait for: locks on tables, as messages name them.

    measured    how big tables are; those that somebody holds come back with the error that names the holder
    locked      the error itself, for a wait of ours that the server ended

A reader waits for ACCESS EXCLUSIVE alone; who changes a publication waits for whatever keeps another from
altering the table. One that waits for such a lock itself keeps us waiting as well: the queue is a queue.
Neither a query nor a value of it is shown, only whose it is and since when.

That takes a lock, too.

Sizes: how big tables are, to cut their copies and to show progress.

It takes a lock on each table, which waits for whoever holds it exclusively: ask through `locks.measure`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.errors import Transient
from headrace.core.names import TableName
from headrace.sources.contract.errors import TableBusy
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.shared.refusals import LockTimeout


@dataclass(frozen=True, slots=True)
class RelationSize:
    """The size of a table: exact bytes and pages, and an estimate of its rows."""

    pages: int
    bytes: int  # with TOAST, without indexes
    rows: int


def sizes(connection: Session, oids: Sequence[int]) -> dict[int, RelationSize]:
    """Measure these tables. Rows follow the statistics' density; -1 pages of them means none."""
    rows = query(
        connection,
        "SELECT c.oid::bigint, pg_relation_size(c.oid) / s.block,"
        " pg_table_size(c.oid), c.reltuples::float8, c.relpages"
        " FROM pg_class c,"
        " (SELECT current_setting('block_size')::int AS block) s"
        " WHERE c.oid = ANY (%s::oid[]) AND pg_relation_size(c.oid) IS NOT NULL",
        [list(oids)],
    )
    return {
        oid: RelationSize(pages, size, _rows(pages, tuples, known))
        for oid, pages, size, tuples, known in rows
    }


def total(several: Iterable[RelationSize]) -> RelationSize:
    """The size of several tables that are one."""
    sizes = list(several)
    return RelationSize(sum(s.pages for s in sizes), sum(s.bytes for s in sizes), sum(s.rows for s in sizes))


# Without statistics: the server's own planner assumes about as many for a narrow row.
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
    """A transaction of somebody, as a message names it."""
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

# CREATE, ALTER and DROP PUBLICATION wait for one another, too.
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
    """Name those who hold these tables, or wait for them before us, in a mode that makes us wait."""
    found: dict[int, list[str]] = {}
    for oid, *who in query(connection, _HOLDERS, [list(modes), list(oids)]):
        found.setdefault(oid, []).append(transaction(*who))
    return found


def locked_error(table: TableName, who: Sequence[str]) -> TableBusy:
    """The error of a table that somebody holds."""
    return TableBusy(
        "PG_TABLE_LOCKED",
        f"{table} is locked by another transaction",
        detail="; ".join(who[:5]) or "nobody holds it any more",
        hint="nothing to do: it is tried again; end that transaction (COMMIT, ROLLBACK PREPARED, "
        "pg_terminate_backend) if it lasts too long",
    )


def busy(connection: Session, tables: Mapping[str, tuple[int, TableName]]) -> dict[str, TableBusy]:
    """Name those who hold tables that a look can't vouch for; nothing is said of one that is free by now.

    Who changes a type or a partition is not found by the table.
    """
    if not tables:
        return {}
    modes = (*READERS_WAIT_FOR, "ShareUpdateExclusiveLock")
    found = holders(connection, sorted({oid for oid, _ in tables.values()}), modes)
    return {key: locked_error(name, found[oid]) for key, (oid, name) in tables.items() if oid in found}


def of_publication(connection: Session, tables: Mapping[int, TableName], error: LockTimeout) -> Transient:
    """The error of DDL on a publication that waited too long, for one of its tables or for other such DDL."""
    for oid, who in holders(connection, list(tables), PUBLISHERS_WAIT_FOR).items():
        return locked_error(tables[oid], who)
    others = [transaction(*row) for row in query(connection, _ALTERING)]
    return LockTimeout(error.code, error.primary, detail="; ".join(others) or error.detail, hint=error.hint)


@dataclass(frozen=True, slots=True)
class PostgresTableSizes:
    """The sizes of tables, by oid, and those that somebody holds; one in neither is not there any more."""

    sizes: dict[int, RelationSize]
    busy: dict[TableName, TableBusy]


def measure(connection: Session, tables: Mapping[int, TableName]) -> PostgresTableSizes:
    """Ask how big these tables are. The answer about a locked one would be waited for: it is left out."""
    left = dict(tables)
    busy: dict[TableName, TableBusy] = {}
    while left:
        held = holders(connection, list(left))
        busy |= {left.pop(oid): locked_error(tables[oid], who) for oid, who in held.items()}
        try:
            return PostgresTableSizes(sizes(connection, list(left)), busy)
        except LockTimeout:
            if not holders(connection, list(left)):
                raise  # it is not one of the tables
    return PostgresTableSizes({}, busy)
