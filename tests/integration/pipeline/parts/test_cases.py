"""Row filters and column lists of a publication: the lake holds the part that is sent, at every mark.

A table for each case, all of them in one database and one run; a view of the server's own says of each what
the part is. After every step the newest mark is compared with the views.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from headrace.lake.read.lake import Lake
from headrace.pipeline.state.table_state import State
from headrace_testing import validators
from headrace_testing.postgres import Server
from headrace_testing.timeline import Remembered
from tests import without_spark
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.parts.comparing import differing
from tests.integration.pipeline.verifying import outcomes, verified

pytestmark = pytest.mark.server

WIDE = "(id int, n int, s text, big text, PRIMARY KEY (id, n))"
ROWS = "SELECT i, i, 'row ' || i, repeat(md5(i::text), 300) FROM generate_series(1, 20) i"
MOVES = (
    "UPDATE {t} SET n = n + 10 WHERE id IN (3, 9)",  # 3: in; 9: stays in
    "UPDATE {t} SET n = n - 15 WHERE id > 17",  # out
    "DELETE FROM {t} WHERE id IN (1, 12); INSERT INTO {t} VALUES (1, 50, 'again'), (2, 0, 'two')",
    # In and out again, in one transaction.
    "UPDATE {t} SET n = n + 9, big = 'short' WHERE id = 4; UPDATE {t} SET n = n - 9 WHERE id = 4",
    "UPDATE {t} SET s = s || '!' WHERE n BETWEEN 3 AND 15",
)


@dataclass(frozen=True)
class Case:
    """A table, how it is published, and what the lake is to hold of it."""

    published: str
    holds: str  # as a SELECT from {t}
    columns: str = WIDE
    rows: str = ROWS
    also: str = ""
    steps: tuple[str, ...] = MOVES


ODD = r"""E'o''b\\r\n', '(;--%s', '$$', '"', 'a\'"""
CASES: Mapping[str, Case] = {
    # An identity in the key alone: a row that comes in must bring its long value along.
    "short": Case("WHERE (n > 10)", "SELECT * FROM {t} WHERE n > 10", rows=ROWS.replace("300)", "1)")),
    "whole": Case(
        "WHERE (n > 10)", "SELECT * FROM {t} WHERE n > 10", also="ALTER TABLE {t} REPLICA IDENTITY FULL"
    ),
    "by_values": Case(
        "WHERE (s LIKE 'row 1%' OR big IS NULL)",
        "SELECT * FROM {t} WHERE s LIKE 'row 1%' OR big IS NULL",
        also="ALTER TABLE {t} REPLICA IDENTITY FULL",
        steps=(
            *MOVES,
            "UPDATE {t} SET s = 'row 1 ' || id WHERE id IN (5, 6)",
            "UPDATE {t} SET s = NULL WHERE id = 13",
        ),
    ),
    "keyless": Case(
        "WHERE (n % 2 = 0)",
        "SELECT * FROM {t} WHERE n % 2 = 0",
        columns="(id int, n int, s text)",
        rows="SELECT i / 2, i, 'x' FROM generate_series(1, 20) i",
        also="INSERT INTO {t} SELECT * FROM {t}; ALTER TABLE {t} REPLICA IDENTITY FULL",
        steps=("UPDATE {t} SET n = n + 1", "DELETE FROM {t} WHERE id = 4", "UPDATE {t} SET s = 'y'"),
    ),
    "never": Case("WHERE (false)", "SELECT * FROM {t} WHERE false"),
    "by_null": Case("WHERE (NULL)", "SELECT * FROM {t} WHERE NULL"),
    "truncated": Case(
        "WHERE (n > 10)",
        "SELECT * FROM {t} WHERE n > 10",
        rows=ROWS.replace("300)", "1)"),
        steps=("UPDATE {t} SET n = 30 WHERE id = 3; TRUNCATE {t}", "INSERT INTO {t} VALUES (1, 9), (2, 99)"),
    ),
    "quoted": Case(
        f"""("Select", id) WHERE (id <> 7 AND "Select" <> ALL (ARRAY[{ODD}]))""",
        f"""SELECT id, "Select" FROM {{t}} WHERE id <> 7 AND "Select" NOT IN ({ODD})""",
        columns='(id int, "Select" text COLLATE "C", "a""b" text, PRIMARY KEY (id, "Select"))',
        rows="SELECT i, chr(i + 40), '' FROM generate_series(1, 20) i",
        steps=(
            f"""INSERT INTO {{t}} SELECT 30, unnest(ARRAY[{ODD}, 'o''b']) """,
            "UPDATE {t} SET \"Select\" = E'o''b\\\\r\\n', id = 31 WHERE \"Select\" = 'o''b'",
            'UPDATE {t} SET "Select" = \'free\' || "Select" WHERE id IN (4, 30)',
            'UPDATE {t} SET id = id + 1 WHERE id = 6; UPDATE {t} SET id = 100 WHERE "Select" = chr(47)',
        ),
    ),
    "functions": Case(
        "WHERE (lower(s) = ANY ('{{row 1,row 2,in}}') AND n::int8 * 2 < 100 AND (id, n) > (1, 1))",
        "SELECT * FROM {t} WHERE lower(s) IN ('row 1', 'row 2', 'in') AND n < 50 AND (id, n) > (1, 1)",
        also="ALTER TABLE {t} REPLICA IDENTITY FULL",
        steps=("UPDATE {t} SET s = 'IN' WHERE id > 10", "UPDATE {t} SET n = 70 WHERE id > 15", *MOVES),
    ),
    "listed": Case(
        "(s, n, id)",
        "SELECT id, n, s FROM {t}",
        steps=(
            *MOVES,
            "UPDATE {t} SET big = 'unseen'",
            "ALTER TABLE {t} DROP COLUMN big; DELETE FROM {t} WHERE id = 5",
        ),
    ),
    "listed_alike": Case(
        "(id, a)",
        "SELECT id, a FROM {t}",
        columns='(id int PRIMARY KEY, a text, "A" text)',
        rows="SELECT i, 'a', 'A' FROM generate_series(1, 20) i",
        steps=("UPDATE {t} SET \"A\" = 'x'", "UPDATE {t} SET a = 'x' WHERE id = 3"),
    ),
    "listed_and_filtered": Case(
        "(id, n, s) WHERE (n > 10)", "SELECT id, n, s FROM {t} WHERE n > 10", steps=MOVES
    ),
    "generated": Case(
        "",
        "SELECT id, n, twice FROM {t}",
        columns="(id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED,"
        " seen int GENERATED ALWAYS AS (n * 3) VIRTUAL)",
        rows="SELECT i, i FROM generate_series(1, 20) i",
        steps=("UPDATE {t} SET n = n + 1 WHERE id < 5", "INSERT INTO {t} VALUES (40, 4)"),
    ),
    "generated_whole": Case(
        "WHERE (twice > 20)",
        "SELECT id, n, twice FROM {t} WHERE twice > 20",
        columns="(id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED)",
        rows="SELECT i, i FROM generate_series(1, 20) i",
        also="ALTER TABLE {t} REPLICA IDENTITY FULL",
        steps=("UPDATE {t} SET n = n + 7 WHERE id < 5", "UPDATE {t} SET n = 0 WHERE id > 15"),
    ),
    "generated_listed": Case(
        "(id, twice)",
        "SELECT id, twice FROM {t}",
        columns="(id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED)",
        rows="SELECT i, i FROM generate_series(1, 20) i",
        steps=("UPDATE {t} SET n = n + 1 WHERE id < 5",),
    ),
}


@dataclass
class Scene:
    """The mirror after all steps, and what differed from the views after each of them."""

    mirrors: Mirrors
    since: Mapping[str, int | None]
    wrong: dict[str, list[str]] = field(default_factory=dict)

    @property
    def lake(self) -> Lake:
        return self.mirrors.lake


def _make(mirrors: Mirrors) -> None:
    database = mirrors.database
    for name, case in CASES.items():
        database.execute(f"CREATE TABLE {name} {case.columns}; ".format(t=name), user="app")
        columns = "(id, n)" if "GENERATED" in case.columns else ""
        database.execute(f"INSERT INTO {name} {columns} {case.rows}", user="app")
        if case.also:
            database.execute(case.also.format(t=name), user="app")
    database.execute("CREATE SCHEMA oracle")
    for name, case in CASES.items():
        database.execute(f"CREATE VIEW oracle.{name} AS {case.holds.format(t=name)}")
    # The slot is read through one publication; how another one sends the same tables does not matter.
    database.execute("CREATE PUBLICATION q FOR TABLE short WHERE (n < 0), listed (id, n), never", user="app")
    members = ", ".join(f"{name} {case.published.format(t=name)}" for name, case in CASES.items())
    database.execute(
        f"CREATE PUBLICATION p FOR TABLE {members} WITH (publish_generated_columns = stored)", user="app"
    )


@pytest.fixture(scope="module")
def scene(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch, postgres_server.database() as database:
        without_spark.jobs_in_process(patch)
        mirrors = Mirrors(database, tmp_path_factory.mktemp("parts") / "lake", None)
        mirrors.options = {"publication": "p"}
        _make(mirrors)
        mirrors.once()
        found = Scene(mirrors, {name: mirrors.record(f"public.{name}").since for name in CASES})
        for step in range(-1, max(len(case.steps) for case in CASES.values())):
            for name, case in CASES.items():
                if 0 <= step < len(case.steps):
                    database.execute(case.steps[step].format(t=name), user="app")
            mirrors.once()
            for name, wrong in differing(mirrors, CASES).items():
                found.wrong.setdefault(name, []).append(f"step {step}: {wrong}")
        yield found


@pytest.mark.parametrize("case", CASES)
def test_the_part_that_is_sent_is_in_the_lake_at_every_mark(scene: Scene, case: str) -> None:
    assert scene.wrong.get(case, []) == []


@pytest.mark.parametrize("case", CASES)
def test_changes_across_a_filter_are_changes_of_rows_and_copy_nothing_anew(scene: Scene, case: str) -> None:
    record = scene.mirrors.record(f"public.{case}")
    assert (record.state, record.error, record.since) == (State.LIVE, None, scene.since[case])


def test_the_history_of_parts_adds_up(scene: Scene) -> None:
    lake = Remembered(scene.lake)
    assert validators.definite(lake, every=True) == []
    assert validators.travelled(lake) == []


def test_verify_reads_the_same_part_of_the_source(scene: Scene) -> None:
    assert outcomes(verified(scene.mirrors)) == {f"public.{case}": "equal" for case in CASES}
