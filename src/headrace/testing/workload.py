"""Writers that run beside a mirror and remember what they did.

    with running(Transfers(), database.url(user="app"), seed=seed, writers=3) as work:
        wait_for(lambda: work.committed > 500, "five hundred transactions")

A workload is two functions: `prepare` makes its tables, `transact` does the statements of one
transaction, decided by the dice it is given. The runner opens the connections, begins and ends the
transactions, rolls some of them back on purpose, goes on after a crash of the server, and counts:

    committed   the server said so
    in_doubt    the connection broke while the server was asked to commit: it may have, or not
    failed      the server refused it (a deadlock between writers, a key that was taken)

Four are here: `Transfers` shows whether transactions stay whole, `Keyed` has everything that may
happen to rows with a key, `Bag` the same for a table without one, and
`Large` is so large and slow that a server streams it while it runs. pgbench is in
`headrace.testing.pgbench`. A `Transfers` table is read by `headrace.testing.validators.transfers`.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import psycopg
from psycopg import sql

Connection = psycopg.Connection[Any]
Identity = Literal["default", "full"]


class Workload(Protocol):
    """Something that writes transactions."""

    def prepare(self, connection: Connection) -> None: ...

    def transact(self, connection: Connection, dice: random.Random) -> None: ...


class Running:
    """A workload at work in threads; its counts may be read at any time."""

    def __init__(
        self, workload: Workload, url: str, *, seed: int, rollbacks: float, pause: float, times: int | None
    ) -> None:
        self.committed = 0
        self.in_doubt = 0
        self.failed = 0
        self.rolled_back = 0
        self._workload = workload
        self._url = url
        self._seed = seed
        self._rollbacks = rollbacks
        self._pause = pause
        self._times = times
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._work: list[Future[None]] = []

    @property
    def finished(self) -> bool:
        """Whether every writer has done its `times`, or has failed."""
        return all(work.done() for work in self._work)

    def start(self, writers: int) -> None:
        self._threads = ThreadPoolExecutor(writers, thread_name_prefix="workload")
        self._work = [self._threads.submit(self._write, number) for number in range(writers)]

    def stop(self) -> None:
        """End after the transactions in hand; raise what a writer could not explain to itself."""
        self._stop.set()
        if self._threads is not None:
            self._threads.shutdown()
        for work in self._work:
            work.result()

    def _write(self, number: int) -> None:
        dice = random.Random(f"{self._seed}/{number}")
        left = itertools.repeat(None) if self._times is None else itertools.repeat(None, self._times)
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._url) as connection:
                    for _ in left:
                        self._once(connection, dice)
                        if self._stop.wait(self._pause):
                            return
                    return
            except psycopg.OperationalError:
                # The server is down or the connection was cut: it may be back in a moment.
                self._stop.wait(0.05)

    def _once(self, connection: Connection, dice: random.Random) -> None:
        try:
            self._workload.transact(connection, dice)
        except (psycopg.errors.IntegrityError, psycopg.errors.DeadlockDetected):
            connection.rollback()
            self._count("failed")
            return
        if dice.random() < self._rollbacks:
            connection.rollback()
            self._count("rolled_back")
            return
        try:
            connection.commit()
        except psycopg.OperationalError:
            self._count("in_doubt")
            raise
        self._count("committed")

    def _count(self, what: str) -> None:
        with self._lock:
            setattr(self, what, getattr(self, what) + 1)


@contextmanager
def running(
    workload: Workload,
    url: str,
    *,
    seed: int,
    writers: int = 2,
    rollbacks: float = 0.1,
    pause: float = 0.0,
    times: int | None = None,
    prepare: bool = True,
) -> Iterator[Running]:
    """Prepare the workload's tables and let it write until the block ends, or `times` for each writer."""
    if prepare:
        with psycopg.connect(url, autocommit=True) as connection:
            workload.prepare(connection)
    work = Running(workload, url, seed=seed, rollbacks=rollbacks, pause=pause, times=times)
    work.start(writers)
    try:
        yield work
    finally:
        work.stop()


@dataclass(frozen=True, slots=True)
class Transfers:
    """Transactions over two tables, each in several parts, that are right only as a whole.

    A transfer has `parts` rows in each table, all of one revision. Later transactions give all of its
    rows the next revision, or remove all of them. So at any state of the source the number of rows of
    one transfer and revision, over both tables, is 0 or twice `parts`.
    """

    names: tuple[str, str] = ("transfer_out", "transfer_in")
    identity: Identity = "default"

    def prepare(self, connection: Connection) -> None:
        connection.execute("CREATE SEQUENCE transfer_ids")
        for name in self.names:
            connection.execute(
                sql.SQL(
                    "CREATE TABLE {} (transfer bigint, part int, parts int NOT NULL, revision int NOT NULL,"
                    " amount bigint NOT NULL, PRIMARY KEY (transfer, part))"
                ).format(sql.Identifier(name))
            )
            _set_identity(connection, name, self.identity)

    def transact(self, connection: Connection, dice: random.Random) -> None:
        last = connection.execute(
            sql.SQL("SELECT coalesce(max(transfer), 0) FROM {}").format(sql.Identifier(self.names[0]))
        ).fetchall()[0][0]
        what = dice.random()
        if last and what < 0.25:
            self._revise(connection, dice.randint(1, last))
        elif last and what < 0.35:
            self._remove(connection, dice.randint(1, last))
        else:
            self._open(connection, dice)

    def _open(self, connection: Connection, dice: random.Random) -> None:
        parts = dice.randint(1, 6)
        transfer = connection.execute("SELECT nextval('transfer_ids')").fetchall()[0][0]
        rows = [(name, part) for name in self.names for part in range(parts)]
        # The tables take turns in an order of chance, and now and then a part is tried twice.
        dice.shuffle(rows)
        for name, part in rows:
            insert = sql.SQL("INSERT INTO {} VALUES (%s, %s, %s, 0, %s)").format(sql.Identifier(name))
            values = (transfer, part, parts, dice.randint(1, 1000))
            if dice.random() < 0.1:
                with _in_vain(connection):
                    connection.execute(insert, values)
            connection.execute(insert, values)

    def _revise(self, connection: Connection, transfer: int) -> None:
        for name in self.names:
            update = sql.SQL("UPDATE {} SET revision = revision + 1 WHERE transfer = %s")
            connection.execute(update.format(sql.Identifier(name)), [transfer])

    def _remove(self, connection: Connection, transfer: int) -> None:
        for name in self.names:
            delete = sql.SQL("DELETE FROM {} WHERE transfer = %s").format(sql.Identifier(name))
            connection.execute(delete, [transfer])


@dataclass(frozen=True, slots=True)
class Keyed:
    """Everything that may happen to a row with a key: born, changed, moved, swapped, chained, gone.

    `big` lies out of line (TOAST), so that an update of another column does not send it.
    """

    name: str = "keyed"
    identity: Identity = "default"
    rows: int = 200
    keys: int = 1000

    def prepare(self, connection: Connection) -> None:
        table = sql.Identifier(self.name)
        connection.execute(
            sql.SQL("CREATE TABLE {} (id int PRIMARY KEY, n int NOT NULL, note text, big text)").format(table)
        )
        connection.execute(sql.SQL("ALTER TABLE {} ALTER big SET STORAGE EXTERNAL").format(table))
        _set_identity(connection, self.name, self.identity)
        connection.execute(
            sql.SQL("INSERT INTO {} SELECT i, 0, 'note ' || i, repeat(i || '.', 2000)").format(table)
            + sql.SQL(" FROM generate_series(1, {}) i").format(sql.Literal(self.rows))
        )

    def transact(self, connection: Connection, dice: random.Random) -> None:
        for _ in range(dice.randint(1, 6)):
            self._change(connection, dice)
        if dice.random() < 0.2:
            with _in_vain(connection):
                self._change(connection, dice)

    def _change(self, connection: Connection, dice: random.Random) -> None:
        one, other = dice.randint(1, self.keys), dice.randint(1, self.keys)
        statement = dice.choice(_KEYED_CHANGES)
        parameters = {"one": one, "other": other, "n": dice.randint(0, 10**6), "size": dice.randint(0, 5000)}
        connection.execute(sql.SQL(statement).format(t=sql.Identifier(self.name)), parameters, prepare=False)


# `{t}` is the table. A key that is taken is left alone: a refused statement would end the transaction.
_KEYED_CHANGES = (
    "INSERT INTO {t} VALUES (%(one)s, %(n)s, 'born', repeat('x', %(size)s)) ON CONFLICT DO NOTHING",
    "INSERT INTO {t} VALUES (%(one)s, %(n)s, NULL, NULL) ON CONFLICT (id) DO UPDATE SET n = excluded.n",
    "UPDATE {t} SET n = %(n)s WHERE id = %(one)s",
    "UPDATE {t} SET n = n WHERE id = %(one)s",
    "UPDATE {t} SET note = NULL WHERE id BETWEEN %(one)s AND %(one)s + 5",
    "UPDATE {t} SET big = repeat('y', %(size)s) WHERE id = %(one)s",
    "UPDATE {t} SET id = %(other)s, n = %(n)s WHERE id = %(one)s"
    " AND NOT EXISTS (SELECT 1 FROM {t} WHERE id = %(other)s)",
    "WITH gone AS (DELETE FROM {t} WHERE id = %(one)s RETURNING *)"
    " INSERT INTO {t} SELECT -id, n + 1, note, big FROM gone ON CONFLICT DO NOTHING",
    "DELETE FROM {t} WHERE id = %(one)s",
    "DELETE FROM {t} WHERE id BETWEEN -%(one)s AND -1",
)


@dataclass(frozen=True, slots=True)
class Bag:
    """A table without a key, where a row is told apart from its twins by nothing."""

    name: str = "bag"

    def prepare(self, connection: Connection) -> None:
        connection.execute(sql.SQL("CREATE TABLE {} (a int, b text)").format(sql.Identifier(self.name)))
        _set_identity(connection, self.name, "full")

    def transact(self, connection: Connection, dice: random.Random) -> None:
        for _ in range(dice.randint(1, 6)):
            statement = sql.SQL(dice.choice(_BAG_CHANGES)).format(t=sql.Identifier(self.name))
            connection.execute(statement, {"a": dice.randint(0, 20), "more": dice.randint(1, 4)})


_BAG_CHANGES = (
    "INSERT INTO {t} SELECT %(a)s, 'twin' FROM generate_series(1, %(more)s)",
    "INSERT INTO {t} VALUES (NULL, NULL), (%(a)s, NULL), (%(a)s, '')",
    "DELETE FROM {t} WHERE ctid IN (SELECT ctid FROM {t} WHERE a = %(a)s LIMIT 1)",
    "DELETE FROM {t} WHERE ctid IN (SELECT ctid FROM {t} WHERE a IS NULL LIMIT %(more)s)",
    "UPDATE {t} SET a = a + 1 WHERE ctid IN (SELECT ctid FROM {t} WHERE a = %(a)s LIMIT 1)",
    "UPDATE {t} SET b = b || '!' WHERE a = %(a)s AND length(b) < 8",
)


@dataclass(frozen=True, slots=True)
class Large:
    """Transactions that a server with `logical_decoding_work_mem = '64kB'` streams while they run.

    Each takes a range of keys as a whole, in steps; some steps are rolled back.
    """

    name: str = "large"
    ranges: int = 20
    rows: int = 600
    pause: float = 0.05  # seconds between two steps

    def prepare(self, connection: Connection) -> None:
        connection.execute(
            sql.SQL("CREATE TABLE {} (id int PRIMARY KEY, n int, s text)").format(sql.Identifier(self.name))
        )

    def transact(self, connection: Connection, dice: random.Random) -> None:
        low = dice.randrange(self.ranges) * self.rows
        for _ in range(dice.randint(2, 5)):
            if dice.random() < 0.3:
                with _in_vain(connection):
                    self._step(connection, dice, low)
            self._step(connection, dice, low)
            connection.execute("SELECT pg_sleep(%s)", [self.pause])

    def _step(self, connection: Connection, dice: random.Random, low: int) -> None:
        statement = sql.SQL(dice.choice(_LARGE_CHANGES)).format(t=sql.Identifier(self.name))
        bounds = {"low": low, "high": low + self.rows - 1, "n": dice.randint(0, 10**6)}
        connection.execute(statement, bounds, prepare=False)


_LARGE_CHANGES = (
    "INSERT INTO {t} SELECT i, %(n)s, repeat(md5(i::text), 5)"
    " FROM generate_series(%(low)s::int, %(high)s::int) i ON CONFLICT DO NOTHING",
    "UPDATE {t} SET n = %(n)s WHERE id BETWEEN %(low)s AND %(high)s",
    "DELETE FROM {t} WHERE id BETWEEN %(low)s AND %(high)s AND id %% 3 = %(n)s %% 3",
)


@contextmanager
def _in_vain(connection: Connection) -> Iterator[None]:
    """A sub-transaction that is rolled back.

    Not by `psycopg.Rollback`: that comes out of its block when the connection breaks meanwhile, where
    the runner must see the broken connection.
    """
    connection.execute("SAVEPOINT attempt")
    yield
    connection.execute("ROLLBACK TO SAVEPOINT attempt")


def _set_identity(connection: Connection, table: str, identity: Identity) -> None:
    connection.execute(
        sql.SQL("ALTER TABLE {} REPLICA IDENTITY {}").format(
            sql.Identifier(table), sql.SQL("FULL" if identity == "full" else "DEFAULT")
        )
    )
