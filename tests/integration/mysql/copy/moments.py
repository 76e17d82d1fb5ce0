"""Accounts between which money is moved: the sum, and the number of moves, tell a moment from a mixture."""

from __future__ import annotations

import threading

from headrace.sources.mysql.position import MysqlTimeline
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity, identify
from headrace.sources.mysql.session.statements import query
from headrace_testing.mysql import Database
from headrace_testing.postmaster import wait_for

SECONDS = 60.0
TOTAL = 20_000


def identity_of(url: str) -> MysqlIdentity:
    with connect(MysqlAddress.parse(url), role="test") as session:
        return identify(session)


def executed(database: Database) -> int:
    """The time of all that the server has executed."""
    with connect(MysqlAddress.parse(database.url(user="mirror")), role="test") as session:
        [(text,)] = query(session, f"SELECT @@global.{session.release.words.executed_variable}")
    return MysqlTimeline().position(str(text)).time


class Transfers:
    """Writers that move money from table to table, each transfer one transaction."""

    def __init__(self, database: Database, writers: int) -> None:
        self._database = database
        self._over = threading.Event()
        self._done = [0] * writers
        self._threads = [threading.Thread(target=self._write, args=(i,)) for i in range(writers)]

    def __enter__(self) -> Transfers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def done(self) -> int:
        """Number of transfers that were made."""
        return sum(self._done)

    def go_on(self) -> None:
        """Return when each writer has begun and ended another transfer."""
        before = list(self._done)
        wait_for(
            lambda: all(now > then + 1 for now, then in zip(self._done, before, strict=True)),
            "a transfer of each writer",
        )

    def _write(self, number: int) -> None:
        with self._database.connect() as connection, connection.cursor() as cursor:
            while not self._over.is_set():
                cursor.execute("BEGIN")
                cursor.execute("UPDATE a SET v = v - 1 WHERE id = %s", [number])
                cursor.execute("UPDATE b SET v = v + 1 WHERE id = %s", [number])
                cursor.execute("INSERT INTO moves VALUES ()")
                cursor.execute("COMMIT")
                self._done[number] += 1
