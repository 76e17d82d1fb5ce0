"""Transactions that are large enough to be streamed while they run, with streaming on (and in full, off).

Scenarios 015 to 020 of PostgreSQL's own subscription tests (`docs/scenarios.md`). The server streams every
change at once (`debug_logical_replication_streaming`), so that a transaction of a few rows is streamed as
one of millions is. Streaming must not be seen: the marks and the history are the same. In every run
`test_streaming` holds the two side by side; each case here without streaming is left to the full one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.core.errors import Definite
from headrace.core.hashing import HashKey
from headrace.pipeline.stream import batches
from headrace_testing import validators
from headrace_testing.postgres import Database, Server, postgres
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.serving import serving
from tests.integration.pipeline.verifying import outcomes, verified

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.server

SETTINGS = {"logical_decoding_work_mem": "64kB", "debug_logical_replication_streaming": "immediate"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres("18", settings=SETTINGS) as made:
        yield made


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """A table of two rows, and one by which a test sees how far the mirror is."""
    server.start()
    with server.database() as made:
        made.execute(
            "CREATE TABLE t (a int PRIMARY KEY, b text); CREATE TABLE u (a int PRIMARY KEY)", user="app"
        )
        made.execute("INSERT INTO t VALUES (1, 'foo'), (2, 'bar')", user="app")
        yield made


@pytest.fixture(params=["auto", pytest.param("off", marks=pytest.mark.full)])
def mirrors(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, engine: SparkSession | None
) -> Mirrors:
    return Mirrors(database, tmp_path / "lake", engine, {"streaming": request.param})


@pytest.fixture(autouse=True)
def _history(mirrors: Mirrors) -> Iterator[None]:
    """Judge all of history and all marks once a test has come to its end."""
    yield
    assert validators.consistent(mirrors.lake) == []


def _exact(mirrors: Mirrors) -> list[int]:
    """Catch up; the keys that the table holds."""
    lake = mirrors.once()
    assert validators.exact(lake, mirrors.database.url(), values=True) == []
    return sorted(lake.at().arrow("public.t")["a"].to_pylist())


def _rows(low: int, high: int) -> str:
    return f"INSERT INTO t SELECT i, md5(i::text) FROM generate_series({low}, {high}) i"


def _insert(key: int) -> str:
    return f"INSERT INTO t VALUES ({key}, repeat('{key}', 3))"


CHANGES = ("UPDATE t SET b = md5(b) WHERE a % 2 = 0", "DELETE FROM t WHERE a % 3 = 0")


def _transaction(database: Database, *statements: str, ends: str = "COMMIT") -> None:
    with database.connect(user="app") as connection:
        for statement in ("BEGIN", *statements, ends):
            connection.execute(statement.encode())


@pytest.mark.scenario("015")
def test_two_large_transactions_side_by_side_are_each_whole_at_their_commit(mirrors: Mirrors) -> None:
    database = mirrors.database
    _exact(mirrors)
    with (
        serving(mirrors) as served,
        database.connect(user="app") as one,
        database.connect(user="app") as other,
    ):
        for connection, low, high in ((one, 3, 5000), (other, 5001, 9999)):
            connection.execute("BEGIN")
            connection.execute(_rows(low, high).encode())
        one.execute(b"UPDATE t SET b = md5(b) WHERE a % 2 = 0")
        other.execute(b"DELETE FROM t WHERE a > 5000")
        database.execute("INSERT INTO u VALUES (1)", user="app")
        served.until(lambda: served.holds("public.u", 1), "a mark while both are open")
        assert served.holds("public.t", 2), "nothing of an open transaction may be seen"
        other.execute("COMMIT")
        one.execute(b"DELETE FROM t WHERE a % 3 = 0")
        one.execute("COMMIT")
        served.until(lambda: served.holds("public.t", 3334), "the large one")
        database.execute(
            "UPDATE t SET b = 'small' WHERE a = 1; INSERT INTO t VALUES (6667, 'small')", user="app"
        )
        served.until(lambda: served.holds("public.t", 3335), "a small one after it")
    _exact(mirrors)
    # Their marks show them whole or not at all.
    seen = {
        mirrors.lake.at(epoch=m.epoch).arrow("public.t").num_rows for m in mirrors.lake.marks() if m.versions
    }
    assert seen <= {2, 3334, 3335}


def test_a_label_that_was_renamed_before_its_transaction_was_folded_does_not_go_by(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layers laid down ahead of the commit have the label's first name; the source has the second."""
    monkeypatch.setattr(batches, "ALONE_BYTES", 1)
    database = mirrors.database
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE e (a int PRIMARY KEY, m mood)", user="app"
    )
    _exact(mirrors)
    database.execute("ALTER TYPE mood ADD VALUE 'glad'", user="app")
    _transaction(database, "INSERT INTO e VALUES (1, 'glad'), (2, 'sad')", _insert(3))
    assert _exact(mirrors) == [1, 2, 3]
    assert mirrors.lake.at().arrow("public.e")["m"].to_pylist() == ["glad", "sad"]
    database.execute("ALTER TYPE mood ADD VALUE 'new'", user="app")
    _transaction(database, "INSERT INTO e VALUES (3, 'new')", _insert(4))
    database.execute("ALTER TYPE mood RENAME VALUE 'new' TO 'mad'", user="app")
    with pytest.raises(Definite) as stopped:
        mirrors.once(on_ddl="stop")
    assert stopped.value.code == "TABLE_ALTERED"
    assert set(mirrors.lake.marks()[-1].versions) == {"public.t", "public.u"}


@pytest.mark.scenario("016")
def test_changes_in_nested_savepoints_all_count(mirrors: Mirrors) -> None:
    _exact(mirrors)
    statements: list[str] = []
    for level in range(5):
        statements += [f"SAVEPOINT s{level}"] if level else []
        statements += [_rows(3 * level + 3, 3 * level + 5), *CHANGES]
    _transaction(mirrors.database, *statements)
    keys = _exact(mirrors)
    assert len(keys) == 12
    assert not set(keys) & {3, 6, 9, 12, 15}


def _widening() -> tuple[str, ...]:
    """Rows under three layouts of `t`, each with a column more."""
    return (
        _rows(3, 500),
        "ALTER TABLE t ADD c int",
        "INSERT INTO t VALUES (1001, 'with c', 1)",
        "ALTER TABLE t ADD d int",
        "INSERT INTO t VALUES (1002, 'with d', 1, 2)",
    )


@pytest.mark.scenario("017")
def test_ddl_within_a_large_transaction_stops_its_table_alone_and_publishes_nothing_wrong(
    mirrors: Mirrors,
) -> None:
    database = mirrors.database
    _exact(mirrors)
    _transaction(
        database,
        *_widening(),
        "INSERT INTO u VALUES (1)",
    )
    database.execute("INSERT INTO t VALUES (1003, 'small', 1, 2); INSERT INTO u VALUES (2)", user="app")
    with pytest.raises(Definite) as stopped:
        mirrors.once(on_ddl="stop")
    assert stopped.value.code in ("TABLE_CHANGED", "TABLE_ALTERED")
    last = mirrors.lake.at()
    assert set(last.tables()) == {"public.u"}
    assert last.arrow("public.u").num_rows == 2
    assert {
        mirrors.lake.at(epoch=m.epoch).arrow("public.t").num_rows
        for m in mirrors.lake.marks()
        if "public.t" in m.versions
    } == {2}


@pytest.mark.scenario("017")
def test_columns_that_are_added_within_a_large_transaction_are_followed(mirrors: Mirrors) -> None:
    """Its rows come under three layouts, and all of them are written under the last."""
    database = mirrors.database
    _exact(mirrors)
    _transaction(
        database,
        *_widening(),
        "UPDATE t SET d = 3 WHERE a < 10",
    )
    assert {1, 3, 500, 1001, 1002} <= set(_exact(mirrors))
    record = mirrors.record("public.t")
    assert ([len(each.names) for each in record.schema.earlier], record.late) == ([2, 3], False)


@pytest.mark.scenario("018")
def test_what_savepoints_took_back_is_not_there(mirrors: Mirrors) -> None:
    database = mirrors.database
    _exact(mirrors)
    _transaction(
        database,
        _insert(3),
        "SAVEPOINT s1",
        _insert(4),
        "SAVEPOINT s2",
        _insert(5),
        "SAVEPOINT s3",
        _insert(6),
        "ROLLBACK TO s2",
        _insert(7),
        "ROLLBACK TO s1",
        _insert(8),
        "SAVEPOINT s3",
        _insert(9),
        "SAVEPOINT s4",
        _insert(10),
    )
    assert _exact(mirrors) == [1, 2, 3, 8, 9, 10]
    _transaction(
        database,
        _insert(11),
        "SAVEPOINT s1",
        _insert(12),
        "SAVEPOINT s2",
        _insert(13),
        "SAVEPOINT s3",
        _insert(14),
        "RELEASE s2",
        _insert(15),
        "ROLLBACK TO s1",
        "UPDATE t SET b = b || '!' WHERE a = 11",
    )
    assert _exact(mirrors) == [1, 2, 3, 8, 9, 10, 11]
    _transaction(database, _rows(20, 2000), "SAVEPOINT s1", *CHANGES, "TRUNCATE t", ends="ROLLBACK")
    assert _exact(mirrors) == [1, 2, 3, 8, 9, 10, 11]
    _transaction(
        database,
        _rows(20, 40),
        "SAVEPOINT s1",
        "TRUNCATE t",
        _rows(50, 60),
        "ROLLBACK TO s1",
        *CHANGES,
        "SAVEPOINT s2",
        "TRUNCATE t",
        _rows(70, 75),
    )
    assert _exact(mirrors) == [70, 71, 72, 73, 74, 75]


@pytest.mark.scenario("019")
def test_ddl_that_a_savepoint_took_back_leaves_the_table_as_it_was(mirrors: Mirrors) -> None:
    database = mirrors.database
    _exact(mirrors)
    _transaction(
        database,
        _insert(3),
        "SAVEPOINT s1",
        "ALTER TABLE t ADD c int",
        "INSERT INTO t VALUES (4, 'x', 1)",
        "SAVEPOINT s2",
        "ALTER TABLE t ADD d int",
        "INSERT INTO t VALUES (5, 'x', 1, 2)",
        "ALTER TABLE t DROP c",
        "ROLLBACK TO s1",
        _insert(6),
    )
    assert _exact(mirrors) == [1, 2, 3, 6]


@pytest.mark.scenario("020")
def test_logical_messages_of_the_application_are_none_of_our_business(mirrors: Mirrors) -> None:
    """Transactional or not, of transactions that commit or don't, in a savepoint that is taken back."""
    database = mirrors.database
    _exact(mirrors)
    said = [f"SELECT pg_logical_emit_message({kind}, 'headrace', 'no row')" for kind in ("true", "false")]
    _transaction(database, *said, _insert(3), "SAVEPOINT s1", *said, _insert(4), "ROLLBACK TO s1", *said)
    _transaction(database, *said, _insert(5), ends="ROLLBACK")
    _transaction(database, *said)
    assert _exact(mirrors) == [1, 2, 3]


@pytest.mark.full
def test_values_of_running_transactions_are_hashed_before_they_are_stored(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also under a name that the rule does not know: the column is renamed in the transaction."""
    key, canary = HashKey("5f0c6a1d9e3b47c2" * 2), "canary-77ab01"
    monkeypatch.setenv("HEADRACE_HASH_KEY", key.text)
    mirrors.options["columns"] = {"public.t": {"hash": ["b"]}}
    database = mirrors.database
    mirrors.once()
    with serving(mirrors) as served, database.connect(user="app") as one:
        one.execute("BEGIN")
        one.execute(f"INSERT INTO t SELECT i, '{canary}' FROM generate_series(3, 900) i".encode())
        database.execute(f"INSERT INTO t VALUES (1000, '{canary}-2')", user="app")
        served.until(lambda: served.holds("public.t", 3), "a mark while one is open")
        spool = {path: path.read_bytes() for path in mirrors.path.rglob("*") if path.is_file()}
        one.execute("SAVEPOINT s")
        one.execute(f"UPDATE t SET b = '{canary}-3' WHERE a < 100".encode())
        one.execute("ROLLBACK TO s")
        one.execute(b"ALTER TABLE t RENAME COLUMN b TO c")
        one.execute(f"INSERT INTO t VALUES (2000, '{canary}-4')".encode())
        one.execute("COMMIT")
        database.execute("INSERT INTO u VALUES (1)", user="app")
        served.until(lambda: served.holds("public.u", 1), "what came after both")
    assert not any(canary.encode() in data for data in spool.values())
    hashed = key.hash(canary.encode()).encode()
    assert (mirrors.options["streaming"] == "off") or any(hashed in data for data in spool.values())
    mirrors.once()
    mirrors.once()
    assert outcomes(verified(mirrors))["public.t"] == "equal"
    files = [path for path in mirrors.path.rglob("*") if path.is_file() and path.suffix != ".parquet"]
    assert [path for path in files if canary.encode() in path.read_bytes()] == []
