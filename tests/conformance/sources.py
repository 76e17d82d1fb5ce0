"""Our sources, as values for the list: how the server of each is had, and what it lacks.

docs/scenarios.md also says what a source lacks. A further source is a value more; no test changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

import pymysql

from headrace.core.names import TableName
from headrace_testing.conformance.place import Place, SourceUnderTest, execute, session
from headrace_testing.mysql import Database as MysqlDatabase
from headrace_testing.mysql import Server as MysqlServer
from headrace_testing.mysql.server import open_server
from headrace_testing.postgres import Database, Server
from headrace_testing.postmaster import wait_for

__all__ = [
    "RELEASES",
    "SOURCES",
    "Account",
    "MysqlPlace",
    "Place",
    "RotatingPlace",
    "SourceUnderTest",
    "execute",
    "session",
]


@dataclass(frozen=True, slots=True)
class Account:
    """A user, and how another password comes into force for him; that ends his sessions."""

    address: str  # without a password
    password: str
    rotate: Callable[[str], None]


class RotatingPlace(Place, Protocol):
    """A place whose user may get other passwords."""

    def rotating(self) -> AbstractContextManager[Account]:
        """Make a user who may mirror it, for the block."""


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """A database of PostgreSQL."""

    database: Database

    @property
    def url(self) -> str:
        return self.database.url(user="app")

    @property
    def owner_url(self) -> str:
        return self.url  # only who owns a table may put it into a publication

    @property
    def password(self) -> str:
        return self.database.server.password

    def table(self, name: str) -> TableName:
        return TableName("public", name)

    def lose_position(self) -> None:
        active = "SELECT FROM pg_replication_slots WHERE active AND database = current_database()"
        wait_for(lambda: not self.database.execute(active), "nobody uses a slot")
        self.database.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database()"
        )

    @contextmanager
    def barred(self) -> Iterator[None]:
        self.database.execute("ALTER ROLE app NOLOGIN")
        try:
            sessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'"
            self.database.execute(sessions)
            yield
        finally:
            self.database.execute("ALTER ROLE app LOGIN")

    @contextmanager
    def rotating(self) -> Iterator[Account]:
        name, server = f"mirror_{self.database.name}", self.database.server

        def rotate(password: str) -> None:
            self.database.execute(f"ALTER ROLE {name} PASSWORD '{password}'")
            ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{name}'"
            self.database.execute(ended)

        self.database.execute(f"CREATE ROLE {name} LOGIN REPLICATION IN ROLE app PASSWORD 'first/one'")
        try:
            bare = self.url.replace(self.database.url(user="app"), server.url(self.database.name, user=name))
            yield Account(bare, "first/one", rotate)
        finally:
            rotate(server.password)
            self.database.execute(f"REASSIGN OWNED BY {name} TO app; DROP OWNED BY {name}; DROP ROLE {name}")

    @contextmanager
    def unreadable(self, table: str) -> Iterator[None]:
        self.database.execute(f"REVOKE SELECT ON {table} FROM app")
        try:
            yield
        finally:
            self.database.execute(f"GRANT SELECT ON {table} TO app")

    @contextmanager
    def elsewhere(self) -> Iterator[Place]:
        # A server is told by its system identifier and the database: another database is as good.
        with self.database.server.database() as other:
            yield PostgresPlace(other)


@contextmanager
def postgres_place(server: Server) -> Iterator[Place]:
    """A database of the server, which is started if a test left it down."""
    server.start()
    with server.database() as database:
        yield PostgresPlace(database)


@dataclass(frozen=True, slots=True)
class QueuePlace(PostgresPlace):
    """A database of a PostgreSQL that gives no logical replication, mirrored by triggers."""

    @property
    def url(self) -> str:
        return f"queue+{self.database.url(user='app')}"

    @property
    def owner_url(self) -> str:
        return self.database.url(user="app")

    def lose_position(self) -> None:
        self.database.execute("DELETE FROM headrace.reader")

    @contextmanager
    def elsewhere(self) -> Iterator[Place]:
        with self.database.server.database() as other:
            yield QueuePlace(other)


@contextmanager
def queue_place(server: Server) -> Iterator[Place]:
    """A database of the server, which is started if a test left it down."""
    server.start()
    with server.database() as database:
        yield QueuePlace(database)


@dataclass(frozen=True, slots=True)
class MysqlPlace:
    """A database of MySQL or MariaDB."""

    database: MysqlDatabase

    @property
    def url(self) -> str:
        return self.database.url(user="mirror")

    @property
    def owner_url(self) -> str:
        return self.database.url(user="app")

    @property
    def password(self) -> str:
        return self.database.server.password

    def table(self, name: str) -> TableName:
        return TableName(self.database.name, name)

    def lose_position(self) -> None:
        self.database.server.purge()

    @contextmanager
    def rotating(self) -> Iterator[Account]:
        def rotate(password: str) -> None:
            self.database.execute("ALTER USER mirror IDENTIFIED BY %s", [password])
            self._end_sessions()

        try:
            self.database.execute("ALTER USER mirror IDENTIFIED BY 'first/one'")
            yield Account(
                self.database.url(user="mirror", password="").replace(":@", "@"), "first/one", rotate
            )
        finally:
            rotate(self.password)

    def _end_sessions(self) -> None:
        sessions = "SELECT id FROM information_schema.processlist WHERE user = 'mirror'"
        for (number,) in self.database.execute(sessions):
            with suppress(pymysql.err.OperationalError):  # it has ended by itself
                self.database.execute(f"KILL {number}")

    @contextmanager
    def barred(self) -> Iterator[None]:
        self.database.execute("ALTER USER mirror ACCOUNT LOCK")
        try:
            self._end_sessions()
            yield
        finally:
            self.database.execute("ALTER USER mirror ACCOUNT UNLOCK")

    @contextmanager
    def unreadable(self, table: str) -> Iterator[None]:
        own = self.database.name.replace("_", r"\_")
        shown = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
        others = [name for (name,) in self.database.execute(shown) if name != table]
        for other in others:
            self.database.execute(f"GRANT SELECT ON {other} TO mirror")
        self.database.execute(f"REVOKE SELECT ON `{own}`.* FROM mirror")
        try:
            yield
        finally:
            self.database.execute(f"GRANT SELECT ON `{own}`.* TO mirror")
            for other in others:
                self.database.execute(f"REVOKE SELECT ON {other} FROM mirror")

    @contextmanager
    def elsewhere(self) -> Iterator[Place]:
        flavour = self.database.server.flavour
        with open_server(flavour, {}) as other, other.database(self.database.name) as database:
            yield MysqlPlace(database)


@contextmanager
def mysql_place(server: MysqlServer) -> Iterator[Place]:
    """A database of the server, which is started if a test left it down."""
    server.start()
    with server.database() as database:
        yield MysqlPlace(database)


SOURCES = (
    SourceUnderTest(
        kind="postgres",
        server="postgres_server",
        place=postgres_place,
        lost="PG_SLOT_MISSING",
        elsewhere="PG_ANOTHER_SERVER",
        barred="PG_NOT_ADMITTED",
        unreadable="PG_PRIVILEGE_MISSING",
    ),
    SourceUnderTest(
        kind="queue",
        server="queue_server",
        place=queue_place,
        lost="QUEUE_READER_GONE",
        elsewhere="PG_ANOTHER_SERVER",
        barred="PG_NOT_ADMITTED",
        unreadable="PG_PRIVILEGE_MISSING",
        of_many=True,
    ),
    *(
        SourceUnderTest(
            kind=kind,
            server=f"{kind}_server",
            place=mysql_place,
            lost="MY_BINLOG_PURGED",
            elsewhere="MY_ANOTHER_SERVER",
            barred="MY_NOT_ADMITTED",
            unreadable="MY_PRIVILEGE_MISSING",
        )
        for kind in ("mysql", "mariadb")
    ),
)

# Other releases, for `make integration`: their servers have their names with a "_" for each "." and "-".
RELEASES = tuple(
    replace(
        source, kind=f"{source.kind}-{release}", server=f"{source.kind}_{release.replace('.', '_')}_server"
    )
    for source in SOURCES
    for release in {"mysql": ("8.0",), "mariadb": ("11.4", "11.8")}.get(source.kind, ())
)
