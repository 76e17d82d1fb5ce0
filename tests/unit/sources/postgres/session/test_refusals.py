"""A server's refusal has a code, and never the password."""

from __future__ import annotations

import pytest

from headrace.sources.postgres.session.refusals import login_refused, refused_error


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ('FATAL:  password authentication failed for user "ann"', "PG_PASSWORD_REFUSED"),
        ("fe_sendauth: no password supplied", "PG_PASSWORD_MISSING"),
        ('FATAL:  database "shop" does not exist', "PG_DATABASE_UNKNOWN"),
        ('FATAL:  role "ann" does not exist', "PG_ROLE_UNKNOWN"),
        ("FATAL:  permission denied to start WAL sender", "PG_REPLICATION_PRIVILEGE"),
        ("FATAL:  must be superuser or replication role to start walsender", "PG_REPLICATION_PRIVILEGE"),
        ('FATAL:  no pg_hba.conf entry for host "::1", user "ann", no encryption', "PG_NOT_ADMITTED"),
        ("FATAL:  sorry, too many clients already", "PG_SERVER_FULL"),
        ("FATAL:  the database system is starting up", "PG_SERVER_STARTING"),
        ("server does not support SSL, but SSL was required", "PG_TLS_REFUSED"),
        ("SSL error: certificate verify failed", "PG_TLS_REFUSED"),
        ("SSL error: tlsv1 alert protocol version", "PG_TLS_REFUSED"),
        ("SSL error: unexpected eof while reading", "PG_UNREACHABLE"),
        ("SSL SYSCALL error: Connection reset by peer", "PG_UNREACHABLE"),
        ("SSL SYSCALL error: EOF detected", "PG_UNREACHABLE"),
        ("server closed the connection unexpectedly", "PG_UNREACHABLE"),
        ("FATAL:  unsupported startup parameter: options", "PG_POOLER"),
        (
            'FATAL:  unrecognized configuration parameter "idle_session_timeout"',
            "PG_VERSION_UNSUPPORTED",
        ),
        ("FATAL:  Passwort-Authentifizierung fehlgeschlagen", "PG_LOGIN_REFUSED"),
        ("connection refused\n\tIs the server running?", "PG_UNREACHABLE"),
        ("", "PG_UNREACHABLE"),
    ],
)
def test_a_refused_login_has_a_code(message: str, code: str) -> None:
    error = login_refused("ann@db/shop", message, needs_password=False, password=None)
    assert error.code == code
    assert error.hint


def test_a_refused_login_never_repeats_the_password() -> None:
    error = login_refused("ann@db", "what is hunter2 ?", needs_password=False, password="hunter2")
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("state", "code", "family"),
    [
        (None, "PG_CONNECTION_LOST", "transient"),
        ("57P01", "PG_CONNECTION_LOST", "transient"),
        ("08006", "PG_CONNECTION_LOST", "transient"),
        ("42501", "PG_PRIVILEGE_MISSING", "misconfigured"),
        ("42P01", "PG_TABLE_GONE", "definite"),
        ("55P03", "PG_LOCK_TIMEOUT", "transient"),
        ("57014", "PG_STATEMENT_CANCELLED", "transient"),
        ("40001", "PG_STATEMENT_OVERRULED", "transient"),
        ("40P01", "PG_STATEMENT_OVERRULED", "transient"),
        ("53400", "PG_SERVER_FULL", "transient"),
        ("XX000", "PG_STATEMENT_REFUSED", "misconfigured"),
    ],
)
def test_a_refused_statement_has_a_code(state: str | None, code: str, family: str) -> None:
    error = refused_error(None if state is None else state.encode(), "why")
    assert (error.code, error.family) == (code, family)


@pytest.mark.parametrize(
    ("state", "primary"),
    [
        ("XX000", "cache lookup failed for type 16385"),
        ("XX000", "could not open relation with OID 16385"),
        ("22P03", "ungültiger interner Wert für Enum: 16387"),
    ],
)
def test_what_was_dropped_beside_a_look_is_looked_at_again(state: str, primary: str) -> None:
    error = refused_error(state.encode(), primary)
    assert (error.code, error.family) == ("PG_CATALOG_MOVED", "transient")
