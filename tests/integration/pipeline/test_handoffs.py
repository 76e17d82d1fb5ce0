"""A mirror joined by xid: who is waited for, and who is not.

The tests run on a server of their own, whose commits can be made to hang, with a publication and a slot of
the user's: creating them would wait for everybody. `tests/integration/postgres/copy/test_handoffs.py` proves
that a handoff says which transactions a snapshot holds; `tests/guarantees` proves that kills and cuts cost
nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.lake.format.status import SourceStatus
from headrace_testing import validators
from headrace_testing.absent_standby import absent_standby, hanging
from headrace_testing.postgres import Database, Server, postgres
from headrace_testing.postmaster import wait_for
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.refused import configuration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.server

OWN = {"publication": "mine", "slot": "mine", "handoff": "xid"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Commits wait for a standby only where a session asks for it."""
    with postgres(settings={"synchronous_commit": "local"}) as made:
        yield made


@pytest.fixture
def mirrors(server: Server, tmp_path: Path, engine: SparkSession | None) -> Iterator[Mirrors]:
    """A table `t` of ten rows, one that is not mirrored, a publication and a slot that is younger."""
    with server.database() as database:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, s text); CREATE TABLE u (id int)", user="app")
        database.execute("INSERT INTO t SELECT i, 'first' FROM generate_series(1, 10) i", user="app")
        database.execute("CREATE PUBLICATION mine FOR TABLE t", user="app")
        database.execute("SELECT pg_create_logical_replication_slot('mine', 'pgoutput')", user="app")
        yield Mirrors(database, tmp_path / "lake", engine, dict(OWN))


@contextmanager
def _writing(database: Database, *statements: str, hangs: bool = False) -> Iterator[threading.Event]:
    """A transaction that is open until the event is set; with `hangs` its commit has been asked for."""
    go_on, begun = threading.Event(), threading.Event()

    def write() -> None:
        with database.connect(user="app") as connection:
            if hangs:
                connection.execute("SET synchronous_commit = on")
            first, *later = statements
            connection.execute("BEGIN")
            connection.execute(first.encode())
            begun.set()
            if not hangs:
                assert go_on.wait(60)
            for statement in later:
                connection.execute(statement.encode())
            connection.execute("COMMIT")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert begun.wait(30)
        yield go_on
    finally:
        go_on.set()
        thread.join()


@contextmanager
def _run_once(mirrors: Mirrors) -> Iterator[list[SourceStatus]]:
    """A run beside the block, with what it says; it must have ended well soon after."""
    said: list[SourceStatus] = []
    errors: list[BaseException] = []
    url = mirrors.database.url(user="app")

    def run() -> None:
        try:
            config = configuration(mirrors.path, "public.t", url=url, **mirrors.options)
            headrace.mirror(config, spark=mirrors.spark, once=True, listener=said.append)
        except BaseException as error:
            errors.append(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield said
    finally:
        thread.join(120)
    assert not thread.is_alive(), "the run has not ended"
    assert not errors


def _waits(said: list[SourceStatus]) -> bool:
    return any("PG_SNAPSHOT_BARRED" in str(record) for record in said)


def test_a_transaction_open_across_the_publication_change_is_waited_for_and_whole(mirrors: Mirrors) -> None:
    database = mirrors.database
    database.execute("ALTER PUBLICATION mine DROP TABLE t", user="app")
    with _writing(
        database,
        "INSERT INTO t VALUES (11, 'not captured')",
        "INSERT INTO t VALUES (12, 'captured'); UPDATE t SET s = 'changed' WHERE id = 1",
    ) as go_on:
        database.execute("ALTER PUBLICATION mine ADD TABLE t", user="app")
        with _run_once(mirrors) as said:
            wait_for(lambda: _waits(said), "a run that waits for the transaction")
            go_on.set()
    assert mirrors.lake.at().arrow("public.t").num_rows == 12
    assert validators.exact(mirrors.lake, database.url()) == []
    assert mirrors.record("public.t").held_transactions == 1


def test_commits_that_hang_are_waited_for_only_where_they_wrote_the_table(
    server: Server, mirrors: Mirrors
) -> None:
    """Both are in the log when a copy begins, and in no snapshot; the one of `u` stays so to the end."""
    database = mirrors.database
    with ExitStack() as stack, absent_standby(server):
        stack.enter_context(_writing(database, "INSERT INTO t VALUES (11, 'hangs')", hangs=True))
        wait_for(lambda: hanging(server) == 1, "a commit that hangs")
        said = stack.enter_context(_run_once(mirrors))
        wait_for(lambda: _waits(said), "a run that waits for the commit")
    assert mirrors.lake.at().arrow("public.t").num_rows == 11
    with ExitStack() as stack, absent_standby(server):
        stack.enter_context(_writing(database, "INSERT INTO u VALUES (1)", hangs=True))
        wait_for(lambda: hanging(server) == 1, "a commit that hangs")
        other = Mirrors(database, mirrors.path.parent / "other", mirrors.spark, dict(OWN))
        other.once("public.t")
        assert validators.exact(other.lake, database.url()) == []
        assert hanging(server) == 1
        server.set(synchronous_standby_names=None)
