"""A queue is used only where nobody but those who could anyway have something run as us through it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from headrace.core.errors import Misconfigured
from headrace.core.records import to_record
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.statements import Session
from headrace.sources.queue.creation import ensure_queue
from headrace.sources.queue.source import SOURCE
from headrace.sources.queue.trust import prove
from headrace_testing.postgres import Database
from tests.integration.queue.capturing import LAKE, capturing, executed, url
from tests.integration.queue.test_preflight import codes, examined

pytestmark = pytest.mark.server

ROLES = ("mirror", "mallory", "dba")


@pytest.fixture
def roles(database: Database) -> Iterator[None]:
    """Roles that may log in; one of them may create schemas."""
    for name in ROLES:
        database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'pw'")
    database.execute(f"GRANT CREATE ON DATABASE {database.name} TO mallory, dba")
    try:
        yield
    finally:
        for name in ROLES:
            database.execute(f"DROP OWNED BY {name} CASCADE")
            database.execute(f"DROP ROLE {name}")


@contextmanager
def session(database: Database, user: str = "mirror") -> Iterator[Session]:
    with closing(connect(PostgresAddress.parse(url(database, user)), role="test")) as opened:
        yield opened


def refusal(connection: Session) -> Misconfigured:
    with pytest.raises(Misconfigured) as refused:
        prove(connection, LAKE.objects)
    assert refused.value.code == "QUEUE_UNTRUSTED"
    return refused.value


def flaw(connection: Session) -> Misconfigured | None:
    try:
        prove(connection, LAKE.objects)
    except Misconfigured as error:
        return error
    return None


# A queue for those who only look whether its names are there, and with a word of one's own in each place that
# we would read or write.
TRAP = """
CREATE SCHEMA headrace;
CREATE TABLE public.ran (who text);
GRANT INSERT ON public.ran TO PUBLIC;
CREATE FUNCTION public.trap() RETURNS text LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.ran VALUES (current_user); RETURN 'main'; END $$;
CREATE VIEW headrace.queue AS SELECT public.trap() AS name, gen_random_uuid() AS incarnation,
    1 AS version, now() AS made, '{1,2,3}'::oid[] AS events, now() AS switched;
CREATE TABLE headrace.tick (queue text, tick bigint, taken timestamptz, snapshot pg_snapshot,
    nonce uuid DEFAULT public.trap()::uuid);
CREATE VIEW headrace.reader AS SELECT public.trap() AS queue, 'x'::text AS lake, 1::bigint AS tick,
    now() AS seen;
CREATE VIEW headrace.tracked AS SELECT public.trap() AS queue, 'x'::text AS lake, 1::oid AS relation,
    now() AS since;
GRANT ALL ON SCHEMA headrace TO PUBLIC;
GRANT ALL ON ALL TABLES IN SCHEMA headrace TO PUBLIC;
"""


def test_nothing_in_a_schema_that_somebody_else_made_runs_as_us(database: Database, roles: None) -> None:
    database.execute("GRANT CREATE ON SCHEMA public TO mallory")
    executed(database, ["CREATE TABLE t (id int PRIMARY KEY)"])
    database.execute(f"SET ROLE mallory; {TRAP}; RESET ROLE")
    database.execute("GRANT SELECT, TRIGGER ON t TO mirror")
    with session(database) as connection:
        assert "mallory" in str(refusal(connection))
        with pytest.raises(Misconfigured):
            ensure_queue(connection, LAKE.objects)
    assert "QUEUE_UNTRUSTED" in codes(examined(database, "public.t", user="mirror"))
    with closing(SOURCE.connect(SOURCE.address("queue+" + url(database, "mirror")), role="test")) as opened:
        with pytest.raises(Misconfigured) as refused:
            opened.mirror(to_record(LAKE))
        assert refused.value.code == "QUEUE_UNTRUSTED"
    with session(database, "postgres") as superuser:
        refusal(superuser)
    assert database.execute("SELECT * FROM ran") == []
    database.execute("ALTER TABLE headrace.tick OWNER TO mirror; ALTER SCHEMA headrace OWNER TO mirror")
    with session(database) as connection:
        refusal(connection)


# What may hang on our tables, and run as whoever writes or reads them. What mends it is the hint's.
HOSTILE = {
    "queue has the trigger": "CREATE TRIGGER x AFTER UPDATE ON headrace.queue"
    " FOR EACH ROW EXECUTE FUNCTION f()",
    "tick has the trigger": "CREATE CONSTRAINT TRIGGER x AFTER INSERT ON headrace.tick DEFERRABLE"
    " FOR EACH ROW EXECUTE FUNCTION f()",
    "reader has the rule": "CREATE RULE x AS ON UPDATE TO headrace.reader DO ALSO SELECT 1",
    "tracked has policies": "ALTER TABLE headrace.tracked ENABLE ROW LEVEL SECURITY",
    "event_main_1.tx has a default": "ALTER TABLE headrace.event_main_1 ALTER tx SET DEFAULT '1'",
    "event_main_0 has the constraint": "ALTER TABLE headrace.event_main_0 ADD CONSTRAINT x CHECK (diff < 9)",
    "event_main_2 has the index": "CREATE INDEX x ON headrace.event_main_2 (lower(row))",
    "event_main_0 has the index": "CREATE UNIQUE INDEX y ON headrace.event_main_0 (id)",
    "event_main_1 has the trigger": "CREATE TABLE headrace.z (i xid8 PRIMARY KEY);"
    " ALTER TABLE headrace.event_main_1 ADD FOREIGN KEY (tx) REFERENCES headrace.z",
    "the function headrace.equal(integer) is none": "CREATE FUNCTION headrace.equal(int) RETURNS int"
    " LANGUAGE sql AS 'SELECT 1'",
    "the function capture_main() is owned by mallory": "ALTER FUNCTION headrace.capture_main()"
    " OWNER TO mallory",
    "mallory may create": "GRANT CREATE ON SCHEMA headrace TO mallory",
    "PUBLIC may create": "GRANT CREATE ON SCHEMA headrace TO PUBLIC",
}
UNMENDED = {
    "tick is owned by mallory": "ALTER TABLE headrace.tick OWNER TO mallory",
    "the schema is owned by mallory": "ALTER SCHEMA headrace OWNER TO mallory",
    "tick has other columns": "CREATE DOMAIN word AS text; ALTER TABLE headrace.tick ALTER queue TYPE word",
    "event_main_0 has other columns": "ALTER TABLE headrace.event_main_0 ADD more text",
    "current_main is owned by mallory": "ALTER SEQUENCE headrace.current_main OWNER TO mallory",
    "current_main is no sequence": "DROP SEQUENCE headrace.current_main;"
    " CREATE VIEW headrace.current_main AS SELECT 1",
    "reader has another primary key": "ALTER TABLE headrace.reader DROP CONSTRAINT reader_pkey",
    "event_main_2 is no ordinary table": "CREATE TABLE kid () INHERITS (headrace.event_main_2)",
}


def test_what_our_script_did_not_make_is_refused_with_what_mends_it(database: Database, roles: None) -> None:
    executed(database, ["CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"])
    with capturing(database) as queue:
        for what, statement in HOSTILE.items():
            database.execute(statement)
            error = flaw(queue.session)
            assert error is not None, what
            assert what in (error.detail or ""), what
            while error is not None:  # until nothing is left of it
                last = error.hint
                database.execute(last.split("; or ")[0])
                error = flaw(queue.session)
                assert error is None or error.hint != last, what
            ensure_queue(queue.session, LAKE.objects)
        # The function was one of what had to go; the queue is as it was made, but for it.
        for what, statement in UNMENDED.items():
            with database.connect() as hostile:
                hostile.execute("BEGIN")
                hostile.execute(statement.encode())
                rows = hostile.execute("SELECT oid FROM pg_namespace WHERE nspname = 'headrace'").fetchall()
                assert len(rows) == 1
                hostile.execute("COMMIT")
            assert what in (refusal(queue.session).detail or ""), what
            database.execute(
                "DROP SCHEMA headrace CASCADE; DROP TABLE IF EXISTS kid; DROP DOMAIN IF EXISTS word"
            )
            ensure_queue(queue.session, LAKE.objects)


def test_roles_that_could_be_us_anyway_may_own_the_queue(database: Database, roles: None) -> None:
    def made_by(user: str) -> None:
        with session(database, user) as connection:
            ensure_queue(connection, LAKE.objects)
        database.execute("GRANT ALL ON SCHEMA headrace TO app")

    with session(database) as connection:
        for user in ("app", "postgres"):  # the database's owner, a superuser
            made_by(user)
            prove(connection, LAKE.objects)
            database.execute("DROP SCHEMA headrace CASCADE")
        made_by("dba")
        assert "GRANT dba TO mirror" in refusal(connection).hint
        for grant, revoke in (("dba TO mirror", "dba FROM mirror"), ("mirror TO dba", "mirror FROM dba")):
            database.execute(f"GRANT {grant}")
            prove(connection, LAKE.objects)
            database.execute(f"REVOKE {revoke}")
            refusal(connection)
        with session(database, "postgres") as superuser:
            refusal(superuser)
            database.execute("GRANT dba TO postgres")
            assert refusal(superuser), "whom a superuser is a member of tells nothing"
            database.execute("REVOKE dba FROM postgres")


def test_who_hangs_the_function_on_a_table_of_his_own_writes_down_its_rows_alone(
    database: Database, roles: None
) -> None:
    database.execute("GRANT CREATE ON SCHEMA public TO mallory")
    hung = (
        "SET ROLE mallory; CREATE TABLE own (id int); CREATE TRIGGER headrace_main_rows AFTER INSERT ON own"
        " FOR EACH ROW EXECUTE FUNCTION headrace.capture_main(); INSERT INTO own VALUES (1)"
    )
    executed(database, ["CREATE TABLE t (id int)"])
    with capturing(database) as queue:
        queue.capture("t")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="schema headrace"):
            database.execute(hung)
        database.execute("GRANT USAGE ON SCHEMA headrace TO mallory")
        database.execute(hung)
        assert (queue.events("t"), len(queue.events("own"))) == ([], 1)


HELD = "SELECT has_table_privilege(%s, %s, 'SELECT, INSERT, UPDATE, TRIGGER')"


def test_default_privileges_let_nobody_read_or_write_the_queue(database: Database, roles: None) -> None:
    executed(
        database,
        [
            "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO mallory, PUBLIC",
            "ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO mallory, PUBLIC",
            "ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO dba",
        ],
    )
    with capturing(database) as queue:
        held = [
            (name, table)
            for table in (*LAKE.objects.events, LAKE.objects.reader, LAKE.objects.tick)
            for name in ("mallory", "dba")
            if database.execute(HELD, [name, table]) != [(False,)]
        ]
        assert held == []
        asked = "SELECT has_sequence_privilege('mallory', %s, 'SELECT, UPDATE, USAGE')"
        assert database.execute(asked, [LAKE.objects.current]) == [(False,)]
        queue.session.execute(b"DROP SCHEMA headrace CASCADE")
