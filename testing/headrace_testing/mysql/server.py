"""A MySQL or MariaDB server of one's own, and its databases.

Tests open one by `mysql()` or `mariadb()`. It listens on 127.0.0.1 (the port stays the same over restarts)
and on a socket in its folder; its `server_id` is nobody else's. Three users exist: `root`, who may do
anything and needs no password; `app`, who may replicate and owns the databases that `database()` makes; and
`mirror`, who has what docs/mysql.md asks for and nothing else. These two must give `server.password`, which
holds characters that a URL has to escape.

The server is gone when the block ends, and also when the process that opened it is killed.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pymysql
from pymysql.constants import ER

from headrace_testing.mysql.flavours import MARIADB, MYSQL, OF_TABLES, OF_THE_LOG, Flavour, Setting
from headrace_testing.mysql.process import Process
from headrace_testing.mysql.programs import Programs, initialize, locate
from headrace_testing.ports import free_port
from headrace_testing.postmaster import wait_for

if TYPE_CHECKING:
    from headrace_testing.tls import Certificates

Rows = list[tuple[Any, ...]]

_USERS = ("app", "mirror")  # who have a password
_GTID_MODE_BY_STEPS = 1788
# What a running server cannot take: a setting of its start, an option that is no variable.
_ONLY_AT_START = (ER.INCORRECT_GLOBAL_LOCAL_VAR, ER.UNKNOWN_SYSTEM_VARIABLE, _GTID_MODE_BY_STEPS)


class Server:
    """One server and its process."""

    def __init__(self, process: Process, settings: Mapping[str, Setting], password: str) -> None:
        self.process = process
        self.flavour = process.programs.flavour
        self.version = process.programs.version
        self.host = "127.0.0.1"
        self.port = int(settings["port"])
        self.server_id = int(settings["server_id"])
        self.socket = process.socket
        self.password = password
        self._first = dict(settings)
        self._settings = dict(settings)
        _configure(process.settings, self._settings)

    @property
    def running(self) -> bool:
        return self.process.running

    def url(
        self,
        database: str = "",
        *,
        user: str = "root",
        password: str | None = None,
        host: str | None = None,
        port: int | None = None,
        **options: str,
    ) -> str:
        """A connection URL; the passwords of `app` and `mirror` are known."""
        if password is None and user in _USERS:
            password = self.password
        who = quote(user, safe="") + ("" if password is None else f":{quote(password, safe='')}")
        query = f"?{urlencode(options, quote_via=quote)}" if options else ""
        place = f"{host or self.host}:{port or self.port}"
        return f"{self.flavour.name}://{who}@{place}/{quote(database, safe='')}{query}"

    def connect(
        self, database: str | None = None, *, user: str = "root", tcp: bool = False, **options: Any
    ) -> pymysql.Connection[Any]:
        """A connection in autocommit, by the socket or to the port; the options are PyMySQL's."""
        where = {"host": self.host, "port": self.port} if tcp else {"unix_socket": str(self.socket)}
        chosen = {**where, "charset": "utf8mb4", "autocommit": True, **options}
        # Else PyMySQL reads all authorities of the machine for each connection, 50 ms of a core.
        chosen.setdefault("ssl_disabled", not any(name.startswith("ssl") for name in options))
        password = self.password if user in _USERS else ""
        return pymysql.connect(user=user, password=password, database=database, **chosen)

    def execute(
        self, statement: str, parameters: Sequence[Any] | None = None, *, database: str | None = None
    ) -> Rows:
        """Run a statement as `root`; its rows, if it has any."""
        with self.connect(database) as connection:
            return run(connection, statement, parameters)

    @contextmanager
    def database(self, name: str | None = None) -> Iterator[Database]:
        """A fresh database that is `app`'s, and that `mirror` may read; after the block it is removed."""
        made = Database(self, name or f"t_{secrets.token_hex(6)}")
        self.execute(f"CREATE DATABASE {quoted(made.name)}")
        # Its name is a pattern in a grant.
        pattern = quoted(made.name.replace("_", r"\_").replace("%", r"\%"))
        self.execute(f"GRANT ALL ON {pattern}.* TO app")
        self.execute(f"GRANT {OF_TABLES} ON {pattern}.* TO mirror")
        try:
            yield made
        finally:
            self.start()
            with self.connect() as connection:
                # A test may have taken it away.
                for user in _USERS:
                    _succeeds(connection, f"REVOKE ALL ON {pattern}.* FROM {user}", ER.NONEXISTING_GRANT)
            made.drop()

    def start(self) -> None:
        """Start the server if it does not run."""
        self.process.start()

    def stop(self) -> None:
        """Shut the server down."""
        self.process.stop()

    def crash(self) -> None:
        """SIGKILL the server; `start()` brings it back."""
        self.process.crash()

    def restart(self) -> None:
        self.stop()
        self.start()

    def set(self, **settings: Setting | None) -> None:
        """Change settings for good (None: back to the first value); restarts where one asks for it.

        Sessions that are open keep what they have.
        """
        values = {name: self._first.get(name) if value is None else value for name, value in settings.items()}
        at_start = [name for name, value in values.items() if not self._set_now(name, value)]
        changed = {**self._settings, **values}
        self._settings = {name: value for name, value in changed.items() if value is not None}
        _configure(self.process.settings, self._settings)
        if at_start:
            self.restart()

    def _set_now(self, name: str, value: Setting | None) -> bool:
        """Change a setting of the running server; False if that takes a restart."""
        statement = f"SET GLOBAL {name} = {'DEFAULT' if value is None else _literal(value)}"
        with self.connect() as connection:
            return _succeeds(connection, statement, *_ONLY_AT_START)

    def purge(self) -> None:
        """Remove all binlogs but a new one; who reads an older one, or may need it, is waited for."""

        def purged() -> bool:
            self.execute("FLUSH BINARY LOGS")
            newest = self.execute("SHOW BINARY LOGS")[-1][0]
            self.execute(f"PURGE BINARY LOGS TO '{newest}'")
            return len(self.execute("SHOW BINARY LOGS")) == 1

        wait_for(purged, "nobody reads the older logs")

    def tool(self, program: str) -> list[str]:
        """The words that run a client program of this server's packages."""
        return self.process.programs.command(program)

    def log(self) -> str:
        """Everything that the server has written to its log."""
        return self.process.log.read_text(errors="replace")


@dataclass(frozen=True, slots=True)
class Database:
    """A database of a server; what `Server` offers for one, without naming it each time."""

    server: Server
    name: str

    def url(self, *, user: str = "root", **options: Any) -> str:
        """A connection URL; the options are those of `Server.url`."""
        return self.server.url(self.name, user=user, **options)

    def connect(self, *, user: str = "root", **options: Any) -> pymysql.Connection[Any]:
        """A connection in autocommit; the options are those of `Server.connect`."""
        return self.server.connect(self.name, user=user, **options)

    def execute(self, statement: str, parameters: Sequence[Any] | None = None, *, user: str = "root") -> Rows:
        """Run a statement; its rows, if it has any."""
        with self.connect(user=user) as connection:
            return run(connection, statement, parameters)

    def drop(self) -> None:
        """Remove the database, and before that what would hold it: sessions, prepared transactions.

        Of those nobody can tell the database: the server's all go.
        """
        with self.server.connect() as connection:
            run(connection, "SET lock_wait_timeout = 1")
            wait_for(lambda: self._dropped(connection), f'database "{self.name}" is dropped')

    def _dropped(self, connection: pymysql.Connection[Any]) -> bool:
        for (session,) in run(
            connection, "SELECT id FROM information_schema.processlist WHERE db = %s", [self.name]
        ):
            _succeeds(connection, f"KILL {session}", ER.NO_SUCH_THREAD)
        for xid in prepared(connection, self.server.flavour):
            _succeeds(connection, f"XA ROLLBACK {xid}", ER.XAER_NOTA)
        return _succeeds(connection, f"DROP DATABASE IF EXISTS {quoted(self.name)}", ER.LOCK_WAIT_TIMEOUT)


@contextmanager
def mysql(
    settings: Mapping[str, Setting] | None = None, *, tls: Certificates | None = None
) -> Iterator[Server]:
    """A running MySQL server with these settings over those of a good source."""
    with open_server(MYSQL, settings or {}, tls=tls) as server:
        yield server


@contextmanager
def mariadb(
    settings: Mapping[str, Setting] | None = None,
    *,
    tls: Certificates | None = None,
    flavour: Flavour = MARIADB,
) -> Iterator[Server]:
    """A running MariaDB server with these settings over those of a good source."""
    with open_server(flavour, settings or {}, tls=tls) as server:
        yield server


def run(connection: pymysql.Connection[Any], statement: str, parameters: Sequence[Any] | None = None) -> Rows:
    """Run a statement on an open connection; its rows, if it has any."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


def prepared(connection: pymysql.Connection[Any], flavour: Flavour) -> list[str]:
    """The XA transactions that are prepared, each as a statement names it."""
    if flavour.is_mariadb:
        return [data for *_, data in run(connection, "XA RECOVER FORMAT = 'SQL'")]
    return [
        f"X'{data[2 : 2 + 2 * first]}', X'{data[2 + 2 * first :]}', {form}"
        for form, first, _, data in run(connection, "XA RECOVER CONVERT XID")
    ]


def quoted(name: str) -> str:
    """A name as a statement spells it."""
    return "`" + name.replace("`", "``") + "`"


@contextmanager
def open_server(
    flavour: Flavour,
    settings: Mapping[str, Setting],
    *,
    tls: Certificates | None = None,
    password: str | None = None,
) -> Iterator[Server]:
    """A running server of that kind; without a password, `app` gets one that nobody else has."""
    programs = locate(flavour)
    # Short, since a socket's path may be 107 bytes long at most.
    folder = Path(tempfile.mkdtemp(prefix="headrace-my-", dir=_short_folder())).resolve()
    process = Process(programs, folder)
    try:
        _begin(programs, process.data, settings)
        (folder / "tmp").mkdir()
        wanted = {
            **flavour.settings,
            **programs.places(process.data),
            "port": free_port(),
            "server_id": 1 + secrets.randbelow(2**31 - 1),
            "socket": str(process.socket),
            "tmpdir": str(folder / "tmp"),  # a MariaDB that starts removes what others have in it
            "pid_file": str(process.pid_file),
            **(_install(tls, folder) if tls else {}),
            **settings,
        }
        server = Server(process, wanted, password or f"p@ss/{secrets.token_hex(8)}")
        server.start()
        _make_users(server)
        yield server
    finally:
        process.close()


def _begin(programs: Programs, data: Path, settings: Mapping[str, Setting]) -> None:
    """The data folder of a new server; MySQL decides once for all whether case counts in names."""
    case = str(settings.get("lower_case_table_names", 0))
    if programs.flavour.is_mariadb or case == "0":
        shutil.copytree(programs.data, data)
        return
    data.mkdir(mode=0o700)
    initialize(programs, data, lower_case_table_names=case)


def _short_folder() -> Path:
    wanted = Path(tempfile.gettempdir()).resolve()
    return wanted if len(bytes(wanted)) < 80 else Path("/tmp")


def _make_users(server: Server) -> None:
    with server.connect() as connection:
        # Kept out of the log: a history begins with what a test does.
        run(connection, "SET sql_log_bin = 0")
        for user in _USERS:
            run(connection, f"CREATE USER {user} IDENTIFIED BY %s", [server.password])
            run(connection, f"GRANT {OF_THE_LOG} ON *.* TO {user}")


def _install(tls: Certificates, folder: Path) -> dict[str, Setting]:
    """Copy the server's pair into its folder; the settings that make it use them."""
    settings: dict[str, Setting] = {}
    for name, source in (("ssl_ca", tls.authority), ("ssl_cert", tls.certificate), ("ssl_key", tls.key)):
        target = folder / f"{name}.pem"
        target.touch(mode=0o600)
        target.write_bytes(source.read_bytes())
        settings[name] = str(target)
    return settings


def _configure(path: Path, settings: Mapping[str, Setting]) -> None:
    lines = [_line(name, value) for name, value in settings.items()]
    path.write_text("\n".join(["[mysqld]", *lines, ""]))


def _line(name: str, value: Setting) -> str:
    """A line of an option file. An option that is off is skipped: of a log, too, which would be named OFF."""
    if value is False:
        return f"skip-{name}"
    text = "ON" if value is True else str(value)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name} = "{escaped}"'


def _literal(value: Setting) -> str:
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    if isinstance(value, str):
        return pymysql.converters.escape_string(value).join("''")
    return str(value)


def _succeeds(connection: pymysql.Connection[Any], statement: str, *codes: int) -> bool:
    """Run a statement that these errors may refuse."""
    try:
        run(connection, statement)
    except pymysql.err.MySQLError as error:
        if error.args[0] not in codes:
            raise
        return False
    return True
