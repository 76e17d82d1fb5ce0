"""Fixtures of preflight: both kinds of server, and a scene on each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace_testing.mysql import Server
from tests.integration.mysql.preflight.scene import Scene, scene


@pytest.fixture(scope="session", params=("mysql", "mariadb"))
def server(request: pytest.FixtureRequest) -> Server:
    """Both of the session's servers, one after the other."""
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, Server)
    return found


@pytest.fixture
def stage(server: Server) -> Iterator[Scene]:
    """A scene on each of them."""
    with scene(server) as made:
        yield made
