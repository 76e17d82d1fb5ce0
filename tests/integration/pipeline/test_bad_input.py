"""Bad input at the first run: one coded error each, nothing made upstream, nothing mirrored.

A server older than PostgreSQL 15 is not to be had here: that it is refused is tested on its words
(`tests/unit/sources/postgres`), as `PG_VERSION_UNSUPPORTED`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from headrace.cli import main as cli
from headrace.core.errors import Misconfigured, Transient
from headrace_testing.binaries import tool
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.ports import free_port
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.refused import leaves_nothing, mirrors_nothing, refusal, upstream

NOTHING: tuple[set[str], set[str]] = (set(), set())


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def good(database: Database) -> Database:
    """A database with a table that nothing stands against."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", user="app")
    database.execute("INSERT INTO t SELECT i, i FROM generate_series(1, 10) i", user="app")
    return database


@pytest.fixture
def stray_slots(database: Database) -> Iterator[None]:
    """Slots without a database, which does not take them along when it is dropped, go after the test."""
    yield
    database.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database IS NULL"
    )


# --- the address --------------------------------------------------------------------------------


def test_a_wrong_password_is_refused_and_not_shown(good: Database, lake: Path) -> None:
    error = refusal(lake, url=good.url(user="app", password="not-it"))
    assert (error.code, error.family) == ("PG_PASSWORD_REFUSED", Misconfigured.family)
    assert "not-it" not in str(error)
    assert upstream(good) == NOTHING
    assert leaves_nothing(lake)


def test_a_database_that_is_not_there_is_refused(good: Database, lake: Path) -> None:
    error = refusal(lake, url=good.server.url("nowhere", user="app"))
    assert (error.code, type(error)) == ("PG_DATABASE_UNKNOWN", Misconfigured)
    assert leaves_nothing(lake)


@pytest.mark.parametrize("where", ["port", "host"])
def test_a_server_that_never_answered_is_not_waited_for(good: Database, lake: Path, where: str) -> None:
    # `.invalid` is the domain of which it is promised that nothing is ever found there.
    address = {"port": free_port()} if where == "port" else {"host": "no-such-host.invalid"}
    error = refusal(lake, url=good.url(user="app", **address))
    assert (error.code, error.family) == ("PG_UNREACHABLE", Transient.family)
    assert leaves_nothing(lake)


# --- privileges ---------------------------------------------------------------------------------


@contextmanager
def _role(database: Database, attributes: str) -> Iterator[str]:
    """A user of the server who exists while the block runs; its name."""
    name = f"r_{database.name}"
    database.execute(f"CREATE ROLE {name} LOGIN {attributes} PASSWORD 'pw'")
    try:
        yield name
    finally:
        database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_user_who_may_not_replicate_is_refused(good: Database, lake: Path) -> None:
    with _role(good, "") as role:
        good.execute(f"ALTER TABLE t OWNER TO {role}; GRANT CREATE ON DATABASE {good.name} TO {role}")
        error = refusal(lake, url=good.url(user=role, password="pw"))
        assert (error.code, error.family) == ("PG_REPLICATION_PRIVILEGE", Misconfigured.family)
        assert upstream(good) == NOTHING
        assert leaves_nothing(lake)
        good.execute("ALTER TABLE t OWNER TO app")


def test_a_table_that_may_not_be_read_refuses_the_run(good: Database, lake: Path) -> None:
    good.execute("CREATE TABLE hidden (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t, hidden")
    with _role(good, "REPLICATION") as role:
        good.execute(f"GRANT SELECT ON t TO {role}")
        tables = ("public.t", "public.hidden")
        error = refusal(lake, *tables, url=good.url(user=role, password="pw"), publication="p")
        assert (error.code, type(error)) == ("PG_TABLE_PRIVILEGE", Misconfigured)
        assert "public.hidden" in error.primary
        assert upstream(good) == ({"p"}, set())
        assert leaves_nothing(lake)


# --- publications -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("SELECT 1", "PG_PUBLICATION_UNKNOWN"),
        ("CREATE PUBLICATION p", "PG_TABLE_UNPUBLISHED"),
        ("CREATE PUBLICATION p FOR TABLE t WHERE (n > 5)", "PG_FILTER_IDENTITY"),
        ("CREATE PUBLICATION p FOR TABLE t (n)", "PG_COLUMNS_IDENTITY"),
        ("CREATE PUBLICATION p FOR TABLE t WITH (publish = 'insert')", "PG_PUBLICATION_PARTIAL"),
        (
            "CREATE PUBLICATION p FOR TABLE t WITH (publish = 'insert, update, delete')",
            "PG_PUBLICATION_PARTIAL",
        ),
    ],
)
def test_a_publication_that_does_not_publish_all_is_refused(
    good: Database, lake: Path, statement: str, code: str
) -> None:
    good.execute(statement)
    before = upstream(good)
    error = refusal(lake, "public.t", url=good.url(user="app"), publication="p")
    assert (error.code, type(error)) == (code, Misconfigured)
    assert upstream(good) == before
    assert leaves_nothing(lake)


def test_a_publication_alone_means_all_that_it_holds(good: Database, mirrors: Mirrors) -> None:
    good.execute("CREATE TABLE outside (id int PRIMARY KEY)", user="app")
    good.execute("CREATE PUBLICATION p FOR TABLE t")
    mirrors.once(tables=[], publication="p")
    assert set(mirrors.lake.marks()[-1].versions) == {"public.t"}
    assert upstream(good)[0] == {"p"}


# --- the user's own slot ------------------------------------------------------------------------

_MAKE_SLOT = "SELECT pg_create_logical_replication_slot('mine', 'pgoutput')"


@pytest.mark.parametrize(
    ("make", "code"),
    [
        ("SELECT 1", "PG_SLOT_UNKNOWN"),
        ("SELECT pg_create_logical_replication_slot('mine', 'pgoutput', false, true)", "PG_SLOT_UNFIT"),
        # No other plugin comes with this server: a slot without one stands for them.
        ("SELECT pg_create_physical_replication_slot('mine')", "PG_SLOT_UNFIT"),
    ],
)
def test_a_slot_that_cannot_carry_the_stream_is_refused(
    good: Database, lake: Path, make: str, code: str, stray_slots: None
) -> None:
    good.execute(make)
    before = upstream(good)
    error = refusal(lake, url=good.url(user="app"), slot="mine")
    assert (error.code, type(error)) == (code, Misconfigured)
    assert upstream(good) == before
    assert leaves_nothing(lake)


def test_a_slot_of_another_database_is_refused_and_left(good: Database, lake: Path) -> None:
    with good.server.database() as elsewhere:
        elsewhere.execute(_MAKE_SLOT)
        error = refusal(lake, url=good.url(user="app"), slot="mine")
        assert (error.code, type(error)) == ("PG_SLOT_UNFIT", Misconfigured)
        assert elsewhere.name in (error.detail or "")
        assert upstream(elsewhere) == (set(), {"mine"})
    assert upstream(good) == NOTHING
    assert leaves_nothing(lake)


@contextmanager
def _reading(database: Database, slot: str) -> Iterator[int]:
    """Another program that reads the slot; its process at the server."""
    program = subprocess.Popen(
        [
            tool("pg_recvlogical"),
            *("--dbname", psycopg.conninfo.make_conninfo(database.url(), application_name="theirs")),
            *("--slot", slot, "--start", "--file", "-", "--no-loop"),
            *("-o", "proto_version=1", "-o", "publication_names=p"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    active = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s AND active_pid IS NOT NULL"
    try:
        wait_for(lambda: bool(database.execute(active, [slot])), "the other program reads the slot")
        yield database.execute(active, [slot])[0][0]
        assert program.poll() is None, "the other program was ended"
    finally:
        program.terminate()
        program.wait()


def test_a_slot_that_another_program_reads_is_left_to_it(good: Database, lake: Path) -> None:
    good.execute("CREATE PUBLICATION p FOR TABLE t")
    good.execute(_MAKE_SLOT)
    with _reading(good, "mine") as pid:
        error = refusal(lake, url=good.url(user="app"), slot="mine", publication="p")
        assert (error.code, type(error)) == ("PG_SLOT_TAKEN", Misconfigured)
        assert str(pid) in (error.detail or "")
        assert "theirs" in (error.detail or "")
        assert good.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid])
    assert upstream(good) == ({"p"}, {"mine"})
    assert leaves_nothing(lake)


def test_a_slot_without_its_publication_is_refused(good: Database, lake: Path) -> None:
    good.execute(_MAKE_SLOT)
    error = refusal(lake, url=good.url(user="app"), slot="mine")
    assert (error.code, type(error)) == ("PG_SLOT_WITHOUT_PUBLICATION", Misconfigured)
    assert upstream(good) == (set(), {"mine"})
    assert leaves_nothing(lake)


# --- tables -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("public.nothing_*", "PG_PATTERN_EMPTY"),
        ("a.b.c", "PATTERN_MALFORMED"),
        ('public."t', "PATTERN_MALFORMED"),
    ],
)
def test_a_pattern_that_names_nothing_or_is_none_is_refused(
    good: Database, lake: Path, pattern: str, code: str
) -> None:
    error = refusal(lake, "public.t", pattern, url=good.url(user="app"))
    assert (error.code, type(error)) == (code, Misconfigured)
    assert upstream(good) == NOTHING
    assert leaves_nothing(lake)


def test_a_lake_where_no_directory_can_be_made_is_refused(good: Database) -> None:
    error = refusal(Path("/proc/headrace"), "public.t", url=good.url(user="app"))
    assert (error.code, type(error)) == ("LAKE_UNMAKEABLE", Misconfigured)
    assert upstream(good) == NOTHING


def test_without_a_pattern_and_a_publication_there_is_nothing_to_mirror(good: Database, lake: Path) -> None:
    error = refusal(lake, url=good.url(user="app"), tables=[])
    assert (error.code, type(error)) == ("NOTHING_TO_MIRROR", Misconfigured)
    assert "--tables 'public.*'" in error.hint
    assert upstream(good) == NOTHING


def test_tables_whose_names_differ_only_in_case_are_refused(good: Database, lake: Path) -> None:
    good.execute('CREATE TABLE "T" (id int PRIMARY KEY)', user="app")
    error = refusal(lake, "public.t", 'public."T"', url=good.url(user="app"))
    assert (error.code, type(error)) == ("LAKE_NAME_CASE", Misconfigured)
    assert upstream(good) == NOTHING
    assert leaves_nothing(lake)


def test_columns_whose_names_differ_only_in_case_are_refused(good: Database, lake: Path) -> None:
    good.execute('ALTER TABLE t ADD COLUMN "N" int', user="app")
    error = refusal(lake, "public.t", url=good.url(user="app"))
    assert (error.code, type(error)) == ("PG_COLUMNS_ALIKE", Misconfigured)
    assert upstream(good) == NOTHING
    assert leaves_nothing(lake)


# Takes every slot that is left as soon as a publication is made: after preflight, before our slot.
_TAKE_SLOTS = """
CREATE FUNCTION take_slots() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    free int := current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots);
BEGIN
    PERFORM pg_create_physical_replication_slot('taken_' || i) FROM generate_series(1, free) i;
END $$;
CREATE EVENT TRIGGER take_slots ON ddl_command_end WHEN TAG IN ('CREATE PUBLICATION')
    EXECUTE FUNCTION take_slots();
"""


def test_a_slot_that_cannot_be_made_leaves_no_publication(
    good: Database, lake: Path, stray_slots: None
) -> None:
    good.execute(_TAKE_SLOTS)
    error = refusal(lake, url=good.url(user="app"))
    assert (error.code, type(error)) == ("PG_SLOTS_FULL", Misconfigured)
    assert upstream(good) == NOTHING
    assert mirrors_nothing(lake)


def test_what_a_killed_first_run_made_is_removed_by_drop(
    good: Database, lake: Path, capsys: pytest.CaptureFixture[str], program: Program
) -> None:
    """Its slot waits for a transaction that writes elsewhere: a publication is there, and no record of it."""
    good.execute("CREATE TABLE other (id int)", user="app")
    with good.connect(user="app") as writer:
        writer.execute("BEGIN; INSERT INTO other VALUES (1)")
        mirror = Mirrored(lake, good.url(user="app"), "public.t", program=program)
        try:
            mirror.start("--once")
            mirror.until(lambda: upstream(good)[0] != set(), "publication")
        finally:
            mirror.close()
        writer.execute("ROLLBACK")
    wait_for(lambda: upstream(good)[1] == set(), "the server removes the slot that was not finished")
    [publication] = upstream(good)[0]
    assert cli.main(["drop", good.url(user="app"), "--lake", str(lake), "--yes"]) == 0
    assert f'dropped publication "{publication}"' in capsys.readouterr().out
    assert upstream(good) == NOTHING


# --- the lake -----------------------------------------------------------------------------------


def test_a_lake_path_that_is_a_file_is_refused_and_left(good: Database, lake: Path) -> None:
    lake.write_text("mine")
    error = refusal(lake, url=good.url(user="app"))
    assert (error.code, type(error)) == ("LAKE_NOT_EMPTY", Misconfigured)
    assert lake.read_text() == "mine"
    assert upstream(good) == NOTHING


def test_a_directory_that_is_no_lake_is_refused_and_left(good: Database, lake: Path) -> None:
    lake.mkdir()
    (lake / "thesis.txt").write_text("mine")
    error = refusal(lake, url=good.url(user="app"))
    assert (error.code, type(error)) == ("LAKE_NOT_EMPTY", Misconfigured)
    assert [entry.name for entry in lake.iterdir()] == ["thesis.txt"]
    assert upstream(good) == NOTHING


def test_a_lake_of_a_newer_format_is_refused_and_left(good: Database, lake: Path) -> None:
    (lake / "_headrace").mkdir(parents=True)
    format_file = lake / "_headrace/format.json"
    format_file.write_text(json.dumps({"format": 99, "lake_id": "f" * 32}))
    error = refusal(lake, url=good.url(user="app"))
    assert (error.code, type(error)) == ("LAKE_TOO_NEW", Misconfigured)
    assert [path for path in lake.rglob("*") if path.is_file()] == [format_file]
    assert upstream(good) == NOTHING


def test_an_unknown_key_is_refused_before_anything_is_made(good: Database, lake: Path) -> None:
    error = refusal(lake, url=good.url(user="app"), tabels=["public.*"])
    assert (error.code, type(error)) == ("CONFIG_UNKNOWN_KEY", Misconfigured)
    assert "tables" in error.hint
    assert not lake.exists()
    assert upstream(good) == NOTHING
