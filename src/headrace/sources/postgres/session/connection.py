"""Connections: how every connection to a PostgreSQL server is made and pinned.

Everything that talks to the source comes through here: preflight, the catalog, snapshot leader and
followers, the receiver. Two promises hold for each connection:

pinned      The server prints values as the session's settings say, and their defaults may come from
            ALTER DATABASE or ALTER ROLE. Copy and stream must print one value alike for ever, so the
            settings of `PINS` are asked for in the startup packet, all but two (`BY_DEFAULT`), set again
            (a pooler may drop startup options, libpq may send others from the environment), and what
            the server answers is compared. `row_security = off` turns a copy that a policy would thin
            out into an error. So are those of transactions: under a default of `serializable` a
            statement of ours could have an application's fail, or wait for it.
ended       Whatever of ours waits for a lock is ended by the *server*, after `lock_timeout`; while it
            waits it does not notice that we are gone, so it is told to look
            (`client_connection_check_interval`), and while it waits for us, to ask our machine whether it
            is there (`KEEPALIVES`). A commit of ours waits for no standby: it is in the log, from which we
            read, all the same.

That it leads to the same server as before is proved by `identity`; what goes wrong is classified in
`refusals`.

Names of hosts, resolved before libpq is asked: it would hold Python's lock until a name server answers.

    host=db port=5432   ──►   host=db,db hostaddr=10.0.0.1,fd00::1 port=5432,5432

libpq tries the addresses in this order, as it would by itself, and goes on knowing the name, by which a
certificate is judged and a password file is read. A name that takes longer than a connection may is given up;
its thread ends when the system's resolver does, and whoever asks for the name meanwhile waits for that one.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from typing import TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.refusals import login_refused
from headrace.sources.postgres.session.statements import Session, answer, ask
from headrace.sources.shared.refusals import Unreachable

_PORT = "5432"
_lock = threading.Lock()
_asked: dict[tuple[str, str], Future[list[str]]] = {}  # names whose answer is awaited


def resolve_hosts(parameters: Mapping[str, str], where: str, seconds: float) -> dict[str, str]:
    """The parameters of a connection with the addresses of its hosts, asked for within so many seconds.

    Raises `Unreachable` where none of the hosts has an address; `where` is the safe address, for its message.
    """
    said = dict(parameters)
    hosts = said.get("host") or os.environ.get("PGHOST", "")
    elsewhere = {"hostaddr", "service"} & said.keys() or {"PGSERVICE", "PGHOSTADDR"} & os.environ.keys()
    if elsewhere or not hosts:
        return said
    ports = (said.get("port") or os.environ.get("PGPORT") or _PORT).split(",")
    names = hosts.split(",")
    if len(ports) not in (1, len(names)) or all(map(_is_address, names)):
        return said
    found: list[tuple[str, str, str]] = []
    complaints = []
    for number, name in enumerate(names):
        port = ports[number % len(ports)] or _PORT
        try:
            addresses = [""] if _is_address(name) else _addresses(name, port, seconds)
            found += [(name, address, port) for address in addresses]
        except TooLate:  # before the other: it may be one of these
            complaints.append(f'the name "{name}" was not resolved within {seconds:g} s')
        except OSError as error:
            complaints.append(f'the name "{name}" has no address: {error.strerror}')
        except ValueError:
            complaints.append(f'"{name}" is no name of a host')
    if not found:
        raise Unreachable(
            "PG_UNREACHABLE",
            f'no connection to "{where}"',
            detail="; ".join(complaints),
            hint="check host and port, and that the server is running and reachable from here",
        )
    listed = (",".join(column) for column in zip(*found, strict=True))
    return said | dict(zip(("host", "hostaddr", "port"), listed, strict=True))


def _is_address(host: str) -> bool:
    """Tell whether there is nothing to resolve: an address, or the folder of a Unix socket."""
    if not host or host.startswith(("/", "@")):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _addresses(host: str, port: str, seconds: float) -> list[str]:
    with _lock:
        answer = _asked.get((host, port))
        if answer is None:
            answer = _asked[host, port] = Future()
            threading.Thread(
                target=_ask, args=(host, port, answer), name="headrace-names", daemon=True
            ).start()
    return answer.result(seconds)


def _ask(host: str, port: str, answer: Future[list[str]]) -> None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
    except (OSError, ValueError) as error:  # the latter of a label that is empty or too long
        answer.set_exception(error)
    else:
        answer.set_result(addresses)
    finally:
        with _lock:
            _asked.pop((host, port), None)


def _forget() -> None:
    """Begin anew in a child: its parent's threads are not here, and may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _asked.clear()


os.register_at_fork(after_in_child=_forget)


# As the server prints them back; compared after every connect.
PINS: Mapping[str, str] = {
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "timezone": "UTC",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "lc_monetary": "C",
    "client_encoding": "UTF8",
    "search_path": "",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
    "row_security": "off",
    "default_transaction_read_only": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "client_min_messages": "warning",
    "statement_timeout": "0",
    "lock_timeout": "5s",
    "synchronous_commit": "local",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}

# Not asked for in the startup packet, so that their defaults stay what the database, the role or the address
# says: the database's own code goes by these, at its login triggers and beside DDL of ours (`ddl`).
BY_DEFAULT = ("search_path", "row_security")

# Settings that older servers do not know: (first server version, pins).
NEWER_PINS: tuple[tuple[int, Mapping[str, str]], ...] = ((170000, {"transaction_timeout": "0"}),)

# Settings that not every server can have, and that no value of a row depends on (the first: not on Windows).
# A large question of the catalog takes twice as long to plan as to answer: what is prepared is planned once.
WISHES: Mapping[str, str] = {
    "client_connection_check_interval": "10s",
    "plan_cache_mode": "force_generic_plan",
}

# A machine of ours that is gone says nothing: without these a server keeps its session, with its snapshot and
# its locks, for as long as its system does (Linux: two hours). Zero on a Unix socket.
KEEPALIVES: Mapping[str, str] = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

_NEVER = 1 << 31  # executions after which psycopg would prepare a statement by itself

# A silent death of the network is noticed within about half a minute; the user's own choice wins.
NETWORK_DEFAULTS: Mapping[str, str] = {
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

_NAME_SECONDS = 60.0  # for a name server, where the user lets a connection take any time
_APPLICATION_NAME_LIMIT = 63

C = TypeVar("C", bound="psycopg.Connection[TupleRow]")


class _DetachedConnection(psycopg.Connection[TupleRow]):
    """A connection of which libpq's part alone is kept: that one lives on when this object is gone."""

    def __del__(self, *said: object) -> None:
        """Not to be warned of as left open."""


def connect(address: PostgresAddress, *, role: str) -> Session:
    """An ordinary connection in autocommit mode, pinned; `role` says in the server's lists what for."""
    connection = _logged_in(psycopg.Connection[TupleRow], address, _conninfo(address, role))
    try:
        _pin(address, connection.pgconn)
    except BaseException:
        connection.close()
        raise
    return connection


def replication(address: PostgresAddress, *, role: str) -> pq.abc.PGconn:
    """A replication connection to the address's database, pinned: walsender commands and simple SQL."""
    return _bare(address, make_conninfo(_conninfo(address, role), replication="database"))


def plain(address: PostgresAddress, *, role: str) -> pq.abc.PGconn:
    """An ordinary connection, pinned, for `ask` alone: it counts as no walsender."""
    return _bare(address, _conninfo(address, role))


def _bare(address: PostgresAddress, conninfo: str) -> pq.abc.PGconn:
    # `PGconn.connect` would hold Python's lock until the server answers.
    pgconn = _logged_in(_DetachedConnection, address, conninfo).pgconn
    pgconn.nonblocking = 0
    try:
        _pin(address, pgconn)
    except BaseException:
        pgconn.finish()
        raise
    return pgconn


def _logged_in(kind: type[C], address: PostgresAddress, conninfo: str) -> C:
    try:
        return kind.connect(conninfo, autocommit=True, prepare_threshold=_NEVER)
    except psycopg.OperationalError as error:
        needs_password = error.pgconn is not None and error.pgconn.needs_password
        raise _login_refused(address, str(error), needs_password) from None


def _login_refused(address: PostgresAddress, message: str, needs_password: bool) -> HeadraceError:
    return login_refused(
        address.safe(),
        message,
        needs_password=needs_password,
        password=address.parameters.get("password"),
    )


def _conninfo(address: PostgresAddress, role: str) -> str:
    said = address.parameters
    asked = ((name, value) for name, value in PINS.items() if name not in BY_DEFAULT)
    options = " ".join(f"-c {name}={_option(value)}" for name, value in asked)
    # Ours come last: the last setting of a name wins.
    said["options"] = f"{said.get('options', '')} {options}".strip()
    said["application_name"] = application_name(role)
    said["client_encoding"] = "UTF8"
    # With GSS encryption the socket could not be read directly; TLS is the supported way.
    said["gssencmode"] = "disable"
    said = {**NETWORK_DEFAULTS, **said}
    return make_conninfo(**resolve_hosts(said, address.safe(), _name_seconds(said["connect_timeout"])))


def _name_seconds(connect_timeout: str) -> float:
    """The seconds for a name server; what is no number libpq refuses by itself."""
    return float(connect_timeout) if connect_timeout.isdigit() and int(connect_timeout) else _NAME_SECONDS


def application_name(role: str) -> str:
    """Name a connection of ours in the server's lists; longer names the server would cut."""
    return f"headrace {role}"[:_APPLICATION_NAME_LIMIT]


def _option(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _pin(address: PostgresAddress, pgconn: pq.abc.PGconn) -> None:
    """Set every pin, compare what the server made of it, and see that no pooler sits in between."""
    pins = dict(PINS)
    for version, newer in NEWER_PINS:
        if pgconn.server_version >= version:
            pins.update(newer)
    calls = ", ".join(f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in pins.items())
    (row,) = ask(pgconn, f"SELECT pg_catalog.pg_backend_pid(), {calls}")
    if row[0] != str(pgconn.backend_pid):
        raise Misconfigured(
            "PG_POOLER",
            f'the connection to "{address.safe()}" goes through a connection pooler',
            detail=f"the login named backend {pgconn.backend_pid}, statements run in backend {row[0]}",
            hint="give the address of the server itself, not of the pooler",
        )
    for (name, wanted), got in zip(pins.items(), row[1:], strict=True):
        if got != wanted:
            raise Misconfigured(
                "PG_SETTING_REFUSED",
                f'the server at "{address.safe()}" does not accept {name} = "{wanted}"',
                detail=f'it answers "{got}"',
                hint="connect to the server directly, without a proxy that alters session settings",
            )
    for name, value in WISHES.items():
        answer(pgconn, f"SET {name} = '{value}'")
    answer(pgconn, "; ".join(f"SET {name} = {value}" for name, value in KEEPALIVES.items()))
