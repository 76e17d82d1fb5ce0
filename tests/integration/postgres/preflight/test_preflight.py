"""Each finding, found on a real server, mended by the statements it gives, and gone.

The application's own UPDATE and DELETE are run after every case, refused or accepted: whatever a
preflight says and whatever is then published, they must succeed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.cli import main as cli
from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.names import TableName
from headrace.sources.contract.findings import Finding, Level, Report
from headrace.sources.postgres.preflight import PostgresWish, examine, script, unmirrored
from headrace.sources.postgres.publication import ensure_publication
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
from headrace.testing.postgres import Database, Setting, postgres
from headrace.testing.postmaster import wait_for

pytestmark = pytest.mark.server

GOOD = "CREATE TABLE good (id int PRIMARY KEY, v text); INSERT INTO good VALUES (1, 'a')"


@pytest.fixture
def db(database: Database) -> Iterator[Database]:
    database.execute(GOOD, user="app")
    yield database
    database.execute("ALTER ROLE app NOBYPASSRLS REPLICATION")


def check(db: Database, *patterns: str, publication: str | None = None, slot: str | None = None) -> Report:
    wish = PostgresWish(patterns or ("public.*",), publication=publication, slot=slot)
    return examine(Address.parse(db.url(user="app")), wish)


def serious(report: Report) -> list[str]:
    return [finding.code for finding in report.findings if finding.level is not Level.INFO]


def the(report: Report, code: str) -> Finding:
    (finding,) = [finding for finding in report.findings if finding.code == code]
    return finding


def mend(db: Database, finding: Finding) -> None:
    for statement in finding.mend:
        db.execute(statement)


def publish(db: Database, report: Report) -> None:
    """What a run would do next."""
    with closing(connect(Address.parse(db.url(user="app")), role="test")) as session:
        ensure_publication(session, "headrace_test", [look.name for look in report.tables])


def applies_its_own(db: Database, table: str) -> None:
    """The application updates and deletes."""
    columns = db.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND attgenerated = ''"
        " AND NOT attisdropped",
        [table],
        user="app",
    )
    for (column,) in columns:
        db.execute(f'UPDATE {table} SET "{column}" = "{column}"', user="app")
    db.execute(f"DELETE FROM {table}", user="app")


def test_a_good_table_has_nothing_to_mend(db: Database) -> None:
    report = check(db)
    assert serious(report) == []
    assert [look.name for look in report.tables] == [TableName("public", "good")]
    assert report.errors == ()
    publish(db, report)
    applies_its_own(db, "good")


# --- tables -------------------------------------------------------------------------------------

IDENTITIES = [
    "CREATE TABLE t (id int)",
    "CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING",
    "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE)",
    "CREATE TABLE t (id int UNIQUE)",
    "CREATE TABLE t (id int, g int GENERATED ALWAYS AS (id) STORED); ALTER TABLE t REPLICA IDENTITY FULL",
    "CREATE TABLE t (id int, g int GENERATED ALWAYS AS (id) VIRTUAL); ALTER TABLE t REPLICA IDENTITY FULL",
    "CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id) STORED);"
    " ALTER TABLE t REPLICA IDENTITY FULL",
    "CREATE TABLE t (id int, g int GENERATED ALWAYS AS (id) STORED PRIMARY KEY)",
    "CREATE TABLE t (id int NOT NULL); CREATE UNIQUE INDEX i ON t (id);"
    " ALTER TABLE t REPLICA IDENTITY USING INDEX i; DROP INDEX i",
]


@pytest.mark.parametrize("ddl", IDENTITIES)
def test_a_table_without_a_usable_identity_is_refused_and_mended(db: Database, ddl: str) -> None:
    db.execute(f"{ddl}; INSERT INTO t (id) VALUES (1), (2)", user="app")
    report = check(db, "good", "t")
    assert [finding.code for finding in report.errors] == serious(report) == ["PG_IDENTITY_MISSING"]
    assert [look.name.name for look in report.tables] == ["good"]
    publish(db, report)
    db.execute("UPDATE t SET id = id", user="app")
    applies_its_own(db, "good")
    finding = the(report, "PG_IDENTITY_MISSING")
    mend(db, finding)
    if not finding.mend:  # takes a column of another kind, which is not ours to add
        assert "not generated" in finding.error.hint
        db.execute(
            "ALTER TABLE t ADD COLUMN own bigserial, ADD CONSTRAINT own UNIQUE (own);"
            " ALTER TABLE t ALTER own SET NOT NULL, REPLICA IDENTITY USING INDEX own"
        )
    mended = check(db, "good", "t")
    assert mended.errors == ()
    publish(db, mended)
    applies_its_own(db, "t")


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE t (id int); ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE TABLE t (id int NOT NULL UNIQUE); ALTER TABLE t REPLICA IDENTITY USING INDEX t_id_key",
        "CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id) STORED)",
        "CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id) VIRTUAL)",
        "CREATE TABLE t (id int, w int, PRIMARY KEY (w, id) INCLUDE (id))",
    ],
)
def test_a_table_that_is_accepted_stays_writable(db: Database, ddl: str) -> None:
    db.execute(ddl, user="app")
    report = check(db)
    assert report.errors == ()
    publish(db, report)
    applies_its_own(db, "t")


@pytest.mark.parametrize(
    ("ddl", "code"),
    [
        ('CREATE TABLE t (a int PRIMARY KEY, "A" int, "a_2" int)', "PG_COLUMNS_ALIKE"),
        (
            "CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t ENABLE ROW LEVEL SECURITY, "
            "FORCE ROW LEVEL SECURITY",
            "PG_ROW_SECURITY",
        ),
        ("CREATE UNLOGGED TABLE t (id int PRIMARY KEY)", "PG_NOT_STREAMED"),
    ],
)
def test_what_is_wrong_with_a_table_is_mended_by_its_statement(db: Database, ddl: str, code: str) -> None:
    db.execute(ddl, user="app")
    report = check(db, "good", "t")
    finding = the(report, code)
    assert (finding.table, finding.level) == (TableName("public", "t"), Level.ERROR)
    assert "t" not in [look.name.name for look in report.tables]
    mend(db, finding)
    if not finding.mend:  # it alters columns: the hint has it, for a person
        db.execute(finding.error.hint.rpartition(": ")[2], user="app")
    mended = check(db, "good", "t")
    assert mended.errors == ()
    assert "t" in [look.name.name for look in mended.tables]


def test_a_table_without_columns_is_refused(db: Database) -> None:
    db.execute("CREATE TABLE t (); ALTER TABLE t REPLICA IDENTITY FULL", user="app")
    report = check(db, "good", "t")
    assert [finding.code for finding in report.errors] == ["PG_COLUMNS_NONE"]
    assert the(report, "PG_COLUMNS_NONE").error.hint == "leave it out: '!public.t'"
    assert serious(check(db, "public.*", "!public.t")) == []


def test_a_table_that_may_not_be_read_is_refused_and_mended(db: Database) -> None:
    db.execute(
        'CREATE SCHEMA "Pri vate"; CREATE TABLE "Pri vate"."T" (id int PRIMARY KEY);'
        ' CREATE PUBLICATION theirs FOR TABLE "Pri vate"."T"'
    )
    report = check(db, '"Pri vate"."T"', publication="theirs")
    assert [finding.code for finding in report.errors] == ["PG_TABLE_PRIVILEGE"]
    assert len(the(report, "PG_TABLE_PRIVILEGE").mend) == 2
    mend(db, the(report, "PG_TABLE_PRIVILEGE"))
    assert check(db, '"Pri vate"."T"', publication="theirs").errors == ()


def test_the_right_to_read_columns_alone_is_not_enough_and_mended(db: Database) -> None:
    """A copy locks the table as a reader, which asks for SELECT on the table."""
    db.execute("CREATE TABLE cp (id int PRIMARY KEY, v text); CREATE PUBLICATION theirs FOR TABLE cp")
    db.execute("GRANT SELECT (id, v) ON cp TO app")
    report = check(db, "cp", publication="theirs")
    assert [finding.code for finding in report.errors] == ["PG_TABLE_PRIVILEGE"]
    mend(db, the(report, "PG_TABLE_PRIVILEGE"))
    assert check(db, "cp", publication="theirs").errors == ()
    db.execute("BEGIN; LOCK TABLE ONLY cp IN ACCESS SHARE MODE; COMMIT", user="app")


def test_what_cannot_be_streamed_is_named_and_never_chosen(db: Database) -> None:
    db.execute(
        "CREATE VIEW v AS SELECT 1 AS x; CREATE MATERIALIZED VIEW m AS SELECT 1 AS x;"
        " CREATE TABLE root (id int PRIMARY KEY) PARTITION BY LIST (id);"
        " CREATE TABLE leaf PARTITION OF root FOR VALUES IN (1);"
        " CREATE UNLOGGED TABLE u (id int PRIMARY KEY)",
        user="app",
    )
    report = check(db, "public.*", "public.v")
    named = {(str(f.table), f.level) for f in report.findings if f.code == "PG_NOT_STREAMED"}
    swept = {(f"public.{name}", Level.WARNING) for name in ("m", "root", "u")}
    assert named == {*swept, ("public.v", Level.ERROR)}
    assert [str(name) for name in report.left_out] == ["public.m", "public.root", "public.u"]
    assert [look.name.name for look in report.tables] == ["good", "leaf"]


UNFIT = """
    CREATE TABLE keyless (v int); INSERT INTO keyless VALUES (1);
    CREATE TABLE hollow (); ALTER TABLE hollow REPLICA IDENTITY FULL;
    CREATE TABLE alike (a int PRIMARY KEY, "A" int);
    CREATE TABLE hidden (id int PRIMARY KEY);
    ALTER TABLE hidden ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
"""
CODES = {
    "public.keyless": "PG_IDENTITY_MISSING",
    "public.hollow": "PG_COLUMNS_NONE",
    "public.alike": "PG_COLUMNS_ALIKE",
    "public.hidden": "PG_ROW_SECURITY",
    "public.theirs": "PG_PUBLICATION_PRIVILEGE",
}


def test_what_a_wildcard_sweeps_in_and_cannot_be_mirrored_is_left_out_with_its_code(db: Database) -> None:
    db.execute(UNFIT, user="app")
    db.execute("CREATE TABLE theirs (id int PRIMARY KEY); GRANT SELECT ON theirs TO app")
    report = check(db)
    assert report.errors == ()
    assert [look.name.name for look in report.tables] == ["good"]
    assert {str(name): error.code for name, error in report.left_out.items()} == CODES
    publish(db, report)
    db.execute("UPDATE keyless SET v = 2", user="app")
    # A run that goes on says the same of what it does not mirror, and that a table is new.
    with closing(connect(Address.parse(db.url(user="app")), role="test")) as session:
        beside = unmirrored(session, PostgresWish(("public.*",)), [])
    assert {str(name): error and error.code for name, error in beside.items()} == {
        "public.good": None,
        **CODES,
    }
    # Named outright each of them is an error, and so is what no table is left of.
    for name, code in CODES.items():
        assert [finding.code for finding in check(db, "public.*", name).errors] == [code]
    excluded = check(db, "public.*", *(f"!{name}" for name in CODES))
    assert (serious(excluded), dict(excluded.left_out)) == ([], {})


def test_an_exclusion_that_leaves_out_nothing_is_told(db: Database) -> None:
    report = check(db, "public.*", "!public.lgo")
    assert [(f.code, f.level) for f in report.findings if f.level is not Level.INFO] == [
        ("PG_PATTERN_EMPTY", Level.WARNING)
    ]
    assert [look.name.name for look in report.tables] == ["good"]


def test_no_statement_alters_the_columns_of_the_application(db: Database) -> None:
    db.execute(UNFIT, user="app")
    db.execute(
        "CREATE TABLE stored (id int, g int GENERATED ALWAYS AS (id) STORED);"
        " ALTER TABLE stored REPLICA IDENTITY FULL",
        user="app",
    )
    statements = [statement for finding in check(db).findings for statement in finding.mend]
    assert statements
    assert not [each for each in statements if "COLUMN" in each or "RENAME" in each]


def test_a_temporary_table_is_named_and_never_chosen(db: Database) -> None:
    with db.connect(user="app") as other:
        other.execute("CREATE TEMPORARY TABLE passing (id int PRIMARY KEY)")
        report = check(db, "passing", "good")
    assert the(report, "PG_NOT_STREAMED").level is Level.ERROR
    assert [look.name.name for look in report.tables] == ["good"]


@pytest.mark.parametrize("pattern", ["public.nothing*", "Good", "pg_catalog.*", "information_schema.*"])
def test_a_pattern_that_names_nothing_is_an_error(db: Database, pattern: str) -> None:
    report = check(db, pattern, "good")
    assert [finding.code for finding in report.errors] == ["PG_PATTERN_EMPTY"]
    assert [look.name.name for look in report.tables] == ["good"]


def test_a_malformed_pattern_is_an_error_beside_the_others(db: Database) -> None:
    assert [finding.code for finding in check(db, "a.b.c", "good").errors] == ["PATTERN_MALFORMED"]


def test_doubtful_keys_and_types_kept_as_text_are_told(db: Database) -> None:
    db.execute(
        "CREATE TABLE t (at timestamptz PRIMARY KEY, i interval, n numeric, u uuid, x text)", user="app"
    )
    report = check(db)
    assert serious(report) == ["PG_KEY_DOUBTFUL"]
    assert '"at" may hold infinity' in str(the(report, "PG_KEY_DOUBTFUL").error.detail)
    assert the(report, "PG_TYPES_AS_TEXT").error.detail == '"i" interval, "n" numeric'


# --- publication and slot -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ddl", "code"),
    [
        ("SELECT 1", "PG_PUBLICATION_UNKNOWN"),
        ("CREATE PUBLICATION p", "PG_TABLE_UNPUBLISHED"),
        ("CREATE PUBLICATION p FOR TABLE good WITH (publish = 'insert')", "PG_PUBLICATION_PARTIAL"),
        ("CREATE PUBLICATION p FOR TABLE good WHERE (id > 1)", "PG_TABLE_LIMITED"),
        ("CREATE PUBLICATION p FOR TABLE good (id)", "PG_TABLE_LIMITED"),
        (
            "CREATE PUBLICATION p FOR TABLE good WITH (publish_generated_columns = stored)",
            "PG_PUBLICATION_GENERATED",
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
        codes = [finding.code for finding in report.errors]
        assert codes == (["PG_TABLE_LIMITED"] if limited else []), published
        db.execute(f"DELETE FROM {table}; INSERT INTO {table} (id) VALUES (1)")
        streamed = db.execute(
            "SELECT 1 FROM pg_logical_slot_get_binary_changes('oracle', NULL, NULL, 'proto_version', '1',"
            " 'publication_names', 'p') WHERE get_byte(data, 0) = ascii('I')"
        )
        assert bool(streamed) != limited, published
        db.execute("DROP PUBLICATION p")


def test_a_column_list_with_a_generated_column_is_refused_and_mended(db: Database) -> None:
    """The server would send it, and the first change would stop the table (PostgreSQL 18)."""
    db.execute(TREE, user="app")
    for columns, refused in (("id, n", False), ("id, n, twice", True), ("id", True)):
        db.execute(f"CREATE PUBLICATION p FOR TABLE gen ({columns})")
        report = check(db, "gen", publication="p")
        codes = [finding.code for finding in report.errors]
        assert codes == (["PG_TABLE_LIMITED"] if refused else []), columns
        if refused:
            mend(db, the(report, "PG_TABLE_LIMITED"))
            assert check(db, "gen", publication="p").errors == ()
        db.execute("DROP PUBLICATION p")


def test_a_column_list_of_every_column_is_no_limit(db: Database) -> None:
    db.execute("CREATE PUBLICATION p FOR TABLE good (id, v)", user="app")
    assert check(db, "good", publication="p").errors == ()


def test_wildcards_select_within_a_publication_that_is_named(db: Database) -> None:
    db.execute("CREATE TABLE other (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE good", user="app")
    report = check(db, "public.*", publication="p")
    assert report.errors == ()
    assert [look.name.name for look in report.tables] == ["good"]
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
    mend(db, the(report, "PG_PUBLICATION_PRIVILEGE"))
    assert check(db, "theirs", publication="headrace").errors == ()


def test_the_statements_run_in_order_by_their_owner_leave_nothing_to_mend(db: Database) -> None:
    """Asked by a user who owns nothing: the second look does not tell to make again what is there."""
    role = f"r_{db.name}"
    db.execute(
        "CREATE TABLE keyless (v int); INSERT INTO keyless VALUES (1); CREATE TABLE hollow ();"
        " CREATE TABLE stored (g int GENERATED ALWAYS AS (1) STORED);"
        " ALTER TABLE stored REPLICA IDENTITY FULL; INSERT INTO stored DEFAULT VALUES",
        user="app",
    )
    db.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'pw'")
    address = Address.parse(db.url(user=role, password="pw"))
    try:
        report = examine(address, PostgresWish(("public.*",)))
        assert report.tables == ()
        for statement in script(report.findings):
            db.execute(statement, user="app")
        db.execute("UPDATE keyless SET v = 2; DELETE FROM stored", user="app")
        again = examine(address, PostgresWish(("public.*",)))
        assert script(again.findings) == []
        assert the(again, "PG_PUBLICATION_PRIVILEGE").error.hint == "use --publication headrace"
        last = examine(address, PostgresWish(("public.*",), publication="headrace"))
        assert (last.errors, [look.name.name for look in last.tables]) == ((), ["good", "keyless"])
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
    assert (serious(mended), [look.name.name for look in mended.tables]) == ([], ["good", "keyless"])


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


# --- server -------------------------------------------------------------------------------------


def test_the_replication_attribute_is_asked_for_and_mended(db: Database) -> None:
    db.execute("ALTER ROLE app NOREPLICATION")
    report = check(db)
    assert [finding.code for finding in report.errors] == ["PG_REPLICATION_PRIVILEGE"]
    mend(db, the(report, "PG_REPLICATION_PRIVILEGE"))
    assert check(db).errors == ()


def test_another_server_than_expected_is_an_error(db: Database) -> None:
    address = Address.parse(db.url(user="app"))
    with closing(connect(Address.parse(db.server.url(user="app")), role="test")) as session:
        elsewhere = identify(session).as_record()
    report = examine(address, PostgresWish(("good",), identity=elsewhere))
    assert [finding.code for finding in report.errors] == ["PG_ANOTHER_DATABASE"]


def test_a_server_that_is_not_set_up_is_told_how_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    settings: dict[str, Setting] = {
        "wal_level": "replica",
        "max_replication_slots": 1,
        "max_wal_senders": 1,
        "max_connections": 10,
        "idle_replication_slot_timeout": "1d",
    }
    with postgres(settings=settings) as server, server.database() as db:
        db.execute(GOOD, user="app")
        report = check(db)
        assert {f.code for f in report.errors} == {"PG_WAL_LEVEL", "PG_SLOTS_FULL", "PG_SENDERS_FULL"}
        assert {"PG_SLOT_TIMEOUT", "PG_CONNECTIONS_FEW"} <= set(serious(report))
        by_xid = examine(Address.parse(db.url(user="app")), PostgresWish(("public.*",), handoff="xid"))
        assert [f.code for f in by_xid.errors] == ["PG_WAL_LEVEL"], "it takes one of each"
        statements = script(report.findings)
        assert statements.index("-- restart the server") == len(statements) - 1
        assert the(report, "PG_WAL_LEVEL").advice == "then restart the server"
        assert cli.main(["check", db.url(user="app"), "--tables", "public.*"]) == 2
        told = capsys.readouterr().out.splitlines()
        assert told.count("    then restart the server") == 3
        for finding in report.findings:
            mend(db, finding)
        server.restart()
        assert serious(check(db)) == []


def test_what_the_lake_will_keep_is_told_and_a_slot_that_the_server_soon_gives_up_is_a_warning(
    db: Database,
) -> None:
    assert the(check(db), "PG_STREAM_KEPT").level is Level.INFO
    db.server.set(max_slot_wal_keep_size="1MB")
    try:
        report = check(db)
        assert report.errors == ()
        mend(db, the(report, "PG_LOG_LIMIT"))
        wait_for(lambda: serious(check(db)) == [], "the server's limit is raised")
    finally:
        db.server.set(max_slot_wal_keep_size=None)


def test_transactions_that_a_slot_would_wait_for_are_named(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.postgres.preflight.server._OLD_TRANSACTION", 0)
    with db.connect(user="app") as writer:
        writer.execute("BEGIN; INSERT INTO good VALUES (7, 'secret value')")
        finding = the(check(db), "PG_TRANSACTIONS_OPEN")
        assert f"pid {writer.info.backend_pid}" in str(finding.error.detail)
        assert "secret value" not in str(finding.as_record())


def test_a_login_that_fails_is_raised_and_not_a_finding(db: Database) -> None:
    wrong = Address.parse(db.url(user="app", password="not it"))
    with pytest.raises(HeadraceError) as caught:
        examine(wrong, PostgresWish(("*.*",)))
    assert caught.value.code == "PG_PASSWORD_REFUSED"
