"""Sessions: how every connection to a PostgreSQL server is made, pinned and proved.

Everything that talks to the source comes through here: preflight, the catalog, snapshot leader and
followers, the receiver. Four promises hold for each connection:

pinned      The server prints values as the session's settings say, and their defaults may come from
            ALTER DATABASE or ALTER ROLE. Copy and stream must print one value alike for ever, so the
            settings of `PINS` are asked for in the startup packet, set again (a pooler may drop
            startup options, libpq may send others from the environment), and what the server answers
            is compared. `row_security = off` turns a copy that a policy would thin out into an error.
proved      `Identity` names the server (system id), its timeline and the database. `verify` refuses
            a connection that reached another one: a name that resolves to a pooler or a replica.
ended       Whatever of ours waits for a lock is ended by the *server*, after `lock_timeout`; while it waits
it
            does not notice that we are gone, so it is told to look (`client_connection_check_interval`).
            A commit of ours waits for no standby: it is in the log, from which we read, all the same.
secret      The password lives in `Address` only, which never shows it. libpq's own complaints about
            a malformed connection string quote it, so they are never passed on.

What goes wrong is classified in `refusals`.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from headrace.core.errors import HeadraceError, Misconfigured, PositionDoubtful, PositionLost, Transient
from headrace.sources.postgres.session.refusals import login_refused
from headrace.sources.postgres.session.refusals import refused as refused
from headrace.sources.postgres.session.timeouts import ANSWER_SECONDS, silence

Params = Sequence[Any] | Mapping[str, Any]
Session = psycopg.Connection[TupleRow]

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
    "client_min_messages": "warning",
    "statement_timeout": "0",
    "lock_timeout": "5s",
    "synchronous_commit": "local",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}

# Settings that older servers do not know: (first server version, pins).
NEWER_PINS: tuple[tuple[int, Mapping[str, str]], ...] = ((170000, {"transaction_timeout": "0"}),)

# Settings that not every server can have, and that no value of a row depends on (this one: not on Windows).
WISHES: Mapping[str, str] = {"client_connection_check_interval": "10s"}

# A silent death of the network is noticed within about half a minute; the user's own choice wins.
NETWORK_DEFAULTS: Mapping[str, str] = {
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

_APPLICATION_NAME_LIMIT = 63
_CHECK_SECONDS = 0.2

_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """Where a source is and who we are there; holds the password, shows everything else."""

    conninfo: str = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `postgresql://...` or `host=... dbname=...`."""
        try:
            parameters = conninfo_to_dict(text)
        except psycopg.Error:
            # `from None`: libpq quotes the string, and with it the password.
            raise Misconfigured(
                "PG_ADDRESS_MALFORMED",
                "the connection string cannot be read",
                detail="it is neither a postgresql:// URL nor a list of key=value pairs that libpq knows",
                hint="write postgresql://user@host:5432/database, with special characters of the "
                "password percent-encoded, or host=... port=... user=... dbname=...",
            ) from None
        return cls(make_conninfo(**{key: str(value) for key, value in parameters.items()}))

    @property
    def parameters(self) -> dict[str, str]:
        """What the connection string says, the password included: never for a message."""
        return {key: str(value) for key, value in conninfo_to_dict(self.conninfo).items()}

    def safe(self) -> str:
        """The address as messages show it: user@host:port/database."""
        said = self.parameters
        user = f"{said['user']}@" if "user" in said else ""
        host = said.get("host") or said.get("hostaddr") or "local"
        port = f":{said['port']}" if "port" in said else ""
        return f"{user}{host}{port}/{said.get('dbname', said.get('user', ''))}"

    def without_secrets(self) -> str:
        """The connection string as it may be written down."""
        said = self.parameters
        return make_conninfo(**{key: said[key] for key in said if key not in _SECRETS})

    def settled(self, connection: Session) -> Address:
        """The same address with what this machine's environment supplied (PGPASSWORD, a password
        file, PGHOST ...), so that it means the same on an executor."""
        info = connection.info
        said = self.parameters
        said.update({"host": info.host, "port": str(info.port), "user": info.user, "dbname": info.dbname})
        if info.password:
            said["password"] = info.password
        return Address(make_conninfo(**said))

    def __repr__(self) -> str:
        return f"Address({self.safe()!r})"

    def __str__(self) -> str:
        return self.safe()


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes two connections connections to the same source."""

    system_id: str
    timeline: int
    version: int  # server_version_num, for example 180004
    database: str
    standby: bool = False


# --- connecting ---------------------------------------------------------------------------------


def connect(address: Address, *, role: str) -> Session:
    """An ordinary connection in autocommit mode, pinned; `role` says in the server's lists what for."""
    try:
        connection = psycopg.connect(_conninfo(address, role), autocommit=True, prepare_threshold=None)
    except psycopg.OperationalError as error:
        needs_password = error.pgconn is not None and error.pgconn.needs_password
        raise _login_refused(address, str(error), needs_password) from None
    try:
        _pin(address, connection.pgconn)
    except BaseException:
        connection.close()
        raise
    return connection


def replication(address: Address, *, role: str) -> pq.abc.PGconn:
    """A replication connection to the address's database, pinned: walsender commands and simple SQL."""
    return _bare(address, make_conninfo(_conninfo(address, role), replication="database"))


def plain(address: Address, *, role: str) -> pq.abc.PGconn:
    """An ordinary connection, pinned, for `ask` alone: it counts as no walsender."""
    return _bare(address, _conninfo(address, role))


def _bare(address: Address, conninfo: str) -> pq.abc.PGconn:
    pgconn = pq.PGconn.connect(conninfo.encode())
    if pgconn.status != pq.ConnStatus.OK:
        error = _login_refused(address, pgconn.get_error_message("utf-8"), pgconn.needs_password)
        pgconn.finish()
        raise error
    try:
        _pin(address, pgconn)
    except BaseException:
        pgconn.finish()
        raise
    return pgconn


def _login_refused(address: Address, message: str, needs_password: bool) -> HeadraceError:
    return login_refused(
        address.safe(),
        message,
        needs_password=needs_password,
        password=address.parameters.get("password"),
    )


def _conninfo(address: Address, role: str) -> str:
    said = address.parameters
    options = " ".join(f"-c {name}={_option(value)}" for name, value in PINS.items())
    # Ours come last: the last setting of a name wins.
    said["options"] = f"{said.get('options', '')} {options}".strip()
    said["application_name"] = application_name(role)
    said["client_encoding"] = "UTF8"
    # With GSS encryption the socket could not be read directly; TLS is the supported way.
    said["gssencmode"] = "disable"
    return make_conninfo(**{**NETWORK_DEFAULTS, **said})


def application_name(role: str) -> str:
    """How a connection of ours calls itself in the server's lists; longer names the server would cut."""
    return f"headrace {role}"[:_APPLICATION_NAME_LIMIT]


def _option(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _pin(address: Address, pgconn: pq.abc.PGconn) -> None:
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
    with silence(pgconn):
        for name, value in WISHES.items():
            pgconn.exec_(f"SET {name} = '{value}'".encode())


def ask(pgconn: pq.abc.PGconn, statement: str) -> list[tuple[str | None, ...]]:
    """Run one statement, or walsender command, by the simple protocol; its rows as text."""
    with silence(pgconn):
        return _rows(pgconn.exec_(statement.encode()))


def _nobody() -> None:
    """Nobody wants to end the wait before its time."""


def ask_within(
    pgconn: pq.abc.PGconn, statement: str, seconds: float, check: Callable[[], None] = _nobody
) -> list[tuple[str | None, ...]]:
    """`ask`, for a statement that may take long: after so many seconds it is cancelled on the server.

    `check` is called all the while; what it raises is raised here, once the server has let go. A statement
    that ends while the cancellation of its time is under way has ended: its rows count.
    """
    with silence(pgconn, seconds + ANSWER_SECONDS):
        return _asked(pgconn, statement, seconds, check)


def _asked(
    pgconn: pq.abc.PGconn, statement: str, seconds: float, check: Callable[[], None]
) -> list[tuple[str | None, ...]]:
    deadline = time.monotonic() + seconds
    pgconn.send_query(statement.encode())
    try:
        while _busy(pgconn) and (left := deadline - time.monotonic()) > 0:
            check()
            _receive(pgconn, min(left, _CHECK_SECONDS))
    except HeadraceError:
        _cancel(pgconn)
        raise
    if _busy(pgconn):
        pgconn.get_cancel().cancel()
    return _rows(_ended(pgconn))


def _cancel(pgconn: pq.abc.PGconn) -> None:
    """Have the server end what it does for us, whatever came of it; nothing to do where it is gone."""
    try:
        pgconn.get_cancel().cancel()
        _ended(pgconn)
    except (psycopg.OperationalError, Transient):
        return


def _ended(pgconn: pq.abc.PGconn) -> pq.abc.PGresult:
    while _busy(pgconn):
        _receive(pgconn, None)
    result = pgconn.get_result()
    while pgconn.get_result() is not None:
        pass
    if result is None:
        raise refused(None, "no answer")
    return result


def _busy(pgconn: pq.abc.PGconn) -> bool:
    return bool(pgconn.is_busy())


def _receive(pgconn: pq.abc.PGconn, seconds: float | None) -> None:
    """Take in what came of the answer, if anything comes in time."""
    if _readable(pgconn.socket, seconds):
        try:
            pgconn.consume_input()
        except psycopg.OperationalError as error:
            raise refused(None, str(error)) from None


def _readable(socket: int, seconds: float | None) -> bool:
    waiting = select.poll()
    waiting.register(socket, select.POLLIN)
    return bool(waiting.poll(None if seconds is None else max(0.0, seconds) * 1000))


def _rows(result: pq.abc.PGresult) -> list[tuple[str | None, ...]]:
    if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise refused(result.error_field(pq.DiagnosticField.SQLSTATE), _primary(result))
    return [
        tuple(_text(result.get_value(row, column)) for column in range(result.nfields))
        for row in range(result.ntuples)
    ]


def query(
    connection: Session, statement: LiteralString | bytes, parameters: Params | None = None
) -> list[TupleRow]:
    """Run one statement on an ordinary connection; its rows. What fails is a coded error."""
    try:
        with silence(connection.pgconn):
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []
    except psycopg.Error as error:
        state = error.sqlstate.encode() if error.sqlstate else None
        # Never the error's own detail: it may quote a row.
        raise refused(state, error.diag.message_primary or "") from None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _primary(result: pq.abc.PGresult) -> str:
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    return message.decode(errors="replace") if message else ""


# --- proving ------------------------------------------------------------------------------------

_IDENTIFY = """
SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system())::text,
       CASE WHEN pg_catalog.pg_is_in_recovery()
            THEN (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint())
            -- The control file learns of a promotion at its first checkpoint, the log at once.
            ELSE ('x' || pg_catalog.left(
                     pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)
                 )::bit(32)::int
       END::text,
       pg_catalog.current_setting('server_version_num'),
       pg_catalog.current_database(),
       pg_catalog.pg_is_in_recovery()::text
"""


def identify(connection: Session | pq.abc.PGconn) -> Identity:
    """Which server, timeline and database this connection reached."""
    pgconn = connection.pgconn if isinstance(connection, psycopg.Connection) else connection
    (row,) = ask(pgconn, _IDENTIFY)
    system_id, timeline, version, database, standby = (value or "" for value in row)
    return Identity(system_id, int(timeline), int(version), database, standby == "true")


def verify(found: Identity, expected: Identity) -> None:
    """Refuse a connection that did not reach the source that `expected` describes."""
    if found.system_id != expected.system_id:
        raise another_server(f"system {found.system_id}, was {expected.system_id}")
    if found.database != expected.database:
        raise Misconfigured(
            "PG_ANOTHER_DATABASE",
            f'the connection reached database "{found.database}", expected "{expected.database}"',
            hint="check dbname in the connection string",
        )
    if found.standby != expected.standby:
        raise Misconfigured(
            "PG_ANOTHER_STANDBY",
            "the connection reached a standby of the source"
            if found.standby
            else "the source was a standby and is a primary now",
            hint="give an address that always leads to the same server, "
            "or target_session_attrs=read-write with several hosts",
        )
    if found.timeline != expected.timeline:
        raise timeline_changed(found.timeline, expected.timeline)


class AnotherServer(Misconfigured, PositionDoubtful):
    """The address leads elsewhere."""

    codes = ("PG_ANOTHER_SERVER",)


class TimelineChanged(Misconfigured, PositionLost):
    """The server's log went on from an earlier place than ours."""

    codes = ("PG_TIMELINE_CHANGED",)


def another_server(detail: str) -> AnotherServer:
    return AnotherServer(
        "PG_ANOTHER_SERVER",
        "the address leads to another server or database than the mirror is of",
        detail=detail,
        hint="correct the address; if the server was replaced: headrace run --reconcile",
    )


def timeline_changed(found: int, expected: int) -> TimelineChanged:
    return TimelineChanged(
        "PG_TIMELINE_CHANGED",
        "the server is on another timeline: it was promoted, or restored to a point in time",
        detail=f"timeline {found}, was {expected}",
        hint="headrace run --reconcile copies its tables anew and writes the difference",
    )
