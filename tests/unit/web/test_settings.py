"""The web server listens at loopback as it is, elsewhere only with a token, and at no wrong address."""

from __future__ import annotations

import socket

import pytest

from headrace.core.errors import Misconfigured
from headrace.web.settings import bare, listener, settings


@pytest.mark.parametrize(
    "listen", ["9464", ":9464", "localhost", "127.0.0.1:", "a b:1", "127.0.0.1:65536", "http://localhost:1"]
)
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        settings(listen)
    assert raised.value.code == "WEB_ADDRESS"


@pytest.mark.parametrize("listen", ["0.0.0.0:9464", "[::]:9464", "192.0.2.1:9464"])
def test_an_address_that_others_reach_needs_a_token(listen: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        settings(listen)
    assert raised.value.code == "WEB_TOKEN_MISSING"
    assert "HEADRACE_WEB_TOKEN" in raised.value.hint
    assert settings(listen, token="a-token").port == 9464


@pytest.mark.parametrize("token", ["", " ", "two\nlines", "späß"])
def test_a_token_that_no_header_carries_is_refused(token: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        settings("127.0.0.1:0", token=token)
    assert raised.value.code == "WEB_TOKEN_MALFORMED"


def test_the_token_is_in_no_text_of_the_settings() -> None:
    assert "secret-token" not in repr(settings("127.0.0.1:0", token="secret-token"))


def test_a_port_that_is_taken_and_an_address_of_another_machine_are_refused_with_a_code() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(Misconfigured) as raised:
        listener(settings(f"127.0.0.1:{other.getsockname()[1]}"))
    assert raised.value.code == "WEB_PORT_TAKEN"
    with pytest.raises(Misconfigured) as raised:
        listener(settings("192.0.2.1:9464", token="a-token"))
    assert raised.value.code == "WEB_ADDRESS_FOREIGN"
    with pytest.raises(Misconfigured) as raised:
        settings("no-such-host.invalid:9464")
    assert raised.value.code == "WEB_ADDRESS_FOREIGN"


@pytest.mark.parametrize(
    ("name", "alone"),
    [("Mirror.Example:80", "mirror.example"), ("[::1]:9464", "::1"), ("::1", "::1"), ("a.", "a"), ("", "")],
)
def test_names_are_compared_without_port_and_case(name: str, alone: str) -> None:
    assert bare(name) == alone
