"""G6: no silent damage. Data that cannot be mirrored exactly stop their table, or the source, with a code.

    true of one table     that table leaves the marks at its last exact one; the others go on
    true of the source    nothing is published any more, nothing is made anew at the source

`tests/integration/pipeline` has the whole list of bad input; this module has the input that would do damage
if it passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.core.errors import Definite, HeadraceError, Misconfigured
from headrace.core.records import to_record
from headrace.spark.session import SparkConfig, open_session
from headrace.spool.layout import erase
from headrace.status.picture import pictures
from headrace_testing import validators
from headrace_testing.copies import Backup, branch_off
from headrace_testing.postgres import Database, postgres
from tests.guarantees.tampering import tampered
from tests.integration.pipeline.conftest import Mirrors
from tests.without_spark import jobs_in_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with open_session(SparkConfig(master="local[2]")) as session:
        yield session.spark


@pytest.fixture(
    params=[
        pytest.param(False, id="process"),
        pytest.param(True, id="spark", marks=[pytest.mark.full, pytest.mark.spark]),
    ]
)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SparkSession | None:
    """Choose what jobs run on: this process, or Spark. A run decides to publish nothing ahead of either."""
    if request.param:
        session: SparkSession = request.getfixturevalue("spark")
        return session
    jobs_in_process(monkeypatch)
    return None


@pytest.fixture
def mirrors(database: Database, tmp_path: Path, engine: SparkSession | None) -> Mirrors:
    """`t` (identity by its key), `whole` (identity FULL) and `other`, mirrored and at rest."""
    return _mirrored(database, tmp_path, engine)


def _mirrored(database: Database, folder: Path, engine: SparkSession | None) -> Mirrors:
    for name in ("t", "whole", "other"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, a int, b int NOT NULL)", user="app")
        database.execute(f"INSERT INTO {name} SELECT i, i, -i FROM generate_series(1, 10) i", user="app")
    database.execute("ALTER TABLE whole REPLICA IDENTITY FULL", user="app")
    made = Mirrors(database, folder / "lake", engine)
    made.once()
    return made


def _stops_alone(mirrors: Mirrors, table: str) -> HeadraceError:
    """Run: the table stops where it was exact, the others go on; the error that it stopped with.

    With its code, its position and a hint, wherever somebody may ask.
    """
    last = mirrors.lake.at()
    where = last.marks["main"].frontier
    held = last.arrow(f"public.{table}").sort_by("id")
    mirrors.database.execute("INSERT INTO other VALUES (11, 11, -11)", user="app")
    with pytest.raises(Definite) as stopped:
        mirrors.once(on_ddl="stop")
    newest = mirrors.lake.at()
    going_on = {"public.t", "public.whole", "public.other"} - {f"public.{table}"}
    assert set(newest.marks["main"].versions) == going_on
    assert newest.arrow("public.other").num_rows == 11
    assert validators.exact(mirrors.lake, mirrors.database.url(), values=True) == []
    again = mirrors.lake.at(epoch=last.marks["main"].epoch)
    assert again.arrow(f"public.{table}").sort_by("id").equals(held)
    record = mirrors.record(f"public.{table}")
    error = record.error
    assert error is not None
    assert (error.code, error.hint) == (stopped.value.code, stopped.value.hint)
    assert str(record.stopped_at) == where
    assert f'"{where}"' in (stopped.value.detail or "")
    [source] = pictures(str(mirrors.path))
    shown = source.tables[f"public.{table}"]
    assert shown.error is not None
    assert (shown.state, shown.stopped_at, shown.error["code"]) == ("stopped", where, error.code)
    with pytest.raises(Definite) as absent:
        newest.arrow(f"public.{table}")
    assert absent.value.code == "LAKE_TABLE_NOT_EXACT"
    assert f'it stopped at "{where}" ({error.code})' in (absent.value.detail or "")
    return error


def _source_stops(mirrors: Mirrors, *, port: int | None = None) -> HeadraceError:
    """Run: nothing is published; the error that ended it."""
    before = mirrors.lake.marks()[-1]
    with pytest.raises((Definite, Misconfigured)) as stopped:
        mirrors.once(url=mirrors.database.url(user="app", port=port))
    after = mirrors.lake.marks()[-1]
    assert (after.frontier, after.versions) == (before.frontier, before.versions)
    assert stopped.value.hint
    assert before.frontier in (stopped.value.detail or "")
    [source] = pictures(str(mirrors.path))
    assert source.status.error == to_record(stopped.value)
    return stopped.value


# --- a table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "statements", "code"),
    [
        # The type stays the same, and nothing is sent: only the look can tell.
        ("t", "ALTER TABLE t ALTER COLUMN a TYPE int USING a * 100", "TABLE_CHANGED"),
        ("t", "ALTER TABLE t ADD COLUMN c int DEFAULT 5", "TABLE_CHANGED"),
        ("t", "ALTER TABLE t ALTER COLUMN a TYPE bigint USING a * 100", "TABLE_CHANGED"),
        ("t", "DROP TABLE t", "TABLE_CHANGED"),
        ("whole", "ALTER TABLE whole REPLICA IDENTITY DEFAULT; UPDATE whole SET a = 0", "TABLE_CHANGED"),
    ],
    ids=["values-rewritten", "column-added", "column-rewritten", "dropped", "identity-taken-away"],
)
def test_g6_ddl_stops_its_table_alone(mirrors: Mirrors, table: str, statements: str, code: str) -> None:
    for statement in statements.split("; "):
        mirrors.database.execute(statement, user="app")
    assert _stops_alone(mirrors, table).code == code


_EXCHANGE = "ALTER TABLE t RENAME a TO x; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME x TO b"


@pytest.mark.parametrize(
    ("table", "statements", "code"),
    [
        (
            "whole",
            "ALTER TABLE whole REPLICA IDENTITY DEFAULT; UPDATE whole SET a = 0 WHERE id = 1;"
            " ALTER TABLE whole REPLICA IDENTITY FULL",
            "TABLE_ALTERED",
        ),
        (
            "t",
            "CREATE UNIQUE INDEX by_b ON t (b); ALTER TABLE t REPLICA IDENTITY USING INDEX by_b;"
            " DELETE FROM t WHERE id = 1; ALTER TABLE t REPLICA IDENTITY DEFAULT",
            "TABLE_ALTERED",
        ),
        ("t", f"{_EXCHANGE}; INSERT INTO t VALUES (11, 1, 2); {_EXCHANGE}", "TABLE_ALTERED"),
        (
            "t",
            "ALTER PUBLICATION {publication} DROP TABLE t; DELETE FROM t WHERE id = 1;"
            " ALTER PUBLICATION {publication} ADD TABLE t",
            "TABLE_CHANGED",
        ),
        (
            "t",
            "ALTER PUBLICATION {publication} SET TABLE t WHERE (id > 5), whole, other;"
            " DELETE FROM t WHERE id = 1; ALTER PUBLICATION {publication} SET TABLE t, whole, other",
            "TABLE_CHANGED",
        ),
    ],
    ids=["old-rows-missing", "other-key", "names-exchanged", "unpublished", "filtered"],
)
def test_g6_ddl_that_was_taken_back_leaves_no_damage(
    mirrors: Mirrors, table: str, statements: str, code: str
) -> None:
    [(publication,)] = mirrors.database.execute("SELECT pubname FROM pg_publication")
    for statement in statements.format(publication=publication).split("; "):
        mirrors.database.execute(statement, user="app")
    assert _stops_alone(mirrors, table).code == code


# --- the stream ---------------------------------------------------------------------------------


def _oid(mirrors: Mirrors, table: str) -> bytes:
    [(oid,)] = mirrors.database.execute("SELECT %s::regclass::oid::bigint", [f"public.{table}"])
    return int(oid).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (b"I{oid}N", b"?{oid}N", "PG_UNKNOWN_MESSAGE"),
        (b"I{oid}N\0\3", b"I{oid}N\0\2", "PG_BAD_TUPLE"),
        (b"R{oid}", b"R\0\0\0\7", "PG_UNKNOWN_RELATION"),
        (b"I{oid}N\0\3t", b"I{oid}N\0\3b", "PG_BAD_TUPLE"),
    ],
    ids=["message", "column-count", "relation", "value-kind"],
)
def test_g6_what_cannot_be_read_stops_the_source(mirrors: Mirrors, old: bytes, new: bytes, code: str) -> None:
    oid = _oid(mirrors, "t")
    mirrors.database.execute("INSERT INTO t VALUES (11, 11, 11)", user="app")
    server = mirrors.database.server
    with tampered(server, old.replace(b"{oid}", oid), new.replace(b"{oid}", oid)) as port:
        assert _source_stops(mirrors, port=port).code == code
    assert mirrors.lake.at().arrow("public.t").num_rows == 10


# --- the source ---------------------------------------------------------------------------------


def test_g6_a_slot_that_somebody_advanced_is_no_gap_in_silence(mirrors: Mirrors) -> None:
    mirrors.database.execute("INSERT INTO t VALUES (11, 11, 11)", user="app")
    mirrors.database.execute(
        "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_flush_lsn())"
        " FROM pg_replication_slots WHERE database = current_database()"
    )
    assert _source_stops(mirrors).code == "PG_SLOT_AHEAD"


def test_g6_a_server_that_went_back_or_branched_off_is_not_followed(
    tmp_path: Path, engine: SparkSession | None
) -> None:
    with postgres() as server, server.database() as database:
        mirrors = _mirrored(database, tmp_path, engine)
        backup = Backup.of(server)
        database.execute("UPDATE t SET a = 0; INSERT INTO t SELECT i, 1, 1 FROM generate_series(11, 999) i")
        mirrors.once()
        backup.restore()
        assert _source_stops(mirrors).code == "PG_SERVER_BEHIND"
        # Now it writes past us; the machine is another one, so that only the lake knows what was there.
        database.execute("INSERT INTO t VALUES (-1, 0, 0); SELECT pg_switch_wal()")
        database.execute("INSERT INTO t VALUES (-2, 0, 0)")
        erase(tmp_path / "lake" / "_headrace" / "spool" / "main")
        assert _source_stops(mirrors).code == "PG_HISTORY_CHANGED"
        branch_off(server)
        assert _source_stops(mirrors).code == "PG_HISTORY_CHANGED"
