"""Refusals: the coded error of a failed login, or of a statement that the server did not run.

Servers number their errors, with few differences between the two kinds, so the number alone decides:

    LockTimeout          the server ended our wait for a lock
    StatementCancelled   after its time, or by somebody's hand
    StatementOverruled   in favour of another: a deadlock, DDL that came between
    StatementRefused     the server denies the statement or can't run it (privileges, the rest)
    ConnectionLost       the server is gone, or going; nothing was decided (`packets`)

Each of the first four is about the statement and not about the connection. So code that reads one table may
raise it for that table.

The server's message is passed on only for the numbers in `_NAMES_ONLY`, whose texts hold names of users,
hosts, tables and privileges. Any other message may quote a value or the statement (as a syntax error does, or
a malformed number): of these only the number is shown.
"""

from __future__ import annotations

from headrace.core.errors import (
    HeadraceError,
    Misconfigured,
    Transient,
)
from headrace.sources.mysql.flavour import OLDEST, Release
from headrace.sources.mysql.session.packets import ServerError, connection_lost
from headrace.sources.shared.refusals import (
    EncryptionRefused,
    LockTimeout,
    LoginWithheld,
    PrivilegeMissing,
    StatementCancelled,
    StatementOverruled,
    StatementRefused,
    TableGone,
    Unreachable,
)


class DatabaseDenied(PrivilegeMissing):
    """We lack a privilege on a whole database."""

    codes = ("MY_DATABASE_DENIED",)


_PASSWORD_REFUSED = frozenset((1045, 1698))
_DATABASE_UNKNOWN = 1049
_DATABASE_DENIED = 1044
_XA_UNSEEN = 1401  # MySQL's answer to XA RECOVER without XA_RECOVER_ADMIN
_PASSWORD_EXPIRED = 1820  # the login succeeds on some servers, and nothing after it
_PRIVILEGES = frozenset((1044, 1142, 1143, 1227, 1370, 1095, 1419, 3530, 1873))
_NOT_ADMITTED = frozenset((1129, 1130, 3118, 4151, 1820, 1862, 3955))
_TLS_WANTED = 3159
_INIT_CONNECT = 1184
_FULL = frozenset((1040, 1203, 1226, 1041, 1037, 1038, 1135, 1021, 1114))
_LOST = frozenset((1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 3032, 3169, 4031))
_GONE = frozenset((1146, 1051, 1054, 1109, 1932))
_LOCKS = frozenset((1205, 3572))
_CANCELLED = frozenset((1317, 3024, 1969, 1028))
_OVERRULED = frozenset((1213, 1020, 1412, 1180, 1615, 3058))
_TOO_LARGE = frozenset((1153, 1301, 1162))
_READ_ONLY = frozenset((1290, 1792, 1836))
_UNKNOWN_VARIABLE = frozenset((1193, 1238, 1231, 1232))
_UNKNOWN_METHOD = frozenset((1251, 1524, 2059))

_NAMES_ONLY = _PRIVILEGES | _GONE | _PASSWORD_REFUSED | frozenset((_DATABASE_UNKNOWN, 1129, 1130, 1193))


def detail_of(error: ServerError) -> str:
    """The part of a server's error that is safe to show besides its code."""
    number = f"error {error.number}" + (f" ({error.state})" if error.state else "")
    if error.number not in _NAMES_ONLY:
        return number
    return f"{number}: {' '.join(error.message.split())}"


def login_refused(where: str, error: ServerError, *, password: str | None) -> HeadraceError:
    """The coded error of a login that the server refused; `where` is the safe address."""
    detail = detail_of(error)
    if password:
        detail = detail.replace(password, "***")
    if error.number in _PASSWORD_REFUSED:
        return _password_refused(where, detail, password)
    if error.number == _DATABASE_UNKNOWN:
        return Misconfigured(
            "MY_DATABASE_UNKNOWN",
            f'there is no such database at "{where}"',
            detail=detail,
            hint="check the name behind the last / of the address, or leave it out",
        )
    if error.number in _UNKNOWN_METHOD:
        return method_unknown(where, detail)
    if error.number == _TLS_WANTED:
        return tls_refused(where, detail)
    if error.number in _NOT_ADMITTED | _PRIVILEGES:
        return LoginWithheld(
            "MY_NOT_ADMITTED",
            f'the server at "{where}" does not admit this user from this machine',
            detail=detail,
            hint="check the account's host, lock, password's age and databases; after many failed "
            "connections: FLUSH HOSTS, or TRUNCATE TABLE performance_schema.host_cache",
        )
    if error.number in _FULL:
        return _full(detail)
    if error.number in _LOST:
        return unreachable(where, "the server is starting or shutting down, or its init_connect fails")
    return LoginWithheld(
        "MY_LOGIN_REFUSED",
        f'the server at "{where}" refused the connection',
        detail=detail,
        hint="look the number up in the server's manual, and see its log",
    )


def _password_refused(where: str, detail: str, password: str | None) -> LoginWithheld:
    if password:
        return LoginWithheld(
            "MY_PASSWORD_REFUSED",
            f'the server at "{where}" refused the login',
            detail=detail,
            hint="check user and password (in the URL, in MYSQL_PWD, or in the file of defaults-file=), "
            "and that the account exists for this machine's address; if it demands TLS: ?ssl-mode=REQUIRED",
        )
    return LoginWithheld(
        "MY_PASSWORD_MISSING",
        f'the server at "{where}" refused the login, and no password is given',
        detail=detail,
        hint="set MYSQL_PWD, put the password in the URL, or name an option file with defaults-file=",
    )


def method_unknown(where: str, detail: str) -> Misconfigured:
    return Misconfigured(
        "MY_LOGIN_METHOD",
        f'the account at "{where}" logs in by a method that headrace does not know',
        detail=detail,
        hint="use an account with caching_sha2_password, mysql_native_password, or, after "
        "pip install 'PyMySQL[ed25519]', ed25519",
    )


def tls_refused(where: str, detail: str | None) -> EncryptionRefused:
    return EncryptionRefused(
        "MY_TLS_REFUSED",
        f'no encrypted connection to "{where}" as the address asks for it',
        detail=detail,
        hint="check ssl-mode, ssl-ca, ssl-cert, ssl-key, and the name in the server's certificate",
    )


def driver_missing(module: str) -> Misconfigured:
    return Misconfigured(
        "MY_DRIVER_MISSING",
        f'the Python module "{module}" is not installed, by which headrace logs in to MySQL and MariaDB',
        hint="pip install 'headrace[mysql]'"
        if module != "PyNaCl"
        else "pip install 'PyMySQL[ed25519]', or give the account another method",
    )


def unreachable(where: str, detail: str | None) -> Unreachable:
    return Unreachable(
        "MY_UNREACHABLE",
        f'no connection to "{where}"',
        detail=detail,
        hint="check host and port, and that the server is running and reachable from here",
    )


def unfit_release(release: Release) -> Misconfigured | None:
    """The error of a server that cannot be mirrored, by what it says of itself; None if it can."""
    oldest, label = OLDEST[release.flavour], release.flavour.label
    if release.stranger is not None:
        return Misconfigured(
            "MY_FORK_UNSUPPORTED",
            f"the server is {release.stranger}: it speaks the protocol of MySQL, and writes another log",
            detail=f'it calls its version "{release.text}"',
            hint="give the address of a MySQL or MariaDB server",
        )
    if release.number < oldest:
        return Misconfigured(
            "MY_VERSION_UNSUPPORTED",
            f"the server is {release}, the oldest supported is {oldest}",
            detail="its log lacks what a mirror needs, or was never tried: column names in it, transactions "
            "that say when they were committed",
            hint=f"upgrade the server to {label} {oldest} or later, or give the address of a replica that is",
        )
    return None


def refused_error(error: ServerError) -> HeadraceError:
    """The coded error of our statement that the server did not run."""
    number, detail = error.number, detail_of(error)
    if number in _LOST:
        return connection_lost(detail)
    if number in _GONE | {_DATABASE_UNKNOWN}:
        return TableGone(
            "MY_TABLE_GONE",
            "a table or a column is no longer what the catalog said",
            detail=detail,
            hint="headrace tables resync, or headrace tables drop if the table is not needed",
        )
    if number == _PASSWORD_EXPIRED:
        return LoginWithheld(
            "MY_NOT_ADMITTED",
            "the server runs no statement of this user, whose password has expired",
            detail=detail,
            hint="ALTER USER ... IDENTIFIED BY '...', and the same in the address or in MYSQL_PWD",
        )
    if number in _PRIVILEGES | _PASSWORD_REFUSED | {_XA_UNSEEN}:
        return _denied_error(number, detail)
    if number in _FULL:
        return _full(detail)
    return _interruption(number, detail) or _unanswerable(number, detail)


def _denied_error(number: int, detail: str) -> PrivilegeMissing:
    """The error of a statement for which we lack a privilege, on a database or on anything else."""
    primary = "the server denies what this needs"
    hint = "headrace check lists the missing privileges with the statements that grant them"
    if number == _DATABASE_DENIED:
        return DatabaseDenied("MY_DATABASE_DENIED", primary, detail=detail, hint=hint)
    return PrivilegeMissing("MY_PRIVILEGE_MISSING", primary, detail=detail, hint=hint)


def _interruption(number: int, detail: str) -> Transient | None:
    """The error of a statement that may succeed at another moment; None for any other number."""
    if number in _LOCKS:
        return LockTimeout(
            "MY_LOCK_TIMEOUT",
            "a statement waited too long for other transactions",
            detail=detail,
            hint="it is tried again; end long transactions if it goes on",
        )
    if number in _CANCELLED:
        return cancelled_error(detail)
    if number in _OVERRULED:
        return StatementOverruled(
            "MY_STATEMENT_OVERRULED",
            "the server ended a statement in favour of another transaction, or of DDL",
            detail=detail,
            hint="nothing to do: it is tried again",
        )
    return None


def cancelled_error(detail: str | None = None) -> StatementCancelled:
    return StatementCancelled(
        "MY_STATEMENT_CANCELLED",
        "a statement was cancelled: it took too long, or somebody ended it",
        detail=detail,
        hint="nothing to do: it is tried again",
    )


def _unanswerable(number: int, detail: str) -> StatementRefused:
    """The error of a statement that this server will not run."""
    if number in _TOO_LARGE:
        return StatementRefused(
            "MY_PACKET_TOO_LARGE",
            "a statement is larger than the server's max_allowed_packet",
            detail=detail,
            hint="SET GLOBAL max_allowed_packet = 1073741824",
        )
    if number == _INIT_CONNECT:
        return StatementRefused(
            "MY_INIT_CONNECT",
            "the server ends the connection, since its init_connect fails for this user",
            detail=detail,
            hint="SHOW GLOBAL VARIABLES LIKE 'init_connect', mend what it does: the server's log says why",
        )
    if number in _READ_ONLY:
        return StatementRefused(
            "MY_READ_ONLY",
            "the server does not take a statement, since it only reads",
            detail=detail,
            hint="SET GLOBAL read_only = OFF, or give the address of a server that may be written to",
        )
    if number in _UNKNOWN_VARIABLE:
        return StatementRefused(
            "MY_VERSION_UNSUPPORTED",
            "the server does not know a setting that headrace needs, or does not let it be set",
            detail=detail,
            hint="use MySQL 8.0.15 or later, or MariaDB 10.6 or later, without a proxy in between",
        )
    return StatementRefused(
        "MY_STATEMENT_REFUSED",
        "the server refused a statement",
        detail=detail,
        hint="look the number up in the server's manual; please report it",
    )


def _full(detail: str) -> Transient:
    return Transient(
        "MY_SERVER_FULL",
        "the server is short of a resource, or has no free connection",
        detail=detail,
        hint="raise max_connections or the account's limits, or see the server's log: disk or memory",
    )
