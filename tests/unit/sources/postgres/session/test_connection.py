"""Addresses show where they lead and never what opens the door."""

from __future__ import annotations

import pickle

import pytest

from headrace.core.errors import Misconfigured
from headrace.sources.postgres.session.connection import PINS, Address, Identity, verify
from headrace.sources.postgres.session.refusals import login_refused, refused

SECRET = "hunter2 %&/"
URL = "postgresql://ann:hunter2%20%25%26%2F@db.example:5433/shop?sslmode=verify-full"
PAIRS = "host=db.example port=5433 user=ann dbname=shop password='hunter2 %&/' sslmode=verify-full"
HERE = Identity("71", 1, 180004, "shop")


@pytest.mark.parametrize("text", [URL, PAIRS])
def test_both_spellings_are_one_address(text: str) -> None:
    address = Address.parse(text)
    assert address == Address.parse(URL)
    assert address.parameters["password"] == SECRET
    assert address.parameters["sslmode"] == "verify-full"


@pytest.mark.parametrize("text", [URL, PAIRS])
def test_an_address_shows_no_password(text: str) -> None:
    address = Address.parse(text)
    assert address.safe() == "ann@db.example:5433/shop"
    for shown in (repr(address), str(address), f"{address}", repr([address]), repr({"a": address})):
        assert "hunter2" not in shown


def test_an_address_travels_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Address.parse(URL))) == Address.parse(URL)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://ann:hunter2%zz@db/shop",
        "hunter2",
        "host=db pasword=hunter2",
        "postgresql://ann:hunter2@[db/shop",
        "mysql://ann:hunter2@db/shop",
    ],
)
def test_a_malformed_address_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        Address.parse(text)
    assert caught.value.code == "PG_ADDRESS_MALFORMED"
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


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
    error = refused(None if state is None else state.encode(), "why")
    assert (error.code, error.family) == (code, family)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (Identity("72", 1, 180004, "shop"), "PG_ANOTHER_SERVER"),
        (Identity("71", 2, 180004, "shop"), "PG_TIMELINE_CHANGED"),
        (Identity("71", 1, 180004, "other"), "PG_ANOTHER_DATABASE"),
        (Identity("71", 1, 180004, "shop", standby=True), "PG_ANOTHER_STANDBY"),
    ],
)
def test_another_server_is_refused(found: Identity, code: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        verify(found, HERE)
    assert caught.value.code == code


def test_the_same_server_after_an_upgrade_of_its_minor_version_is_the_same() -> None:
    verify(Identity("71", 1, 180005, "shop"), HERE)


def test_every_setting_that_changes_how_values_print_is_pinned() -> None:
    printing = {"datestyle", "intervalstyle", "timezone", "extra_float_digits", "bytea_output"}
    printing |= {"lc_monetary", "xmlbinary", "client_encoding", "search_path"}
    assert printing <= PINS.keys()
