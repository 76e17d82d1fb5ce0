"""Each finding about publications and slots, found on a real server, mended by its statements, and gone."""

from __future__ import annotations

import pytest

from headrace.cli import main as cli
from headrace.core.errors import Misconfigured
from headrace.sources.postgres.preflight import PostgresWish, examine, script
from headrace.sources.postgres.session.address import PostgresAddress
from headrace_testing.postgres import Database
from tests.integration.postgres.preflight.harness import applies_its_own, check, mend, publish, serious, the

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    ("ddl", "code"),
    [
        ("SELECT 1", "PG_PUBLICATION_UNKNOWN"),
        ("CREATE PUBLICATION p", "PG_TABLE_UNPUBLISHED"),
        ("CREATE PUBLICATION p FOR TABLE good WITH (publish = 'insert')", "PG_PUBLICATION_PARTIAL"),
        ("CREATE PUBLICATION p FOR TABLE good WHERE (v > 'a')", "PG_FILTER_IDENTITY"),
        ("CREATE PUBLICATION p FOR TABLE good WHERE (id > 1 AND NOT v IS NULL)", "PG_FILTER_IDENTITY"),
        ("CREATE PUBLICATION p FOR TABLE good (v)", "PG_COLUMNS_IDENTITY"),
        (
            "ALTER TABLE good REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE good (id, v)",
            "PG_COLUMNS_IDENTITY",
        ),
    ],
)
def test_a_publication_that_would_make_the_mirror_wrong_is_refused_and_mended(
    db: Database, ddl: str, code: str
) -> None:
    db.execute(ddl, user="app")
    report = check(db, "good", publication="p")
    assert [finding.code for finding in report.errors] == [code]
    mend(db, the(report, code))
    assert check(db, "good", publication="p").errors == ()
    applies_its_own(db, "good")


PARTS = (
    ("TABLE good WHERE (id > 1)", "PG_TABLE_IN_PART", "rows"),
    ("TABLE good (id)", "PG_TABLE_IN_PART", '"v"'),
    ("TABLE good (v, id)", None, ""),
    ("TABLE good (id) WHERE (id > 1)", "PG_TABLE_IN_PART", "rows"),
)


def test_a_part_that_can_be_followed_is_told_of(db: Database) -> None:
    for published, code, said in PARTS:
        db.execute(f"CREATE PUBLICATION p FOR {published}", user="app")
        report = check(db, "good", publication="p")
        assert report.errors == ()
        found = [each for each in report.findings if each.code.startswith("PG_TABLE")]
        assert [each.code for each in found] == ([code] if code else [])
        assert all(said in str(each.error.detail) for each in found)
        applies_its_own(db, "good")
        db.execute("DROP PUBLICATION p")


def test_a_filter_that_the_user_may_not_evaluate_is_refused_and_mended(db: Database) -> None:
    db.execute("CREATE PUBLICATION p FOR TABLE good WHERE (factorial(id) + abs(id) > 1)")
    assert check(db, "good", publication="p").errors == ()
    db.execute("REVOKE EXECUTE ON FUNCTION pg_catalog.factorial(bigint) FROM PUBLIC")
    report = check(db, "good", publication="p")
    assert [finding.code for finding in report.errors] == ["PG_FILTER_PRIVILEGE"]
    assert the(report, "PG_FILTER_PRIVILEGE").error.detail == "factorial(bigint)"
    mend(db, the(report, "PG_FILTER_PRIVILEGE"))
    assert check(db, "good", publication="p").errors == ()
    db.execute("REVOKE EXECUTE ON FUNCTION pg_catalog.factorial(bigint) FROM app")


def test_partitions_under_the_name_of_their_root_are_refused(db: Database) -> None:
    db.execute(
        "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY LIST (id);"
        " CREATE TABLE leaf PARTITION OF root FOR VALUES IN (1);"
        " CREATE PUBLICATION p FOR TABLE root WITH (publish_via_partition_root)",
        user="app",
    )
    report = check(db, "leaf", publication="p")
    assert [finding.code for finding in report.errors] == ["PG_PUBLICATION_ROOT"]
    mend(db, the(report, "PG_PUBLICATION_ROOT"))
    assert check(db, "leaf", publication="p").errors == ()


TREE = (
    "CREATE SCHEMA apart; CREATE TABLE root (id int PRIMARY KEY) PARTITION BY LIST (id);"
    " CREATE TABLE leaf PARTITION OF root FOR VALUES IN (1);"
    " CREATE TABLE gen (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED)"
)
LISTED_TWICE = (
    # The partition's own row decides, whatever its root's says; a schema cancels its tables' filters only.
    ("TABLE apart.root, leaf WHERE (id < 0)", "leaf", True),
    ("TABLE apart.root, leaf", "leaf", False),
    ("TABLE leaf WHERE (id < 0), TABLES IN SCHEMA apart", "leaf", True),
    ("TABLES IN SCHEMA public, TABLE leaf WHERE (id < 0)", "leaf", False),
    ("TABLES IN SCHEMA public, TABLE good WHERE (id < 0)", "good", False),
)


def test_what_a_publication_leaves_out_is_told_as_the_server_goes_by_it(db: Database) -> None:
    db.execute(TREE, user="app")
    db.execute("ALTER TABLE root SET SCHEMA apart")
    db.execute("SELECT pg_create_logical_replication_slot('oracle', 'pgoutput')")
    for published, table, limited in LISTED_TWICE:
        db.execute(f"CREATE PUBLICATION p FOR {published}")
        report = check(db, table, publication="p")
        codes = [finding.code for finding in report.findings if finding.code == "PG_TABLE_IN_PART"]
        assert (report.errors, codes) == ((), ["PG_TABLE_IN_PART"] if limited else []), published
        db.execute(f"DELETE FROM {table}; INSERT INTO {table} (id) VALUES (1)")
        streamed = db.execute(
            "SELECT 1 FROM pg_logical_slot_get_binary_changes('oracle', NULL, NULL, 'proto_version', '1',"
            " 'publication_names', 'p') WHERE get_byte(data, 0) = ascii('I')"
        )
        assert bool(streamed) != limited, published
        db.execute("DROP PUBLICATION p")


def test_columns_are_those_that_the_server_sends(db: Database) -> None:
    """Stored generated columns too, where they are listed or published (PostgreSQL 18)."""
    db.execute(TREE, user="app")
    for published, columns in (
        ("gen", ["id", "n"]),
        ("gen (id, n)", ["id", "n"]),
        ("gen (twice, n, id)", ["id", "n", "twice"]),
        ("gen (twice, id)", ["id", "twice"]),
        ("gen (id)", ["id"]),
        ("gen WITH (publish_generated_columns = stored)", ["id", "n", "twice"]),
        ("gen (id) WITH (publish_generated_columns = stored)", ["id"]),
    ):
        db.execute(f"CREATE PUBLICATION p FOR TABLE {published}")
        report = check(db, "gen", publication="p")
        assert report.errors == (), published
        [table] = report.tables
        [(sent,)] = db.execute("SELECT attnames::text[] FROM pg_publication_tables WHERE pubname = 'p'")
        assert list(table.schema.names) == columns == sent, published
        db.execute("DROP PUBLICATION p")


def test_whole_rows_with_a_generated_column_ask_for_its_being_published(db: Database) -> None:
    """Else the server refuses UPDATE and DELETE; of a virtual one in any case."""
    db.execute(TREE, user="app")
    db.execute("ALTER TABLE gen REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE gen", user="app")
    [found] = check(db, "gen", publication="p").errors
    assert found.code == "PG_IDENTITY_MISSING"
    assert 'refuses its UPDATE and DELETE while it is in publication "p"' in str(found.error.detail)
    db.execute("ALTER PUBLICATION p SET (publish_generated_columns = stored)")
    assert check(db, "gen", publication="p").errors == ()
    applies_its_own(db, "gen")
    db.execute("ALTER TABLE gen ADD COLUMN seen int GENERATED ALWAYS AS (n) VIRTUAL")
    assert [each.code for each in check(db, "gen", publication="p").errors] == ["PG_IDENTITY_MISSING"]


def test_a_column_list_of_every_column_is_no_limit(db: Database) -> None:
    db.execute("CREATE PUBLICATION p FOR TABLE good (id, v)", user="app")
    assert check(db, "good", publication="p").errors == ()


def test_wildcards_select_within_a_publication_that_is_named(db: Database) -> None:
    db.execute("CREATE TABLE other (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE good", user="app")
    report = check(db, "public.*", publication="p")
    assert report.errors == ()
    assert [entry.name.name for entry in report.tables] == ["good"]
    db.execute("ALTER PUBLICATION p DROP TABLE good")
    empty = check(db, "public.*", publication="p")
    assert [finding.code for finding in empty.errors] == ["PG_PUBLICATION_EMPTY"]


def test_statements_never_publish_a_table_without_identity(db: Database) -> None:
    db.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)", user="app")
    for publication in ("p", "q"):
        report = check(db, "good", "t", publication=publication)
        for finding in report.findings:
            if finding.code != "PG_IDENTITY_MISSING":
                mend(db, finding)
        applies_its_own(db, "t")
        db.execute("CREATE PUBLICATION q; INSERT INTO t VALUES (1)" if publication == "p" else "SELECT 1")


def test_whether_our_own_publication_can_be_made_is_told_and_mended(db: Database) -> None:
    db.execute("CREATE TABLE theirs (id int PRIMARY KEY); GRANT SELECT ON theirs TO app")
    report = check(db, "theirs")
    assert [finding.code for finding in report.errors] == ["PG_PUBLICATION_PRIVILEGE"]
    assert [str(name) for name in report.by_option["--publication headrace"]] == ["public.theirs"]
    mend(db, the(report, "PG_PUBLICATION_PRIVILEGE"))
    assert check(db, "theirs", publication="headrace").errors == ()


def test_the_statements_run_in_order_by_their_owner_leave_nothing_to_mend(db: Database) -> None:
    """Asked by a user who owns nothing: the second look does not tell to make again what is there."""
    role = f"r_{db.name}"
    db.execute(
        "CREATE TABLE keyless (v int); INSERT INTO keyless VALUES (1); CREATE TABLE hollow ();"
        " CREATE TABLE stored (g int GENERATED ALWAYS AS (1) STORED);"
        " ALTER TABLE stored REPLICA IDENTITY FULL; INSERT INTO stored DEFAULT VALUES;"
        " ALTER TABLE good ADD next int GENERATED ALWAYS AS (id + 1) STORED",
        user="app",
    )
    db.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'pw'")
    address = PostgresAddress.parse(db.url(user=role, password="pw"))
    try:
        report = examine(address, PostgresWish(("public.*",)))
        assert report.tables == ()
        generated = the(report, "PG_COLUMNS_GENERATED").error
        assert "public.good (next)" in str(generated.detail)
        for statement in script(report.findings):
            db.execute(statement, user="app")
        statement, publishes, _ = str(generated.hint).partition(" sends the stored ones; or ")
        assert publishes
        db.execute(statement, user="app")
        db.execute("UPDATE keyless SET v = 2; DELETE FROM stored", user="app")
        again = examine(address, PostgresWish(("public.*",)))
        assert script(again.findings) == []
        assert the(again, "PG_PUBLICATION_PRIVILEGE").error.hint == "use --publication headrace"
        last = examine(address, PostgresWish(("public.*",), publication="headrace"))
        assert (last.errors, [entry.name.name for entry in last.tables]) == ((), ["good", "keyless"])
        assert "PG_COLUMNS_GENERATED" not in [finding.code for finding in last.findings]
        # One more table: what is offered now is not the whole again.
        db.execute("CREATE TABLE more (id int PRIMARY KEY); CREATE TABLE loose (v int)", user="app")
        for statement in script(examine(address, PostgresWish(("public.*",))).findings):
            db.execute(statement, user="app")
        named = examine(address, PostgresWish(("public.*", "more", "loose"), publication="headrace"))
        assert named.errors == ()
    finally:
        db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_check_prints_each_statement_in_one_line_and_with_sql_nothing_else(
    db: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    long = [f"a_table_with_quite_a_long_name_{number}" for number in range(4)]
    for name in long:
        db.execute(f"CREATE TABLE {name} (v int)", user="app")
    argv = ["check", db.url(user="app"), "--publication", "p", "--tables", "public.*"]
    assert cli.main(argv) == 2
    told = capsys.readouterr().out
    assert "    CREATE PUBLICATION p FOR TABLE ONLY public.good;\n" in told
    for name in long:
        assert f"    ALTER TABLE public.{name} REPLICA IDENTITY FULL;\n" in told
    assert cli.main([*argv, "--sql"]) == 2
    db.execute(capsys.readouterr().out, user="app")
    assert cli.main(argv) == 0
    assert "5 tables can be mirrored" in capsys.readouterr().out


def test_a_publication_that_is_named_and_not_there_is_offered_with_what_the_patterns_name(
    db: Database,
) -> None:
    db.execute("CREATE TABLE keyless (v int)", user="app")
    report = check(db, "public.*", publication="p")
    assert [finding.code for finding in report.errors] == ["PG_PUBLICATION_UNKNOWN"]
    for statement in script(report.findings):
        db.execute(statement, user="app")
    mended = check(db, "public.*", publication="p")
    assert (serious(mended), [entry.name.name for entry in mended.tables]) == ([], ["good", "keyless"])


def test_a_publication_is_asked_of_the_owner_only_for_what_a_wildcard_did_not_leave_out(
    db: Database,
) -> None:
    db.execute("CREATE TABLE theirs (id int PRIMARY KEY)")
    assert check(db).errors == ()
    assert [finding.code for finding in check(db, "good", "theirs").errors][-1] == "PG_PUBLICATION_PRIVILEGE"


def test_the_right_to_make_a_publication_is_asked_for(db: Database) -> None:
    db.execute(f'ALTER DATABASE "{db.name}" OWNER TO postgres')
    report = check(db, "good")
    assert [finding.code for finding in report.errors] == ["PG_PUBLICATION_PRIVILEGE"]
    with pytest.raises(Misconfigured) as caught:
        publish(db, report if report.tables else check(db, "good", publication="p"))
    assert caught.value.code == "PG_PUBLICATION_PRIVILEGE"
    mend(db, the(report, "PG_PUBLICATION_PRIVILEGE"))
    publish(db, check(db, "good"))


def test_a_slot_of_the_users_is_examined(db: Database) -> None:
    missing = check(db, "good", slot="mine")
    assert [finding.code for finding in missing.errors] == ["PG_SLOT_UNKNOWN"]
    mend(db, the(missing, "PG_SLOT_UNKNOWN"))
    assert check(db, "good", slot="mine").errors == ()
    db.execute("SELECT pg_create_logical_replication_slot('two', 'pgoutput', twophase => true)")
    assert [finding.code for finding in check(db, "good", slot="two").errors] == ["PG_SLOT_UNFIT"]


def test_what_another_lake_left_is_named_with_the_statement_that_removes_it(db: Database) -> None:
    left, beside = "headrace_0123abcd_left", "headrace_0123abcd_beside"
    db.execute(
        f"SELECT pg_create_logical_replication_slot('{left}', 'pgoutput'),"
        " pg_create_logical_replication_slot('theirs', 'pgoutput')"
    )
    db.execute(f"CREATE PUBLICATION {left}; CREATE PUBLICATION {beside}; CREATE PUBLICATION theirs")
    report = check(db)
    assert serious(report) == ["PG_SLOT_UNUSED", "PG_PUBLICATION_UNUSED"]
    assert left in the(report, "PG_SLOT_UNUSED").error.primary
    assert beside in the(report, "PG_PUBLICATION_UNUSED").error.primary
    assert script(report.findings) == [], "a lake may rest: only a person knows"
    while unused := [f for f in check(db).findings if f.code in ("PG_SLOT_UNUSED", "PG_PUBLICATION_UNUSED")]:
        db.execute(unused[0].error.hint.rpartition(": ")[2])
    assert db.execute("SELECT pubname FROM pg_publication") == [("theirs",)]
