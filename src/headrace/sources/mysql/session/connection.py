"""Connections: open every connection to a MySQL or MariaDB server, and pin its settings.

All code that talks to the source connects here: preflight, the catalog, the snapshot's leader and readers,
the receiver. Three promises hold for each connection:

pinned      The session's settings decide what the server prints and what a statement means. Their defaults
            come from the server and from its `init_connect`. So one statement sets the settings of `PINS`,
            another reads them back, and the answers are compared. A transaction that `init_connect` left open
            is rolled back: it would show an old state. All our transactions are read-only: the server itself
            refuses a change.
ended       After `lock_wait_timeout` the *server* ends our wait for a lock. Our own waits have an end here
            (`statements`), and a silent death of the network is noticed within half a minute (keepalives).
ours        Each session holds a user-level lock with a random name. A second connection uses that name to
            kill our statement. It can't kill another's: on another server, or after a restart, nobody holds
            that lock. It connects to the very machine that was reached, wherever the host name leads by then.
            A caller that can't wait for its login logs it in beforehand (`Canceller.ready`).

`identity` proves that a connection reached the same server as before; `refusals` classifies errors. Our role
is in a comment before each statement, which shows in the server's list of running statements, and in the
connection's attributes.
"""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from headrace.core.errors import Misconfigured
from headrace.sources.mysql.flavour import Flavour, Number, Release
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.packets import PacketStream
from headrace.sources.mysql.session.refusals import driver_missing, unfit_release, unreachable
from headrace.sources.mysql.session.result_set import IN_TRANSACTION
from headrace.sources.mysql.session.statements import (
    READY_SECONDS,
    STRIKE_SECONDS,
    MysqlConnection,
    literal,
    query,
)
from headrace.sources.shared import credentials
from headrace.sources.shared.hosts import HostUnknown, addresses_of, is_address

# Values in the server's own spelling; its answers are compared with them after every connect.
PINS: Mapping[str, str] = {
    "time_zone": "+00:00",
    # No mode that changes the meaning of literals or pads CHAR; comparisons with zero dates are allowed.
    "sql_mode": "ALLOW_INVALID_DATES",
    "character_set_client": "utf8mb4",
    "character_set_connection": "utf8mb4",
    "collation_connection": "utf8mb4_bin",
    "character_set_results": "utf8mb4",
    "autocommit": "1",
    "completion_type": "NO_CHAIN",
    "lock_wait_timeout": "5",
    "innodb_lock_wait_timeout": "5",
    "net_read_timeout": "60",
    "net_write_timeout": "600",  # a copy may pause while its rows are written
    "wait_timeout": "28800",
    "sql_quote_show_create": "1",
    "sql_select_limit": "18446744073709551615",
    "max_join_size": "18446744073709551615",
    "sql_big_selects": "1",
    "sql_safe_updates": "0",
    "sql_auto_is_null": "0",
    "group_concat_max_len": "16777216",
    "div_precision_increment": "4",
    "max_sort_length": "1024",
    "default_week_format": "0",
    "lc_time_names": "en_US",
}

PINS_OF: Mapping[Flavour, Mapping[str, str]] = {
    Flavour.MYSQL: {
        "transaction_isolation": "REPEATABLE-READ",
        "transaction_read_only": "1",
        "max_execution_time": "0",
        "use_secondary_engine": "OFF",  # it has another copy of the table, which may lag
    },
    Flavour.MARIADB: {
        "tx_isolation": "REPEATABLE-READ",
        "tx_read_only": "1",
        "max_statement_time": "0.0",
        "idle_transaction_timeout": "0",
        "idle_readonly_transaction_timeout": "0",
        "idle_write_transaction_timeout": "0",
        "old_mode": "UTF8_IS_UTF8MB3",
        "system_versioning_asof": "DEFAULT",
        "max_error_count": "1024",  # warnings name tables that an answer lacks (`catalog.questions`)
    },
}

# Settings that older servers do not know: (first version, pins).
NEWER_PINS: tuple[tuple[Number, Mapping[str, str]], ...] = (
    # Else a key column that the server itself made is in the rows and not in the catalog.
    (Number(8, 0, 30), {"show_gipk_in_create_table_and_information_schema": "1"}),
)

_NETWORK = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30000}
_ROLE = re.compile(r"[A-Za-z0-9 _.:-]{1,48}")


def connect(address: MysqlAddress, *, role: str) -> MysqlConnection:
    """Open a connection in autocommit mode, pinned; the server's lists show `role`, its purpose."""
    if not _ROLE.fullmatch(role):
        raise ValueError("a role stands in comments: plain words only")
    settled = address.with_password()
    token = f"headrace {secrets.token_hex(16)}"
    packets, release, greeted = _logged_in(settled, role, None)
    if (unfit := unfit_release(release)) is not None:
        packets.close()
        raise unfit
    canceller = Canceller(settled, packets.peer, token)
    session = MysqlConnection(packets, settled, release, greeted, role, canceller, canceller.ready)
    try:
        _pin(session, token)
    except BaseException:
        session.close()
        raise
    return session


def pins(release: Release) -> dict[str, str]:
    """The pinned settings for such a server, in its own spelling."""
    newer = {} if release.is_mariadb else dict(_newer(release))
    return {**PINS, **PINS_OF[release.flavour], **newer}


def _newer(release: Release) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for number, more in NEWER_PINS:
        if release.at_least(mysql=number):
            found.update(more)
    return found


def _logged_in(address: MysqlAddress, role: str, peer: str | None) -> tuple[PacketStream, Release, int]:
    """Log in at `peer`, or else at the address."""
    try:
        from headrace.sources.mysql.session.login import LoggedIn, log_in
    except ModuleNotFoundError as error:
        raise driver_missing(error.name or "pymysql") from None

    def attempt(password: str | None) -> LoggedIn:
        said = address if password is None else replace(address, password=password)
        return log_in(said, _line(said, peer), program=f"headrace {role}")

    made = credentials.log_in(address.credential, attempt)
    return made.packets, made.release, made.connection_id


def _line(address: MysqlAddress, peer: str | None) -> socket.socket:
    """Open a socket."""
    try:
        if address.socket is not None:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            line.settimeout(address.connect_seconds)
            line.connect(address.socket)
            return line
        line = _open_first(address, peer or address.host)
    except HostUnknown as unknown:
        raise unreachable(address.safe(), str(unknown)) from None
    except OSError as error:
        raise unreachable(address.safe(), error.strerror or str(error)) from None
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _NETWORK.items():
        if hasattr(socket, name):
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return line


def _open_first(address: MysqlAddress, host: str) -> socket.socket:
    """Connect to the first of the host's addresses that answers."""
    seconds = address.connect_seconds
    found = [host] if is_address(host) else addresses_of(host, str(address.port), seconds)
    for number, each in enumerate(found, start=1):
        try:
            return socket.create_connection((each, address.port), seconds)
        except OSError:
            if number == len(found):
                raise
    raise HostUnknown(f'the name "{host}" has no address')


def _pin(session: MysqlConnection, token: str) -> None:
    """Set every pin, compare the server's answers, and refuse a proxy in between."""
    wanted = pins(session.release)
    query(
        session, "SET " + ", ".join(f"@@session.{name} = {_spell(value)}" for name, value in wanted.items())
    )
    if session.status & IN_TRANSACTION:
        query(session, "ROLLBACK")
    names = ", ".join(f"@@session.{name}" for name in wanted)
    own = f"GET_LOCK({literal(token)}, 0), CONNECTION_ID(), @@session.max_allowed_packet"
    [row] = query(session, f"SELECT {own}, {names}")
    connection_id = row[1] if isinstance(row[1], int) else 0
    if connection_id & 0xFFFFFFFF != session.connection_id & 0xFFFFFFFF:
        raise Misconfigured(
            "MY_POOLER",
            f'the connection to "{session.address.safe()}" goes through a proxy',
            detail=f"the login named connection {session.connection_id}, statements run in {connection_id}",
            hint="give the address of the server itself, not of the proxy",
        )
    session.connection_id, session.largest = connection_id, int(str(row[2]))
    for (name, value), got in zip(wanted.items(), row[3:], strict=True):
        answer = str(got) if isinstance(got, int | float) else got
        if answer != value:
            raise Misconfigured(
                "MY_SETTING_REFUSED",
                f'the server at "{session.address.safe()}" does not accept {name} = "{value}"',
                detail=f'it answers "{answer!r}"',
                hint="connect to the server directly, without a proxy that alters session settings",
            )


def _spell(value: str) -> str:
    """Spell a setting for a statement: numbers and the word DEFAULT get no quotes."""
    return value if re.fullmatch(r"[0-9.]+|DEFAULT", value) else f"'{value}'"


@dataclass(eq=False)
class Canceller:
    """Kills the statement of the session that holds the lock: one session of ours, at one server, or none."""

    address: MysqlAddress
    peer: str | None
    token: str = field(repr=False)
    _session: MysqlConnection | None = field(default=None, repr=False)

    def __call__(self) -> None:
        """Kill the statement once."""
        if self._session is not None and not self._session.is_closed:
            _strike(self._session, self.token, READY_SECONDS)
            return
        with self._connect() as session:
            _strike(session, self.token, STRIKE_SECONDS)

    @contextmanager
    def ready(self) -> Iterator[MysqlConnection]:
        """Log in now, so that a later decision to kill costs only one statement."""
        with self._connect() as self._session:
            try:
                yield self._session
            finally:
                self._session = None

    def _connect(self) -> MysqlConnection:
        packets, release, greeted = _logged_in(self.address, "cancel", self.peer)
        return MysqlConnection(packets, self.address, release, greeted, "cancel", None)


def _strike(session: MysqlConnection, token: str, seconds: float) -> None:
    query(session, f"KILL QUERY IS_USED_LOCK({literal(token)})", seconds=seconds)
