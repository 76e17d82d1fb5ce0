"""Filters and lists that cannot be followed, or not any more: coded, hinted, nothing wrong in a mark."""

from __future__ import annotations

import pytest

import headrace
from headrace.cli.main import main
from headrace.core.errors import HeadraceError
from headrace.pipeline.state.table_state import State
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.parts.comparing import differing

pytestmark = pytest.mark.server

TABLES = ("public.t", "public.sound")
SECRET = "open sesame 4711"


@pytest.fixture
def source(mirrors: Mirrors) -> Mirrors:
    """Two tables with whole rows, in a publication of the user's; of each the part that `oracle` shows."""
    mirrors.options = {"publication": "p"}
    for name in ("t", "sound"):
        mirrors.database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, n int, s text);"
            f" ALTER TABLE {name} REPLICA IDENTITY FULL;"
            f" INSERT INTO {name} SELECT i, i, 'one' FROM generate_series(1, 9) i",
            user="app",
        )
    mirrors.database.execute("CREATE SCHEMA oracle; CREATE VIEW oracle.sound AS TABLE sound")
    return mirrors


def _publish(database: Database, condition: str) -> None:
    database.execute("DROP PUBLICATION IF EXISTS p", user="app")
    database.execute(f"CREATE PUBLICATION p FOR TABLE sound, t WHERE ({condition})", user="app")


def _alter(database: Database, published: str) -> None:
    database.execute(
        f"ALTER PUBLICATION p DROP TABLE t; ALTER PUBLICATION p ADD TABLE t {published}", user="app"
    )


def _holds(source: Mirrors, condition: str) -> None:
    source.database.execute(f"CREATE VIEW oracle.t AS SELECT * FROM t WHERE {condition}")


def _refused(source: Mirrors) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        source.once(*TABLES)
    assert caught.value.hint
    assert SECRET not in str(caught.value)
    return caught.value


def _reconciled(source: Mirrors) -> None:
    told = {"url": source.database.url(user="app"), "tables": list(TABLES), **source.options}
    config = {"lake": {"path": str(source.path)}, "source": {"main": told}}
    headrace.mirror(config, once=True, reconcile=True)


@pytest.mark.parametrize("condition", ["10 / (n - 5) < 3", "parse_ident(s) IS NOT NULL"])
def test_a_filter_that_fails_on_a_row_stops_the_copy_of_its_table_alone(
    source: Mirrors, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own words may quote the value; they are in its log."""
    source.database.execute(f"UPDATE t SET s = '{SECRET}' WHERE n = 5")
    _publish(source.database, condition)
    assert _refused(source).code == "PG_FILTER_FAILED"
    assert source.record("public.t").state is State.STOPPED
    assert differing(source, ["sound"]) == {}
    # A change of that row would end the stream, so it is made where nobody publishes it.
    source.database.execute("ALTER PUBLICATION p DROP TABLE t; DELETE FROM t WHERE n = 5")
    source.database.execute(f"ALTER PUBLICATION p ADD TABLE t WHERE ({condition})", user="app")
    _holds(source, condition)
    monkeypatch.setenv("PGPASSWORD", str(source.database.server.password))
    assert main(["tables", "resync", "--lake", str(source.path), "public.t"]) == 0
    source.once(*TABLES)
    assert differing(source, ["sound", "t"]) == {}


@pytest.mark.parametrize("condition", ["10 / (n - 5) < 3", "parse_ident(s) IS NOT NULL"])
def test_a_filter_that_fails_on_a_change_ends_the_stream_until_a_reconcile(
    source: Mirrors, condition: str
) -> None:
    _publish(source.database, condition)
    _holds(source, f"CASE WHEN n <> 5 AND s = 'one' THEN {condition} END")
    source.database.execute("DELETE FROM t WHERE n = 5")
    source.once(*TABLES)
    assert differing(source, ["sound", "t"]) == {}
    last = source.lake.at().arrow("public.t")
    source.database.execute(f"INSERT INTO t VALUES (100, 5, '{SECRET}')")
    assert _refused(source).code == "PG_FILTER_STOPS_STREAM"
    source.database.execute("DELETE FROM t WHERE id = 100")
    _alter(source.database, f"WHERE (CASE WHEN s = 'one' AND n <> 5 THEN {condition} END)")
    assert _refused(source).code == "PG_FILTER_STOPS_STREAM", "the log keeps the filter of its time"
    assert source.lake.at().arrow("public.t") == last
    _reconciled(source)
    source.database.execute(f"INSERT INTO t VALUES (101, 5, '{SECRET}'), (102, 8, 'one')")
    source.database.execute("DELETE FROM t WHERE id = 101")
    source.once(*TABLES)
    assert differing(source, ["sound", "t"]) == {}


def test_a_filter_that_may_not_be_evaluated_is_refused_and_ends_a_stream(source: Mirrors) -> None:
    database, function = source.database, "FUNCTION pg_catalog.factorial(bigint)"
    _publish(database, "factorial(n) > 100")
    _holds(source, "n >= 5")
    database.execute(f"REVOKE EXECUTE ON {function} FROM PUBLIC")
    assert _refused(source).code == "PG_FILTER_PRIVILEGE"
    assert not source.path.exists()
    database.execute(f"GRANT EXECUTE ON {function} TO app")
    source.once(*TABLES)
    assert differing(source, ["sound", "t"]) == {}
    database.execute(f"REVOKE EXECUTE ON {function} FROM app")
    database.execute("INSERT INTO t VALUES (10, 10, 'x'), (11, 1, 'y')")
    assert _refused(source).code == "PG_FILTER_STOPS_STREAM"
    database.execute(f"GRANT EXECUTE ON {function} TO app")
    assert _refused(source).code == "PG_FILTER_STOPS_STREAM", "the log keeps the rights of its time"
    _reconciled(source)
    assert differing(source, ["sound", "t"]) == {}


@pytest.mark.parametrize(
    ("identity", "published", "hint"),
    [
        ("DEFAULT", "WHERE (n > 5)", "ALTER TABLE public.t REPLICA IDENTITY FULL"),
        ("DEFAULT", "(n, s)", "ADD TABLE ONLY public.t (id, n, s)"),
        ("FULL", "(id, n)", "ALTER TABLE public.t REPLICA IDENTITY DEFAULT"),
        ("DEFAULT", "(n, s) WHERE (id > 2)", "publish it with all columns of its key"),
    ],
)
def test_a_part_without_the_identity_stops_its_table_until_it_has_it(
    source: Mirrors, identity: str, published: str, hint: str
) -> None:
    database = source.database
    database.execute(f"ALTER TABLE t REPLICA IDENTITY {identity}")
    database.execute("CREATE PUBLICATION p FOR TABLE sound, t", user="app")
    source.once(*TABLES)
    _alter(database, published)
    database.execute("INSERT INTO t VALUES (20, 20, 'x'); INSERT INTO sound VALUES (20, 20, 'x')")
    assert _refused(source).code == "TABLE_CHANGED"
    error = source.record("public.t").error
    assert error is not None
    assert hint in error.hint
    assert differing(source, ["sound"]) == {}
    _alter(database, "WHERE (id > 5)")
    database.execute("INSERT INTO t VALUES (21, 21, 'x')")
    _holds(source, "id > 5")
    source.once(*TABLES)
    assert differing(source, ["sound", "t"]) == {}
