"""Event triggers of the database beside DDL of ours: as in any session, and named if they fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.postgres.preflight import PostgresWish
from headrace.sources.postgres.preflight import examine as examine_postgres
from headrace.sources.postgres.publication import (
    drop_publication,
    ensure_publication,
    published_tables,
    withdraw_by_oid,
)
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import PINS, connect
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue import capture
from headrace.sources.queue.creation import ensure_queue
from headrace.sources.queue.preflight import QueueWish
from headrace.sources.queue.preflight import examine as examine_queue
from headrace.sources.queue.removal import drop_reader
from headrace_testing.postgres import Database
from tests.integration.queue.capturing import LAKE

pytestmark = pytest.mark.server

T = TableName("public", "t")

# It looks up its table by the search_path; a policy would hide what it reads.
AUDIT = """
CREATE TABLE t (id int PRIMARY KEY);
CREATE SCHEMA audit;
ALTER DATABASE "{name}" SET search_path = public, audit, pg_catalog;
CREATE TABLE audit.ddl_log (tag text);
ALTER TABLE audit.ddl_log ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_of_it ON audit.ddl_log USING (true) WITH CHECK (true);
CREATE FUNCTION public.audited() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM FROM ddl_log; INSERT INTO ddl_log VALUES (tg_tag); END $$;
ALTER TABLE t OWNER TO app;
GRANT ALL ON SCHEMA audit TO app;
GRANT ALL ON audit.ddl_log TO app;
CREATE EVENT TRIGGER audit_start ON ddl_command_start EXECUTE FUNCTION public.audited();
"""


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    database.execute(AUDIT.format(name=database.name))
    with closing(connect(PostgresAddress.parse(database.url(user="app")), role="test")) as opened:
        yield opened


def logged(database: Database) -> list[str]:
    return [tag for (tag,) in database.execute("SELECT DISTINCT tag FROM audit.ddl_log ORDER BY 1")]


def pinned(session: Session) -> bool:
    names = ("search_path", "row_security")
    rows = query(session, "SELECT current_setting('search_path'), current_setting('row_security')")
    return rows == [tuple(PINS[name] for name in names)]


def test_our_publication_is_made_altered_and_dropped(database: Database, session: Session) -> None:
    report = examine_postgres(PostgresAddress.parse(database.url(user="app")), PostgresWish(("public.t",)))
    assert [finding.error.detail for finding in report.findings if finding.code == "PG_EVENT_TRIGGERS"] == [
        "audit_start (public.audited)"
    ]
    ensure_publication(session, "headrace", [T])
    oids = [oid for (oid,) in query(session, "SELECT 'public.t'::regclass::oid::int8")]
    withdraw_by_oid(session, "headrace", oids)
    assert published_tables(session, "headrace") == frozenset()
    drop_publication(session, "headrace")
    assert {"CREATE PUBLICATION", "ALTER PUBLICATION", "DROP PUBLICATION"} <= set(logged(database))
    assert pinned(session)


def test_the_queue_and_its_triggers_are_made_and_dropped(database: Database, session: Session) -> None:
    report = examine_queue(
        PostgresAddress.parse(database.url(user="app")), QueueWish(("public.t",), LAKE.objects)
    )
    assert "PG_EVENT_TRIGGERS" in [finding.code for finding in report.findings]
    ensure_queue(session, LAKE.objects)
    assert capture.capture(session, LAKE, [T]).errors == {}
    drop_reader(session, LAKE)
    assert {"CREATE TRIGGER", "DROP TRIGGER", "CREATE FUNCTION", "DROP SCHEMA"} <= set(logged(database))
    assert pinned(session)


def test_one_that_fails_is_named_and_taken_for_no_table_of_ours(database: Database, session: Session) -> None:
    ensure_publication(session, "headrace", [T])
    ensure_queue(session, LAKE.objects)
    oids = [oid for (oid,) in query(session, "SELECT 'public.t'::regclass::oid::int8")]
    database.execute("DROP TABLE audit.ddl_log", user="postgres")
    for attempt, tag in (
        (lambda: withdraw_by_oid(session, "headrace", oids), "ALTER PUBLICATION"),
        (lambda: capture.capture(session, LAKE, [T]), "CREATE TRIGGER"),
    ):
        with pytest.raises(HeadraceError) as caught:
            attempt()
        assert caught.value.code == "PG_EVENT_TRIGGER_FAILED"
        assert "audit_start (public.audited)" in str(caught.value.detail)
        assert tag in caught.value.primary
        assert pinned(session)


def test_a_login_trigger_runs_as_in_any_session(database: Database) -> None:
    database.execute(
        "CREATE SCHEMA audit; CREATE TABLE audit.logins (at timestamptz); GRANT ALL ON SCHEMA audit TO app;"
        f'GRANT ALL ON audit.logins TO app; ALTER DATABASE "{database.name}" SET search_path = audit;'
        "CREATE FUNCTION public.logged_in() RETURNS event_trigger LANGUAGE plpgsql AS"
        " $$BEGIN INSERT INTO logins VALUES (now()); END$$;"
        "CREATE EVENT TRIGGER log_in ON login EXECUTE FUNCTION public.logged_in()"
    )
    with closing(connect(PostgresAddress.parse(database.url(user="app")), role="test")) as session:
        assert pinned(session)
    assert database.execute("SELECT count(*) FROM audit.logins") != [(0,)]
