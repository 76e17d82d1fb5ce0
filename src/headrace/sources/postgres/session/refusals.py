"""Refusals: the coded error of a failed login, or of a statement that the server did not run.

libpq does not give the SQLSTATE of a refused login, so the server's message is matched. A message in another
language gets the general code PG_LOGIN_REFUSED, with the server's words as detail. Statements are classified
by SQLSTATE:

    LockTimeout         the server ended our wait for a lock            (55P03)
    StatementCancelled  after its time, or by somebody's hand           (57014)
    StatementOverruled  in favour of another: recovery, a deadlock      (class 40)
    CatalogMoved        an object that the statement reads was dropped meanwhile  (XX000, 22P03)
    TableGone           a table or a column is not there any more       (42P01, 42703, 3F000)
    StatementRefused    the server denies the statement or can't run it  (privileges, broken data, the rest)
    AlreadyThere          of these: somebody made an object of that name       (42P06, 42P07, 23505 ...)
    ValueRefused          of these: a value of a row makes an expression fail  (class 22)

Each of these is about the statement and not about the connection. So code that reads one table may raise it
for that table (`copy.table_access`).

Only the primary line of a server's error is passed on: its DETAIL may quote a row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.core.errors import (
    HeadraceError,
    Misconfigured,
    RightWithheld,
    Transient,
)
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


class CatalogMoved(Transient):
    """An object that our statement reads is gone: some functions see the catalog after the snapshot."""


class AlreadyThere(StatementRefused):
    """An object of that name exists: somebody made it meanwhile."""


class ValueRefused(StatementRefused):
    """A value of a row makes an expression fail. The server's message may quote it: it is not repeated."""


class ReplicationRefused(RightWithheld):
    """The user may log in, but not replicate."""

    codes = ("PG_REPLICATION_PRIVILEGE",)


# These errors are in English on every server. A missing enum label has a SQLSTATE of its own.
_MOVED = re.compile(r"cache lookup failed|could not (open relation with OID|find)")


@dataclass(frozen=True, slots=True)
class _Complaint:
    pattern: re.Pattern[str]
    error: type[HeadraceError]
    code: str
    primary: str
    hint: str


def _complaint(pattern: str, error: HeadraceError) -> _Complaint:
    return _Complaint(re.compile(pattern), type(error), error.code, error.primary, error.hint)


# The first pattern that matches the message names the error. {} is the safe address.
_COMPLAINTS: tuple[_Complaint, ...] = (
    _complaint(
        r"FATAL:.*(starting up|shutting down|in recovery mode|not yet accepting)",
        Transient(
            "PG_SERVER_STARTING",
            'the server at "{}" does not take connections yet',
            hint="wait until it has started",
        ),
    ),
    _complaint(
        r"FATAL:.*(too many (clients|connections)|remaining connection slots|max_wal_senders)",
        Transient(
            "PG_SERVER_FULL",
            'the server at "{}" has no free connection',
            hint="raise max_connections or max_wal_senders, or lower snapshot_connections",
        ),
    ),
    _complaint(
        r"FATAL:\s+(password|SCRAM|SASL|LDAP|PAM|RADIUS|peer|ident|certificate)\S* authentication failed",
        LoginWithheld(
            "PG_PASSWORD_REFUSED",
            'the server at "{}" refused the login',
            hint="check user and password: in the URL, in PGPASSWORD or in the password file",
        ),
    ),
    _complaint(
        r"no password supplied|server requested a (hashed )?password",
        LoginWithheld(
            "PG_PASSWORD_MISSING",
            'the server at "{}" asks for a password and none is given',
            hint="set PGPASSWORD, add a line to the password file, or put it in the URL",
        ),
    ),
    _complaint(
        r"FATAL:.*database .* does not exist",
        Misconfigured(
            "PG_DATABASE_UNKNOWN",
            'there is no such database at "{}"',
            hint="check dbname; psql -l lists the databases of a server",
        ),
    ),
    _complaint(
        r"FATAL:.*role .* does not exist",
        LoginWithheld(
            "PG_ROLE_UNKNOWN",
            'there is no such user at "{}"',
            hint="check user, or CREATE ROLE ... LOGIN REPLICATION on the server",
        ),
    ),
    _complaint(
        r"FATAL:.*(must be superuser or replication role|permission denied to start WAL sender)",
        ReplicationRefused(
            "PG_REPLICATION_PRIVILEGE",
            'the user of "{}" may not replicate',
            hint="ALTER ROLE ... REPLICATION",
        ),
    ),
    _complaint(
        r"FATAL:.*(no pg_hba.conf entry|pg_hba.conf rejects|not permitted to log in|"
        r"permission denied for database|not currently accepting connections)",
        LoginWithheld(
            "PG_NOT_ADMITTED",
            'the server at "{}" does not admit this user from this machine',
            hint="add a line to pg_hba.conf, GRANT CONNECT ON DATABASE, or check sslmode",
        ),
    ),
    _complaint(
        # The server hung up or vanished during a login over TLS: libpq puts its TLS error first.
        r"SSL SYSCALL error|SSL error: unexpected eof|server closed the connection|reset by peer",
        Unreachable(
            "PG_UNREACHABLE",
            'no connection to "{}"',
            hint="check host and port, and that the server is running and reachable from here",
        ),
    ),
    _complaint(
        r"SSL|certificate|sslmode|sslrootcert|TLS",
        EncryptionRefused(
            "PG_TLS_REFUSED",
            'no encrypted connection to "{}" as the connection string asks for it',
            hint="check sslmode, sslrootcert, and the name in the server's certificate",
        ),
    ),
    _complaint(
        # Every supported version knows all settings of our sessions, so this is an older one.
        r"FATAL:.*unrecognized configuration parameter",
        Misconfigured(
            "PG_VERSION_UNSUPPORTED",
            'the server at "{}" is older than PostgreSQL 15',
            hint="upgrade the server to PostgreSQL 15 or later",
        ),
    ),
    _complaint(
        r"FATAL:.*unsupported startup parameter",
        Misconfigured(
            "PG_POOLER",
            'the connection to "{}" goes through something that refuses session settings',
            hint="give the address of the server itself, not of a pooler",
        ),
    ),
    _complaint(
        r"FATAL:",
        LoginWithheld(
            "PG_LOGIN_REFUSED",
            'the server at "{}" refused the connection',
            hint="the detail is the server's own answer",
        ),
    ),
    _complaint(
        r"",
        Unreachable(
            "PG_UNREACHABLE",
            'no connection to "{}"',
            hint="check host and port, and that the server is running and reachable from here",
        ),
    ),
)


def login_refused(where: str, message: str, *, needs_password: bool, password: str | None) -> HeadraceError:
    """The coded error of a failed login; `where` is the safe address."""
    if needs_password:
        message = "no password supplied"
    found = next(entry for entry in _COMPLAINTS if entry.pattern.search(message))
    return found.error(
        found.code, found.primary.format(where), detail=_without_password(message, password), hint=found.hint
    )


def _without_password(message: str, password: str | None) -> str:
    """The message on one line, with the password removed if it is in there."""
    line = "; ".join(part.strip() for part in message.splitlines() if part.strip()) or "no reason given"
    return line.replace(password, "***") if password else line


def refused_error(sqlstate: bytes | None, primary: str) -> HeadraceError:
    """The coded error of our statement that the server did not run."""
    state = sqlstate.decode() if sqlstate else ""
    if state in ("", "57P01", "57P02", "57P03", "57P05") or state.startswith("08"):
        return Transient(
            "PG_CONNECTION_LOST",
            "the connection to the server was lost",
            detail=primary or None,
            hint="nothing to do: it is tried again",
        )
    if state in ("42P01", "42703", "3F000"):
        return TableGone(
            "PG_TABLE_GONE",
            "a table or a column is no longer what the catalog said",
            detail=primary,
            hint="headrace tables resync, or headrace tables drop if the table is not needed",
        )
    if state == "22P03" or (state == "XX000" and _MOVED.search(primary)):
        return CatalogMoved(
            "PG_CATALOG_MOVED",
            "what a statement looks at was altered or dropped while it ran",
            detail=primary,
            hint="nothing to do: it is tried again",
        )
    return _of_statement(state, primary)


def _of_statement(state: str, primary: str) -> HeadraceError:
    if state == "42501":
        return PrivilegeMissing(
            "PG_PRIVILEGE_MISSING",
            "the server denies what this needs",
            detail=primary,
            hint="headrace check lists the missing privileges with the statements that grant them",
        )
    if state == "55P03":
        return LockTimeout(
            "PG_LOCK_TIMEOUT",
            "a statement waited too long for other transactions",
            detail=primary,
            hint="it is tried again; end long transactions if it goes on",
        )
    if state == "57014":
        return StatementCancelled(
            "PG_STATEMENT_CANCELLED",
            "a statement was cancelled: it took too long, or somebody ended it",
            detail=primary,
            hint="nothing to do: it is tried again",
        )
    if state.startswith("40"):
        return StatementOverruled(
            "PG_STATEMENT_OVERRULED",
            "the server ended a statement in favour of another transaction, or of a standby's recovery",
            detail=primary,
            hint="nothing to do: it is tried again; on a standby hot_standby_feedback = on, "
            "or a longer max_standby_streaming_delay, makes it rare",
        )
    if state.startswith("53"):
        return Transient(
            "PG_SERVER_FULL",
            "the server is short of a resource",
            detail=primary,
            hint="see the server's log: connections, slots, disk or memory",
        )
    if state in ("42P06", "42P07", "42710", "42723", "23505"):
        return AlreadyThere(
            "PG_STATEMENT_REFUSED",
            "the server refused a statement: an object of that name is there",
            detail=f"SQLSTATE {state}: {primary}",
            hint="drop or rename it, if it is nobody's",
        )
    if state.startswith("22"):
        return ValueRefused(
            "PG_STATEMENT_REFUSED",
            "the server refused a statement",
            detail=f"SQLSTATE {state}",
            hint="see the server's log for the statement; please report it",
        )
    return StatementRefused(
        "PG_STATEMENT_REFUSED",
        "the server refused a statement",
        detail=f"SQLSTATE {state}: {primary}",
        hint="see the server's log for the statement; please report it",
    )
