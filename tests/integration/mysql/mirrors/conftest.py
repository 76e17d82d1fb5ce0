"""Mirrors of MySQL and of MariaDB, without Spark, on the session's resident servers.

`mirror` is run in this process, up to where the source is; `mirrored` is a process of its own, which lives
until it is stopped or killed. Both are of one lake.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace_testing.mirror_process import Mirrored
from headrace_testing.mysql import Database, Server
from tests import without_spark
from tests.conformance.conftest import Mirror
from tests.conformance.sources import MysqlPlace
from tests.nursery import Nursery, nursery

__all__ = ["nursery"]


@pytest.fixture(scope="package", autouse=True)
def _in_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        without_spark.jobs_in_process(patch)
        yield


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A fresh database on a server of the kind that the test names: see `kinds`."""
    server: Server = request.getfixturevalue(f"{request.param}_server")
    server.start()  # if a test left it down
    with server.database() as made:
        yield made


@pytest.fixture
def mirror(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Mirror:
    """The database's mirror, into a fresh lake."""
    return Mirror(MysqlPlace(database), tmp_path_factory.mktemp("mirror") / "lake")


@pytest.fixture
def mirrored(mirror: Mirror, nursery: Nursery) -> Iterator[Mirrored]:
    """Make a process of the same mirror, not started yet."""
    made = Mirrored(mirror.path, mirror.place.url, *mirror.patterns, program=nursery.run)
    yield made
    made.close()
