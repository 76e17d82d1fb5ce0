"""A server that falls silent amid a batch: who gives the batch up leaves no thread and no socket behind."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest

from headrace.sources.postgres.session import timeouts
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import plain
from headrace.sources.queue.stream import queue_stream
from headrace.sources.queue.stream.queue_stream import BatchCopy
from headrace_testing.postgres import postgres
from headrace_testing.postmaster import wait_for
from headrace_testing.proxy import Proxy
from headrace_testing.tls import issue

pytestmark = pytest.mark.server


@pytest.mark.parametrize("mode", ["disable", "require"])
def test_a_batch_that_is_given_up_at_a_silent_server_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(queue_stream, "_END_SECONDS", 1.0)
    monkeypatch.setattr(timeouts, "REQUEST_SECONDS", 0.5)
    folder = tmp_path / "tls"
    folder.mkdir()
    with postgres(tls=issue(folder)) as server, Proxy(server.host, server.port) as proxy:
        # Another half stays with the server: no row comes until then.
        query = "SELECT pg_sleep(120)"
        pgconn = plain(
            PostgresAddress.parse(server.url(user="app", sslmode=mode, port=proxy.port)), role="test"
        )
        assert pgconn.ssl_in_use == (mode == "require")
        batch = BatchCopy(pgconn, query)
        asked = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COPY%' AND state = 'active'"
        wait_for(lambda: bool(server.execute(asked)), "the batch is read")
        proxy.half_open()
        known, place = threading.active_count(), pgconn.socket
        batch.close()
        pgconn.finish()
        assert threading.active_count() == known - 1
        assert place not in [each.fd for each in psutil.Process().net_connections()]
