"""A server's error is told by its number, and its words are passed on only where they hold names."""

from __future__ import annotations

import pytest

from headrace.core.errors import Definite, HeadraceError, Misconfigured, RightWithheld, Transient
from headrace.sources.mysql.flavour import Release
from headrace.sources.mysql.session.packets import ServerError, server_error
from headrace.sources.mysql.session.refusals import login_refused, refused_error, unfit_release

STATEMENTS = [
    (1205, "MY_LOCK_TIMEOUT", Transient),
    (1213, "MY_STATEMENT_OVERRULED", Transient),
    (1412, "MY_STATEMENT_OVERRULED", Transient),
    (1317, "MY_STATEMENT_CANCELLED", Transient),
    (3024, "MY_STATEMENT_CANCELLED", Transient),
    (1969, "MY_STATEMENT_CANCELLED", Transient),
    (1053, "MY_CONNECTION_LOST", Transient),
    (1927, "MY_CONNECTION_LOST", Transient),
    (4031, "MY_CONNECTION_LOST", Transient),
    (1040, "MY_SERVER_FULL", Transient),
    (1114, "MY_SERVER_FULL", Transient),
    (1146, "MY_TABLE_GONE", Definite),
    (1054, "MY_TABLE_GONE", Definite),
    (1142, "MY_PRIVILEGE_MISSING", Misconfigured),
    (1227, "MY_PRIVILEGE_MISSING", Misconfigured),
    (1044, "MY_DATABASE_DENIED", Misconfigured),
    (1820, "MY_NOT_ADMITTED", RightWithheld),
    (1153, "MY_PACKET_TOO_LARGE", Misconfigured),
    (1792, "MY_READ_ONLY", Misconfigured),
    (1184, "MY_INIT_CONNECT", Misconfigured),
    (1193, "MY_VERSION_UNSUPPORTED", Misconfigured),
    (1064, "MY_STATEMENT_REFUSED", Misconfigured),
    (65535, "MY_STATEMENT_REFUSED", Misconfigured),
]
LOGINS = [
    (1045, "MY_PASSWORD_REFUSED", Misconfigured),
    (1049, "MY_DATABASE_UNKNOWN", Misconfigured),
    (1044, "MY_NOT_ADMITTED", Misconfigured),
    (1130, "MY_NOT_ADMITTED", Misconfigured),
    (3118, "MY_NOT_ADMITTED", Misconfigured),
    (3159, "MY_TLS_REFUSED", Misconfigured),
    (2059, "MY_LOGIN_METHOD", Misconfigured),
    (1040, "MY_SERVER_FULL", Transient),
    (1053, "MY_UNREACHABLE", Transient),
    (1, "MY_LOGIN_REFUSED", Misconfigured),
]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("8.0.15", None),
        ("8.0.14", "MY_VERSION_UNSUPPORTED"),
        ("5.7.44-log", "MY_VERSION_UNSUPPORTED"),
        ("8.0.11-TiDB-v7.5.0", "MY_FORK_UNSUPPORTED"),
        ("5.5.5-10.6.0-MariaDB", None),
        ("5.5.5-10.4.32-MariaDB", "MY_VERSION_UNSUPPORTED"),
    ],
)
def test_a_server_that_cannot_be_mirrored_is_refused_by_its_greeting(version: str, code: str | None) -> None:
    error = unfit_release(Release.of_greeting(version, capabilities=1))
    assert (error and error.code) == code
    assert error is None or error.hint


@pytest.mark.parametrize(("number", "code", "family"), STATEMENTS)
def test_a_refused_statement_is_told_by_its_number(
    number: int, code: str, family: type[HeadraceError]
) -> None:
    error = refused_error(ServerError(number, "HY000", "what is in it"))
    assert error.code == code
    assert isinstance(error, family)


@pytest.mark.parametrize(("number", "code", "family"), LOGINS)
def test_a_refused_login_is_told_by_its_number(number: int, code: str, family: type[HeadraceError]) -> None:
    error = login_refused("ann@db:3306/", ServerError(number, "HY000", "of ann"), password="hunter2")
    assert error.code == code
    assert isinstance(error, family)


def test_words_are_passed_on_where_they_hold_names_and_nowhere_else() -> None:
    shown = {
        number
        for number in range(1, 6000)
        if "hunter2" in str(refused_error(ServerError(number, "", "near 'hunter2'")))
    }
    names = {1044, 1045, 1049, 1051, 1054, 1095, 1109, 1129, 1130, 1142, 1143, 1146, 1193, 1227, 1370, 1419}
    assert shown == names | {1698, 1873, 1932, 3530}


def test_a_login_never_shows_its_password_even_where_it_is_a_name() -> None:
    error = login_refused("ann@db:3306/", ServerError(1045, "28000", "for 'hunter2'@'x'"), password="hunter2")
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("packet", "number", "state"),
    [
        (b"\xff\x15\x04#28000Access denied", 1045, "28000"),
        (b"\xff\x10\x04Too many connections", 1040, ""),
        (b"\xff\x10\x04", 1040, ""),
        (b"\xff", 0, ""),
    ],
)
def test_an_error_is_read_however_short(packet: bytes, number: int, state: str) -> None:
    error = server_error(packet)
    assert (error.number, error.state) == (number, state)
