"""Each finding about tables and patterns, found on a real server, mended by its statements, and gone.

The application's own UPDATE and DELETE are run after every case, refused or accepted: whatever a
preflight says and whatever is then published, they must succeed.
"""

from __future__ import annotations

from contextlib import closing

import pytest

from headrace.cli.main import main
from headrace.core.names import TableName
from headrace.sources.contract.findings import Level
from headrace.sources.postgres.preflight import PostgresWish, find_unmirrored
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace_testing.postgres import Database
from tests.integration.postgres.preflight.harness import applies_its_own, check, mend, publish, serious, the

pytestmark = pytest.mark.server


def test_a_good_table_has_nothing_to_mend(db: Database) -> None:
    report = check(db)
    assert serious(report) == []
    assert [entry.name for entry in report.tables] == [TableName("public", "good")]
    assert report.errors == ()
    assert report.costly_ddl == {}
    publish(db, report)
    applies_its_own(db, "good")


COSTLY = (
    "CREATE TYPE mood AS ENUM ('sad'); CREATE TYPE pair AS (m mood, n int); CREATE DOMAIN one AS int;"
    "CREATE TABLE typed (id int PRIMARY KEY, m mood, ms mood[], p pair, o one);"
    "CREATE TABLE tree (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id) STORED) PARTITION BY LIST (id);"
    "CREATE TABLE bag (n int); ALTER TABLE bag REPLICA IDENTITY FULL"
)


def test_what_ddl_costs_of_a_table_is_said_where_it_is_more_than_of_others(
    db: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    db.execute(COSTLY, user="app")
    found = {name.name: list(said) for name, said in check(db).costly_ddl.items()}
    assert found["typed"] == [
        "copied anew where a type of its columns is altered (public.mood: a label renamed, public.pair)"
    ]
    assert [line.split(" (")[0] for line in found["tree"]] == [
        "copied anew where a partition is dropped, detached, truncated, rewritten, or attached with rows",
        "copied anew by another expression of its generated columns",
    ]
    assert found["bag"] == ["written again in the lake by every added column: it has no key"]
    assert found.keys() == {"typed", "tree", "bag"}
    main(["check", db.url(user="app"), "--tables", "public.*"])
    told = capsys.readouterr().out
    assert f"    public.bag: {found['bag'][0]}" in told.splitlines()


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
    assert [entry.name.name for entry in report.tables] == ["good"]
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
    assert "t" not in [entry.name.name for entry in report.tables]
    mend(db, finding)
    if not finding.mend:  # it alters columns: the hint has it, for a person
        db.execute(finding.error.hint.rpartition(": ")[2], user="app")
    mended = check(db, "good", "t")
    assert mended.errors == ()
    assert "t" in [entry.name.name for entry in mended.tables]


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
    swept = {(f"public.{name}", Level.WARNING) for name in ("m", "u")}
    assert named == {*swept, ("public.v", Level.ERROR)}
    assert [str(name) for name in report.left_out] == ["public.m", "public.u"]
    assert [entry.name.name for entry in report.tables] == ["good", "root"]


ROOTS = """
    CREATE TABLE root (id int, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
    CREATE TABLE middle PARTITION OF root FOR VALUES IN (1, 2) PARTITION BY LIST (k);
    CREATE TABLE leaf PARTITION OF middle FOR VALUES IN (1);
    CREATE TABLE other PARTITION OF root FOR VALUES IN (3);
    CREATE PUBLICATION by_leaf FOR TABLE root;
    CREATE PUBLICATION by_root FOR TABLE root WITH (publish_via_partition_root);
    CREATE PUBLICATION middle FOR TABLE middle WITH (publish_via_partition_root);
    CREATE PUBLICATION leaves FOR TABLE leaf, other WITH (publish_via_partition_root);
    CREATE PUBLICATION every FOR TABLES IN SCHEMA public WITH (publish_via_partition_root)
"""
CHOSEN = (
    # What the patterns say, whose publication, what is mirrored, and the errors of what was meant.
    ("public.*", None, "good root", ""),
    ("public.root", None, "root", ""),
    ("public.middle", None, "middle", ""),
    ("public.* !public.root", None, "good middle other", ""),
    ("public.* !public.root !public.middle", None, "good leaf other", ""),
    ("public.* public.leaf", None, "good root", "PG_PARTITION_INSIDE"),
    ("public.root public.other", None, "root", "PG_PARTITION_INSIDE"),
    ("public.*", "by_leaf", "leaf other", ""),
    ("public.root", "by_leaf", "", "PG_NOT_STREAMED"),
    ("public.*", "by_root", "root", ""),
    ("public.leaf", "by_root", "", "PG_PUBLICATION_ROOT"),
    ("public.root public.leaf", "by_root", "root", "PG_PARTITION_INSIDE"),
    ("public.*", "middle", "middle", ""),
    ("public.*", "leaves", "leaf other", ""),
    ("public.*", "every", "good root", ""),
    ("public.*", "nowhere", "", "PG_PUBLICATION_UNKNOWN"),
)


@pytest.mark.parametrize(("patterns", "publication", "mirrored", "error"), CHOSEN)
def test_a_root_is_one_table_unless_it_is_left_out(
    db: Database, patterns: str, publication: str | None, mirrored: str, error: str
) -> None:
    db.execute(ROOTS)
    db.execute("; ".join(f"ALTER TABLE {name} OWNER TO app" for name in ("root", "middle", "leaf", "other")))
    report = check(db, *patterns.split(), publication=publication)
    names = {entry.name.name for entry in report.tables}
    if error != "PG_PUBLICATION_UNKNOWN":
        assert names == set(mirrored.split())
    assert {finding.code for finding in report.errors} >= set(error.split())


UNFIT_ROOTS = {
    "foreign": (
        "ALTER TABLE root DROP CONSTRAINT root_pkey; ALTER TABLE root REPLICA IDENTITY FULL;"
        " CREATE FOREIGN TABLE f PARTITION OF root FOR VALUES IN (1) SERVER away",
        "PG_PARTITION_UNFIT",
    ),
    "unlogged": ("CREATE UNLOGGED TABLE u PARTITION OF root FOR VALUES IN (1)", "PG_PARTITION_UNFIT"),
    "identity": (
        "CREATE TABLE i PARTITION OF root FOR VALUES IN (1); ALTER TABLE i REPLICA IDENTITY NOTHING",
        "PG_IDENTITY_MISSING",
    ),
    "other_identity": (
        "CREATE TABLE o PARTITION OF root FOR VALUES IN (1); CREATE UNIQUE INDEX x ON o (k, n);"
        " ALTER TABLE o REPLICA IDENTITY USING INDEX x",
        "PG_IDENTITY_MISSING",
    ),
    "half_full": (
        "CREATE TABLE h PARTITION OF root FOR VALUES IN (1); ALTER TABLE root REPLICA IDENTITY FULL",
        "PG_IDENTITY_MISSING",
    ),
    "hidden": (
        "CREATE TABLE r PARTITION OF root FOR VALUES IN (1);"
        " ALTER TABLE r ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        "PG_ROW_SECURITY",
    ),
}


@pytest.mark.parametrize("case", UNFIT_ROOTS)
def test_a_root_with_a_partition_that_cannot_be_followed_is_refused_and_mended(
    db: Database, case: str
) -> None:
    made, code = UNFIT_ROOTS[case]
    db.execute("CREATE FOREIGN DATA WRAPPER w; CREATE SERVER away FOREIGN DATA WRAPPER w")
    db.execute(
        "CREATE TABLE root (id int, k int NOT NULL, n int NOT NULL, PRIMARY KEY (id, k))"
        " PARTITION BY LIST (k)"
    )
    db.execute(f"{made}; CREATE PUBLICATION p FOR TABLE root WITH (publish_via_partition_root)")
    db.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO app")
    report = check(db, "public.root", publication="p")
    assert [finding.code for finding in report.errors] == [code]
    if case != "foreign":
        mend(db, the(report, code))
        assert check(db, "public.root", publication="p").errors == ()
    db.execute("ALTER ROLE app NOBYPASSRLS")


def test_a_copy_of_a_root_asks_for_the_right_to_read_its_partitions(db: Database) -> None:
    db.execute("CREATE TABLE root (id int PRIMARY KEY) PARTITION BY LIST (id)")
    db.execute("CREATE TABLE leaf PARTITION OF root DEFAULT; GRANT SELECT ON root TO app")
    db.execute("CREATE PUBLICATION p FOR TABLE root WITH (publish_via_partition_root)")
    report = check(db, "public.root", publication="p")
    assert [finding.code for finding in report.errors] == ["PG_TABLE_PRIVILEGE"]
    mend(db, the(report, "PG_TABLE_PRIVILEGE"))
    assert check(db, "public.root", publication="p").errors == ()


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
    assert [entry.name.name for entry in report.tables] == ["good"]
    assert {str(name): error.code for name, error in report.left_out.items()} == CODES
    publish(db, report)
    db.execute("UPDATE keyless SET v = 2", user="app")
    # A run that goes on says the same of what it does not mirror, and that a table is new.
    with closing(connect(PostgresAddress.parse(db.url(user="app")), role="test")) as session:
        beside = find_unmirrored(session, PostgresWish(("public.*",)), [])
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
    assert [entry.name.name for entry in report.tables] == ["good"]


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
    assert [entry.name.name for entry in report.tables] == ["good"]


@pytest.mark.parametrize("pattern", ["public.nothing*", "Good", "pg_catalog.*", "information_schema.*"])
def test_a_pattern_that_names_nothing_is_an_error(db: Database, pattern: str) -> None:
    report = check(db, pattern, "good")
    assert [finding.code for finding in report.errors] == ["PG_PATTERN_EMPTY"]
    assert [entry.name.name for entry in report.tables] == ["good"]


def test_a_malformed_pattern_is_an_error_beside_the_others(db: Database) -> None:
    assert [finding.code for finding in check(db, "a.b.c", "good").errors] == ["PATTERN_MALFORMED"]


def test_doubtful_keys_and_types_kept_as_text_are_told(db: Database) -> None:
    db.execute(
        "CREATE TABLE t (at timestamptz PRIMARY KEY, i interval, n numeric, u uuid, x text)", user="app"
    )
    report = check(db)
    assert serious(report) == ["PG_KEY_DOUBTFUL"]
    assert 'may hold infinity in "at", which' in the(report, "PG_KEY_DOUBTFUL").error.primary
    assert the(report, "PG_TYPES_AS_TEXT").error.detail == '"i" interval, "n" numeric'


def test_generated_columns_are_told_of_with_the_publication_that_sends_them(db: Database) -> None:
    """A later PostgreSQL sends the stored ones, where a publication says so."""
    db.execute(
        "ALTER TABLE good ADD s int GENERATED ALWAYS AS (id + 1) STORED,"
        " ADD v2 int GENERATED ALWAYS AS (id + 2) VIRTUAL",
        user="app",
    )
    found = the(check(db, "good"), "PG_COLUMNS_GENERATED")
    assert found.level is Level.INFO
    assert found.error.detail == "public.good (s, v2)"
    db.execute("CREATE TABLE bare (a int, b int GENERATED ALWAYS AS (a + 1) STORED)", user="app")
    found = the(check(db, "*"), "PG_COLUMNS_GENERATED")
    statement = str(found.error.hint).partition("; then --publication")[0]
    db.execute(statement, user="app")
    again = the(check(db, "*"), "PG_COLUMNS_GENERATED").error.hint
    assert str(again).startswith("ALTER PUBLICATION headrace SET")  # it can't be created once more
    db.execute("INSERT INTO bare VALUES (1); UPDATE bare SET a = 2", user="app")  # no identity: left out
    told = the(check(db, "good", publication="headrace"), "PG_COLUMNS_GENERATED")
    assert told.error.detail == "public.good (v2)"
    db.execute("ALTER TABLE good DROP COLUMN v2", user="app")
    report = check(db, "good", publication="headrace")
    assert "PG_COLUMNS_GENERATED" not in [finding.code for finding in report.findings]
