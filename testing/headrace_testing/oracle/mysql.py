"""MySQL and MariaDB as the judge of their mirror.

A recording is exact by the locks of its tables: while nobody can commit a change of them, the names of all
commits so far are read, and the reader's snapshot begins. Writers wait for that moment alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import ER

from headrace.core.names import TableName
from headrace.sources.mysql.position import MysqlTimeline
from headrace.sources.mysql.session.address import MysqlAddress, SslMode
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
from headrace_testing.oracle.mysql_rows import quoted, source_rows
from headrace_testing.postmaster import wait_for

if TYPE_CHECKING:
    from headrace_testing.oracle.mysql_rows import Connection

_KEY = """
    SELECT column_name FROM information_schema.statistics
    WHERE index_name = 'PRIMARY' AND table_schema = %s AND table_name = %s ORDER BY seq_in_index
"""

_COUNTED = "WITH RECURSIVE s (i) AS (SELECT {low} UNION ALL SELECT i + 1 FROM s WHERE i < {high})"
_TWINS, _RANGE = _COUNTED.format(low=1, high="%(more)s"), _COUNTED.format(low="%(low)s", high="%(high)s")
# A key that is taken is left alone.
_KEYED = (
    "INSERT IGNORE INTO {t} VALUES (%(one)s, %(n)s, 'born', repeat('x', %(size)s))",
    "INSERT INTO {t} VALUES (%(one)s, %(n)s, NULL, NULL) ON DUPLICATE KEY UPDATE n = %(n)s",
    "REPLACE INTO {t} VALUES (%(one)s, %(n)s, 'replaced', NULL)",
    "UPDATE {t} SET n = %(n)s WHERE id = %(one)s",
    "UPDATE {t} SET n = n WHERE id = %(one)s",
    "UPDATE {t} SET note = NULL WHERE id BETWEEN %(one)s AND %(one)s + 5",
    "UPDATE {t} SET big = repeat('y', %(size)s) WHERE id = %(one)s",
    "UPDATE IGNORE {t} SET id = %(other)s, n = %(n)s WHERE id = %(one)s",
    "UPDATE IGNORE {t} SET id = -id, n = n + 1 WHERE id = %(one)s",
    "DELETE FROM {t} WHERE id = %(one)s",
    "DELETE FROM {t} WHERE id BETWEEN -%(one)s AND -1",
)
_BAG = (
    f"INSERT INTO {{t}} {_TWINS} SELECT %(a)s, 'twin' FROM s",
    "INSERT INTO {t} VALUES (NULL, NULL), (%(a)s, NULL), (%(a)s, '')",
    "DELETE FROM {t} WHERE a = %(a)s LIMIT 1",
    "DELETE FROM {t} WHERE a IS NULL LIMIT %(more)s",
    "UPDATE {t} SET a = a + 1 WHERE a = %(a)s LIMIT 1",
    "UPDATE {t} SET b = concat(b, '!') WHERE a = %(a)s AND char_length(b) < 8",
)
_LARGE = (
    f"INSERT IGNORE INTO {{t}} {_RANGE} SELECT i, %(n)s, repeat(sha2(i, 256), 3) FROM s",
    "UPDATE {t} SET n = %(n)s WHERE id BETWEEN %(low)s AND %(high)s",
    "DELETE FROM {t} WHERE id BETWEEN %(low)s AND %(high)s AND id %% 3 = %(n)s %% 3",
)
_TYPES = {
    "text": "text",
    "key_text": "varchar(100) COLLATE utf8mb4_bin",
    "bool": "bit(1)",
    "decimal": "decimal(12,2)",
    "double": "double",
    "moment": "datetime(6)",
    "bytes": "longblob",
}
DIALECT = Dialect(
    quote="`", types=_TYPES, whole_rows="", out_of_line="", keyed=_KEYED, bag=_BAG, large=_LARGE
)

_REJECTED = frozenset((ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, ER.CHECKREAD))
_CLIENT_ERRORS = range(2000, 3000)
_CONNECTION_KILLED = 1927  # MariaDB's
_SERVER_GOES = frozenset(
    (ER.SERVER_SHUTDOWN, ER.NORMAL_SHUTDOWN, ER.SHUTDOWN_COMPLETE, ER.QUERY_INTERRUPTED, _CONNECTION_KILLED)
)


@dataclass(frozen=True, slots=True)
class MysqlMoment:
    """The state that a transaction sees."""

    connection: Connection

    def rows(self, table: TableName) -> Rows:
        return source_rows(self.connection, table)

    def key(self, table: TableName) -> tuple[str, ...]:
        rows = _run(self.connection, _KEY, [table.schema, table.name])
        return tuple(str(row[0]) for row in rows)


@dataclass(frozen=True, slots=True)
class MysqlSession:
    """A connection that writes, and one that counts: what it did is not rolled back."""

    connection: Connection
    counting: Connection
    dialect: Dialect = DIALECT

    def execute(self, statement: str, values: Values | None = None) -> None:
        with _expected():
            _run(self.connection, statement, values)

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with _expected(), self.connection.cursor() as cursor:
            cursor.executemany(statement, list(rows))

    def rows(self, statement: str, values: Values | None = None) -> list[tuple[Any, ...]]:
        with _expected():
            return _run(self.connection, statement, values)

    def make_counter(self, name: str) -> None:
        with _expected():
            _run(self.counting, f"CREATE TABLE {quoted(name)} (one int PRIMARY KEY, last bigint NOT NULL)")
            _run(self.counting, f"INSERT INTO {quoted(name)} VALUES (1, 0)")

    def next_number(self, counter: str) -> int:
        with _expected(), self.counting.cursor() as cursor:
            cursor.execute(f"UPDATE {quoted(counter)} SET last = LAST_INSERT_ID(last + 1)")
            return int(cursor.lastrowid or 0)

    def commit(self) -> None:
        with _expected():
            self.connection.commit()

    def rollback(self) -> None:
        with _expected():
            self.connection.rollback()


@dataclass(frozen=True, slots=True)
class MysqlOracle:
    """MySQL and MariaDB, whichever version."""

    dialect: Dialect = DIALECT

    @contextmanager
    def moment(self, url: str) -> Iterator[Moment]:
        with _connected(url) as connection:
            _begin(connection)
            yield MysqlMoment(connection)

    def record(self, url: str, tables: Iterable[str]) -> Recording:
        names = {text: TableName.parse(text) for text in tables}
        with _connected(url) as locking, _connected(url) as reader:
            if names:
                wait_for(lambda: _lock(locking, names.values()), "the tables are locked")
            executed = _executed(locking)
            _begin(reader)
            _run(locking, "UNLOCK TABLES")
            rows = {text: source_rows(reader, name) for text, name in names.items()}
        return Recording(MysqlTimeline().position(executed), rows)

    @contextmanager
    def session(self, url: str) -> Iterator[Session]:
        # Errors of its user are for him to see as they are.
        with _expected():
            connection, counting = _connect(url, autocommit=False), _connect(url)
        try:
            with _expected():
                # As PostgreSQL has it; the gaps that are locked otherwise make writers wait for nothing.
                _run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            yield MysqlSession(connection, counting)
        finally:
            for each in (connection, counting):
                if each.open:
                    each.close()

    def login(self, url: str) -> Login:
        address = MysqlAddress.parse(url)
        secret = {} if address.password is None else {"MYSQL_PWD": address.password}
        return Login(address.without_secrets(), secret)


def _connect(url: str, *, autocommit: bool = True) -> Connection:
    address = MysqlAddress.parse(url)
    where: dict[str, Any] = {"host": address.host, "port": address.port, "ssl_disabled": not address.tls.ca}
    if address.socket:
        where = {"unix_socket": address.socket, "ssl_disabled": True}
    elif address.tls.ca:
        where["ssl_ca"] = address.tls.ca
        where["ssl_verify_identity"] = address.tls.mode is SslMode.VERIFY_IDENTITY
    return pymysql.connect(
        **where,
        user=address.user,
        password=address.password or "",
        database=address.database,
        charset="utf8mb4",
        autocommit=autocommit,
    )


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    with _connect(url) as connection:
        yield connection


def _run(connection: Connection, statement: str, values: Values | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def _begin(connection: Connection) -> None:
    """Begin to see one state, from now on."""
    _run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    _run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")


def _lock(connection: Connection, tables: Iterable[TableName]) -> bool:
    """Lock the tables against writers; False if the server let one of these go first."""
    locks = (f"{quoted(table.schema)}.{quoted(table.name)} READ" for table in tables)
    try:
        _run(connection, f"LOCK TABLES {', '.join(locks)}")
    except pymysql.err.OperationalError as error:
        if error.args[0] != ER.LOCK_DEADLOCK:
            raise
        return False
    return True


def _executed(connection: Connection) -> str:
    """The names of all commits so far."""
    [(version,)] = _run(connection, "SELECT version()")
    variable = "gtid_binlog_pos" if "mariadb" in version.lower() else "gtid_executed"
    [(names,)] = _run(connection, f"SELECT @@{variable}")
    return str(names).replace("\n", "")


@contextmanager
def _expected() -> Iterator[None]:
    """Errors that a writer must expect, as those of the contract."""
    try:
        yield
    except pymysql.err.IntegrityError as error:
        raise Rejected(str(error)) from error
    except pymysql.err.InterfaceError as error:
        raise Disconnected(str(error)) from error
    except pymysql.err.OperationalError as error:
        code = error.args[0]
        if code in _REJECTED:
            raise Rejected(str(error)) from error
        if code in _CLIENT_ERRORS or code in _SERVER_GOES:
            raise Disconnected(str(error)) from error
        raise


ORACLE: Oracle = MysqlOracle()
