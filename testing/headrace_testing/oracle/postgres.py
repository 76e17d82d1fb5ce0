"""PostgreSQL as the judge of its mirror.

A recording is exact by a temporary slot: its snapshot shows the commits below its consistent point, and no
others.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.core.names import TableName
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from headrace_testing.canonical import Rows
from headrace_testing.oracle.contract import (
    Dialect,
    Disconnected,
    Login,
    Moment,
    Oracle,
    Recording,
    Rejected,
    Session,
    Values,
)
from headrace_testing.oracle.postgres_rows import Connection, source_rows

_KEY = """
    SELECT a.attname FROM pg_index i CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum WHERE i.indisprimary
    AND i.indrelid = (quote_ident(%s) || '.' || quote_ident(%s))::regclass ORDER BY k.place
"""

# A key that is taken is left alone: a refused statement would end the transaction.
_KEYED = (
    "INSERT INTO {t} VALUES (%(one)s, %(n)s, 'born', repeat('x', %(size)s)) ON CONFLICT DO NOTHING",
    "INSERT INTO {t} VALUES (%(one)s, %(n)s, NULL, NULL) ON CONFLICT (id) DO UPDATE SET n = excluded.n",
    "UPDATE {t} SET n = %(n)s WHERE id = %(one)s",
    "UPDATE {t} SET n = n WHERE id = %(one)s",
    "UPDATE {t} SET note = NULL WHERE id BETWEEN %(one)s AND %(one)s + 5",
    "UPDATE {t} SET big = repeat('y', %(size)s) WHERE id = %(one)s",
    "UPDATE {t} SET id = %(other)s, n = %(n)s WHERE id = %(one)s"
    " AND NOT EXISTS (SELECT 1 FROM {t} WHERE id = %(other)s)",
    "WITH gone AS (DELETE FROM {t} WHERE id = %(one)s RETURNING *)"
    " INSERT INTO {t} SELECT -id, n + 1, note, big FROM gone ON CONFLICT DO NOTHING",
    "DELETE FROM {t} WHERE id = %(one)s",
    "DELETE FROM {t} WHERE id BETWEEN -%(one)s AND -1",
)
_BAG = (
    "INSERT INTO {t} SELECT %(a)s, 'twin' FROM generate_series(1, %(more)s)",
    "INSERT INTO {t} VALUES (NULL, NULL), (%(a)s, NULL), (%(a)s, '')",
    "DELETE FROM {t} WHERE ctid IN (SELECT ctid FROM {t} WHERE a = %(a)s LIMIT 1)",
    "DELETE FROM {t} WHERE ctid IN (SELECT ctid FROM {t} WHERE a IS NULL LIMIT %(more)s)",
    "UPDATE {t} SET a = a + 1 WHERE ctid IN (SELECT ctid FROM {t} WHERE a = %(a)s LIMIT 1)",
    "UPDATE {t} SET b = b || '!' WHERE a = %(a)s AND length(b) < 8",
)
_LARGE = (
    "INSERT INTO {t} SELECT i, %(n)s, repeat(md5(i::text), 5)"
    " FROM generate_series(%(low)s::int, %(high)s::int) i ON CONFLICT DO NOTHING",
    "UPDATE {t} SET n = %(n)s WHERE id BETWEEN %(low)s AND %(high)s",
    "DELETE FROM {t} WHERE id BETWEEN %(low)s AND %(high)s AND id %% 3 = %(n)s %% 3",
)
_TYPES = {
    "text": "text",
    "key_text": "text",
    "bool": "boolean",
    "decimal": "numeric(12,2)",
    "double": "double precision",
    "moment": "timestamp(6)",
    "bytes": "bytea",
}
DIALECT = Dialect(
    quote='"',
    types=_TYPES,
    whole_rows="ALTER TABLE {t} REPLICA IDENTITY FULL",
    out_of_line="ALTER TABLE {t} ALTER {c} SET STORAGE EXTERNAL",
    keyed=_KEYED,
    bag=_BAG,
    large=_LARGE,
)


@dataclass(frozen=True, slots=True)
class PostgresMoment:
    """The state that a transaction sees."""

    connection: Connection

    def rows(self, table: TableName) -> Rows:
        return source_rows(self.connection, table)

    def key(self, table: TableName) -> tuple[str, ...]:
        rows = self.connection.execute(_KEY, [table.schema, table.name]).fetchall()
        return tuple(str(row[0]) for row in rows)


@dataclass(frozen=True, slots=True)
class PostgresSession:
    """A connection that writes."""

    connection: Connection
    dialect: Dialect = DIALECT

    def execute(self, statement: str, values: Values | None = None) -> None:
        with _expected():
            self.connection.execute(statement.encode(), values, prepare=False)

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with _expected():
            self.connection.cursor().executemany(statement.encode(), rows)

    def rows(self, statement: str, values: Values | None = None) -> list[tuple[Any, ...]]:
        with _expected():
            return self.connection.execute(statement.encode(), values).fetchall()

    def make_counter(self, name: str) -> None:
        self.connection.execute(sql.SQL("CREATE SEQUENCE {}").format(sql.Identifier(name)))

    def next_number(self, counter: str) -> int:
        return int(self.rows("SELECT nextval(%s)", [counter])[0][0])

    def commit(self) -> None:
        with _expected():
            self.connection.commit()

    def rollback(self) -> None:
        with _expected():
            self.connection.rollback()


@dataclass(frozen=True, slots=True)
class PostgresOracle:
    """PostgreSQL, whichever version."""

    dialect: Dialect = DIALECT

    @contextmanager
    def moment(self, url: str) -> Iterator[Moment]:
        with psycopg.connect(url) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield PostgresMoment(connection)

    def record(self, url: str, tables: Iterable[str]) -> Recording:
        with (
            psycopg.connect(url, autocommit=True, replication="database") as stream,
            psycopg.connect(url, autocommit=True) as reader,
        ):
            # A name of its own: the slot of a session that was just closed may be there for a moment yet.
            slot = f"headrace_recording_{secrets.token_hex(8)}"
            made = stream.execute(
                f"CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')".encode()
            ).fetchall()
            _, position, snapshot, _ = made[0]
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            reader.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
            rows = {name: source_rows(reader, TableName.parse(name)) for name in tables}
            reader.execute("COMMIT")
        return Recording(PostgresTimeline().position(Lsn.parse(position)), rows)

    @contextmanager
    def session(self, url: str) -> Iterator[Session]:
        with _expected():
            connection = psycopg.connect(url)
        # Not by its own block: that would commit, and a broken connection is the writer's to see.
        try:
            yield PostgresSession(connection)
        finally:
            connection.close()

    def login(self, url: str) -> Login:
        address = {key: str(value) for key, value in conninfo_to_dict(url).items()}
        password = address.pop("password", None)
        return Login(make_conninfo(**address), {} if password is None else {"PGPASSWORD": password})


@contextmanager
def _expected() -> Iterator[None]:
    """Errors that a writer must expect, as those of the contract."""
    try:
        yield
    except (psycopg.errors.IntegrityError, psycopg.errors.DeadlockDetected) as error:
        raise Rejected(str(error)) from error
    except psycopg.OperationalError as error:
        raise Disconnected(str(error)) from error


ORACLE: Oracle = PostgresOracle()
