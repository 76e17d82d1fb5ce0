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
`headrace_testing.pgbench`. A `Transfers` table is read by `headrace_testing.wholeness.transfers`.

What differs between servers comes from the `oracle` of the address: types, and what happens to single rows.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from headrace_testing.oracle.contract import Disconnected, Rejected, Session
from headrace_testing.oracle.registry import oracle_of

Identity = Literal["default", "full"]


class Workload(Protocol):
    """Something that writes transactions."""

    def prepare(self, session: Session) -> None: ...

    def transact(self, session: Session, dice: random.Random) -> None: ...


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
        """Tell whether every writer has done its `times`, or has failed."""
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
                with oracle_of(self._url).session(self._url) as session:
                    for _ in left:
                        self._once(session, dice)
                        if self._stop.wait(self._pause):
                            return
                    return
            except Disconnected:
                # The server is down or the connection was cut: it may be back in a moment.
                self._stop.wait(0.05)

    def _once(self, session: Session, dice: random.Random) -> None:
        try:
            self._workload.transact(session, dice)
        except Rejected:
            session.rollback()
            self._count("failed")
            return
        if dice.random() < self._rollbacks:
            session.rollback()
            self._count("rolled_back")
            return
        try:
            session.commit()
        except Disconnected:
            self._count("in_doubt")
            raise
        self._count("committed")

    def _count(self, what: str) -> None:
        with self._lock:
            setattr(self, what, getattr(self, what) + 1)


def make_tables(url: str, *workloads: Workload) -> None:
    """Make the tables of workloads that others run, or run later."""
    with oracle_of(url).session(url) as session:
        for workload in workloads:
            workload.prepare(session)
            session.commit()


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
        make_tables(url, workload)
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

    def prepare(self, session: Session) -> None:
        session.make_counter("transfer_ids")
        for name in self.names:
            session.execute(
                f"CREATE TABLE {session.dialect.quoted(name)} (transfer bigint, part int, parts int NOT NULL,"
                " revision int NOT NULL, amount bigint NOT NULL, PRIMARY KEY (transfer, part))"
            )
            _set_identity(session, name, self.identity)

    def transact(self, session: Session, dice: random.Random) -> None:
        table = session.dialect.quoted(self.names[0])
        [(last,)] = session.rows(f"SELECT coalesce(max(transfer), 0) FROM {table}")
        what = dice.random()
        if last > 0 and what < 0.25:
            self._revise(session, dice.randint(1, last))
        elif last > 0 and what < 0.35:
            self._remove(session, dice.randint(1, last))
        else:
            self._open(session, dice)

    def _open(self, session: Session, dice: random.Random) -> None:
        parts = dice.randint(1, 6)
        transfer = session.next_number("transfer_ids")
        rows = [(name, part) for name in self.names for part in range(parts)]
        # The tables take turns in an order of chance, and now and then a part is tried twice.
        dice.shuffle(rows)
        for name, part in rows:
            insert = f"INSERT INTO {session.dialect.quoted(name)} VALUES (%s, %s, %s, 0, %s)"
            values = (transfer, part, parts, dice.randint(1, 1000))
            if dice.random() < 0.1:
                with _in_vain(session):
                    session.execute(insert, values)
            session.execute(insert, values)

    def _revise(self, session: Session, transfer: int) -> None:
        if not self._held(session, transfer):
            return
        for name in self.names:
            table = session.dialect.quoted(name)
            session.execute(f"UPDATE {table} SET revision = revision + 1 WHERE transfer = %s", [transfer])

    def _remove(self, session: Session, transfer: int) -> None:
        if not self._held(session, transfer):
            return
        for name in self.names:
            session.execute(f"DELETE FROM {session.dialect.quoted(name)} WHERE transfer = %s", [transfer])

    def _held(self, session: Session, transfer: int) -> bool:
        """Lock the transfer's rows and tell whether there are any.

        A transfer that another writer commits between our two statements would be changed in one table only.
        """
        table = session.dialect.quoted(self.names[0])
        return bool(session.rows(f"SELECT part FROM {table} WHERE transfer = {transfer:d} FOR UPDATE"))


@dataclass(frozen=True, slots=True)
class Keyed:
    """Everything that may happen to a row with a key: born, changed, moved, swapped, chained, gone.

    `big` lies out of line (TOAST), so that an update of another column does not send it.
    """

    name: str = "keyed"
    identity: Identity = "default"
    rows: int = 200
    keys: int = 1000

    def prepare(self, session: Session) -> None:
        dialect = session.dialect
        table, text = dialect.quoted(self.name), dialect.types["text"]
        session.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int NOT NULL, note {text}, big {text})")
        if dialect.out_of_line:
            session.execute(dialect.out_of_line.format(t=table, c="big"))
        _set_identity(session, self.name, self.identity)
        rows = [(i, 0, f"note {i}", f"{i}." * 2000) for i in range(1, self.rows + 1)]
        session.execute_many(f"INSERT INTO {table} VALUES (%s, %s, %s, %s)", rows)

    def transact(self, session: Session, dice: random.Random) -> None:
        for _ in range(dice.randint(1, 6)):
            self._change(session, dice)
        if dice.random() < 0.2:
            with _in_vain(session):
                self._change(session, dice)

    def _change(self, session: Session, dice: random.Random) -> None:
        one, other = dice.randint(1, self.keys), dice.randint(1, self.keys)
        statement = dice.choice(session.dialect.keyed).format(t=session.dialect.quoted(self.name))
        values = {"one": one, "other": other, "n": dice.randint(0, 10**6), "size": dice.randint(0, 5000)}
        session.execute(statement, values)


@dataclass(frozen=True, slots=True)
class Bag:
    """A table without a key, where a row is told apart from its twins by nothing."""

    name: str = "bag"

    def prepare(self, session: Session) -> None:
        dialect = session.dialect
        session.execute(f"CREATE TABLE {dialect.quoted(self.name)} (a int, b {dialect.types['text']})")
        _set_identity(session, self.name, "full")

    def transact(self, session: Session, dice: random.Random) -> None:
        for _ in range(dice.randint(1, 6)):
            statement = dice.choice(session.dialect.bag).format(t=session.dialect.quoted(self.name))
            session.execute(statement, {"a": dice.randint(0, 20), "more": dice.randint(1, 4)})


@dataclass(frozen=True, slots=True)
class Large:
    """Transactions that a server with `logical_decoding_work_mem = '64kB'` streams while they run.

    Each takes a range of keys as a whole, in steps; some steps are rolled back.
    """

    name: str = "large"
    ranges: int = 20
    rows: int = 600
    pause: float = 0.05  # seconds between two steps

    def prepare(self, session: Session) -> None:
        dialect = session.dialect
        table = dialect.quoted(self.name)
        session.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int, s {dialect.types['text']})")

    def transact(self, session: Session, dice: random.Random) -> None:
        low = dice.randrange(self.ranges) * self.rows
        for _ in range(dice.randint(2, 5)):
            if dice.random() < 0.3:
                with _in_vain(session):
                    self._step(session, dice, low)
            self._step(session, dice, low)
            time.sleep(self.pause)

    def _step(self, session: Session, dice: random.Random, low: int) -> None:
        statement = dice.choice(session.dialect.large).format(t=session.dialect.quoted(self.name))
        bounds = {"low": low, "high": low + self.rows - 1, "n": dice.randint(0, 10**6)}
        session.execute(statement, bounds)


@contextmanager
def _in_vain(session: Session) -> Iterator[None]:
    """A sub-transaction that is rolled back; a broken connection is the runner's to see."""
    session.execute("SAVEPOINT attempt")
    yield
    session.execute("ROLLBACK TO SAVEPOINT attempt")


def _set_identity(session: Session, table: str, identity: Identity) -> None:
    if identity == "full" and session.dialect.whole_rows:
        session.execute(session.dialect.whole_rows.format(t=session.dialect.quoted(table)))
