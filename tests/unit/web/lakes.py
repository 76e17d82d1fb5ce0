"""Lakes that hold what a run wrote down and nothing else, and a client that is as rude as asked."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.lake.format import formatfile, statusfile
from headrace.lake.format.status import (
    CopyStatus,
    EpochStatus,
    PositionStatus,
    ProcessStatus,
    SourceStatus,
    StepStatus,
    TableStatus,
    TotalsStatus,
    UpstreamStatus,
)
from headrace.lake.store.open import open_store

STOPPED = {
    "code": "TABLE_CHANGED",
    "primary": 'table "public.orders" is another',
    "detail": 'column "a" was <b>dropped</b>',
    "hint": "headrace tables resync --lake ./lake public.orders",
}
NOW = datetime.now(UTC)
RUNNING = SourceStatus(
    "main",
    "running",
    owner={"pid": 1, "host": "here"},
    position=PositionStatus("0/20", "0/30", "0/40", "0/20", None, 1234, 0.25, 9, 0),
    upstream=UpstreamStatus({"retained_bytes": 5000}, ("slot reserved",), None, 5000, 100_000),
    epochs=EpochStatus(3, 4, 0, 77),
    tables={
        "public.items": TableStatus("live", "rewind", rows=12, last_change=NOW.isoformat()),
        "public.orders": TableStatus("stopped", error=STOPPED, stopped_at="0/18", rows=3),
        "public.new": TableStatus("copying", copy=CopyStatus(100, 40, 4000, 1000)),
    },
    marked_at=NOW.isoformat(),
    totals=TotalsStatus(
        77, 55, 66, {"stream": 70, "empty": 7}, {"PG_LOST": 2}, {"plan": StepStatus((1,) * 15, 2.5)}
    ),
    processes={"driver": ProcessStatus(1 << 20, 2.5)},
)


def a_lake(folder: Path | str, *sources: SourceStatus, age: float = 0.0) -> str:
    """A lake in which each source's run wrote this status so many seconds ago."""
    store = open_store(str(folder))
    formatfile.create_lake(store)
    for said in sources:
        statusfile.write(store, said.source, said, now=datetime.now(UTC) - timedelta(seconds=age))
    return str(folder)


def many_tables(count: int) -> SourceStatus:
    """A source of so many live tables."""
    table = replace(RUNNING.tables["public.items"], copy=CopyStatus(1, 1, 1, 1)) if RUNNING.tables else None
    assert table is not None
    return replace(RUNNING, tables={f"public.table_{number:04d}": table for number in range(count)})


def status_text(lake: str, source: str, text: bytes) -> None:
    """Write a status file that no run of this release writes."""
    Path(lake, "_headrace", "status", f"{source}.json").write_bytes(text)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def get(url: str, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Answer:
    """The answer to one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port_of(url), timeout=10)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        found = connection.getresponse()
        return Answer(found.status, dict(found.getheaders()), found.read())
    finally:
        connection.close()


class Answer:
    """A whole response."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def record(self) -> Any:
        return json.loads(self.body)


def raw(url: str, sent: bytes) -> bytes:
    """All that comes back for these bytes until the server closes."""
    with socket.create_connection(("127.0.0.1", port_of(url)), timeout=10) as client:
        client.sendall(sent)
        found = b""
        while data := client.recv(1 << 16):
            found += data
        return found
