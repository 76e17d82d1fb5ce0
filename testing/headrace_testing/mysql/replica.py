"""A second server that replicates from a first one by GTID.

    with mysql() as source, replica(source) as second:
        source.execute("CREATE DATABASE shop")
        second.catch_up()
        second.server.execute("SHOW DATABASES LIKE 'shop'")

It begins with nothing and takes the source's whole log, so the source should have one yet, and a short one.
Its `app` has the source's password: who moves over changes the port alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql

from headrace_testing.mysql.flavours import Setting
from headrace_testing.mysql.server import Server, open_server, run
from headrace_testing.postmaster import DEADLINE, wait_for

_MOMENT = 1  # seconds between two looks at a thread that may have stopped


@dataclass(frozen=True, slots=True)
class Replica:
    """A server and the one that it replicates from."""

    server: Server
    source: Server

    def catch_up(self, *, deadline: float = DEADLINE) -> None:
        """Return when the replica has executed all that the source has in its log now."""
        [(wanted,)] = self.source.execute(self.source.flavour.executed)
        with self.server.connect() as connection:
            wait_for(lambda: self._has(connection, wanted), "the replica catches up", deadline=deadline)

    def stop(self) -> None:
        """Stop replicating; the server goes on."""
        self.server.execute("STOP REPLICA")

    def start(self) -> None:
        """Go on replicating."""
        self.server.execute("START REPLICA")

    def take_over(self) -> Replica:
        """Let the replica and its source change places, while nobody writes; return the new replica."""
        self.catch_up()
        self.stop()
        self.server.execute("RESET REPLICA ALL")
        old, new = self.source, self.server
        if old.flavour.is_mariadb:
            [(here,)] = old.execute(old.flavour.executed)
            old.execute("SET GLOBAL gtid_slave_pos = %s", [here])
        return follow(old, new)

    def error(self) -> str:
        """The reason for which replication stopped by itself; empty while it runs."""
        with self.server.connect() as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute("SHOW REPLICA STATUS")
            [status] = cursor.fetchall()
        return str(status["Last_SQL_Error"] or status["Last_IO_Error"])

    def _has(self, connection: pymysql.Connection[Any], wanted: str) -> bool:
        if why := self.error():
            raise RuntimeError(f"the replica stopped: {why}")
        [(answer,)] = run(connection, self.server.flavour.wait_executed, [wanted, _MOMENT])
        return bool(answer == 0)


@contextmanager
def replica(source: Server, settings: Mapping[str, Setting] | None = None) -> Iterator[Replica]:
    """A server of the source's kind that replicates from it."""
    with open_server(source.flavour, settings or {}, password=source.password) as server:
        yield follow(server, source)


def follow(server: Server, source: Server) -> Replica:
    """Let a server replicate from another one."""
    made = Replica(server, source)
    server.execute(source.flavour.follow.format(host=source.host, port=source.port))
    made.start()
    return made
