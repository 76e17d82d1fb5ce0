"""Connections: open every connection to a PostgreSQL server, and pin its settings.

All code that talks to the source connects here: preflight, the catalog, the snapshot's leader and followers,
the receiver. Two promises hold for each connection:

pinned      The session's settings decide how the server prints values, and ALTER DATABASE or ALTER ROLE may
            change their defaults. Copy and stream must always print a value alike. So the settings of `PINS`
            are sent in the startup packet (all but those in `BY_DEFAULT`), then set again: a pooler may drop
            startup options, and libpq may send others from the environment. Then the server's answers are
            compared. With `row_security = off` a copy fails if a policy would hide rows. Settings of
            transactions are pinned too: with a default of `serializable`, a statement of ours could make an
            application's fail, or wait for it.
ended       After `lock_timeout` the *server* ends our wait for a lock. While it waits for a lock it does not
            notice that we are gone, so it checks regularly (`client_connection_check_interval`). While it
            waits for us, it checks our machine (`KEEPALIVES`). Our commits wait for no standby: they are in
            the log all the same, and we read the log.

`identity` proves that a connection reached the same server as before; `refusals` classifies errors.

Host names are resolved before libpq is called, since libpq holds Python's lock until a name server answers:

    host=db port=5432   ──►   host=db,db hostaddr=10.0.0.1,fd00::1 port=5432,5432

libpq tries the addresses in this order, as it would by itself. It still has the name, which certificates and
password files need. If a name takes longer than a connection may, the connection fails (`shared.hosts`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.refusals import login_refused
from headrace.sources.postgres.session.statements import Session, answer, ask
from headrace.sources.shared.credentials import log_in
from headrace.sources.shared.hosts import HostUnknown, addresses_of, is_address
from headrace.sources.shared.refusals import Unreachable

_PORT = "5432"


def resolve_hosts(parameters: Mapping[str, str], where: str, seconds: float) -> dict[str, str]:
    """Add the addresses of a connection's hosts to its parameters, within so many seconds a name.

    Raises `Unreachable` if no host has an address; `where` is the safe address for the message.
    """
    said = dict(parameters)
    hosts = said.get("host") or os.environ.get("PGHOST", "")
    elsewhere = {"hostaddr", "service"} & said.keys() or {"PGSERVICE", "PGHOSTADDR"} & os.environ.keys()
    if elsewhere or not hosts:
        return said
    ports = (said.get("port") or os.environ.get("PGPORT") or _PORT).split(",")
    names = hosts.split(",")
    if len(ports) not in (1, len(names)) or all(map(is_address, names)):
        return said
    found: list[tuple[str, str, str]] = []
    complaints = []
    for number, name in enumerate(names):
        port = ports[number % len(ports)] or _PORT
        try:
            addresses = [""] if is_address(name) else addresses_of(name, port, seconds)
        except HostUnknown as unknown:
            complaints.append(str(unknown))
        else:
            found += [(name, address, port) for address in addresses]
    if not found:
        raise Unreachable(
            "PG_UNREACHABLE",
            f'no connection to "{where}"',
            detail="; ".join(complaints),
            hint="check host and port, and that the server is running and reachable from here",
        )
    listed = (",".join(column) for column in zip(*found, strict=True))
    return said | dict(zip(("host", "hostaddr", "port"), listed, strict=True))


# Values in the server's own spelling; its answers are compared with them after every connect.
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

# Left out of the startup packet, so that the defaults of the database, the role or the address stay in force:
# the database's own code needs them, in login triggers and in event triggers of our DDL (`ddl`).
BY_DEFAULT = ("search_path", "row_security")

# Settings that older servers do not know: (first server version, pins).
NEWER_PINS: tuple[tuple[int, Mapping[str, str]], ...] = ((170000, {"transaction_timeout": "0"}),)

# Settings that some servers lack (the first: on Windows), and that no value of a row depends on. A large
# catalog query takes twice as long to plan as to run, so a prepared one is planned only once.
WISHES: Mapping[str, str] = {
    "client_connection_check_interval": "10s",
    "plan_cache_mode": "force_generic_plan",
}

# If our machine vanishes, the server gets no message. Without these it would keep our session, with its
# snapshot and its locks, for as long as its system does (Linux: two hours). They have no effect on a Unix
# socket.
KEEPALIVES: Mapping[str, str] = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

_NEVER = 1 << 31  # after so many executions psycopg would prepare a statement by itself

# These notice within about half a minute that the network died silently; the user's own values win.
NETWORK_DEFAULTS: Mapping[str, str] = {
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

_NAME_SECONDS = 60.0  # for a name server, if the user sets no limit for a connection
_APPLICATION_NAME_LIMIT = 63

C = TypeVar("C", bound="psycopg.Connection[TupleRow]")


class _DetachedConnection(psycopg.Connection[TupleRow]):
    """A connection whose libpq part is taken out; that part outlives this object."""

    def __del__(self, *said: object) -> None:
        """Don't warn that the connection was left open."""


def connect(address: PostgresAddress, *, role: str) -> Session:
    """Open an ordinary connection, pinned, in autocommit mode; the server's lists show its `role`."""
    connection = _logged_in(psycopg.Connection[TupleRow], address, role)
    try:
        _pin(address, connection.pgconn)
    except BaseException:
        connection.close()
        raise
    return connection


def replication(address: PostgresAddress, *, role: str) -> pq.abc.PGconn:
    """Open a replication connection to the database, pinned: for walsender commands and simple SQL."""
    return _bare(address, role, replication="database")


def plain(address: PostgresAddress, *, role: str) -> pq.abc.PGconn:
    """Open an ordinary connection, pinned, for `ask` alone; it does not count as a walsender."""
    return _bare(address, role)


def _bare(address: PostgresAddress, role: str, **more: str) -> pq.abc.PGconn:
    # `PGconn.connect` would hold Python's lock until the server answers.
    pgconn = _logged_in(_DetachedConnection, address, role, **more).pgconn
    pgconn.nonblocking = 0
    try:
        _pin(address, pgconn)
    except BaseException:
        pgconn.finish()
        raise
    return pgconn


def _logged_in(kind: type[C], address: PostgresAddress, role: str, **more: str) -> C:
    def attempt(password: str | None) -> C:
        said = address if password is None else address.with_password(password)
        conninfo = make_conninfo(_conninfo(said, role), **more)
        try:
            return kind.connect(conninfo, autocommit=True, prepare_threshold=_NEVER)
        except psycopg.OperationalError as error:
            needs_password = error.pgconn is not None and error.pgconn.needs_password
            raise _login_refused(said, str(error), needs_password) from None

    return log_in(address.credential, attempt)


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
    # Ours come last: the last value of a setting wins.
    said["options"] = f"{said.get('options', '')} {options}".strip()
    said["application_name"] = application_name(role)
    said["client_encoding"] = "UTF8"
    # With GSS encryption we could not read the socket directly; use TLS.
    said["gssencmode"] = "disable"
    said = {**NETWORK_DEFAULTS, **said}
    return make_conninfo(**resolve_hosts(said, address.safe(), _name_seconds(said["connect_timeout"])))


def _name_seconds(connect_timeout: str) -> float:
    """The seconds for a name server; libpq itself refuses a text that is no number."""
    return float(connect_timeout) if connect_timeout.isdigit() and int(connect_timeout) else _NAME_SECONDS


def application_name(role: str) -> str:
    """The name of our connection in the server's lists; the server would cut a longer one."""
    return f"headrace {role}"[:_APPLICATION_NAME_LIMIT]


def _option(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _pin(address: PostgresAddress, pgconn: pq.abc.PGconn) -> None:
    """Set every pin, compare the server's answers, and refuse a pooler in between."""
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
