"""The look before a mark waits for nobody, and a table whose DDL may be in the stream unseen sits it out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from threading import Thread

import pytest

from headrace.core.names import TableName
from headrace.pipeline.state import schema_check
from headrace.pipeline.state.choice import new_record
from headrace.sources.postgres.catalog import definitions
from headrace.sources.postgres.catalog.definitions import candidates, read_entries_by_name
from headrace.sources.postgres.catalog.table_def import definition
from headrace.sources.postgres.copy.key_range import disorder
from headrace.sources.postgres.preflight.tables import access
from headrace.sources.postgres.preflight.upstream_objects import check_making, check_publication
from headrace.sources.postgres.publication import published_tables
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.slot import slot_state
from headrace.sources.postgres.upstream import PostgresUpstream
from headrace.sources.postgres.writers import blockers, writers
from headrace_testing.absent_standby import absent_standby, hanging
from headrace_testing.postgres import Database, Setting, postgres
from headrace_testing.postmaster import wait_for
from tests.bound import postgres_mirror
from tests.places import place_at

pytestmark = pytest.mark.server

NAMES = [TableName("public", name) for name in ("leaf", "listed", "plain", "other")]
SETUP = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TYPE pair AS (x int, y int);
CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY LIST (id);
CREATE TABLE middle PARTITION OF root FOR VALUES IN (1, 2) PARTITION BY LIST (id);
CREATE TABLE leaf PARTITION OF middle FOR VALUES IN (1);
CREATE TABLE listed PARTITION OF middle FOR VALUES IN (2);
CREATE TABLE plain (id int PRIMARY KEY, feeling mood, p pair, g int GENERATED ALWAYS AS (id + 1) STORED);
CREATE TABLE other (id int PRIMARY KEY);
CREATE PUBLICATION p FOR TABLE root, listed WHERE (id < 100), plain, other;
"""


class Watch:
    """The tables as they were recorded, and the looks at them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.tables = postgres_mirror(session, PostgresUpstream("s", "p", owns_publication=False))
        entries = read_entries_by_name(session, NAMES, ["p"])
        self.records = [new_record(definition(seen), place_at(0)) for seen in entries.values()]

    def check(self) -> schema_check.RecordsCheck:
        return schema_check.check_records(self.tables, self.records, place_at(0))

    @property
    def locked(self) -> set[str]:
        """The tables that sit the mark out; none of them may be called altered before its DDL is seen."""
        entry = self.check()
        assert entry.changed_tables(self.records) == {}
        return {name.name for name in entry.locked_tables}


@contextmanager
def watching(database: Database) -> Iterator[Watch]:
    database.execute(SETUP)
    with closing(connect(PostgresAddress.parse(database.url()), role="test")) as session:
        yield Watch(session)


def test_nothing_that_is_asked_before_a_mark_or_a_start_waits_for_a_table(database: Database) -> None:
    """ALTER, TRUNCATE and the like hold a table exclusively, in a long transaction for hours."""
    with watching(database) as watch, database.connect() as holder:
        session, oids = watch.session, [record.number for record in watch.records]
        holder.execute(
            "BEGIN; TRUNCATE leaf; LOCK TABLE root, middle, listed, plain;"
            " ALTER TABLE other DROP CONSTRAINT other_pkey"
        )
        # Whatever waits is told by the server.
        session.execute("SET lock_timeout = '100ms'")
        assert watch.locked == {"leaf", "listed", "plain", "other"}
        entries = list(definitions.read_entries(session, oids, ["p"]).values())
        assert len(entries) == len(read_entries_by_name(session, NAMES, ["p"])) == len(NAMES)
        assert {candidate.name for candidate in candidates(session)} >= set(NAMES)
        rights = access(session, oids)
        assert len(rights) == len(NAMES)
        assert list(check_publication(session, "p", entries))
        assert not list(check_making(session, entries, rights))
        assert disorder(session, entries).keys() == set()
        assert writers(session, oids)
        assert blockers(session)
        assert published_tables(session, "p")
        assert slot_state(session, "s") is None


HIDDEN = (
    ("ALTER PUBLICATION p DROP TABLE other", {"other"}),
    ("ALTER PUBLICATION p SET TABLE root, listed WHERE (id < 100), plain WHERE (id > 1), other", {"plain"}),
    ("ALTER PUBLICATION p SET (publish = 'insert')", {"leaf", "listed", "plain", "other"}),
    ("DROP PUBLICATION p", {"leaf", "listed", "plain", "other"}),
    ("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'", {"plain"}),
    ("ALTER TYPE pair ADD ATTRIBUTE z int", {"plain"}),
    ("ALTER TYPE pair DROP ATTRIBUTE y", {"plain"}),
    # The partitions beneath are not locked.
    ("ALTER TABLE root DETACH PARTITION middle", {"leaf", "listed"}),
    # Replaces no row, and from then on the partition's own filter counts.
    ("ALTER PUBLICATION p ADD TABLE leaf WHERE (id < 100)", {"leaf"}),
)
HARMLESS = (
    "GRANT SELECT ON plain TO PUBLIC",
    "ALTER PUBLICATION p ADD TABLE further",
    "ALTER TYPE mood ADD VALUE 'mad'",
    "ANALYZE plain",
    "CREATE INDEX ON plain (id)",
)


def test_ddl_that_the_stream_may_hold_and_no_look_shows_keeps_its_tables_out(database: Database) -> None:
    with watching(database) as watch, database.connect() as other:
        database.execute("CREATE TABLE further (id int PRIMARY KEY)")
        for statement, tables in HIDDEN:
            other.execute("BEGIN; SAVEPOINT inner_one")  # its xid is that of a subtransaction
            other.execute(statement.encode())
            assert watch.locked == tables, statement
            other.execute("ROLLBACK")
            assert watch.locked == set(), statement
        for statement in HARMLESS:
            other.execute("BEGIN; SAVEPOINT inner_one")
            other.execute(statement.encode())
            assert watch.locked == set(), statement
            other.execute("ROLLBACK")


LOCK = b"BEGIN; SELECT FROM pg_publication FOR KEY SHARE"
ALTER = b"BEGIN; SAVEPOINT inner_one; ALTER PUBLICATION p SET (publish = 'insert')"
MEMBERS = {name.name for name in NAMES}


def test_locks_on_rows_of_the_catalog_hide_no_ddl_and_keep_nothing_out(database: Database) -> None:
    """If several transactions hold a row, its xmax is a multixact ID, which stands for all of them."""
    with watching(database) as watch, database.connect() as locker, database.connect() as other:
        locker.execute(LOCK)
        other.execute(ALTER)
        assert watch.locked == MEMBERS
        other.execute("ROLLBACK")
        assert watch.locked == set()
        other.execute(LOCK)
        assert watch.locked == set()
        other.execute("ROLLBACK")
        with numbered_beyond_transactions(database):
            other.execute(LOCK)
            [(number, coming)] = database.execute("SELECT xmax::text::int8, age(xmax) FROM pg_publication")
            assert coming <= 0, f"{number} is the number of a transaction, too"
            assert watch.locked == set()
            other.execute("ROLLBACK")
            other.execute(ALTER)
            assert watch.locked == MEMBERS
            other.execute("ROLLBACK")
        assert watch.locked == set()
        locker.execute("ROLLBACK")
        assert watch.locked == set()


@contextmanager
def numbered_beyond_transactions(database: Database) -> Iterator[None]:
    """Few transactions, and each set of them holds a row: numbered one after the other."""
    [(xid,)] = database.execute("SELECT pg_current_xact_id()::text::int8")
    bits = int(xid).bit_length()
    database.execute(f"CREATE TABLE sets AS SELECT generate_series(1, {1 << bits}) AS id")
    with ExitStack() as stack:
        for bit in range(bits):
            holder = stack.enter_context(database.connect())
            holder.execute(f"BEGIN; SELECT FROM sets WHERE id & {1 << bit} > 0 FOR KEY SHARE".encode())
        yield


def test_ddl_whose_commit_waits_for_a_standby_keeps_its_tables_out() -> None:
    """Its commit record is in the log and decoded; nobody sees what it did, and it locks no table."""
    settings: dict[str, Setting] = {"synchronous_commit": "local"}
    with postgres(settings=settings) as server, server.database() as database, watching(database) as watch:
        with database.connect() as waiting:
            waiting.execute("SET synchronous_commit = on")
            thread = Thread(target=waiting.execute, args=["ALTER PUBLICATION p SET (publish = 'insert')"])
            with absent_standby(server):
                thread.start()
                wait_for(lambda: hanging(server) == 1, "the commit waits for its standby")
                assert watch.locked == {"leaf", "listed", "plain", "other"}
            thread.join()
        changed = watch.check().changed_tables(watch.records)
        assert {name.name for name in changed} == {"leaf", "listed", "plain", "other"}
        assert {error.code for error in changed.values()} == {"TABLE_CHANGED"}


def test_a_new_copy_and_its_table_are_compared_each_with_its_own_look(database: Database) -> None:
    """A copy that was begun after DDL is what it should be; the table beside it is not."""
    with watching(database) as watch:
        plain = next(record for record in watch.records if record.name.name == "plain")
        database.execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
        seen = definitions.read_entries(watch.session, [plain.number], ["p"])[plain.name]
        copy = replace(new_record(definition(seen), place_at(0)), copy_id="1-0")
        entry = schema_check.check_records(watch.tables, [plain, copy], place_at(0))
        assert entry.changed_tables([plain]).keys() == {plain.name}
        assert entry.changed_tables([copy]) == {}
