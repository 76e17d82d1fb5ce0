"""A definition is recorded only of the very table that was chosen, and only if all of it is captured."""

from __future__ import annotations

from contextlib import closing

import pytest

from headrace.core.names import TableName
from headrace.sources.postgres import capture
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.upstream import PostgresUpstream
from headrace_testing.postgres import Database
from tests.bound import postgres_mirror

pytestmark = pytest.mark.server

NAMES = [TableName("public", name) for name in ("good", "lost", "part", "remade")]
TABLES = ";".join(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in NAMES)


def test_what_is_not_captured_in_full_is_no_definition_to_go_by(database: Database) -> None:
    database.execute(f"{TABLES}; CREATE PUBLICATION p FOR TABLE good, lost, part, remade", user="app")
    with closing(connect(PostgresAddress.parse(database.url(user="app")), role="test")) as session:
        upstream = PostgresUpstream("s", "p")
        mirror = postgres_mirror(session, upstream)
        captures = mirror.captures
        chosen = mirror.examine(NAMES)
        assert (sorted(chosen.defs), chosen.fit) == (NAMES, NAMES)
        # Between the choice and the record somebody alters tables and publication.
        database.execute(
            "DROP TABLE remade; CREATE TABLE remade (id int PRIMARY KEY);"
            " ALTER PUBLICATION p DROP TABLE lost, part; ALTER PUBLICATION p ADD TABLE part WHERE (id < 9)",
            user="app",
        )
        found = capture.define(session, upstream, chosen.fit_defs)
        assert sorted(found.defs) == NAMES[:3], "a table of the same name is another one"
        assert {name.name: error.code for name, error in found.errors.items()} == {
            "lost": "PG_TABLE_UNPUBLISHED",
            "part": "PG_TABLE_LIMITED",
        }
        again = captures.capture(NAMES).examined_tables
        assert (sorted(again.defs), again.errors) == (NAMES, {})
        assert captures.captured_tables() == frozenset(NAMES)
        captures.release(NAMES[:2])
        assert captures.captured_tables() == frozenset(NAMES[2:])


def test_a_table_that_somebody_holds_keeps_no_other_out_of_our_publication(database: Database) -> None:
    database.execute(f"{TABLES}; CREATE PUBLICATION p FOR TABLE remade", user="app")
    with closing(connect(PostgresAddress.parse(database.url(user="app")), role="test")) as session:
        session.execute("SET lock_timeout = '300ms'")
        upstream = PostgresUpstream("s", "p")
        mirror = postgres_mirror(session, upstream)
        captures = mirror.captures
        with database.connect() as holder, holder.transaction():
            holder.execute("LOCK TABLE lost IN SHARE UPDATE EXCLUSIVE MODE")
            found = captures.capture(NAMES).examined_tables
            assert {name.name: error.code for name, error in found.errors.items()} == {
                "lost": "PG_TABLE_LOCKED"
            }
            assert captures.captured_tables() == frozenset(found.fit) == frozenset(NAMES) - {NAMES[1]}
        assert captures.capture(NAMES).examined_tables.fit == NAMES


def test_a_part_that_is_altered_before_it_is_recorded_is_looked_at_again(database: Database) -> None:
    """A slot made between the look and the record may have sent an altered part differently."""
    database.execute(f"{TABLES}; CREATE PUBLICATION p FOR TABLE good WHERE (id > 5), part", user="app")
    with closing(connect(PostgresAddress.parse(database.url(user="app")), role="test")) as session:
        upstream = PostgresUpstream("s", "p", owns_publication=False)
        mirror = postgres_mirror(session, upstream)
        names = [TableName("public", "good"), TableName("public", "part")]
        chosen = mirror.examine(names)
        assert capture.define(session, upstream, chosen.fit_defs).errors == {}
        database.execute("ALTER PUBLICATION p SET TABLE part WHERE (id > 5), good WHERE (id > 5)", user="app")
        found = capture.define(session, upstream, chosen.fit_defs)
        assert {name.name: error.code for name, error in found.errors.items()} == {
            "part": "PG_COPY_OVERTAKEN"
        }
        assert capture.define(session, upstream, mirror.examine(names).fit_defs).errors == {}
