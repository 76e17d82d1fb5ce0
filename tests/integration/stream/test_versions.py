"""The receiver over TLS, on every server version, and with more data than memory should hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace.sources.postgres.position import PostgresTimeline
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.stream.slot_stream import SlotRequest, SlotStream
from headrace_testing import tls
from headrace_testing.postgres import Database, Server, postgres
from headrace_testing.postmaster import wait_for
from tests.integration.stream.harness import PUBLICATION, SLOT, stage

pytestmark = pytest.mark.server

MEGABYTE = 1 << 20


def exercise(database: Database, folder: Path, **feed: str) -> None:
    """A little of everything, before and after a restart of the receiver."""
    with stage(database, folder, **feed) as staged:
        database.execute("INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series(1, 20000) i")
        staged.start()
        database.execute("UPDATE t SET v = 'y' WHERE id % 7 = 0")
        database.execute("INSERT INTO u VALUES (1, 'a'); TRUNCATE u; DELETE FROM t WHERE id < 100")
        staged.catch_up()
        staged.receiver.stop()
        database.execute("ALTER TABLE u ADD COLUMN w int DEFAULT 7; INSERT INTO u VALUES (2, 'b', 8)")
        staged.start()
        database.execute("INSERT INTO t SELECT -i, 'z' FROM generate_series(1, 5) i")
        staged.catch_up()
        assert len(staged.expected()) == 5
        assert staged.spooled() == staged.expected()
        database.execute(f"DROP PUBLICATION {PUBLICATION}")
        database.execute("INSERT INTO t VALUES (100000, 'nobody sees this')")
        assert staged.error().code == "PG_PUBLICATION_MISSING"


@pytest.fixture(scope="module")
def over_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A server that takes the application's user over TLS alone, and the path of its authority."""
    certificates = tls.issue(tmp_path_factory.mktemp("tls"))
    with postgres(tls=certificates, hba=["hostnossl all app all reject"]) as server:
        yield server, str(certificates.authority)


def test_the_stream_over_tls(over_tls: tuple[Server, str], tmp_path: Path) -> None:
    server, authority = over_tls
    with server.database() as database:
        url = database.url(user="app", sslmode="verify-ca", sslrootcert=authority)
        exercise(database, tmp_path, url=url)


def test_a_backlog_over_tls_comes_in_large_pieces(over_tls: tuple[Server, str], tmp_path: Path) -> None:
    """Each message is a record of its own there, and each piece costs a round of the receiver."""
    server, authority = over_tls
    with server.database() as database, stage(database, tmp_path) as staged:
        address = PostgresAddress.parse(database.url(user="app", sslmode="verify-ca", sslrootcert=authority))
        database.execute("INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series(1, 20000) i")
        pieces: list[int] = []
        begin = PostgresTimeline().lsn(staged.frontier)

        def arrived() -> bool:
            pieces.append(len(stream.read(0.1)))
            stream.feedback(begin)
            return sum(pieces) > 20_000 * 300

        with SlotStream.open(address, SlotRequest(SLOT, (PUBLICATION,), begin, begin)) as stream:
            wait_for(arrived, "the transaction is read")
        came = [length for length in pieces if length]
        assert sum(came) / len(came) > 3000, len(came)


@pytest.mark.full
def test_the_stream_of_every_version(any_database: Database, tmp_path: Path) -> None:
    exercise(any_database, tmp_path)


def test_memory_does_not_grow_with_a_transaction(database: Database, tmp_path: Path) -> None:
    with stage(database, tmp_path) as staged:
        staged.start()
        database.execute("INSERT INTO t VALUES (0, 'warm')")
        staged.catch_up()
        process = psutil.Process(staged.receiver.pid)
        before = process.memory_info().rss
        peak = before
        database.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 300000) i")

        def arrived() -> bool:
            nonlocal peak
            peak = max(peak, process.memory_info().rss)
            staged.receiver.poll()
            return len(staged.reader.transactions(0)) == 2

        wait_for(arrived, "a transaction of 300 MB arrives")
        assert staged.reader.transactions(0)["changes"].tolist() == [1, 300000]
        assert peak - before < 100 * MEGABYTE
