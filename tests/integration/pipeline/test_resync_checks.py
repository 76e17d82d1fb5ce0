"""A table that is copied anew passes every check of its first choice again, alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest

from headrace.core.names import TableName
from headrace.pipeline.commands.capture import SourcePlace
from headrace.sources import registry
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.upstream import PostgresUpstream
from headrace_testing.postgres import Database
from tests.records import source_record

pytestmark = pytest.mark.server

TABLES = """
CREATE TABLE good (id int PRIMARY KEY);
CREATE TABLE part (id int PRIMARY KEY);
CREATE TABLE keyless (id int PRIMARY KEY);
CREATE TABLE hidden (id int PRIMARY KEY);
CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE leaf PARTITION OF root DEFAULT;
"""
NAMES = ("good", "part", "keyless", "hidden", "leaf", "gone")


def examined(
    database: Database, publication: str, *, ours: bool, names: Sequence[str] = NAMES
) -> dict[str, str]:
    """Return the code that `tables resync` finds against each table; a fit table has none."""
    address = PostgresAddress.parse(database.url(user="app"))
    source = source_record(upstream=PostgresUpstream("none", publication, ours, ours))
    kind = registry.by_kind("postgres")
    with closing(kind.connect(address, role="test")) as session:
        place = SourcePlace(source, address, session.identity)
    found = place.capture_again([TableName("public", name) for name in names]).examined_tables
    assert {str(name) for name in found.defs} == {f"public.{name}" for name in names if name != "gone"}
    return {name.name: error.code for name, error in found.errors.items()}


def test_what_went_wrong_with_a_table_since_it_was_chosen_is_refused_alone(database: Database) -> None:
    database.execute(TABLES, user="app")
    database.execute("CREATE PUBLICATION ours FOR TABLE good, part, keyless, hidden, leaf", user="app")
    assert examined(database, "ours", ours=True) == {}
    database.execute(
        """
        ALTER TABLE keyless DROP CONSTRAINT keyless_pkey;
        ALTER TABLE hidden ENABLE ROW LEVEL SECURITY; ALTER TABLE hidden FORCE ROW LEVEL SECURITY;
        ALTER PUBLICATION ours DROP TABLE part; ALTER PUBLICATION ours ADD TABLE part WHERE (id < 100);
        ALTER PUBLICATION ours DROP TABLE good;
        """,
        user="app",
    )
    # What our own publication lacks is put right; the rest is for a person.
    flawed = {"keyless": "PG_IDENTITY_MISSING", "hidden": "PG_ROW_SECURITY"}
    assert examined(database, "ours", ours=True) == flawed
    filters = "SELECT count(prqual), count(*) FROM pg_publication_rel"
    assert database.execute(filters) == [(0, 5)]
    # A user's publication is used as it is.
    database.execute("CREATE PUBLICATION theirs FOR TABLE good, keyless, hidden, leaf", user="app")
    assert examined(database, "theirs", ours=False) == {**flawed, "part": "PG_TABLE_UNPUBLISHED"}
    database.execute("ALTER PUBLICATION theirs ADD TABLE part WHERE (id < 100)", user="app")
    assert examined(database, "theirs", ours=False) == flawed, "a part that can be followed"
    database.execute("ALTER PUBLICATION theirs DROP TABLE part; ALTER TABLE part ADD COLUMN n int")
    database.execute("ALTER PUBLICATION theirs ADD TABLE part (n)", user="app")
    assert examined(database, "theirs", ours=False) == {**flawed, "part": "PG_COLUMNS_IDENTITY"}
    database.execute("ALTER PUBLICATION theirs SET (publish_via_partition_root = true)", user="app")
    assert examined(database, "theirs", ours=False, names=("good", "leaf")) == {}, "its root is not published"
    database.execute("ALTER PUBLICATION theirs ADD TABLE root", user="app")
    assert examined(database, "theirs", ours=False, names=("good", "leaf")) == {"leaf": "PG_PUBLICATION_ROOT"}
    database.execute("ALTER PUBLICATION theirs SET (publish = 'insert')", user="app")
    assert examined(database, "theirs", ours=False, names=("good",)) == {"good": "PG_PUBLICATION_PARTIAL"}
    database.execute("CREATE PUBLICATION whole FOR ALL TABLES")
    database.execute("DROP PUBLICATION ours, theirs; ALTER TABLE good SET UNLOGGED")
    assert examined(database, "whole", ours=False, names=("good", "part")) == {"good": "PG_NOT_STREAMED"}
