"""Changes of what a publication sends of a table: the part is copied anew, unless it stays what it was.

A table for each case, all in one database and one run, each with a view that says what it is in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from headrace.lake.read.lake import Lake
from headrace.pipeline.state.table_state import State
from headrace_testing import validators
from headrace_testing.postgres import Database, Server
from headrace_testing.timeline import Remembered
from tests import without_spark
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.parts.comparing import differing
from tests.integration.pipeline.verifying import outcomes, verified

pytestmark = pytest.mark.server


@dataclass(frozen=True)
class Case:
    """The published part of `{t} (id, n, s, big, more, key (id, n))`, a change, and what is held then."""

    published: str
    change: str
    holds: str


def _again(part: str) -> str:
    return f"ALTER PUBLICATION p DROP TABLE {{t}}; ALTER PUBLICATION p ADD TABLE {{t}} {part}"


ALL, BELOW, ABOVE = "SELECT * FROM {t}", "SELECT * FROM {t} WHERE n < 9", "SELECT * FROM {t} WHERE n > 5"
LISTED = "SELECT id, n, s FROM {t}"
COPIED: Mapping[str, Case] = {
    "filter_set": Case("", _again("WHERE (n > 5)"), ABOVE),
    "filter_gone": Case("WHERE (n > 5)", _again(""), ALL),
    "filter_other": Case("WHERE (n > 5)", _again("WHERE (n < 9)"), BELOW),
    "filter_and_back": Case(
        "WHERE (n > 5)",
        _again("WHERE (n < 9)")
        + "; UPDATE {t} SET n = 30 WHERE n = 4; UPDATE {t} SET n = 1 WHERE n = 10; "
        + _again("WHERE (n > 5)"),
        ABOVE,
    ),
    "filter_amid": Case(
        "WHERE (n > 5)",
        "BEGIN; UPDATE {t} SET n = n + 3 WHERE id < 8; "
        + _again("WHERE (n < 9)")
        + "; UPDATE {t} SET n = n - 9 WHERE id > 10; DELETE FROM {t} WHERE id = 15; COMMIT",
        BELOW,
    ),
    "filter_renamed": Case(
        "WHERE (n > 5)", "ALTER TABLE {t} RENAME COLUMN n TO nn", "SELECT * FROM {t} WHERE nn > 5"
    ),
    "list_set": Case("", _again("(id, n, s)"), LISTED),
    "list_gone": Case("(id, n, s)", _again(""), ALL),
    "list_shorter": Case("(id, n, s)", _again("(id, n)"), "SELECT id, n FROM {t}"),
    "list_other": Case("(id, n, s)", _again("(more, n, id)"), "SELECT id, n, more FROM {t}"),
    "list_amid": Case(
        "(id, n, s)",
        "BEGIN; UPDATE {t} SET s = 'x' WHERE id < 8; "
        + _again("(id, n, more)")
        + "; UPDATE {t} SET more = 'y' WHERE id > 10; DELETE FROM {t} WHERE id = 15; COMMIT",
        "SELECT id, n, more FROM {t}",
    ),
    "list_and_filter": Case("(id, n, s)", _again("(id, n, s) WHERE (n > 5)"), f"{LISTED} WHERE n > 5"),
    # A long value that an update leaves alone is in no message: the row comes into the filter without it.
    "long_value": Case("WHERE (n > 5)", "UPDATE {t} SET n = n + 6 WHERE id IN (2, 3)", ABOVE),
}
SAME: Mapping[str, Case] = {
    "unlisted_dropped": Case("(id, n, s)", "ALTER TABLE {t} DROP COLUMN more", LISTED),
    "unlisted_renamed": Case("(id, n, s)", "ALTER TABLE {t} RENAME COLUMN more TO less", LISTED),
    "unlisted_added": Case(
        "(id, n, s)",
        "CREATE TYPE mood AS ENUM ('sad'); ALTER TABLE {t} ADD COLUMN m mood DEFAULT 'sad'",
        LISTED,
    ),
    "unlisted_swapped": Case(
        "(id, n, s)",
        "ALTER TABLE {t} RENAME COLUMN more TO x; ALTER TABLE {t} RENAME COLUMN big TO more;"
        " ALTER TABLE {t} RENAME COLUMN x TO big",
        LISTED,
    ),
    "unlisted_unbounded": Case("(id, n, s)", "ALTER TABLE {t} ALTER COLUMN more TYPE text", LISTED),
    "sound": Case("WHERE (n > 5)", "UPDATE {t} SET n = n + 1 WHERE n > 6", ABOVE),
}
CASES = {**COPIED, **SAME}


@dataclass
class Scene:
    """The mirror when all is done, and the intervals from before."""

    mirrors: Mirrors
    epoch: int
    since: Mapping[str, int | None]

    @property
    def lake(self) -> Lake:
        return self.mirrors.lake


def _make(database: Database) -> None:
    database.execute("CREATE SCHEMA oracle")
    for name in CASES:
        database.execute(
            f"CREATE TABLE {name} (id int, n int, s text, big text, more varchar(9), PRIMARY KEY (id, n));"
            f" ALTER TABLE {name} ALTER COLUMN big SET STORAGE EXTERNAL; INSERT INTO {name}"
            " SELECT i, i, 's', repeat(md5(i::text), 99), 'm' FROM generate_series(1, 20) i",
            user="app",
        )
    members = ", ".join(f"{name} {case.published}" for name, case in CASES.items())
    database.execute(f"CREATE PUBLICATION p FOR TABLE {members}", user="app")


@pytest.fixture(scope="module")
def scene(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch, postgres_server.database() as database:
        without_spark.jobs_in_process(patch)
        mirrors = Mirrors(database, tmp_path_factory.mktemp("changes") / "lake", None, {"publication": "p"})
        _make(database)
        mirrors.once()
        epoch = mirrors.lake.marks()[-1].epoch
        since = {name: mirrors.record(f"public.{name}").since for name in CASES}
        for name, case in CASES.items():
            database.execute(f"UPDATE {name} SET s = 'before' WHERE id % 3 = 0", user="app")
            statements = [case.change] if "BEGIN" in case.change else case.change.split("; ")
            for statement in statements:
                database.execute(statement.format(t=name), user="app")
            database.execute(f"UPDATE {name} SET s = 'after' WHERE id % 4 = 0", user="app")
            database.execute(f"CREATE VIEW oracle.{name} AS {case.holds.format(t=name)}")
        mirrors.once()
        for name in CASES:
            database.execute(
                f"DELETE FROM {name} WHERE id IN (2, 14); INSERT INTO {name} VALUES (40, 40)"
                if "renamed" not in name
                else f"DELETE FROM {name} WHERE id = 2",
                user="app",
            )
        mirrors.once()
        yield Scene(mirrors, epoch, since)


def test_each_table_is_the_part_that_is_sent_by_now(scene: Scene) -> None:
    assert differing(scene.mirrors, CASES) == {}
    assert outcomes(verified(scene.mirrors)) == {f"public.{case}": "equal" for case in CASES}
    lake, same = Remembered(scene.lake), [f"public.{name}" for name in SAME]
    assert validators.definite(lake, every=True, tables=same) == []
    assert validators.travelled(lake, tables=same) == []


@pytest.mark.parametrize("case", COPIED)
def test_another_part_is_copied_anew(scene: Scene, case: str) -> None:
    record = scene.mirrors.record(f"public.{case}")
    assert (record.state, record.error) == (State.LIVE, None)
    assert record.since is not None
    assert record.since > (scene.since[case] or 0)


@pytest.mark.parametrize("case", SAME)
def test_what_the_part_leaves_out_may_change(scene: Scene, case: str) -> None:
    record = scene.mirrors.record(f"public.{case}")
    assert (record.state, record.error, record.since) == (State.LIVE, None, scene.since[case])
    marks = [mark for mark in scene.lake.marks() if mark.epoch >= scene.epoch]
    assert all(f"public.{case}" in mark.versions for mark in marks)
