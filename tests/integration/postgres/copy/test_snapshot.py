"""A snapshot is one moment, copied whole whatever the ranges are, and joined where it says it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace.core.chunks import KeySpan
from headrace.core.errors import Definite, Misconfigured, Transient
from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.sources.contract.copying import KeyRange
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.values import Json
from headrace.sources.postgres.catalog.definitions import read_entries_by_name
from headrace.sources.postgres.catalog.locks import RelationSize, measure, sizes
from headrace.sources.postgres.catalog.table_def import TableEntry, schema_of
from headrace.sources.postgres.copy import follower as pages
from headrace.sources.postgres.copy import key_range
from headrace.sources.postgres.copy.follower import PostgresFollower, copy, following
from headrace.sources.postgres.copy.key_range import chunk, prepare
from headrace.sources.postgres.copy.leader import By, PostgresLeader, lead
from headrace.sources.postgres.copy.measure import CopyRange, ranges
from headrace.sources.postgres.copy.reader import decode
from headrace.sources.postgres.copy.table_access import prove
from headrace.sources.postgres.copy.visibility import accept
from headrace.sources.postgres.objects import object_name
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import PostgresIdentity, identify
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.writers import writers
from headrace_testing.copies import standby
from headrace_testing.postgres import Database, postgres
from headrace_testing.postmaster import wait_for
from headrace_testing.tls import issue

pytestmark = pytest.mark.server

NAME = object_name("1a2b3c4d5e6f", "main")
T = TableName("public", "t")


@dataclass(frozen=True, slots=True)
class Source:
    """A database with a table of some thousand rows, and what a copy of it needs."""

    database: Database
    address: PostgresAddress
    session: Session
    identity: PostgresIdentity

    def entry(self, table: TableName = T) -> TableEntry:
        return read_entries_by_name(self.session, [table])[table]

    def lead(self, by: By = "slot") -> PostgresLeader:
        return lead(self.address, self.identity, NAME, by=by)

    def rows(self, leader: PostgresLeader, pieces: Sequence[CopyRange]) -> list[str]:
        """Every line that the ranges yield, sorted."""
        names = schema_of(self.entry(pieces[0].table)).names
        lines: list[str] = []
        with self.follower() as follower:
            for piece in pieces:
                for data in copy(follower.connection, leader.snapshot_id, names, piece):
                    assert data[-1] == ord("\n"), "a piece is made of whole lines"
                    lines += data.tobytes().decode().splitlines()
        return sorted(lines)

    def follower(self) -> PostgresFollower:
        return PostgresFollower(self.address, self.identity, role="copy")

    def whole(self, table: TableName = T) -> CopyRange:
        """All of a table."""
        return CopyRange(table, self.entry(table).oid, 0, None, 0, 0)


@pytest.fixture
def source(database: Database) -> Iterator[Source]:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE other (id int PRIMARY KEY)", user="app"
    )
    database.execute("INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, 20000) g", user="app")
    address = PostgresAddress.parse(database.url(user="app"))
    with closing(connect(address, role="test")) as session:
        yield Source(database, address, session, identify(session))


ALL = sorted(f"{i}\trow {i}" for i in range(1, 20001))


# --- exactness ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [10**9, 200_000, 20_000])
def test_ranges_of_any_size_hold_every_row_once(source: Source, target: int) -> None:
    entry = source.entry()
    cut = ranges(T, entry.oid, sizes(source.session, [entry.oid])[entry.oid], target)
    assert (len(cut) == 1) == (target == 10**9)
    with source.lead() as leader:
        assert source.rows(leader, cut) == ALL


@pytest.mark.parametrize("pages", [0, 1, 7, 100_000])
def test_wrong_statistics_only_skew_the_work(source: Source, pages: int) -> None:
    cut = ranges(T, source.entry().oid, RelationSize(pages, pages * 8192, 5), 4 * 8192 * (pages // 20 + 1))
    with source.lead() as leader:
        assert source.rows(leader, cut) == ALL


def test_a_label_that_no_look_knows_is_read_again(source: Source) -> None:
    """It may be called otherwise by the next look, and both looks would show labels that nobody altered."""
    m, add = TableName("public", "m"), "ALTER TYPE mood ADD VALUE '{0}'; INSERT INTO m ({1}) VALUES ('{2}')"
    made = "CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE m (a mood, b mood[], c mood[])"
    source.database.execute(made, user="app")
    for column, label, value in (("a", "x", "x"), ("b", "y", "{NULL,y}"), ("c", "z", '{{sad},{"z"}}')):
        known = to_record(source.entry(m))
        for statement in add.format(label, column, value).split("; "):
            source.database.execute(statement, user="app")
        columns = schema_of(source.entry(m)).columns
        names = [each.name for each in columns]
        with source.lead("xid") as leader, source.follower() as follower:

            def read(known: Json) -> int:
                buffers = copy(follower.connection, leader.snapshot_id, names, source.whole(m))  # noqa: B023
                with closing(buffers):
                    return sum(each.rows.num_rows for each in decode(columns, buffers, known))  # noqa: B023

            with pytest.raises(TableBusy):
                read(known)
            assert read(to_record(source.entry(m))) == "xyz".index(label) + 1


@pytest.mark.parametrize("by", ["slot", "xid"])
def test_what_happens_after_the_leader_is_not_in_the_copy(source: Source, by: By) -> None:
    entry = source.entry()
    cut = ranges(T, entry.oid, sizes(source.session, [entry.oid])[entry.oid], 100_000)
    with source.lead(by) as leader:
        source.database.execute(
            "DELETE FROM t WHERE id % 2 = 0; UPDATE t SET v = 'changed'; INSERT INTO t"
            " SELECT g, 'new' FROM generate_series(30000, 60000) g",
            user="app",
        )
        assert source.rows(leader, cut) == ALL


def test_an_empty_table_is_one_empty_range(source: Source) -> None:
    entry = source.entry(TableName("public", "other"))
    (piece,) = ranges(entry.name, entry.oid, sizes(source.session, [entry.oid])[entry.oid], 100_000)
    with source.lead() as leader:
        assert source.rows(leader, [piece]) == []


def test_children_of_a_table_are_not_copied_with_it(source: Source) -> None:
    source.database.execute(
        "CREATE TABLE child () INHERITS (t); INSERT INTO child VALUES (0, 'x')", user="app"
    )
    with source.lead() as leader:
        assert source.rows(leader, [source.whole()]) == ALL


def test_odd_names_and_values_pass(source: Source) -> None:
    source.database.execute(
        'CREATE SCHEMA "Ödd ""S"; CREATE TABLE "Ödd ""S"."Ta\'ble" ("select" int PRIMARY KEY, "Ü %s" text);'
        """INSERT INTO "Ödd ""S"."Ta'ble" VALUES (1, E'tab\\there\\nand \\\\ slash'), (2, NULL), (3, '')""",
        user="app",
    )
    odd = TableName('Ödd "S', "Ta'ble")
    with source.lead() as leader:
        lines = source.rows(leader, [source.whole(odd)])
    assert lines == ["1\ttab\\there\\nand \\\\ slash", "2\t\\N", "3\t"]


def test_a_row_longer_than_the_buffer_passes_whole(source: Source) -> None:
    source.database.execute("INSERT INTO t VALUES (0, repeat('x', 9000000))", user="app")
    with source.lead() as leader:
        lines = source.rows(leader, [source.whole()])
    assert len(lines) == 20001
    assert len(lines[0]) == 9000002


def test_the_copy_through_tls_is_the_same(tmp_path: Path) -> None:
    certificates = issue(tmp_path)
    with postgres(tls=certificates) as server, server.database() as database:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", user="app")
        database.execute(
            "INSERT INTO t SELECT g, repeat('x', 50) FROM generate_series(1, 50000) g", user="app"
        )
        copies = []
        for mode in ("disable", "verify-full"):
            url = database.url(user="app", sslmode=mode, sslrootcert=str(certificates.authority))
            address = PostgresAddress.parse(url)
            with closing(connect(address, role="test")) as session:
                source = Source(database, address, session, identify(session))
                with source.lead() as leader:
                    copies.append(source.rows(leader, [source.whole()]))
                    with source.follower() as follower:
                        for _ in range(2):  # the connection outlives what went wrong
                            with pytest.raises(TableBusy):
                                list(copy(follower.connection, leader.snapshot_id, ["gone"], source.whole()))
    assert copies[0] == copies[1]
    assert len(copies[0]) == 50000


# --- the handoff --------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["slot", "xid"])
def test_a_snapshot_is_refused_while_a_transaction_of_w_runs(source: Source, by: By) -> None:
    with source.database.connect(user="app") as writer:
        writer.execute("BEGIN; INSERT INTO t VALUES (0, 'x')")
        writer.execute("PREPARE TRANSACTION 'w'")
        barred = writers(source.session, [source.entry().oid])
        assert barred
        with pytest.raises(Transient) as caught:
            lead(
                source.address,
                source.identity,
                NAME,
                by=by,
                barred_xids=barred,
                seconds=0.5,
            )
        assert caught.value.code == {"slot": "PG_SLOT_WAITS", "xid": "PG_SNAPSHOT_BARRED"}[by]
        writer.execute("COMMIT PREPARED 'w'")
        with lead(source.address, source.identity, NAME, by=by, barred_xids=barred) as leader:
            assert "0\tx" in source.rows(leader, [source.whole()])


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", None])
def test_of_w_only_a_transaction_that_rolled_back_is_accepted_as_running(
    source: Source, end: str | None
) -> None:
    pgconn = source.session.pgconn
    with source.database.connect(user="app") as writer:
        writer.execute("BEGIN; INSERT INTO t VALUES (0, 'x')")
        barred = writers(source.session, [source.entry().oid])
        ((visible,),) = query(source.session, "SELECT pg_current_snapshot()::text")
        if end is not None:
            writer.execute(end.encode())
        accept(pgconn, visible, {xid - 1 for xid in barred})
        if end == "ROLLBACK":
            accept(pgconn, visible, barred)
            return
        with pytest.raises(Transient) as caught:
            accept(pgconn, visible, barred)
    assert caught.value.code == "PG_SNAPSHOT_BARRED"


@pytest.mark.parametrize("by", ["slot", "xid"])
def test_the_leader_leaves_no_slot_behind_nor_holds_one(source: Source, by: By) -> None:
    with source.lead(by) as leader:
        assert leader.alive()
        assert query(source.session, "SELECT slot_name FROM pg_replication_slots") == []
    _no_session(source, "headrace snapshot")


def _no_session(source: Source, application: str) -> None:
    """Wait until the server has seen that a session of that name has ended."""
    statement = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND datname = %s"
    parameters = [application, source.database.name]
    wait_for(lambda: not query(source.session, statement, parameters), f'"{application}" has ended')


# --- what goes wrong ----------------------------------------------------------------------------


def test_a_dead_leader_is_noticed_and_its_snapshot_is_gone(source: Source) -> None:
    leader = source.lead()
    source.database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'headrace snapshot'"
    )
    assert not leader.alive()
    with pytest.raises(Transient) as caught:
        source.rows(leader, [source.whole()])
    assert caught.value.code == "PG_SNAPSHOT_GONE"
    leader.close()


def test_a_follower_that_has_begun_needs_the_leader_no_more(source: Source) -> None:
    leader = source.lead()
    source.database.execute("INSERT INTO t SELECT g, repeat('y', 500) FROM generate_series(30000, 60000) g")
    with source.follower() as follower:
        with source.lead() as second:
            names = schema_of(source.entry()).names
            pieces = copy(follower.connection, second.snapshot_id, names, source.whole())
            first = next(pieces)
        leader.close()
        lines = first.tobytes().count(b"\n") + sum(piece.tobytes().count(b"\n") for piece in pieces)
    assert lines == 50001


def test_a_copy_that_is_given_up_ends_its_session(source: Source) -> None:
    source.database.execute("INSERT INTO t SELECT g, repeat('y', 5000) FROM generate_series(30000, 50000) g")
    with source.lead() as leader, source.follower() as follower:
        pieces = copy(follower.connection, leader.snapshot_id, ["v"], source.whole())
        next(pieces)
        pieces.close()
        _no_session(source, "headrace copy")
        assert leader.alive()


@pytest.mark.parametrize("change", ["DROP TABLE t", "ALTER TABLE t RENAME COLUMN v TO w"])
def test_a_table_that_changed_under_the_copy_is_to_be_looked_at_again(source: Source, change: str) -> None:
    names, whole = schema_of(source.entry()).names, source.whole()
    with source.lead() as leader, source.follower() as follower:
        source.database.execute(change, user="app")
        with pytest.raises(TableBusy) as caught:
            list(copy(follower.connection, leader.snapshot_id, names, whole))
    assert caught.value.code == "PG_COPY_OVERTAKEN"


def test_a_follower_that_reaches_another_server_copies_nothing(source: Source) -> None:
    other = replace(source.identity, system_id="1")
    with (
        PostgresFollower(source.address, other, role="copy") as follower,
        pytest.raises(Misconfigured) as caught,
    ):
        _ = follower.connection
    assert caught.value.code == "PG_ANOTHER_SERVER"


# --- what is true of one table ------------------------------------------------------------------


def test_what_keeps_one_table_from_being_read_is_said_of_it_and_the_next_is_read(source: Source) -> None:
    other = TableName("public", "other")
    source.database.execute("INSERT INTO other VALUES (1)", user="app")
    whole = source.whole()
    for harm in (
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; ALTER TABLE t FORCE ROW LEVEL SECURITY",
        "ALTER TABLE t DISABLE ROW LEVEL SECURITY; REVOKE ALL ON t FROM app",
        "GRANT SELECT (id) ON t TO app",
    ):
        source.database.execute(harm)
        with source.lead("xid") as leader, source.follower() as follower:
            with pytest.raises(TableBusy) as caught:
                list(copy(follower.connection, leader.snapshot_id, ["id", "v"], whole))
            assert caught.value.code == "PG_PRIVILEGE_MISSING"
            assert "GRANT SELECT ON public.t TO app" in caught.value.hint
            rows = list(copy(follower.connection, leader.snapshot_id, ["id"], source.whole(other)))
            assert [data.tobytes() for data in rows] == [b"1\n"]


def test_a_damaged_value_stops_its_table_alone(source: Source) -> None:
    source.database.execute(
        "INSERT INTO t SELECT 0, string_agg(md5(g::text), '') FROM generate_series(1, 400) g", user="app"
    )
    [(toast,)] = source.database.execute(
        "SELECT reltoastrelid::regclass::text FROM pg_class WHERE relname = 't'"
    )
    kind = f"UPDATE pg_class SET relkind = '%s' WHERE oid = '{toast}'::regclass"
    with source.database.connect() as vandal:
        vandal.execute("SET allow_system_table_mods = on")
        vandal.execute(
            kind.replace("%s", "r").encode()
        )  # a TOAST table cannot be written, an ordinary one can
        vandal.execute(f"DELETE FROM {toast} WHERE chunk_seq = 1".encode())
        vandal.execute(kind.replace("%s", "t").encode())
    with source.lead("xid") as leader, source.follower() as follower:
        with pytest.raises(Definite) as caught:
            list(copy(follower.connection, leader.snapshot_id, ["id", "v"], source.whole()))
        assert caught.value.code == "PG_TABLE_UNREADABLE"
        assert "XX001" in str(caught.value.detail)
        assert list(copy(follower.connection, leader.snapshot_id, ["id"], source.whole()))


def _ids(source: Source, leader: PostgresLeader, follower: PostgresFollower) -> list[int]:
    """The rows that the publication p sends, by a range of pages."""
    found = b"".join(
        data.tobytes() for data in copy(follower.connection, leader.snapshot_id, ["id"], source.whole(), "p")
    )
    return sorted(map(int, found.split()))


def test_rows_are_read_by_the_row_filter_of_their_snapshot(source: Source) -> None:
    """Whatever the publication says by now, and whatever functions a search_path would lead to."""
    database = source.database
    database.execute(
        "CREATE PUBLICATION p FOR TABLE t WHERE (id > 19997 AND lower(v) = v OR id = 7);"
        " CREATE SCHEMA evil; CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE sql"
        " AS 'SELECT NULL::text'; GRANT USAGE ON SCHEMA evil TO app"
    )
    database.execute(f"ALTER ROLE app IN DATABASE {database.name} SET search_path = evil, pg_catalog, public")
    with source.lead("xid") as leader, source.follower() as follower:
        assert _ids(source, leader, follower) == [7, 19998, 19999, 20000]
        database.execute("DROP PUBLICATION p; CREATE PUBLICATION p FOR TABLE t WHERE (id < 3)")
        assert _ids(source, leader, follower) == [7, 19998, 19999, 20000]
    with source.lead("xid") as leader, source.follower() as follower:
        assert _ids(source, leader, follower) == [1, 2]
        prepare(follower.connection)
        piece = KeyRange(T, source.whole().oid, ("id",), (KeySpan(),), 0, 0)
        with chunk(follower.connection, ["id"], piece, "p") as (_, buffers):
            assert b"".join(data.tobytes() for data in buffers) == b"1\n2\n"


def test_a_row_filter_that_cannot_be_evaluated_is_said_of_its_table(source: Source) -> None:
    database = source.database
    database.execute("CREATE PUBLICATION p FOR TABLE t WHERE (factorial(id - 1) > 0 AND 9 / (id - 5) > 0)")
    piece = KeyRange(T, source.whole().oid, ("id",), (KeySpan(),), 0, 0)
    with source.lead("xid") as leader, source.follower() as follower:
        database.execute("REVOKE EXECUTE ON FUNCTION pg_catalog.factorial(bigint) FROM PUBLIC")
        with pytest.raises(TableBusy) as caught:
            _ids(source, leader, follower)
        assert (caught.value.code, "GRANT EXECUTE" in caught.value.hint) == ("PG_PRIVILEGE_MISSING", True)
        database.execute("GRANT EXECUTE ON FUNCTION pg_catalog.factorial(bigint) TO app")
        prepare(follower.connection)
        with pytest.raises(Definite) as failed:
            _ids(source, leader, follower)
        assert failed.value.code == "PG_FILTER_FAILED"
        with (
            pytest.raises(Definite) as failed,
            chunk(follower.connection, ["id"], piece, "p") as (_, buffers),
        ):
            list(buffers)
        assert failed.value.code == "PG_FILTER_FAILED"


def test_a_table_under_a_name_that_leads_elsewhere_is_not_copied(source: Source) -> None:
    source.database.execute(
        "CREATE TABLE other_t (LIKE t INCLUDING ALL); INSERT INTO other_t VALUES (1, 'no')"
    )
    source.database.execute("GRANT SELECT ON other_t TO app")
    schema = schema_of(source.entry())
    whole = source.whole()
    swap = "ALTER TABLE t RENAME TO t_old; ALTER TABLE other_t RENAME TO t"
    with source.lead("xid") as leader, source.follower() as follower:
        source.database.execute(swap)
        with pytest.raises(TableBusy) as caught:
            list(copy(follower.connection, leader.snapshot_id, schema.names, whole))
        assert caught.value.code == "PG_COPY_OVERTAKEN"
        prepare(follower.connection)
        piece = KeyRange(T, whole.oid, schema.key, (KeySpan(),), 0, 0)
        with pytest.raises(TableBusy), chunk(follower.connection, schema.names, piece) as (_, buffers):
            list(buffers)


SWAPPED = "ALTER SCHEMA public RENAME TO away; ALTER SCHEMA elsewhere RENAME TO public"
SWAPPED_BACK = "ALTER SCHEMA public RENAME TO elsewhere; ALTER SCHEMA away RENAME TO public"


@pytest.mark.parametrize("of", [pages, key_range])
def test_a_table_of_another_schema_is_not_copied_though_its_name_led_there_for_a_moment(
    source: Source, monkeypatch: pytest.MonkeyPatch, of: ModuleType
) -> None:
    """Renaming a schema waits for no lock on its tables: between proof and COPY, and back while it reads."""
    source.database.execute("CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.t (LIKE t INCLUDING ALL)")
    source.database.execute("INSERT INTO elsewhere.t VALUES (1, 'no')")
    source.database.execute("GRANT USAGE ON SCHEMA elsewhere TO app; GRANT SELECT ON elsewhere.t TO app")
    names, whole = schema_of(source.entry()).names, source.whole()

    def proved(connection: Session, table: TableName, oid: int) -> None:
        prove(connection, table, oid)
        source.database.execute(SWAPPED)

    def read(buffers: Iterator[Any]) -> None:
        next(buffers)
        source.database.execute(SWAPPED_BACK)
        list(buffers)

    def in_chunks(follower: PostgresFollower) -> None:
        prepare(follower.connection)
        piece = KeyRange(T, whole.oid, ("id",), (KeySpan(),), 0, 0)
        with chunk(follower.connection, names, piece) as (_, buffers):
            read(buffers)

    monkeypatch.setattr(of, "prove", proved)
    with source.lead("xid") as leader, source.follower() as follower:
        read_it: Callable[[], None] = partial(in_chunks, follower)
        if of is pages:
            read_it = partial(read, copy(follower.connection, leader.snapshot_id, names, whole))
        with pytest.raises(TableBusy) as caught:
            read_it()
    assert caught.value.code == "PG_COPY_OVERTAKEN"


def test_a_table_that_somebody_holds_is_named_with_the_holder(source: Source) -> None:
    whole = source.whole()
    with source.database.connect() as holder, source.lead("xid") as leader, source.follower() as follower:
        holder.execute("SET application_name = 'etl'")
        holder.execute("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        query(follower.connection, "SET lock_timeout = '50ms'")
        with pytest.raises(TableBusy) as caught:
            list(copy(follower.connection, leader.snapshot_id, ["id"], whole))
        assert caught.value.code == "PG_TABLE_LOCKED"
        assert "public.t" in caught.value.primary
        assert f'pid {holder.info.backend_pid} (user postgres, application "etl"' in str(caught.value.detail)
        assert "holds AccessExclusiveLock" in str(caught.value.detail)
        found = measure(source.session, {whole.oid: T})
        assert (found.sizes, set(found.busy)) == ({}, {T}), "its size is not waited for"
        holder.execute("TRUNCATE t; PREPARE TRANSACTION 'held'")
        assert 'prepared transaction "held"' in str(measure(source.session, {whole.oid: T}).busy[T].detail)
        holder.execute("ROLLBACK PREPARED 'held'")
        assert measure(source.session, {whole.oid: T, 1: T}).sizes.keys() == {whole.oid}
        assert list(copy(follower.connection, leader.snapshot_id, ["id"], whole))


@pytest.mark.full
def test_a_standby_that_cancels_a_copy_says_so_of_its_table() -> None:
    settings: dict[str, Any] = {"hot_standby_feedback": False, "max_standby_streaming_delay": "0"}
    with postgres() as server, server.database() as database:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", user="app")
        database.execute("INSERT INTO t SELECT g FROM generate_series(1, 20000) g", user="app")
        with standby(server, **settings) as other:
            there = Database(other, database.name)
            address = PostgresAddress.parse(there.url(user="app"))
            with closing(connect(address, role="test")) as session:
                source = Source(there, address, session, identify(session))
                # Neither in a `with` of its own: the conflict ends the leader's session, too.
                with closing(there.connect()) as leader, source.follower() as follower:
                    leader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                    [(snapshot_id,)] = leader.execute("SELECT pg_export_snapshot()").fetchall()
                    with pytest.raises(TableBusy) as caught:
                        _read_on(source, follower, snapshot_id, database)
    assert caught.value.code == "PG_STATEMENT_OVERRULED"


def _read_on(source: Source, follower: PostgresFollower, snapshot_id: str, primary: Database) -> None:
    """Read under the snapshot until the standby has to forget what it shows."""
    with following(follower.connection, snapshot_id, source.whole()):
        primary.execute("DELETE FROM t", user="app")
        primary.execute("VACUUM t", user="app")
        wait_for(lambda: not query(follower.connection, "SELECT 1 FROM public.t"), "a conflict")
