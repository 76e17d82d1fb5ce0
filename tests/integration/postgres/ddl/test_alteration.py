"""Ordinary maintenance between two looks does not count; DDL that was taken back does.

The tests also compare a look that an older release recorded. Each look is taken twice: by a check that
remembers the last look, and by one that does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.core.names import TableName
from headrace.core.records import from_record, to_record
from headrace.sources.contract.values import SchemaCheck, TableDef
from headrace.sources.postgres.catalog.definitions import EntryMemory, read_entries, read_entries_by_name
from headrace.sources.postgres.catalog.table_def import (
    TableEntry,
    as_shown,
    definition,
    schema_of,
)
from headrace.sources.postgres.ddl.alteration import differs, is_news
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.upstream import PostgresUpstream
from headrace_testing.postgres import Database
from tests.bound import postgres_mirror

pytestmark = pytest.mark.server

T, W, K, LEAF = (TableName("public", name) for name in ("t", "w", "k", "leaf"))
SETUP = """
CREATE SCHEMA other;
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TYPE pair AS (x int, feeling mood);
CREATE TABLE t (id int PRIMARY KEY, name varchar(10), feeling mood, p pair, n int, at timestamp(3),
                digits numeric(50, 2), price numeric(10, 2));
CREATE TABLE w (id int PRIMARY KEY, n int);
CREATE TABLE k (code varchar(10) PRIMARY KEY);
ALTER TABLE w REPLICA IDENTITY FULL;
CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY LIST (id);
CREATE TABLE middle PARTITION OF root FOR VALUES IN (1) PARTITION BY LIST (id);
CREATE TABLE leaf PARTITION OF middle FOR VALUES IN (1);
"""


@dataclass
class Looks:
    """A connection, and what is remembered over it."""

    connection: Session
    memory: EntryMemory = field(default_factory=EntryMemory)


@pytest.fixture
def session(database: Database) -> Iterator[Looks]:
    database.execute(SETUP, user="app")
    with closing(connect(PostgresAddress.parse(database.url(user="app")), role="test")) as connection:
        yield Looks(connection)


def see(session: Looks, name: TableName = T) -> TableEntry:
    entry = read_entries_by_name(session.connection, [name], ["p"])[name]
    others = [each.oid for each in read_entries_by_name(session.connection, [T, W, LEAF], ["p"]).values()]
    remembered = read_entries(session.connection, [entry.oid, *others], ["p"], session.memory)[name]
    assert (remembered, remembered.replacing) == (entry, entry.replacing)
    return entry


def run(database: Database, statements: str) -> None:
    """One after another, as a client that knows nothing of batches."""
    with database.connect() as connection:
        for statement in statements.split("; "):
            connection.execute(statement.encode())


MAINTENANCE = (
    "REINDEX TABLE CONCURRENTLY t",
    "REINDEX INDEX CONCURRENTLY t_pkey",
    "ALTER TYPE mood ADD VALUE 'mad'",
    "ALTER TYPE mood ADD VALUE 'calm' BEFORE 'sad'",
    "ALTER TABLE t ALTER n SET NOT NULL",
    "ALTER TABLE t ALTER n DROP NOT NULL; VACUUM FULL t",
    "ALTER TABLE t ALTER name TYPE varchar(20)",
    "ALTER TABLE t ALTER name TYPE varchar",
    "ALTER TABLE t ALTER name TYPE text",
    "ALTER TABLE t ALTER name TYPE varchar",
    "ALTER TABLE t ALTER at TYPE timestamp(6)",
    "ALTER TABLE t ALTER digits TYPE numeric(60, 2)",
    "ALTER TABLE t ALTER digits TYPE numeric",
)


def test_ordinary_maintenance_is_no_difference(session: Looks, database: Database) -> None:
    database.execute("CREATE PUBLICATION p FOR TABLE t, w, k")
    recorded = schema_of(see(session))
    for statement in MAINTENANCE:
        before = see(session)
        run(database, statement)
        now = see(session)
        assert differs(before, now) is None, statement
        assert is_news(before, now), statement
    assert as_shown(recorded, now) == schema_of(now)
    # With whole rows; and with a key that becomes longer, for which its constraint is made again.
    for name, statement in ((W, "REINDEX TABLE CONCURRENTLY w"), (K, "ALTER TABLE k ALTER code TYPE text")):
        before = see(session, name)
        run(database, statement)
        assert differs(before, see(session, name)) is None, statement


LIKE_MAINTENANCE = (
    (T, "ALTER TABLE t ALTER name TYPE varchar(5)", "rewritten"),
    (T, "TRUNCATE t; ALTER TABLE t ALTER n TYPE int USING n + 1; VACUUM FULL t", "rewritten"),
    (T, "ALTER TABLE t ALTER price TYPE numeric(12, 2)", "from numeric(10,2) to numeric(12,2)"),
    (T, "ALTER TABLE t ALTER price TYPE numeric", "from numeric(12,2) to numeric"),
    (T, "ALTER TABLE t ALTER n TYPE bigint", "from integer to bigint"),
    (T, "ALTER TABLE t ALTER name TYPE char(20)", "from character varying(5) to character(20)"),
    # The whole rows of identity FULL do not say whether the key was unique all the time.
    (W, "ALTER TABLE w DROP CONSTRAINT w_pkey; ALTER TABLE w ADD PRIMARY KEY (id)", "replica identity"),
)


def test_what_is_like_maintenance_and_changes_values_or_keys_differs(
    session: Looks, database: Database
) -> None:
    database.execute("CREATE PUBLICATION p FOR TABLE t, w")
    for name, ddl, said in LIKE_MAINTENANCE:
        before = see(session, name)
        run(database, ddl)
        assert said in str(differs(before, see(session, name))), ddl


REATTACHED = (
    "BEGIN; ALTER TABLE middle DETACH PARTITION leaf; DELETE FROM leaf; INSERT INTO leaf VALUES (1, 'lost')"
    "; ALTER TABLE middle ATTACH PARTITION leaf FOR VALUES IN (1); COMMIT"
)
MIDDLE_REATTACHED = (
    "BEGIN; ALTER TABLE root DETACH PARTITION middle; DELETE FROM leaf; INSERT INTO leaf VALUES (1, 'lost')"
    "; ALTER TABLE root ATTACH PARTITION middle FOR VALUES IN (1); COMMIT"
)
ATTACHED_FOR_A_WHILE = (
    "CREATE TABLE above (LIKE w) PARTITION BY LIST (id); BEGIN"
    "; ALTER TABLE above ATTACH PARTITION w DEFAULT; ALTER TABLE above DETACH PARTITION w; COMMIT"
)


def moved(table: str) -> str:
    return f"BEGIN; ALTER TABLE {table} SET SCHEMA other; ALTER TABLE other.{table} SET SCHEMA public; COMMIT"


TAKEN_BACK = (
    ("TABLE root", LEAF, REATTACHED, "publication"),
    ("TABLE root", LEAF, MIDDLE_REATTACHED, "publication"),
    ("TABLE middle", LEAF, REATTACHED, "publication"),
    ("TABLES IN SCHEMA public", T, moved("t"), "publication"),
    ("TABLES IN SCHEMA other", LEAF, "ALTER TABLE other.root SET SCHEMA public"
     "; ALTER TABLE root SET SCHEMA other", "publication"),
    ("ALL TABLES WITH (publish_via_partition_root)", W, ATTACHED_FOR_A_WHILE, "partition tree"),
    ("TABLE t", T, "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'; INSERT INTO t VALUES (1, '', 'blue')"
     "; ALTER TYPE mood RENAME VALUE 'blue' TO 'sad'", "a type"),
    ("TABLE t", T, "ALTER TYPE pair ADD ATTRIBUTE y int; INSERT INTO t VALUES (2, '', NULL, (1, 'sad', 7))"
     "; ALTER TYPE pair DROP ATTRIBUTE y", "a type"),
)  # fmt: skip


def test_what_was_taken_back_between_two_looks_is_seen(session: Looks, database: Database) -> None:
    """Rows that were written in between are not in the stream, or are printed there under other names."""
    for published, name, taken_back, said in TAKEN_BACK:
        if published.endswith("other"):
            database.execute("ALTER TABLE root SET SCHEMA other")
        database.execute(f"CREATE PUBLICATION p FOR {published}")
        before = see(session, name)
        assert before.memberships
        run(database, taken_back)
        assert said in str(differs(before, see(session, name))), (published, taken_back)
        database.execute("DROP PUBLICATION p; ALTER TABLE IF EXISTS other.root SET SCHEMA public")


LEFT_ALONE = (
    # Our own publication names the partition itself: it is a member wherever it stands.
    ("TABLE leaf", LEAF, REATTACHED),
    ("TABLES IN SCHEMA public", LEAF, moved("root")),
    ("TABLES IN SCHEMA public", T, "GRANT SELECT ON t TO PUBLIC; TRUNCATE t; VACUUM FULL t; ANALYZE t"
     "; ALTER TABLE t SET (fillfactor = 50); CREATE INDEX ON t (n); COMMENT ON TABLE t IS 'mine'"
     "; CREATE TRIGGER g BEFORE UPDATE ON t EXECUTE FUNCTION suppress_redundant_updates_trigger()"),
    ("TABLES IN SCHEMA public", T, "VACUUM FULL pg_depend; VACUUM FULL pg_enum; VACUUM FREEZE pg_class"),
    ("TABLE root", LEAF, "VACUUM FULL pg_inherits; VACUUM FREEZE pg_inherits; TRUNCATE root"
     "; ALTER TABLE root ADD CHECK (id > 0); CREATE INDEX ON root (v)"),
    ("ALL TABLES WITH (publish_via_partition_root)", T, "GRANT SELECT (n) ON t TO PUBLIC"
     "; ALTER TABLE t ALTER n SET STATISTICS 10; ALTER TABLE t ALTER n SET DEFAULT 5"),
)  # fmt: skip


def test_what_leaves_membership_alone_is_no_difference(session: Looks, database: Database) -> None:
    for published, name, ddl in LEFT_ALONE:
        database.execute(f"CREATE PUBLICATION p FOR {published}")
        before = see(session, name)
        assert before.memberships
        run(database, ddl)
        assert differs(before, see(session, name)) is None, (published, ddl)
        database.execute("DROP PUBLICATION p")


# --- what a look remembers ------------------------------------------------------------------------

FORTH_AND_BACK = (
    "ALTER TABLE t ADD more int; ALTER TABLE t DROP more",
    "ALTER TABLE t RENAME n TO m; ALTER TABLE t RENAME m TO n",
    "ALTER TYPE pair RENAME ATTRIBUTE x TO y; ALTER TYPE pair RENAME ATTRIBUTE y TO x",
    "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'; ALTER TYPE mood RENAME VALUE 'blue' TO 'sad'",
    "ALTER PUBLICATION p DROP TABLE w; ALTER PUBLICATION p ADD TABLE w",
    "ALTER TABLE k RENAME TO l; ALTER TABLE l RENAME TO k",
    "ALTER TABLE w REPLICA IDENTITY NOTHING; ALTER TABLE w REPLICA IDENTITY FULL",
    "DROP TABLE k",
)


def outcome(check: SchemaCheck) -> dict[str, object]:
    return {**{key: change.what for key, change in check.changes.items()}, **check.news}


def test_a_check_that_remembers_the_last_one_finds_what_any_other_finds(
    session: Looks, database: Database
) -> None:
    """Both checks compare tables as they first were, and as a lake records them, after each statement."""
    database.execute("CREATE PUBLICATION p FOR TABLE t, w, k")
    oid = database.execute("SELECT oid::int8 FROM pg_publication")[0][0]
    upstream = PostgresUpstream("s", "p", owns_publication=False, publication_oid=oid)
    tables = postgres_mirror(session.connection, upstream)
    entries = read_entries_by_name(session.connection, [T, W, K], ["p"]).values()
    first = {str(entry.name): definition(entry) for entry in entries}
    known: dict[str, TableDef] = dict(first)
    found = 0
    for statements in (*MAINTENANCE, *FORTH_AND_BACK):
        for statement in statements.split("; "):
            run(database, statement)
            for asked in (first, known):
                others = postgres_mirror(session.connection, upstream)
                check, fresh = outcome(tables.check(asked)), outcome(others.check(asked))
                assert check == fresh, statement
            found += len(fresh)
            known |= tables.check(known).news
            assert outcome(tables.check(known)) == {
                key: what for key, what in fresh.items() if isinstance(what, str)
            }, statement
    assert found > len(MAINTENANCE), "each of these was seen"


# --- records of an older release ----------------------------------------------------------------


def as_recorded_before(entry: TableEntry) -> TableEntry:
    """The look as a release recorded it that knew of no lives, and read it back."""
    record: dict[str, Any] = to_record(entry)
    record["identity"].pop("constraint")
    for membership in record["memberships"]:
        for newer in ("inherited", "by_schema", "via_root", "lives"):
            del membership[newer]
    for known in record["types"]:
        del known["label_lives"], known["width"]
    return from_record(TableEntry, record)


def test_a_look_of_an_older_release_equals_one_at_the_same_table(session: Looks, database: Database) -> None:
    for published in ("TABLE t, w, root", "TABLES IN SCHEMA public", "ALL TABLES"):
        database.execute(f"CREATE PUBLICATION p FOR {published}")
        for name in (T, W, LEAF):
            now = see(session, name)
            old = as_recorded_before(now)
            assert differs(old, now) is None, (published, name)
            assert is_news(old, now), "so that the next is compared with all that is known"
            assert differs(from_record(TableEntry, to_record(now)), now) is None
            assert not is_news(from_record(TableEntry, to_record(now)), now)
        database.execute("DROP PUBLICATION p")


SINCE = (
    (LEAF, REATTACHED, "partition tree"),
    (T, "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'", "a type"),
    (W, "ALTER TABLE w DROP CONSTRAINT w_pkey; ALTER TABLE w ADD PRIMARY KEY (id)", "replica identity"),
    (W, "REINDEX TABLE CONCURRENTLY w", "replica identity"),  # nothing is known of its constraint
    (T, "REINDEX TABLE CONCURRENTLY t; ALTER TYPE mood ADD VALUE 'mad'", None),
)


def test_a_look_of_an_older_release_is_compared_as_far_as_it_goes(session: Looks, database: Database) -> None:
    database.execute("CREATE PUBLICATION p FOR TABLE t, w, root")
    for name, ddl, said in SINCE:
        old = as_recorded_before(see(session, name))
        run(database, ddl)
        what = differs(old, see(session, name))
        assert what is None if said is None else said in str(what), ddl
