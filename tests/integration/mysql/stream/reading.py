"""A reader of a real server's binlog, for tests: what a receiver would keep of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headrace.core.position import Position
from headrace.sources.contract.stream import StreamRead
from headrace.sources.mysql.position import MysqlTimeline, parse
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.stream.dump import BinlogDump, DumpRequest
from headrace_testing.mysql import Server
from tests.unit.sources.mysql.stream.test_transactions import shown

DEADLINE = 60.0
LOG = MysqlTimeline(1 << 33)


def position(server: Server) -> str:
    """The place that the server is at."""
    variable = "gtid_binlog_pos" if server.flavour.is_mariadb else "gtid_executed"
    [(text,)] = server.execute(f"SELECT @@global.{variable}")
    return str(text)


def plain(server: Server, port: int) -> str:
    """The address of a proxy that sees what it passes."""
    return server.url(user="mirror", port=port, **{"ssl-mode": "DISABLED", "get-server-public-key": "1"})


class Reader:
    """A dump, and what was read of it."""

    def __init__(
        self,
        server: Server,
        tables: Sequence[tuple[str, str]],
        start: str,
        *,
        port: int | None = None,
        silence: float | None = None,
    ) -> None:
        at = LOG.position(start)
        wanted = DumpRequest(tuple(tables), frontier=at, received_until=at, log=LOG, silence=silence)
        url = server.url(user="mirror") if port is None else plain(server, port)
        self.dump = BinlogDump.open(MysqlAddress.parse(url), wanted)
        self.server = server
        self.data = b""
        self.ended: list[tuple[int, int, int]] = []  # time, changes, of a running one its number
        self.committed: list[int] = []  # when, in microseconds since 1970
        self.running: dict[int, bytes] = {}
        self.gone: list[int] = []
        self.heard: tuple[int, int] | None = None

    def take(self, received: StreamRead) -> None:
        for number, data in received.running.items():
            self.running[number] = self.running.get(number, b"") + data.tobytes()
        self.data += received.data.tobytes()
        for each in received.transactions:
            number = int(each["number"]) if each["ran"] else 0
            self.ended.append((int(each["time"]), int(each["changes"]), number))
            self.committed.append(int(each["commit_ts"]))
        self.gone += received.rolled_back
        self.heard = received.source_end or self.heard

    def catch_up(self) -> list[str]:
        """Read all that the server has by now; the frames of whole transactions, a word each."""
        target = LOG.position(position(self.server)).time
        deadline = time.monotonic() + DEADLINE
        while LOG.time(parse(self.dump.position).count) < target:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the stream stays at {self.dump.position}")
            received = self.dump.read(0.2)
            if received is not None:
                self.take(received)
        return shown(self.data)

    @property
    def position(self) -> Position:
        return LOG.position(self.dump.position)

    def until_heard(self) -> tuple[int, int]:
        """Read on until the server says that there is no more."""
        deadline = time.monotonic() + DEADLINE
        while self.heard is None:
            if time.monotonic() > deadline:
                raise TimeoutError("the server does not say that there is no more")
            received = self.dump.read(0.5)
            if received is not None:
                self.take(received)
        return self.heard

    def until_cut(self) -> None:
        """Read on until that fails."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            received = self.dump.read(0.2)
            if received is not None:
                self.take(received)


@contextmanager
def reading(
    server: Server,
    tables: Sequence[tuple[str, str]],
    start: str | None = None,
    *,
    port: int | None = None,
    silence: float | None = None,
) -> Iterator[Reader]:
    """A reader of these tables, from a place or from now on; through a proxy, if that has a port."""
    place = position(server) if start is None else start
    reader = Reader(server, tables, place, port=port, silence=silence)
    try:
        yield reader
    finally:
        reader.dump.close()
