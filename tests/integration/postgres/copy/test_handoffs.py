"""A handoff tells for each streamed transaction whether the snapshot holds it: never one too many or few.

Writers commit, roll back, and use savepoints all the while. Each of their transactions leaves its number in
two tables, so that a snapshot can be asked which transactions it shows; the server's own reading of its log
says which there were, at which position, by which xid. Then the two answers are compared, snapshot by
snapshot. `make integration` takes two hundred with each handoff.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from headrace.core.chunks import ByChunk, Chunk, KeySpan, exact_from
from headrace.core.errors import Misconfigured, Transient
from headrace.core.handoff import Handoff
from headrace.core.keycode import keycode
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.sources.contract.copying import KeyRange
from headrace.sources.postgres.catalog.definitions import read_entries_by_name
from headrace.sources.postgres.catalog.table_def import schema_of
from headrace.sources.postgres.copy.follower import copy
from headrace.sources.postgres.copy.key_range import bound_from, chunk
from headrace.sources.postgres.copy.leader import By, lead
from headrace.sources.postgres.copy.measure import CopyRange
from headrace.sources.postgres.copy.visibility import page_start
from headrace.sources.postgres.objects import object_name
from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.preflight import PostgresWish, examine
from headrace.sources.postgres.publication import ensure_publication
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import PostgresIdentity, identify
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.slot import ensure_slot
from headrace.sources.postgres.writers import writers
from headrace_testing.absent_standby import absent_standby, hanging
from headrace_testing.copies import demote, promote
from headrace_testing.postgres import Database, Server, postgres
from headrace_testing.postmaster import wait_for

pytestmark = pytest.mark.server

NAME = object_name("1a2b3c4d5e6f", "main")
TABLES = (TableName("public", "one"), TableName("public", "two"))
HANDOFFS: tuple[By, ...] = ("slot", "xid")


@dataclass(frozen=True, slots=True)
class Source:
    """A database whose two tables are published and captured by a slot."""

    database: Database
    address: PostgresAddress
    session: Session
    identity: PostgresIdentity
    start: Lsn

    def barred(self) -> set[int]:
        entries = read_entries_by_name(self.session, list(TABLES))
        return writers(self.session, [entry.oid for entry in entries.values()])

    def shown(self, by: By) -> Shown:
        """A snapshot by this handoff, and the numbers that its two tables show."""
        with lead(self.address, self.identity, NAME, by=by, barred_xids=self.barred()) as leader:
            one, two = (self._numbers(leader.snapshot_id, table) for table in TABLES)
            assert one == two, "a snapshot shows a part of a transaction"
            return Shown(leader.handoff, one)

    def in_chunks(self, dice: random.Random) -> ShownInChunks:
        """One of the tables, a chunk after the other, and the numbers that they show together."""
        [entry] = read_entries_by_name(self.session, TABLES[:1]).values()
        schema = schema_of(entry)
        present = [n for (n,) in query(self.session, "SELECT n FROM public.one")]
        cuts = [bound_from(schema, [str(n)]) for n in sorted(dice.sample(present, 3))]
        edges = [None, *cuts, None]
        chunks, numbers = [], set()
        for span in dice.sample([KeySpan(low, high) for low, high in pairwise(edges)], 4):
            piece = KeyRange(TABLES[0], entry.oid, schema.key, (span,), 0, 0)
            with (
                closing(connect(self.address, role="chunk")) as connection,
                chunk(connection, ["n"], piece) as (handoff, pieces),
            ):
                numbers |= {int(line) for piece in pieces for line in piece.tobytes().split()}
            chunks.append(Chunk(span, handoff))
        return ShownInChunks(ByChunk().plus(chunks), numbers)

    def _numbers(self, snapshot_id: str, table: TableName) -> set[int]:
        whole = CopyRange(table, read_entries_by_name(self.session, [table])[table].oid, 0, None, 0, 0)
        with closing(connect(self.address, role="copy")) as connection:
            pieces = copy(connection, snapshot_id, ["n"], whole)
            return {int(line) for piece in pieces for line in piece.tobytes().split()}

    def streamed(self) -> Streamed:
        """Every committed transaction, by the server's own reading of its log."""
        found = Streamed()
        rows = query(
            self.session,
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,"
            " 'proto_version', '1', 'publication_names', %s)",
            [NAME, NAME],
        )
        for (message,) in rows:
            if message[:1] == b"B":
                found.lsn.append(int.from_bytes(message[1:9], "big"))
                found.xid.append(int.from_bytes(message[17:21], "big"))
                found.number.append(-1)
            elif message[:1] == b"I":
                found.number[-1] = int(message[1 + 4 + 1 + 2 + 1 + 4 :])
        return found


@dataclass(frozen=True, slots=True)
class Shown:
    """A snapshot: its handoff, and the transactions that it shows."""

    handoff: Handoff
    numbers: set[int]


@dataclass(frozen=True, slots=True)
class ShownInChunks:
    """A copy in chunks: its handoff, and the numbers that it has."""

    handoff: ByChunk
    numbers: set[int]


@dataclass(slots=True)
class Streamed:
    """The transactions of the stream, in commit order; xids as the wire has them, 32 bits wide."""

    lsn: list[int] = field(default_factory=list)
    xid: list[int] = field(default_factory=list)
    number: list[int] = field(default_factory=list)

    def held(self, handoff: Handoff) -> set[int]:
        flags = handoff.holds(pa.array(self.lsn, pa.int64()), pa.array(self.xid, pa.uint32()))
        return {n for n, held in zip(self.number, flags.to_pylist(), strict=True) if held}

    def held_by_key(self, handoff: ByChunk) -> set[int]:
        keys = keycode([pa.array(self.number, pa.int32())])
        flags = handoff.holds(keys, pa.array(self.lsn, pa.int64()), pa.array(self.xid, pa.int64()))
        return {n for n, held in zip(self.number, flags.to_pylist(), strict=True) if held}

    def before(self, position: Position) -> set[int]:
        return {n for n, lsn in zip(self.number, self.lsn, strict=True) if lsn < position.time}


@contextmanager
def captured(database: Database) -> Iterator[Source]:
    """The two tables, published, with a slot that was made when they were."""
    with database.connect(user="app") as connection:
        # Where commits wait for a standby, these must not.
        connection.execute("SET synchronous_commit = local")
        for table in TABLES:
            connection.execute(f"CREATE TABLE {table} (n int PRIMARY KEY)".encode())
        connection.execute("CREATE TABLE other (n int PRIMARY KEY)")
    address = PostgresAddress.parse(database.url(user="app", options="-c synchronous_commit=local"))
    with closing(connect(address, role="test")) as session:
        ensure_publication(session, NAME, TABLES)
        start = ensure_slot(address, NAME)
        yield Source(database, address, session, identify(session), start)


@pytest.fixture
def source(database: Database) -> Iterator[Source]:
    with captured(database) as made:
        yield made


@contextmanager
def written(database: Database, seed: int, count: int = 6) -> Iterator[None]:
    """Writers at work until the block ends."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=_write, args=(database, number, count, random.Random(seed + number), stop))
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _write(database: Database, number: int, step: int, dice: random.Random, stop: threading.Event) -> None:
    with database.connect(user="app") as connection:
        while not stop.is_set():
            _transaction(connection, number, dice)
            number += step


def _transaction(
    connection: psycopg.Connection[tuple[object, ...]], number: int, dice: random.Random
) -> None:
    """The number into both tables; around it savepoints, some of them rolled back, or all of it."""
    connection.execute("BEGIN")
    if dice.random() < 0.3:  # an xid for the transaction that is much older than its first row
        connection.execute("INSERT INTO other VALUES (%s)", [number])
    for table in ("one", "two"):
        connection.execute("SAVEPOINT a")
        connection.execute(f"INSERT INTO {table} VALUES (%s)".encode(), [-1 - number])
        connection.execute("ROLLBACK TO a")
        connection.execute(f"INSERT INTO {table} VALUES (%s)".encode(), [number])
        connection.execute("RELEASE a")
    connection.execute("ROLLBACK" if dice.random() < 0.1 else "COMMIT")


def _agree(source: Source, by: By, snapshots: int, seed: int) -> None:
    with written(source.database, seed):
        wait_for(lambda: _committed(source.database, 20), "the writers")
        shown = [source.shown(by) for _ in range(snapshots)]
    streamed = source.streamed()
    assert len(set(streamed.number)) == len(streamed.number)
    wrong = [n for n, each in enumerate(shown) if each.numbers != streamed.held(each.handoff)]
    assert not wrong, f"{len(wrong)} of {snapshots} snapshots do not hold what their handoff says"
    assert all(
        max(streamed.held(s.handoff) - streamed.before(exact_from(s.handoff)), default=-1) < 0 for s in shown
    )
    assert len(shown[0].numbers) < len(shown[-1].numbers), "nothing was written meanwhile"


def _agree_in_chunks(source: Source, copies: int, seed: int) -> None:
    dice = random.Random(seed)
    with written(source.database, seed):
        wait_for(lambda: _committed(source.database, 20), "the writers")
        shown = [source.in_chunks(dice) for _ in range(copies)]
    streamed = source.streamed()
    wrong = [n for n, each in enumerate(shown) if each.numbers != streamed.held_by_key(each.handoff)]
    assert not wrong, f"{len(wrong)} of {copies} copies do not hold what their handoff says"
    assert len(shown[0].numbers) < len(shown[-1].numbers), "nothing was written meanwhile"
    told = [{str(chunk.handoff) for chunk in each.handoff.chunks} for each in shown]
    assert max(map(len, told)) > 1, "nothing was written between two chunks"


def _committed(database: Database, count: int) -> bool:
    return database.execute("SELECT count(*) >= %s FROM one", [count]) == [(True,)]


@pytest.mark.parametrize("by", HANDOFFS)
def test_every_snapshot_under_load_holds_what_its_handoff_says(source: Source, by: By, seed: int) -> None:
    _agree(source, by, 20, seed)


def test_every_copy_in_chunks_under_load_holds_what_its_handoff_says(source: Source, seed: int) -> None:
    _agree_in_chunks(source, 10, seed)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_two_hundred_copies_in_chunks_on_every_version(any_database: Database, seed: int) -> None:
    with captured(any_database) as source:
        _agree_in_chunks(source, 200, seed)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("by", HANDOFFS)
def test_two_hundred_snapshots_under_load_on_every_version(any_database: Database, by: By, seed: int) -> None:
    with captured(any_database) as source:
        _agree(source, by, 200, seed)


# --- commits that hang --------------------------------------------------------------------------


@contextmanager
def _hanging(server: Server, database: Database, statement: str) -> Iterator[None]:
    """A commit that waits for a standby that does not exist; it ends with the block."""

    def write() -> None:
        with database.connect(user="app") as connection:
            connection.execute(statement.encode())

    thread = threading.Thread(target=write)
    try:
        with absent_standby(server):
            thread.start()
            wait_for(lambda: hanging(server) == 1, "a commit that hangs")
            yield
    finally:
        thread.join()


def test_a_commit_that_hangs_on_an_absent_standby_is_told_from_one_that_is_seen() -> None:
    """It is in the log and in the stream, before the snapshot's position, and no snapshot shows it."""
    with postgres() as server, server.database() as database, captured(database) as source:
        database.execute("INSERT INTO one VALUES (1); INSERT INTO two VALUES (1)", user="app")
        barred = source.barred()
        assert not barred
        with _hanging(
            server, database, "BEGIN; INSERT INTO one VALUES (2); INSERT INTO two VALUES (2); COMMIT"
        ):
            with lead(source.address, source.identity, NAME, by="xid", barred_xids=barred) as leader:
                numbers = source._numbers(leader.snapshot_id, TABLES[0])
            streamed = source.streamed()
            assert numbers == {1} == streamed.held(leader.handoff)
            assert streamed.before(exact_from(leader.handoff)) == {1, 2}, "a position would hold both"
            # A copy that begins now must wait for it: the stream may have passed it already.
            with pytest.raises(Transient) as caught:
                lead(
                    source.address, source.identity, NAME, by="xid", barred_xids=source.barred(), seconds=0.3
                )
            assert caught.value.code == "PG_SNAPSHOT_BARRED"
        assert source.shown("xid").numbers == {1, 2}


def test_by_xid_nobody_is_waited_for_who_writes_other_tables(source: Source) -> None:
    with source.database.connect(user="app") as writer:
        writer.execute("BEGIN; INSERT INTO other VALUES (1)")
        assert source.shown("xid").numbers == set()
        with pytest.raises(Transient) as caught:
            lead(source.address, source.identity, NAME, seconds=0.3)
    assert caught.value.code == "PG_SLOT_WAITS"


def test_a_transaction_that_is_captured_in_part_bars_the_snapshot(source: Source) -> None:
    """It is open while its table is published: of its rows only the later ones are in the stream."""
    publication = f'"{NAME}"'
    source.database.execute(f"ALTER PUBLICATION {publication} DROP TABLE one, two", user="app")
    with source.database.connect(user="app") as writer:
        writer.execute("BEGIN; INSERT INTO one VALUES (1); INSERT INTO two VALUES (1)")
        source.database.execute(f"ALTER PUBLICATION {publication} ADD TABLE one, two", user="app")
        barred = source.barred()
        with pytest.raises(Transient) as caught:
            lead(source.address, source.identity, NAME, by="xid", barred_xids=barred, seconds=0.3)
        assert caught.value.code == "PG_SNAPSHOT_BARRED"
        writer.execute("INSERT INTO one VALUES (2); INSERT INTO two VALUES (2); COMMIT")
    shown = source.shown("xid")
    assert shown.numbers == {1, 2}
    assert source.streamed().held(shown.handoff) == {2}


# --- where nothing is written -------------------------------------------------------------------


def test_an_insert_position_behind_a_page_header_is_that_page() -> None:
    assert page_start(Lsn(3 * 8192 + 24), 8192) == Lsn(3 * 8192)
    assert page_start(Lsn(16 * 2**20 + 40), 8192) == Lsn(16 * 2**20)
    assert page_start(Lsn(3 * 8192 + 32), 8192) == Lsn(3 * 8192 + 32)
    assert page_start(Lsn(3 * 8192), 8192) == Lsn(3 * 8192)


def test_the_position_of_a_snapshot_is_one_that_a_source_at_rest_reaches(source: Source) -> None:
    """Behind a page's header the server has nothing, and reports to have read up to the page only."""
    server = source.database.server
    _to_a_page_header(server)
    insert = _position(server, "insert")
    with lead(source.address, source.identity, NAME, by="xid") as leader:
        exact = exact_from(leader.handoff)
    assert _position(server, "flush") < insert
    assert exact.time <= int(_position(server, "flush"))


def _position(server: Server, of: str) -> Lsn:
    return Lsn.parse(server.execute(f"SELECT pg_current_wal_{of}_lsn()")[0][0])


def _to_a_page_header(server: Server) -> None:
    """Fill the log's page to its end, so that the next record goes behind the next page's header."""
    with server.connect() as connection:

        def write(size: int) -> None:
            connection.execute("SELECT pg_logical_emit_message(false, '', %s)", ["x" * size])

        def filled() -> bool:
            before = int(_position(server, "insert"))
            write(400)
            overhead = int(_position(server, "insert")) - before - 400
            left = 8192 - int(_position(server, "insert")) % 8192
            if left > overhead + 300:
                write(left - overhead)
            at_rest = _position(server, "flush") == Lsn(int(_position(server, "insert")) // 8192 * 8192)
            return int(_position(server, "insert")) % 8192 in (24, 40) and at_rest

        wait_for(filled, "a position behind a page header")


# --- standbys -----------------------------------------------------------------------------------


def test_on_a_standby_only_a_slot_is_offered(tmp_path: Path) -> None:
    """A server in recovery: it replays until it is promoted, and lists nobody who runs."""
    with postgres() as server, server.database() as database:
        demote(server)
        address = PostgresAddress.parse(database.url(user="app"))
        with closing(connect(address, role="test")) as session:
            identity = identify(session)
        assert identity.standby
        report = examine(address, PostgresWish(("*.*",), handoff="xid"))
        assert "PG_HANDOFF_STANDBY" in [finding.code for finding in report.errors]
        assert "PG_HANDOFF_STANDBY" not in [f.code for f in examine(address, PostgresWish(("*.*",))).errors]
        with pytest.raises(Misconfigured) as caught:
            lead(address, identity, NAME, by="xid")
        assert caught.value.code == "PG_HANDOFF_STANDBY"
        promote(server)
