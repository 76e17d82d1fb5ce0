"""The word for a login that failed, where the driver has one of its own for all that goes wrong."""

from __future__ import annotations

import ssl

import pymysql
import pytest

from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.login import _explained_error


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), "MY_UNREACHABLE"),
        (ssl.SSLZeroReturnError(6, "closed"), "MY_UNREACHABLE"),
        (ConnectionResetError(104, "Connection reset by peer"), "MY_UNREACHABLE"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), "MY_TLS_REFUSED"),
    ],
)
def test_a_connection_that_is_lost_amid_tls_is_not_refused(cause: OSError, code: str) -> None:
    """Refused, it ends the first run; a server that restarts is waited for."""
    address = MysqlAddress.parse("mysql://app@127.0.0.1/shop")
    error = pymysql.err.OperationalError(2003, "can't connect")
    setattr(error, "original_exception", cause)  # noqa: B010 - as PyMySQL does, whose types lack it
    for each in (error, cause):
        assert _explained_error(address, each).code == code
