"""The way from a connection string to a copied table, on each version of the server from 15 to 18."""

from __future__ import annotations

from contextlib import closing

import pytest

from headrace.core.chunks import exact_from
from headrace.core.names import TableName
from headrace.sources.postgres.catalog.definitions import read_entries_by_name
from headrace.sources.postgres.catalog.locks import sizes
from headrace.sources.postgres.catalog.table_def import schema_of
from headrace.sources.postgres.copy.follower import PostgresFollower, copy
from headrace.sources.postgres.copy.leader import lead
from headrace.sources.postgres.copy.measure import ranges
from headrace.sources.postgres.objects import drop_upstream, object_name
from headrace.sources.postgres.preflight import PostgresWish, examine
from headrace.sources.postgres.publication import ensure_publication
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
from headrace.sources.postgres.slot import ensure_slot, slot_state
from headrace.sources.postgres.writers import writers
from headrace_testing.postgres import Database

pytestmark = [pytest.mark.server, pytest.mark.full]

NAME = object_name("1a2b3c4d", "main")
T = TableName("public", "t")
GENERATED = (
    "CREATE TABLE g (id int, twice int GENERATED ALWAYS AS (id * 2) STORED);"
    " ALTER TABLE g REPLICA IDENTITY FULL; INSERT INTO g VALUES (1)"
)


def test_a_table_is_checked_published_and_copied_whole(any_database: Database) -> None:
    database = any_database
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v numeric(8, 2))", user="app")
    database.execute("INSERT INTO t SELECT g, g / 4.0 FROM generate_series(1, 20000) g")
    address = PostgresAddress.parse(database.url(user="app"))
    report = examine(address, PostgresWish(("public.t",)))
    assert report.errors == ()
    with closing(connect(address, role="test")) as session:
        identity = identify(session)
        assert str(identity.version // 10000) == database.server.version
        ensure_publication(session, NAME, [T])
        start = ensure_slot(address, NAME)
        entry = read_entries_by_name(session, [T], [NAME])[T]
        barred = writers(session, [entry.oid])
        rows = 0
        with lead(address, identity, NAME, barred_xids=barred) as leader:
            assert exact_from(leader.handoff).time >= int(start)
            for piece in ranges(T, entry.oid, sizes(session, [entry.oid])[entry.oid], 100_000):
                with PostgresFollower(address, identity, role="copy") as follower:
                    names = schema_of(entry).names
                    for data in copy(follower.connection, leader.snapshot_id, names, piece):
                        rows += data.tobytes().count(b"\n")
        assert rows == 20000
        drop_upstream(address, publication=NAME, slot=NAME, application="none")
        assert slot_state(session, NAME) is None


def test_full_identity_with_generated_columns_is_refused_where_the_server_refuses_it(
    any_database: Database,
) -> None:
    """From 18 on the application's UPDATE would fail once the table is published; before it would not."""
    any_database.execute(GENERATED, user="app")
    address = PostgresAddress.parse(any_database.url(user="app"))
    report = examine(address, PostgresWish(("public.g",)))
    refused = int(any_database.server.version) >= 18
    assert bool(report.errors) == refused
    with closing(connect(address, role="test")) as session:
        if report.tables:
            ensure_publication(session, NAME, [entry.name for entry in report.tables])
    any_database.execute("UPDATE g SET id = 2; DELETE FROM g", user="app")
