"""Our objects upstream are made in the right order, bounded, named, and gone once they are dropped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import cast

import psycopg
import pytest

from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient
from headrace.core.names import TableName
from headrace.sources.contract.values import Waiting
from headrace.sources.postgres import publication
from headrace.sources.postgres.catalog.definitions import read_entries_by_name
from headrace.sources.postgres.objects import confirm, drop_upstream, object_name, options, plan
from headrace.sources.postgres.publication import (
    ensure_publication,
    withdraw,
    withdraw_by_oid,
    without_identity,
)
from headrace.sources.postgres.session import statements
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import PINS, WISHES, connect, replication
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.slot import bound_wait, check_slot, ensure_slot, slot_state
from headrace.sources.postgres.writers import blockers, writers
from headrace_testing.absent_standby import absent_standby
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.clocks import clock_of

pytestmark = pytest.mark.server

NAME = object_name("1a2b3c4d5e6f", "main")
T, U, KEYLESS = TableName("public", "t"), TableName("public", "u"), TableName("public", "keyless")
MINUTES = 240.0
ODD = TableName('Ödd "Schema', "Select")


@pytest.fixture
def address(database: Database) -> PostgresAddress:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE u (id int PRIMARY KEY);"
        " CREATE TABLE keyless (v int); INSERT INTO keyless VALUES (1); INSERT INTO t VALUES (1, 1);"
        ' CREATE SCHEMA "Ödd ""Schema"; CREATE TABLE "Ödd ""Schema"."Select" (id int PRIMARY KEY)',
        user="app",
    )
    return PostgresAddress.parse(database.url(user="app"))


@pytest.fixture
def session(address: PostgresAddress) -> Iterator[Session]:
    with closing(connect(address, role="test")) as connection:
        yield connection


def published(session: Session) -> set[TableName]:
    rows = query(
        session, "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", [NAME]
    )
    return {TableName(*row) for row in rows}


def test_standbys_may_keep_a_copy_of_our_slot_unless_that_is_switched_off(
    address: PostgresAddress, session: Session
) -> None:
    """A slot that is older than the option gets it at the next start."""
    ensure_slot(address, NAME)
    upstream = plan("1a2b3c4d5e6f", "main", {})
    assert upstream.slot == NAME

    def failover() -> bool:
        state = slot_state(session, NAME)
        assert state is not None
        return state.failover

    assert not failover()
    confirm(address, session, replace(upstream, failover=False))
    assert not failover()
    confirm(address, session, upstream)
    assert failover()
    drop_upstream(address, publication=None, slot=NAME, application="")
    ensure_slot(address, NAME, failover=True)
    assert failover()
    assert options(upstream) == {"slot_failover": "auto"}
    assert plan("1a2b3c4d5e6f", "main", {"slot_failover": "off"}) == replace(upstream, failover=False)


def slots(session: Session) -> list[str]:
    return [name for (name,) in query(session, "SELECT slot_name::text FROM pg_replication_slots")]


# --- publication --------------------------------------------------------------------------------


def test_a_publication_is_made_once_and_grows(session: Session) -> None:
    ensure_publication(session, NAME, [T])
    ensure_publication(session, NAME, [T])
    assert published(session) == {T}
    ensure_publication(session, NAME, [T, U, ODD])
    assert published(session) == {T, U, ODD}
    withdraw(session, NAME, [U, KEYLESS])
    assert published(session) == {T, ODD}


def test_nothing_is_added_to_a_stream_that_would_lose_its_changes(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers before 15.13, 16.9 and 17.5 lose changes. None is at hand: this one plays such a server."""
    ensure_publication(session, NAME, [T])
    major = session.info.server_version // 10000
    monkeypatch.setitem(publication.LATE_TABLES_WHOLE, major, major * 10000 + 9999)
    ensure_publication(session, NAME, [T], make=False)
    with pytest.raises(Misconfigured) as caught:
        ensure_publication(session, NAME, [T, U], make=False)
    assert caught.value.code == "PG_VERSION_LOSES"
    assert published(session) == {T}


@pytest.mark.parametrize("first", [[KEYLESS], [T]])
def test_a_table_without_identity_never_gets_into_the_publication(
    session: Session, database: Database, first: list[TableName]
) -> None:
    if first == [T]:
        ensure_publication(session, NAME, first)
    with pytest.raises(Misconfigured) as caught:
        ensure_publication(session, NAME, [U, KEYLESS])
    assert caught.value.code == "PG_IDENTITY_MISSING"
    assert published(session) == ({T} if first == [T] else set())
    # What it is about: the application goes on.
    database.execute("UPDATE keyless SET v = 2; DELETE FROM keyless; UPDATE u SET id = 2", user="app")


def test_a_publication_that_somebody_altered_is_refused(session: Session) -> None:
    ensure_publication(session, NAME, [T])
    query(session, f"ALTER PUBLICATION {NAME} SET (publish = 'insert')".encode())
    with pytest.raises(Misconfigured) as caught:
        ensure_publication(session, NAME, [T, U])
    assert caught.value.code == "PG_PUBLICATION_ALTERED"


def test_a_publication_of_foreign_tables_is_left_to_their_owner(session: Session, database: Database) -> None:
    database.execute("CREATE TABLE theirs (id int PRIMARY KEY)")
    with pytest.raises(Misconfigured) as caught:
        ensure_publication(session, NAME, [TableName("public", "theirs")])
    assert caught.value.code == "PG_PUBLICATION_PRIVILEGE"
    assert f"CREATE PUBLICATION {NAME} FOR TABLE ONLY public.theirs" in caught.value.hint


@pytest.mark.parametrize("mode", ["ACCESS EXCLUSIVE", "SHARE UPDATE EXCLUSIVE"])
def test_the_publication_waits_only_a_moment_for_a_lock_and_names_who_holds_it(
    session: Session, database: Database, mode: str
) -> None:
    query(session, "SET lock_timeout = '100ms'")
    with database.connect() as other:
        pids = [other.info.backend_pid]
        other.execute(f"BEGIN; LOCK TABLE u IN {mode} MODE")
        with pytest.raises(Transient) as caught:
            ensure_publication(session, NAME, [T, U])
        other.execute("ROLLBACK")
    assert caught.value.code == "PG_TABLE_LOCKED"
    assert "public.u" in caught.value.primary
    assert f"pid {pids.pop()}" in str(caught.value.detail)
    ensure_publication(session, NAME, [T, U])
    with database.connect() as other:
        pids = [other.info.backend_pid]
        other.execute(f"BEGIN; ALTER PUBLICATION {NAME} DROP TABLE ONLY t")
        with pytest.raises(Transient) as caught:
            withdraw(session, NAME, [U])
        other.execute("ROLLBACK")
    assert f"pid {pids.pop()}" in str(caught.value.detail)


def test_no_commit_of_ours_waits_for_a_standby_that_is_away(session: Session, database: Database) -> None:
    with absent_standby(database.server):
        ensure_publication(session, NAME, [T])
        withdraw(session, NAME, [T])
        drop_upstream(
            PostgresAddress.parse(database.url(user="app")), publication=NAME, slot=None, application=""
        )
    assert published(session) == set()


def test_a_table_without_identity_is_found_and_leaves_whatever_it_is_called(
    session: Session, database: Database
) -> None:
    ensure_publication(session, NAME, [T, U, ODD])
    assert without_identity(session, NAME) == frozenset()
    database.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE u REPLICA IDENTITY NOTHING")
    oids = without_identity(session, NAME)
    assert {entry.name for entry in read_entries_by_name(session, [T, U]).values() if entry.oid in oids} == {
        T,
        U,
    }
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        database.execute("UPDATE t SET v = 2", user="app")
    database.execute("ALTER TABLE t RENAME TO moved")
    with database.connect() as other, other.transaction():
        other.execute("LOCK TABLE u IN SHARE UPDATE EXCLUSIVE MODE")
        with pytest.raises(Transient):  # after a moment, and with nothing done
            withdraw_by_oid(session, NAME, oids)
        database.execute("INSERT INTO u VALUES (1)", user="app")
    assert without_identity(session, NAME) == oids
    withdraw_by_oid(session, NAME, oids)
    assert published(session) == {ODD}
    database.execute("UPDATE moved SET v = 2; DELETE FROM u", user="app")
    withdraw_by_oid(session, NAME, oids)  # nothing to do


# --- slot ---------------------------------------------------------------------------------------


def test_a_slot_is_made_once_and_found_again(address: PostgresAddress, session: Session) -> None:
    made = ensure_slot(address, NAME)
    assert ensure_slot(address, NAME) == made
    state = slot_state(session, NAME)
    assert state is not None
    assert (state.plugin, state.confirmed_flush_lsn, state.two_phase) == ("pgoutput", made, False)
    assert state.restart_lsn is not None
    assert state.restart_lsn <= made
    assert not state.is_lost
    assert slot_state(session, "nothing") is None


@pytest.mark.parametrize("how", ["open", "prepared"])
def test_a_slot_that_waits_names_the_transaction_and_is_not_left_half_made(
    address: PostgresAddress, session: Session, database: Database, how: str
) -> None:
    with database.connect(user="app") as writer:
        writer.execute("BEGIN; SAVEPOINT s; INSERT INTO t VALUES (2); RELEASE s; INSERT INTO t VALUES (3)")
        named = f"pid {writer.info.backend_pid}"
        if how == "prepared":
            writer.execute("PREPARE TRANSACTION 'half done'")
            named = 'prepared transaction "half done"'
        with pytest.raises(Transient) as caught:
            ensure_slot(address, NAME, seconds=0.3)
        assert caught.value.code == "PG_SLOT_WAITS"
        assert named in str(caught.value.detail)
        assert str(caught.value.detail).count("(") == 1, "one line for a transaction with sub-transactions"
        assert slots(session) == []
        writer.execute("ROLLBACK PREPARED 'half done'" if how == "prepared" else "ROLLBACK")
    ensure_slot(address, NAME)
    assert slots(session) == [NAME]


def test_a_slot_is_made_while_writers_overlap(
    address: PostgresAddress, session: Session, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt waits twice: for the transactions that run, and then for those that run by then.

    It is given up for neither, though each of them lasts minutes: the next one would wait for both again.
    """
    monkeypatch.setattr("headrace.sources.postgres.slot.TELL_SECONDS", 0.1)
    monkeypatch.setitem(cast("dict[str, str]", PINS), "lock_timeout", "50ms")  # of all others
    clock = clock_of(statements, monkeypatch)
    heard: list[str] = []
    with database.connect(user="app") as one, database.connect(user="app") as other:
        pids = [each.info.backend_pid for each in (one, other)]
        one.execute("BEGIN; INSERT INTO t VALUES (2)")

        def hear(waits: Transient) -> None:
            assert waits.code == "PG_SLOT_WAITS"
            heard.append(str(waits.detail))
            if len(heard) == 1:
                other.execute("BEGIN; INSERT INTO t VALUES (3)")
                one.execute("COMMIT")
            elif len(heard) == 2:
                other.execute("COMMIT")
            clock.ahead = min(len(heard), 2) * MINUTES

        ensure_slot(address, NAME, waiting=Waiting(tell=hear))
    assert slots(session) == [NAME]
    assert [f"pid {pid}" in said for pid, said in zip(pids, heard, strict=False)] == [True, True]


def test_a_wait_for_a_slot_ends_at_the_server_when_nobody_wants_it(
    address: PostgresAddress, session: Session, database: Database
) -> None:
    stops = iter([False, False, True])

    def check() -> None:
        if next(stops):
            raise Transient("STOPPED", "stopped", hint="")

    with database.connect(user="app") as writer:
        writer.execute("BEGIN; INSERT INTO t VALUES (2)")
        with pytest.raises(Transient) as caught:
            ensure_slot(address, NAME, waiting=Waiting(check))
        assert caught.value.code == "STOPPED"
        assert slots(session) == []


@pytest.mark.parametrize("what", ["slot", "table"])
def test_a_backend_of_ours_that_waits_notices_that_we_are_gone(
    address: PostgresAddress, session: Session, database: Database, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cast("dict[str, str]", WISHES), "client_connection_check_interval", "200ms")
    monkeypatch.setitem(cast("dict[str, str]", PINS), "lock_timeout", "10min")
    ours = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'headrace gone'"
    waiting = f"{ours} AND wait_event_type = 'Lock'"
    # Then the clock that the first statement set has run out, and nothing has set it again.
    idle = f"{ours} AND state = 'idle' AND clock_timestamp() - state_change > '300ms'"
    with database.connect(user="app") as holder:
        holder.execute("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE; INSERT INTO t VALUES (2)")
        pgconn = replication(address, role="gone")
        wait_for(lambda: bool(query(session, idle.encode())), "its clock has run out")
        bound_wait(pgconn, 600)
        commands = {"slot": f"CREATE_REPLICATION_SLOT {NAME} LOGICAL pgoutput", "table": "TABLE public.t"}
        pgconn.send_query(commands[what].encode())
        wait_for(lambda: bool(query(session, waiting.encode())), "it waits")
        pgconn.finish()
        wait_for(lambda: not query(session, waiting.encode()), "it has noticed")


def test_blockers_that_are_young_are_not_named(session: Session, database: Database) -> None:
    with database.connect(user="app") as writer:
        writer.execute("BEGIN; INSERT INTO t VALUES (2)")
        assert len(blockers(session)) == 1
        assert blockers(session, older_than=60) == []


def test_a_slot_of_another_kind_is_refused(address: PostgresAddress, session: Session) -> None:
    query(session, "SELECT pg_create_logical_replication_slot('two', 'pgoutput', twophase => true)")
    query(session, "SELECT pg_create_physical_replication_slot('other', false, true)")
    for name in ("two", "other"):
        with pytest.raises(Misconfigured) as caught:
            ensure_slot(address, name)
        assert caught.value.code == "PG_SLOT_UNFIT"
    ensure_slot(address, NAME)
    state = slot_state(session, NAME)
    assert state is not None
    with pytest.raises(Misconfigured):
        check_slot(NAME, state, "another database")
    with pytest.raises(Definite) as lost:
        check_slot(NAME, replace(state, wal_status="lost"), session.info.dbname)
    assert lost.value.code == "PG_SLOT_LOST"


# --- W ------------------------------------------------------------------------------------------


def test_writers_are_those_that_hold_a_write_lock_on_a_table(session: Session, database: Database) -> None:
    (oid,) = query(session, "SELECT 'public.t'::regclass::oid::bigint")[0]
    with (
        database.connect(user="app") as writer,
        database.connect(user="app") as elsewhere,
        database.connect(user="app") as reader,
        database.connect(user="app") as waiting,
    ):
        elsewhere.execute("BEGIN; INSERT INTO u VALUES (5)")
        reader.execute("BEGIN; SELECT * FROM t; SELECT pg_current_xact_id()")
        waiting.execute("BEGIN; LOCK TABLE t IN ROW EXCLUSIVE MODE")  # has written nothing yet
        assert writers(session, [oid]) == set()
        writer.execute("BEGIN; INSERT INTO t VALUES (9); SAVEPOINT s; INSERT INTO t VALUES (10)")
        (xid,) = writer.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()[0]
        assert xid in writers(session, [oid])
        assert writers(session, []) == set()
        writer.execute("PREPARE TRANSACTION 'w'")
        assert xid in writers(session, [oid])
        writer.execute("ROLLBACK PREPARED 'w'")
        assert writers(session, [oid]) == set()


# --- removing -----------------------------------------------------------------------------------


def reading(address: PostgresAddress, role: str) -> psycopg.pq.abc.PGconn:
    """A session that reads the slot."""
    pgconn = replication(address, role=role)
    pgconn.exec_(
        f"START_REPLICATION SLOT {NAME} LOGICAL 0/0 (proto_version '1', publication_names '{NAME}')".encode()
    )
    return pgconn


def test_drop_removes_everything_and_says_so(address: PostgresAddress, session: Session) -> None:
    ensure_publication(session, NAME, [T])
    ensure_slot(address, NAME)
    removed = drop_upstream(address, publication=NAME, slot=NAME, application="headrace stream x")
    assert removed == [f'slot "{NAME}"', f'publication "{NAME}"']
    assert slots(session) == []
    assert published(session) == set()
    assert drop_upstream(address, publication=NAME, slot=NAME, application="headrace stream x") == []


def test_a_publication_that_may_not_be_dropped_is_left_to_its_owner(
    address: PostgresAddress, session: Session, database: Database
) -> None:
    database.execute(f"CREATE PUBLICATION {NAME}")
    with pytest.raises(HeadraceError) as caught:
        drop_upstream(address, publication=NAME, slot=None, application="headrace stream x")
    assert caught.value.code == "PG_PUBLICATION_PRIVILEGE"
    statement = caught.value.hint.rpartition(": ")[2]
    assert "--publication" not in statement
    database.execute(statement)
    assert published(session) == set()


def test_drop_ends_our_own_zombie_on_the_slot(address: PostgresAddress, session: Session) -> None:
    ensure_slot(address, NAME)
    zombie = reading(address, "stream 1a2b3c4d")
    removed = drop_upstream(address, publication=None, slot=NAME, application="headrace stream 1a2b3c4d")
    assert f'slot "{NAME}"' in removed
    assert any("walsender" in line for line in removed)
    zombie.finish()
    assert slots(session) == []


def test_drop_leaves_a_slot_that_somebody_else_reads(address: PostgresAddress, session: Session) -> None:
    ensure_slot(address, NAME)
    other = reading(address, "stream of another lake")
    with pytest.raises(HeadraceError) as caught:
        drop_upstream(address, publication=None, slot=NAME, application="headrace stream 1a2b3c4d")
    assert caught.value.code == "PG_SLOT_TAKEN"
    assert str(other.backend_pid) in str(caught.value.detail)
    assert query(session, "SELECT active_pid FROM pg_replication_slots") == [(other.backend_pid,)]
    other.finish()


def test_a_dead_creator_leaves_no_slot(
    address: PostgresAddress, session: Session, database: Database
) -> None:
    with database.connect(user="app") as writer:
        writer.execute("BEGIN; INSERT INTO t VALUES (2)")
        pgconn = replication(address, role="slot")
        bound_wait(pgconn, 0.2)
        pgconn.send_query(f"CREATE_REPLICATION_SLOT {NAME} LOGICAL pgoutput NOEXPORT_SNAPSHOT".encode())
        pid = pgconn.backend_pid
        pgconn.finish()
        # The server does not look at its client while it waits: the lock's time limit ends it.
        wait_for(
            lambda: not query(session, "SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]),
            "the walsender has ended",
        )
        assert slots(session) == []
