"""A run says which of the wanted tables it does not mirror, and refuses if one of them was named.

A wildcard takes the tables that can be mirrored and leaves out the rest, each with its code. A named table
must be mirrored.
"""

from __future__ import annotations

from typing import Any

import pytest

import headrace
from headrace.cli import main as cli
from headrace.cli.progress import ProgressView
from headrace.core.errors import HeadraceError
from headrace.pipeline.state.last_config import configuration_of
from headrace.pipeline.verify.proof import verify
from headrace.status.picture import SourcePicture, pictures
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.refused import configuration, leaves_nothing, refusal, upstream

pytestmark = pytest.mark.server

SCHEMA = """
    CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1);
    CREATE TABLE keyless (v int); INSERT INTO keyless VALUES (1);
    CREATE VIEW v AS SELECT 1 AS x;
    CREATE TABLE root (id int PRIMARY KEY) PARTITION BY LIST (id);
    CREATE TABLE leaf_1 PARTITION OF root FOR VALUES IN (1);
"""
BY_LEAF = ("public.*", "!public.root")
UNFIT = {
    "public.keyless": "PG_IDENTITY_MISSING",
    "public.v": "PG_NOT_STREAMED",
}


@pytest.fixture
def wanted(mirrors: Mirrors) -> Mirrors:
    """A mirror of all that can be mirrored; options that a later run is to go on with."""
    mirrors.database.execute(SCHEMA, user="app")
    mirrors.options |= {"strict": True, "max_wal": 10**9, "driver_epochs": 5}
    mirrors.once(*BY_LEAF)
    return mirrors


def _status(mirrors: Mirrors) -> SourcePicture:
    [source] = pictures(str(mirrors.path))
    return source


def _command(mirrors: Mirrors, *argv: str) -> int:
    url = mirrors.database.url(user="app")
    return cli.main([*argv, "--lake", str(mirrors.path), "--url", url])


def _codes(mirrors: Mirrors, *tables: str, **options: Any) -> str:
    with pytest.raises(HeadraceError) as caught:
        mirrors.once(*tables, **options)
    assert caught.value.hint
    return caught.value.code


def test_what_the_patterns_match_and_nobody_mirrors_is_said(
    wanted: Mirrors, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wildcard starts with what it can have, and what comes later is told and never taken by itself."""
    assert sorted(wanted.lake.marks()[-1].versions) == ["public.leaf_1", "public.t"]
    assert _status(wanted).unmirrored_tables == UNFIT
    wanted.database.execute(
        "CREATE TABLE neu (id int PRIMARY KEY); CREATE TABLE leaf_2 PARTITION OF root FOR VALUES IN (2);"
        " INSERT INTO root VALUES (2)",
        user="app",
    )
    wanted.once(*BY_LEAF, "!public.v")
    new = {"public.leaf_2": "TABLE_NOT_ADDED", "public.neu": "TABLE_NOT_ADDED"}
    beside = {**UNFIT, **new}
    del beside["public.v"]
    assert _status(wanted).unmirrored_tables == beside
    [verdict] = verify(
        configuration(wanted.path, *BY_LEAF, url=wanted.database.url(user="app")), spark=wanted.spark
    )
    assert verdict.unmirrored_tables == {**UNFIT, **new}
    assert cli.main(["status", "--lake", str(wanted.path)]) == 0
    told = capsys.readouterr().out
    assert "TABLE_NOT_ADDED: public.leaf_2, public.neu; headrace tables add" in told
    # Named, it is an error; and so is another publication or slot than the one that is read.
    assert _codes(wanted, "public.t", "public.neu") == "TABLE_NOT_ADDED"
    wanted.database.execute("CREATE PUBLICATION theirs FOR TABLE t", user="app")
    assert _codes(wanted, "public.t", publication="theirs") == "SOURCE_CONTRADICTED"
    assert _codes(wanted, "public.t", slot="theirs") == "SOURCE_CONTRADICTED"

    assert _command(wanted, "tables", "add", *BY_LEAF) == 0
    told = capsys.readouterr().out
    assert "public.neu: chosen" in told
    assert "public.keyless: left out, PG_IDENTITY_MISSING" in told
    assert "public.t: mirrored already" in told
    wanted.once("public.t", "public.neu")
    assert sorted(wanted.lake.marks()[-1].versions) == [
        "public.leaf_1",
        "public.leaf_2",
        "public.neu",
        "public.t",
    ]


def test_a_run_without_a_configuration_goes_on_with_that_of_the_run_before(wanted: Mirrors) -> None:
    known = configuration_of(str(wanted.path)).sources["main"]
    assert (known.strict, known.max_wal, known.driver_epochs) == (True, 10**9, 5)
    assert known.tables == BY_LEAF
    password = wanted.database.server.password
    assert password not in (wanted.path / "_headrace/remembered/main.json").read_text()
    # What is dropped is not asked for any more, and what is added is.
    assert _command(wanted, "tables", "drop", "public.leaf_1") == 0
    known = configuration_of(str(wanted.path)).sources["main"]
    assert known.tables == (*BY_LEAF, "!public.leaf_1")
    wanted.once(*known.tables)
    assert "public.leaf_1" not in _status(wanted).unmirrored_tables
    assert _command(wanted, "tables", "add", "public.leaf_1") == 0
    assert configuration_of(str(wanted.path)).sources["main"].tables == (*BY_LEAF, "public.leaf_1")


def test_a_table_that_stops_is_said_in_a_line_with_code_reason_and_position(
    wanted: Mirrors, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted.database.execute("DROP TABLE leaf_1; INSERT INTO t VALUES (2, 2)", user="app")
    config = configuration(wanted.path, *BY_LEAF, url=wanted.database.url(user="app"))
    for _ in range(2):  # and a later run says it again
        with pytest.raises(HeadraceError) as caught, ProgressView() as progress:
            headrace.mirror(config, spark=wanted.spark, once=True, listener=progress.tell)
        told = [line.partition("Z ")[2] for line in capsys.readouterr().err.splitlines()]
        lines = [line for line in told if "public.leaf_1" in line]
        record = wanted.record("public.leaf_1")
        assert record.error is not None
        assert caught.value.code == record.error.code
        start = (
            f"main: public.leaf_1 stopped at {record.stopped_at}: {record.error.code}: {record.error.primary}"
        )
        # A status is told about once a second: the stop alone is in none where the run has asked by then.
        *stopped, gone = lines
        assert all(line.startswith(start) for line in stopped)
        # The run asks for it as it is now, and finds that it is gone.
        assert gone.startswith("main: not at the source any more: public.leaf_1; ")
    assert cli.main(["status", "--lake", str(wanted.path)]) == 0
    shown = capsys.readouterr().out
    assert "not at the source any more: public.leaf_1; " in shown
    assert "headrace tables drop public.leaf_1" in shown
    assert not [line for line in shown.splitlines() if line.split()[:1] == ["public.leaf_1"]]
    assert cli.main(["status", "--check", "--lake", str(wanted.path)]) == 4  # nobody runs it; it is no fault
    assert "STATUS_TABLE_STOPPED" not in capsys.readouterr().err
    # Gone for good: it leaves the status at once, though nobody runs the source.
    assert _command(wanted, "tables", "drop", "public.leaf_1") == 0
    assert "public.leaf_1" not in _status(wanted).tables


def test_a_name_that_cannot_be_mirrored_refuses_the_run_and_leaves_no_lake(
    database: Database, mirrors: Mirrors
) -> None:
    database.execute(SCHEMA, user="app")
    url = database.url(user="app")
    for tables in (("public.t", "public.keyless"), ("public.v",), ("public.keyless*",), ("nothing.*",)):
        refusal(mirrors.path, *tables, url=url)
        assert leaves_nothing(mirrors.path)
    assert upstream(database) == (set(), set())
