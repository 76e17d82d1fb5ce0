"""A receiver's process finds the right program, and its orders are the first line that it reads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import headrace
from headrace.core.position import Position
from headrace.ingest import supervisor, worker
from headrace.ingest.supervisor import Feed, Receiver, _environment
from headrace.ingest.worker import ReceiverOrders
from headrace.sources.postgres.session.address import PostgresAddress
from tests.places import place_at


def test_it_finds_the_headrace_that_started_it_before_any_other() -> None:
    first = Path(_environment()["PYTHONPATH"].split(os.pathsep)[0])
    assert first / "headrace" / "__init__.py" == Path(headrace.__file__)


def test_it_is_there_without_arrow() -> None:
    """Loading Arrow would take the receiver as long again as its own work does."""
    program = (
        f"import sys, {worker.__name__}; from headrace.sources import registry;"
        "registry.stream_source('postgres');"
        "print(sorted({'pyarrow', 'polars', 'psycopg'} & sys.modules.keys()))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "['psycopg']"


def test_its_orders_come_before_an_acknowledgement_by_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that acknowledges goes on while the loop starts another process."""
    feed = Feed("postgres", PostgresAddress.parse("postgresql://localhost/x"), {}, {}, tmp_path)
    receiver = Receiver(feed)
    orders, threads = Feed.orders, list[threading.Thread]()

    def acknowledged_meanwhile(self: Feed, frontier: Position) -> ReceiverOrders:
        threads.append(threading.Thread(target=receiver.acknowledge, args=(frontier,)))
        threads[0].start()
        threads[0].join(0.2)  # it waits for the orders, or is through already
        return orders(self, frontier)

    monkeypatch.setattr(Feed, "orders", acknowledged_meanwhile)
    monkeypatch.setattr(supervisor, "start_process", _echo)
    receiver.start(place_at(8))
    try:
        threads[0].join()
        process = receiver._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait()
        first, second, *_ = process.stdout.read().splitlines()
        assert (b"folder" in first, b"ack" in second) == (True, True)
    finally:
        receiver.kill()


def _echo() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_who_waits_for_the_process_hears_what_it_says(tmp_path: Path) -> None:
    """Also what another thread has taken in meanwhile is news to the loop, and only once."""
    address = PostgresAddress.parse("postgresql://localhost/x")
    receiver = Receiver(Feed("postgres", address, {}, {}, tmp_path))
    with _echo() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        receiver._process = process
        begun = time.monotonic()
        process.stdin.write(b'{"event": "progress", "frontier": 7}\n')
        process.stdin.flush()
        receiver.wait(60)
        receiver.listen()
        receiver.wait(60)
        assert receiver.poll().frontier == 7
        assert time.monotonic() - begun < 60
        quiet = time.monotonic()
        receiver.wait(0.05)
        assert time.monotonic() - quiet >= 0.05
