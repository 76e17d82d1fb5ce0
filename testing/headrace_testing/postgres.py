"""A real PostgreSQL server for a test, a demo or a bench: `with postgres() as server: ...`

    with postgres(version="15", settings={"wal_sender_timeout": "2s"}) as server:
        with server.database() as db:
            db.execute("CREATE TABLE t (id int PRIMARY KEY)")
            mirror(db.url(user="app"))
            server.crash()
            server.start()

The server listens on 127.0.0.1 (the port stays the same over restarts) and on a socket in its folder.
Two users exist: `postgres`, a superuser that needs no password, and `app`, an ordinary user with
LOGIN and REPLICATION who owns the databases that `database()` makes and must give `server.password`.
That password holds characters that a URL has to escape, so that nobody gets away with not doing it.

Every server is its own cluster in a folder of its own. It is gone when the block ends, and also when
the process that opened it is killed (see `headrace_testing.postmaster`).
"""

from __future__ import annotations

import secrets
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql

from headrace_testing.binaries import PIP_VERSION, Binaries, ServerUser, locate
from headrace_testing.pgbench import Pgbench, pgbench_tables
from headrace_testing.ports import free_port
from headrace_testing.postmaster import Postmaster, wait_for

if TYPE_CHECKING:
    from headrace_testing.tls import Certificates

Setting = str | int | float | bool
Mode = Literal["fast", "immediate"]
SIGNALS: dict[Mode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}

DEFAULTS: dict[str, Setting] = {
    "wal_level": "logical",
    "max_replication_slots": 20,
    "max_wal_senders": 20,
    "max_prepared_transactions": 20,
    "max_connections": 120,
    "listen_addresses": "127.0.0.1",
    "fsync": True,
    "shared_buffers": "64MB",
    "log_line_prefix": "%m [%p] %u@%d ",
    "lc_messages": "C",
}

HBA = """
local all,replication postgres trust
host all,replication postgres 127.0.0.1/32 trust
local all,replication all scram-sha-256
host all,replication all 127.0.0.1/32 scram-sha-256
"""


class Server:
    """One PostgreSQL cluster and its process."""

    def __init__(self, postmaster: Postmaster, port: int, password: str) -> None:
        self.postmaster = postmaster
        self.host = "127.0.0.1"
        self.port = port
        self.password = password
        self.version = postmaster.binaries.version
        self.socket_folder = postmaster.folder

    def url(
        self,
        database: str = "postgres",
        *,
        user: str = "postgres",
        password: str | None = None,
        host: str | None = None,
        port: int | None = None,
        **options: str,
    ) -> str:
        """A connection URL; `app`'s password is known, `host` may be `server.socket_folder`."""
        if password is None and user == "app":
            password = self.password
        who = quote(user, safe="") + ("" if password is None else f":{quote(password, safe='')}")
        where = f"{quote(str(host or self.host), safe='')}:{port or self.port}"
        query = f"?{urlencode(options, quote_via=quote)}" if options else ""
        return f"postgresql://{who}@{where}/{quote(database, safe='')}{query}"

    @property
    def conninfo(self) -> str:
        """The superuser's connection to the database "postgres", as `host=... port=...`."""
        return psycopg.conninfo.make_conninfo(self.url())

    @property
    def running(self) -> bool:
        return self.postmaster.running

    def connect(self, database: str = "postgres", *, user: str = "postgres") -> psycopg.Connection[Any]:
        """A connection in autocommit."""
        return psycopg.connect(self.url(database, user=user), autocommit=True)

    def execute(
        self, statement: str, parameters: Sequence[Any] | None = None, *, database: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Run a statement as the superuser; its rows, if it has any."""
        with self.connect(database) as connection:
            return run(connection, statement, parameters)

    @contextmanager
    def database(self, name: str | None = None) -> Iterator[Database]:
        """A fresh database owned by `app`; after the block, its slots and it are removed."""
        made = Database(self, name or f"t_{secrets.token_hex(6)}")
        with self.connect() as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} OWNER app").format(sql.Identifier(made.name)),
            )
        try:
            yield made
        finally:
            self.start()
            made.drop()

    def start(self) -> None:
        """Start the server if it does not run."""
        self.postmaster.start()

    def stop(self, mode: Mode = "fast") -> None:
        """Shut the server down; "immediate" leaves the log to be replayed at the next start."""
        self.postmaster.stop(SIGNALS[mode])

    def crash(self) -> None:
        """SIGKILL the server and all of its children; `start()` brings it back."""
        self.postmaster.crash()

    def restart(self, mode: Mode = "fast") -> None:
        self.stop(mode)
        self.start()

    def set(self, **settings: Setting | None) -> None:
        """ALTER SYSTEM SET (None: RESET), then reload, or restart where a setting asks for it."""
        with self.connect() as connection:
            for name, value in settings.items():
                connection.execute(_alter_system(name, value))
            needs_restart = run(
                connection,
                "SELECT 1 FROM pg_settings WHERE context = 'postmaster' AND name = ANY(%s)",
                [list(settings)],
            )
            before = run(connection, "SELECT pg_conf_load_time(), pg_reload_conf()")[0][0]
        if needs_restart:
            self.restart()
            return
        # The reload is asynchronous; a new session shows when the server has done it.
        wait_for(
            lambda: bool(self.execute("SELECT 1 WHERE pg_conf_load_time() > %s", [before])),
            "the server reloads its settings",
        )

    def log(self) -> str:
        """Everything that the server has written to its log."""
        return self.postmaster.log.read_text(errors="replace")


@dataclass(frozen=True, slots=True)
class Database:
    """A database of a server; what `Server` offers for one, without naming it each time."""

    server: Server
    name: str

    def url(self, *, user: str = "postgres", **options: Any) -> str:
        """A connection URL; the options are those of `Server.url`."""
        return self.server.url(self.name, user=user, **options)

    @property
    def conninfo(self) -> str:
        return psycopg.conninfo.make_conninfo(self.url())

    def connect(self, *, user: str = "postgres") -> psycopg.Connection[Any]:
        """A connection in autocommit."""
        return self.server.connect(self.name, user=user)

    def execute(
        self, statement: str, parameters: Sequence[Any] | None = None, *, user: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Run a statement; its rows, if it has any."""
        with self.connect(user=user) as connection:
            return run(connection, statement, parameters)

    def pgbench_tables(self, scale: int = 1, *, accounts: int | None = None, user: str = "app") -> None:
        """The four tables of pgbench, filled; its history, which has no key, with identity FULL."""
        pgbench_tables(self.url(user=user), scale=scale, accounts=accounts)

    def pgbench(
        self,
        *,
        clients: int = 4,
        rate: int | None = None,
        accounts: int | None = None,
        user: str = "app",
    ) -> Pgbench:
        """pgbench's TPC-B running in the background, over server restarts, until `.stop()`.

        `accounts` says how many there are, where the tables were made with so many.
        """
        return Pgbench(self.url(user=user), clients=clients, rate=rate, accounts=accounts)

    def drop(self) -> None:
        """Remove the database and what would hold it: sessions, slots, prepared transactions."""
        with self.connect() as connection:
            for (gid,) in run(
                connection, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
            ):
                connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
            wait_for(lambda: _slots_idle(connection), f'the slots of database "{self.name}" are idle')
            # A subscription keeps its database from being dropped.
            for (name,) in run(
                connection,
                "SELECT subname FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid"
                " WHERE d.datname = current_database()",
            ):
                subscription = sql.Identifier(name)
                connection.execute(sql.SQL("ALTER SUBSCRIPTION {} DISABLE").format(subscription))
                connection.execute(
                    sql.SQL("ALTER SUBSCRIPTION {} SET (slot_name = NONE)").format(subscription)
                )
                connection.execute(sql.SQL("DROP SUBSCRIPTION {}").format(subscription))
        with self.server.connect() as connection:
            connection.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(self.name)),
            )


@contextmanager
def postgres(
    version: str = "18",
    *,
    build: str | None = None,
    settings: Mapping[str, Setting] | None = None,
    hba: Sequence[str] = (),
    tls: Certificates | None = None,
    programs: Binaries | None = None,
) -> Iterator[Server]:
    """A running server of that version, or of these programs; `hba` lines come before the usual ones."""
    if tls is not None and build is None and version == PIP_VERSION:
        build = "npm"  # the build from pip knows no TLS
    binaries = programs or locate(version, build)
    folder = new_folder()
    postmaster = Postmaster(binaries, folder)
    try:
        port = free_port()
        _initialise(binaries, folder)
        wanted = {**DEFAULTS, "port": port, "unix_socket_directories": str(folder), **(settings or {})}
        if tls is not None:
            wanted.update(tls.install(folder / "data", ServerUser.choose().own))
        configure(folder / "data", wanted, hba)
        server = Server(postmaster, port, f"p@ss/{secrets.token_hex(8)}")
        server.start()
        with server.connect() as connection:
            if connection.info.server_version >= 160000:
                connection.execute("SET scram_iterations = 1")  # 4,096 cost each connection milliseconds
            connection.execute(
                sql.SQL("CREATE ROLE app LOGIN REPLICATION PASSWORD {}").format(sql.Literal(server.password))
            )
        yield server
    finally:
        postmaster.close()


def run(
    connection: psycopg.Connection[Any], statement: str, parameters: Sequence[Any] | None = None
) -> list[tuple[Any, ...]]:
    """Run a statement on an open connection; its rows, if it has any."""
    cursor = connection.execute(statement.encode(), parameters)
    return cursor.fetchall() if cursor.description else []


def new_folder() -> Path:
    """A folder of the server's user; every folder above it must let that user pass."""
    user = ServerUser.choose()
    candidates = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/tmp")]
    base = next(
        (c for c in candidates if user.uid is None or all(p.stat().st_mode & 1 for p in (c, *c.parents))),
        candidates[-1],
    )
    # Short, since a socket's path may be 107 bytes long at most.
    folder = Path(tempfile.mkdtemp(prefix="headrace-pg-", dir=base)).resolve()
    folder.chmod(0o755)
    user.own(folder)
    return folder


def _initialise(binaries: Binaries, folder: Path) -> None:
    ServerUser.choose().run(
        [
            binaries["initdb"],
            "--pgdata",
            folder / "data",
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ],
        cwd=folder,
    )


def configure(data: Path, settings: Mapping[str, Setting], hba: Sequence[str] | None = None) -> None:
    """Write settings, which override earlier ones, and who may connect."""
    with (data / "postgresql.conf").open("a") as file:
        file.writelines(f"{name} = {_quoted(value)}\n" for name, value in settings.items())
    if hba is not None:
        (data / "pg_hba.conf").write_text("\n".join(hba) + HBA)


def _quoted(value: Setting) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return "'" + text.replace("'", "''") + "'"


def _alter_system(name: str, value: Setting | None) -> sql.Composed:
    if value is None:
        return sql.SQL("ALTER SYSTEM RESET {}").format(sql.Identifier(name))
    return sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.SQL(_quoted(value)))


def _end_sessions(connection: psycopg.Connection[Any]) -> None:
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


def _slots_idle(connection: psycopg.Connection[Any]) -> bool:
    """End who holds a slot of this database; True when nobody does. DROP DATABASE takes idle ones along."""
    _end_sessions(connection)
    return not run(
        connection, "SELECT 1 FROM pg_replication_slots WHERE database = current_database() AND active"
    )
