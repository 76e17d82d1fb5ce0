"""A moment under table locks, on real servers, seen by readers in processes of their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from headrace.core.errors import Misconfigured, Transient
from headrace.core.names import TableName
from headrace.core.position import STEP
from headrace.sources.contract.values import Waiting
from headrace.sources.mysql.copy import leader as leaders
from headrace.sources.mysql.copy import locks
from headrace.sources.mysql.copy.leader import MysqlLeader, ReadersMissing, lead
from headrace.sources.mysql.copy.locks import TablesHeld
from headrace.sources.mysql.position import MysqlTimeline
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity
from headrace_testing.mysql import Database, Server
from headrace_testing.postmaster import wait_for
from tests.clocks import Slept
from tests.integration.mysql.copy.moments import SECONDS, TOTAL, Transfers, executed, identity_of
from tests.integration.mysql.copy.readers import Reader

pytestmark = pytest.mark.server

IN_TIME = 0.08  # seconds, while nobody may write the tables
SEEN = "SELECT (SELECT SUM(v) FROM {0}.a) + (SELECT SUM(v) FROM {0}.b), (SELECT COUNT(*) FROM {0}.moves)"


@contextmanager
def leading(database: Database, readers: int) -> Iterator[tuple[MysqlLeader, MysqlIdentity]]:
    url = database.url(user="mirror")
    identity = identity_of(url)
    with lead(MysqlAddress.parse(url), identity, readers) as leader:
        yield leader, identity


def names(database: Database, *tables: str) -> list[TableName]:
    return [TableName(database.name, table) for table in tables]


def test_all_readers_see_the_moment_of_the_handoff_while_others_write(bank: Database) -> None:
    before = executed(bank)
    with leading(bank, 3) as (leader, identity), ExitStack() as stack:
        question = SEEN.format(bank.name)
        readers = [
            stack.enter_context(Reader(bank.url(user="mirror"), identity, leader.ticket, question))
            for _ in range(3)
        ]
        transfers = stack.enter_context(Transfers(bank, 4))
        wait_for(lambda: transfers.done > 50, "the writers")
        handoff = leader.take(names(bank, "a", "b", "moves"), MysqlTimeline(), SECONDS)
        seen = [reader.state() for reader in readers]
        shown = {tuple(rows[0]) for rows in seen if isinstance(rows, list)}
        assert len(leader.members) == sum(isinstance(rows, list) for rows in seen) > 0
    # Nothing else wrote to this server: each transfer is one transaction of the log.
    assert shown == {(TOTAL, (handoff.frontier.time - before) // STEP)}
    # They were let go of because all had their views, and not at the end of the time for it.
    assert leader.held is not None
    assert leader.held < SECONDS / 2, leader.held


def by_what_is_slept(
    monkeypatch: pytest.MonkeyPatch, then: Callable[[float], object] = lambda _: None
) -> None:
    """Have a moment go by its own bound, and by a clock that a busy machine does not move."""
    monkeypatch.setattr(leaders, "VIEW_SECONDS", IN_TIME)
    clock = Slept(then)
    for module in (leaders, locks):
        monkeypatch.setattr(module, "time", clock)


def test_who_comes_late_or_sleeps_is_left_out(bank: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with leading(bank, 3) as (leader, identity), ExitStack() as stack:
        arguments = (bank.url(user="mirror"), identity, leader.ticket, SEEN.format(bank.name))
        awake, asleep, dead = (stack.enter_context(Reader(*arguments)) for _ in range(3))
        wait_for(lambda: len(_places(bank, leader)) == 3, "a reader")
        assert asleep.process.pid
        os.kill(asleep.process.pid, signal.SIGSTOP)
        dead.process.kill()
        wait_for(lambda: len(_places(bank, leader)) == 2, "the place of the dead one to be free")
        with Reader(*arguments) as instead:  # its place is free again
            wait_for(lambda: len(_places(bank, leader)) == 3, "another reader in its place")
            by_what_is_slept(monkeypatch, lambda _: wait_for(lambda: _views(bank, leader) == 2, "the views"))
            leader.take(names(bank, "a", "b", "moves"), MysqlTimeline(), SECONDS)
            os.kill(asleep.process.pid, signal.SIGCONT)
            assert leader.held == pytest.approx(IN_TIME, abs=0.01)
            assert asleep.state() == "MY_READER_LATE"
            assert [awake.state(), instead.state()] == [[(TOTAL, 0)]] * 2
        with Reader(*arguments) as late:
            assert late.state() == "MY_READER_LATE"


def test_a_moment_that_no_reader_sees_in_time_lets_go_of_the_tables(
    bank: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        leading(bank, 1) as (leader, identity),
        Reader(bank.url(user="mirror"), identity, leader.ticket, SEEN.format(bank.name)) as reader,
    ):
        wait_for(lambda: bool(_places(bank, leader)), "a reader")
        assert reader.process.pid
        os.kill(reader.process.pid, signal.SIGSTOP)
        by_what_is_slept(monkeypatch)
        with pytest.raises(ReadersMissing):
            leader.take(names(bank, "a", "b", "moves"), MysqlTimeline(), SECONDS)
        os.kill(reader.process.pid, signal.SIGCONT)
        assert reader.state() == "MY_READER_LATE"
    assert leader.held == pytest.approx(IN_TIME, abs=0.01)


def test_readers_of_a_leader_that_was_killed_read_nothing(bank: Database) -> None:
    with leading(bank, 1) as (leader, identity):
        with Reader(bank.url(user="mirror"), identity, leader.ticket, SEEN.format(bank.name)) as reader:
            wait_for(lambda: bool(_places(bank, leader)), "a reader")
            assert leader.alive()
            bank.execute(f"KILL {leader.ticket.connection}", user="root")
            assert reader.state() == "MY_SNAPSHOT_GONE"
        assert not leader.alive()
        with pytest.raises(Transient):
            leader.take(names(bank, "a"), MysqlTimeline(), 5)


def test_a_leader_without_readers_locks_nothing(bank: Database) -> None:
    with leading(bank, 1) as (leader, _), pytest.raises(ReadersMissing):
        leader.take(names(bank, "a"), MysqlTimeline(), 0.2)
    assert leader.held is None


def test_an_open_writer_is_waited_for_and_others_pass_meanwhile(
    bank: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "PAUSE_SECONDS", 0.5)
    told: list[Transient] = []
    with (
        leading(bank, 1) as (leader, identity),
        Reader(bank.url(user="mirror"), identity, leader.ticket, SEEN.format(bank.name)) as reader,
        bank.connect() as holder,
        holder.cursor() as cursor,
    ):
        cursor.execute("BEGIN")
        cursor.execute("UPDATE a SET v = v + 5 WHERE id = 9")

        def hear(reason: Transient) -> None:
            told.append(reason)
            transfers.go_on()  # between two attempts
            if len(told) == 2:
                cursor.execute("COMMIT")

        with Transfers(bank, 2) as transfers:
            leader.take(names(bank, "a", "b", "moves"), MysqlTimeline(), SECONDS, Waiting(tell=hear))
        # An attempt that lasted until it is let in would not have ended: the holder goes on after the second.
        assert [reason.code for reason in told] == ["MY_TABLES_HELD"] * max(2, len(told))
        assert reader.state()[0][0] == TOTAL + 5


@pytest.mark.parametrize("connected", [True, False])
def test_a_prepared_transaction_bars_the_moment_and_is_named(bank: Database, connected: bool) -> None:
    holder = bank.connect(user="root")
    try:
        with holder.cursor() as cursor:
            for statement in ("XA START 'x1','q'", "UPDATE a SET v = 7 WHERE id = 1", "XA END 'x1','q'"):
                cursor.execute(statement)
            cursor.execute("XA PREPARE 'x1','q'")
        if not connected:
            holder.close()
        with connect(MysqlAddress.parse(bank.url(user="root")), role="test") as session:
            with (
                pytest.raises(TablesHeld) as held,
                locks.lock_tables(session, names(bank, "a"), Waiting(), 0.0),
            ):
                raise AssertionError("the table was locked")
            assert "X'7831',X'71',1" in (held.value.detail or "") + (held.value.hint or "")
    finally:
        with holder if holder.open else bank.connect(user="root") as other, other.cursor() as cursor:
            cursor.execute("XA ROLLBACK 'x1','q'")


@contextmanager
def granted(bank: Database, privileges: str) -> Iterator[MysqlAddress]:
    """A user who has these privileges on the database, and no others."""
    server: Server = bank.server
    server.execute("CREATE USER poor@'%' IDENTIFIED BY 'poor'")
    try:
        server.execute(f"GRANT {privileges} ON {bank.name}.* TO poor@'%'")
        yield MysqlAddress.parse(f"mysql://poor:poor@127.0.0.1:{server.port}/")
    finally:
        server.execute("DROP USER poor@'%'")


def test_locks_that_we_may_not_take_are_refused_with_the_grant(bank: Database) -> None:
    with (
        granted(bank, "SELECT") as poor,
        connect(poor, role="test") as session,
        pytest.raises(Misconfigured) as refused,
        locks.lock_tables(session, names(bank, "a"), Waiting(), 0.0),
    ):
        raise AssertionError("the table was locked")
    assert refused.value.code == "MY_LOCK_PRIVILEGE"
    assert f"LOCK TABLES ON `{bank.name}`.*" in (refused.value.hint or "")


def test_an_open_writer_is_waited_for_by_who_may_not_see_prepared_transactions(bank: Database) -> None:
    """On MySQL that takes a privilege which may be left out; its lack is an error of a number of its own."""
    with (
        granted(bank, "SELECT, LOCK TABLES") as poor,
        bank.connect() as holder,
        holder.cursor() as cursor,
        connect(poor, role="test") as session,
    ):
        cursor.execute("LOCK TABLES a WRITE")
        with pytest.raises(TablesHeld) as held, locks.lock_tables(session, names(bank, "a"), Waiting(), 0.0):
            raise AssertionError("the table was locked")
        unseen = not session.release.is_mariadb
    assert ("GRANT XA_RECOVER_ADMIN" in (held.value.hint or "")) == unseen


@pytest.mark.full
def test_a_thousand_tables_are_locked_within_the_bound(bank: Database) -> None:
    with bank.connect() as connection, connection.cursor() as cursor:
        for number in range(1000):
            cursor.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY)")
    tables = names(bank, *(f"t{number}" for number in range(1000)))
    held = []
    for _ in range(3):
        with (
            leading(bank, 1) as (leader, identity),
            Reader(
                bank.url(user="mirror"), identity, leader.ticket, f"SELECT COUNT(*) FROM {bank.name}.t0"
            ) as reader,
        ):
            leader.take(tables, MysqlTimeline(), SECONDS)
            assert reader.state() == [(0,)]
        held.append(leader.held or SECONDS)
    assert min(held) < 0.5, held  # the machine is others' as well


def _views(database: Database, leader: MysqlLeader) -> int:
    """Count the readers that have their views."""
    names = (leader.ticket.view(number) for number in range(leader.ticket.readers))
    [row] = database.execute("SELECT " + ", ".join(f"IS_USED_LOCK('{name}')" for name in names))
    return sum(one is not None for one in row)


def _places(database: Database, leader: MysqlLeader) -> list[int]:
    ticket = leader.ticket
    numbers = range(ticket.readers)
    asked = ", ".join(f"IS_USED_LOCK('{ticket.place(number)}')" for number in numbers)
    [row] = database.execute(f"SELECT {asked}")
    return [number for number in numbers if row[number] is not None]
