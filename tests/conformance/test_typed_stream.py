"""A table streamed straight from a source, in its columns: what a lake has, on each of our sources."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.core.errors import HeadraceError
from headrace.spark.source.types import batch_schema
from headrace_testing.conformance.mirror import Mirror
from headrace_testing.conformance.place import SourceUnderTest
from headrace_testing.oracle.registry import oracle_of
from tests.conformance.sources import execute
from tests.integration.spark.source.direct import TypedQuery, direct_plan

pytestmark = pytest.mark.server


def test_a_typed_stream_is_the_table_of_a_lake_and_ends_at_ddl(
    mirror: Mirror, source: SourceUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the snapshot and after changes; a process that comes later goes on."""
    place, name = mirror.place, str(mirror.place.table("t"))
    login = oracle_of(place.url).login(place.url)
    for variable, value in login.environment.items():
        monkeypatch.setenv(variable, value)
    columns = "id int PRIMARY KEY, note varchar(200), n decimal(12,3), d date, r double precision, b boolean"
    whole = ["ALTER TABLE t REPLICA IDENTITY FULL"] if source.kind == "postgres" else []
    execute(place, f"CREATE TABLE t ({columns})", *whole)
    execute(place, "INSERT INTO t VALUES (1, 'é', 1.5, '2026-01-01', 0.1, true), (2, NULL, 2, NULL, 2, NULL)")
    plan = direct_plan(login.address, tmp_path / "state", table=name)
    query = TypedQuery(plan)
    try:
        query.catch_up()
        _is_the_lakes(query, mirror)
        execute(place, "INSERT INTO t SELECT id + 10, note, n, d, r, b FROM t")
        execute(place, "UPDATE t SET note = 'twice' WHERE id = 2", "UPDATE t SET id = 4 WHERE id = 2")
        execute(place, "DELETE FROM t WHERE id = 12")
        query.catch_up()
        _is_the_lakes(query, mirror)
        query.close()
        query = _going_on(query)
        execute(place, "CREATE INDEX i ON t (n)", "DELETE FROM t WHERE id = 1")
        query.catch_up()
        _is_the_lakes(query, mirror)
        execute(place, "INSERT INTO t (id) VALUES (29)")
        execute(place, "ALTER TABLE t ADD COLUMN more int")
        execute(place, "INSERT INTO t (id, more) VALUES (30, 1)")
        for _ in range(2):
            with pytest.raises(HeadraceError, match="DIRECT_TABLE_ALTERED"):
                query.catch_up()
            ids = sorted(query.table()["id"].to_pylist())
            assert ids == [4, 11, 29] or (source.of_many and ids == [4, 11])  # all in one time
            query.close()
            query = _going_on(query)
    finally:
        query.close()


def _going_on(query: TypedQuery) -> TypedQuery:
    later = TypedQuery(query.plan, query.at)
    later.sums, later.by_code = query.sums, query.by_code
    return later


def _is_the_lakes(query: TypedQuery, mirror: Mirror) -> None:
    lakes = mirror.once().at().arrow(str(mirror.place.table("t")))
    found: pa.Table = query.table()
    assert found.schema == batch_schema(lakes.schema)
    assert found.sort_by("id").to_pylist() == lakes.sort_by("id").to_pylist()
