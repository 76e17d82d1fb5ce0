"""Verify: what it passes, and what it finds and names in a lake that somebody changed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headrace.core.errors import Definite
from headrace.core.hashing import HashKey
from headrace.core.keycode import keycode
from headrace.core.records import to_record
from headrace.lake.format import layout
from headrace.pipeline.verify import proof
from headrace.pipeline.verify.drill_down import text_differences
from headrace.pipeline.verify.proof import MOST_NAMED
from headrace.pipeline.verify.verdicts import Difference, objection
from headrace.status.picture import pictures
from headrace_testing.postgres import Database
from tests.cases.types.cases import types
from tests.integration.pipeline import everytype
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.verifying import (
    first_file,
    named,
    outcomes,
    rewrite,
    setting,
    twice,
    verified,
    without,
)

pytestmark = pytest.mark.server


@pytest.fixture
def tables(mirrors: Mirrors, database: Database) -> Mirrors:
    """A table with a key and one without, mirrored."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text, n float8)", user="app")
    database.execute("INSERT INTO t SELECT i, 'name ' || i, i / 7.0 FROM generate_series(1, 5000) i")
    database.execute("CREATE TABLE bag (id int, t timestamptz)", user="app")
    database.execute("ALTER TABLE bag REPLICA IDENTITY FULL", user="app")
    database.execute("INSERT INTO bag SELECT i % 10, 'infinity' FROM generate_series(1, 30) i")
    database.execute("CREATE TABLE moments (id int PRIMARY KEY, t timestamp)", user="app")
    database.execute("INSERT INTO moments VALUES (1, 'infinity'), (2, '-infinity'), (3, NULL)")
    database.execute("ANALYZE")
    mirrors.once()
    return mirrors


def test_a_mirror_passes_and_one_changed_value_is_named(tables: Mirrors) -> None:
    verdict = verified(tables)
    assert outcomes(verdict) == {"public.bag": "equal", "public.moments": "equal", "public.t": "equal"}
    assert objection([verdict]) is None
    bag, _, t = verdict.tables
    assert (t.rows, t.lake_rows, t.texts) == (5000, 5000, 0)
    assert (bag.rows, bag.lake_rows, bag.texts) == (30, 30, 30)
    assert t.buckets > 1
    rewrite(tables.path, "t", setting("name", "Name 4711", where=4711))
    verdict = verified(tables)
    assert outcomes(verdict) == {"public.bag": "equal", "public.moments": "equal", "public.t": "different"}
    [shown] = pictures(str(tables.path))
    assert {name: proof.outcome for name, proof in shown.proofs.items()} == outcomes(verdict)
    assert shown.proofs["public.t"].position == verdict.position
    assert verdict.tables[2].different_buckets == verdict.tables[2].narrowed_buckets == 1
    assert verdict.tables[2].differences == (Difference("changed", {"id": "4711"}, ("name",)),)
    said = objection([verdict])
    assert isinstance(said, Definite)
    assert said.code == "VERIFY_DIFFERENT"
    # No value of a row, unless it is asked for.
    assert "ame 4711" not in str(to_record(verdict))
    [found] = verified(tables, "t", show_values=True).tables[0].differences
    assert found.source is not None
    assert found.lake is not None
    assert (found.source["name"], found.lake["name"]) == ("name 4711", "Name 4711")


def test_rows_that_are_lacking_too_many_or_elsewhere_are_named(tables: Mirrors) -> None:
    rewrite(tables.path, "t", without([17, 4000]))
    rewrite(tables.path, "t", twice([300]))
    rewrite(tables.path, "t", setting("id", 9001, where=44))
    rewrite(tables.path, "t", setting("n", -0.0, where=55))
    rewrite(tables.path, "bag", without([3]))
    rewrite(tables.path, "bag", twice([4]))
    bag, _, t = verified(tables, show_values=True).tables
    assert named(t.differences) == {
        ("missing", "17", (), 1),
        ("missing", "4000", (), 1),
        ("extra", "300", (), 1),
        ("missing", "44", (), 1),
        ("extra", "9001", (), 1),
        ("changed", "55", ("n",), 1),
    }
    rows = {(each.kind, each.copies, str(each.source or each.lake)) for each in bag.differences}
    assert rows == {
        ("missing", 3, str({"id": "3", "t": None})),
        ("extra", 3, str({"id": "4", "t": None})),
    }
    assert (t.rows, t.lake_rows) == (5000, 4999)


@pytest.mark.full
def test_differences_of_hashed_columns_are_named_by_hashes(
    mirrors: Mirrors, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tables: an index finds the key of one; the key of the other is hashed, so none does."""
    key = HashKey("5f0c6a1d9e3b47c2" * 2)
    monkeypatch.setenv("HEADRACE_HASH_KEY", key.text)
    for name, identity in (("by_hash", "mail"), ("by_id", "id")):
        columns = f"id int, mail text, day date, n int, PRIMARY KEY ({identity})"
        database.execute(f"CREATE TABLE {name} ({columns})", user="app")
        filled = "SELECT i, 'mail ' || i, '2016-11-04', i FROM generate_series(1, 500) i"
        database.execute(f"INSERT INTO {name} {filled}")
    rules = {"public.by_hash": {"hash": ["mail", "day"]}, "public.by_id": {"hash": ["mail"]}}
    mirrors.once(columns=rules)
    assert set(outcomes(verified(mirrors)).values()) == {"equal"}
    for name in ("by_hash", "by_id"):
        rewrite(mirrors.path, name, setting("n", 4711, where=47))
        rewrite(mirrors.path, name, without([11]))
    by_hash, by_id = verified(mirrors, show_values=True).tables
    hashes = {n: key.hash(f"mail {n}".encode()) for n in (11, 47)}
    assert named(by_hash.differences) == {("missing", hashes[11], (), 1), ("changed", hashes[47], ("n",), 1)}
    assert named(by_id.differences) == {("missing", "11", (), 1), ("changed", "47", ("n",), 1)}
    [changed] = (each for each in by_id.differences if each.kind == "changed")
    assert changed.source is not None
    assert (changed.source["n"], "mail 47" in str(changed.source)) == ("47", False)


def test_a_text_that_is_not_the_sources_is_named(tables: Mirrors) -> None:
    # Tables whose copies end apart have files of their own there.
    for path in first_file(tables.path, layout.errors_folder("main")).parent.glob("*.parquet"):
        rows = pq.read_table(path)
        other = pc.if_else(pc.equal(rows["raw"], "-infinity"), "infinity", rows["raw"])
        pq.write_table(rows.set_column(rows.column_names.index("raw"), rows.schema.field("raw"), other), path)
    verdict = verified(tables)
    assert outcomes(verdict) == {"public.bag": "equal", "public.moments": "different", "public.t": "equal"}
    moments = verdict.tables[1]
    assert (moments.different_buckets, moments.texts) == (0, 2)
    assert named(moments.differences) == {("missing", "2", ("t",), 1), ("extra", "2", ("t",), 1)}
    assert all(each.raw and each.source is each.lake is None for each in moments.differences)
    told = verified(tables, "moments", show_values=True).tables[0].differences
    assert {str(each.source or each.lake) for each in told} == {"{'t': 'infinity'}", "{'t': '-infinity'}"}


def test_no_snapshot_is_held_once_the_sums_are_known(
    tables: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The texts in errors/ are compared after that, and there may be many."""
    held: list[int] = []

    def compared(*given: Any, before: Any = text_differences, **more: Any) -> Any:
        [(count,)] = tables.database.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'headrace %' AND backend_xmin IS NOT NULL"
        )
        held.append(count)
        return before(*given, **more)

    monkeypatch.setattr(proof, "text_differences", compared)
    assert set(outcomes(verified(tables)).values()) == {"equal"}
    assert held == [0, 0, 0]
    rewrite(tables.path, "t", lambda rows: rows.slice(1))
    assert outcomes(verified(tables))["public.t"] == "different"
    assert held[3:] == [0, 0, 0]


def test_a_table_that_differs_throughout_is_not_narrowed_to_all_its_rows(tables: Mirrors) -> None:
    rewrite(tables.path, "t", lambda rows: rows.set_column(1, "name", rows["n"].cast("string")))
    [t] = verified(tables, "t").tables
    assert (t.outcome, len(t.differences)) == ("different", MOST_NAMED)
    assert t.unlisted_rows + MOST_NAMED == t.rows
    assert t.different_buckets == t.buckets


def test_a_damaged_file_is_no_proof(tables: Mirrors) -> None:
    path = first_file(tables.path, "tables/main/public/t")
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(64)
    path.write_bytes(data)
    verdict = verified(tables, "t")
    assert outcomes(verdict) != {"public.t": "equal"}
    assert objection([verdict]) is not None
    path.unlink()
    assert outcomes(verified(tables, "t")) == {"public.t": "not compared"}


def test_every_type_passes_and_any_value_counts(mirrors: Mirrors, database: Database) -> None:
    """Copied and streamed, with the texts of values that have no lake form; then each column is touched."""
    kinds = everytype.create_types(database)
    turns = {number: number for number in range(max(len(each.values) for each in types()) + 1)}
    streamed = {100 + number: number for number in turns}
    names = ("by_key", "by_image", "bag")
    for name in names:
        everytype.create(database, name, kinds, key=None if name == "bag" else "id", full=name != "by_key")
    for some in (turns, streamed):
        with database.connect(user="app") as connection:
            for name in names:
                everytype.insert(connection, name, kinds, some)
        mirrors.once()
    verdict = verified(mirrors)
    assert outcomes(verdict) == {f"public.{name}": "equal" for name in names}
    assert all(table.rows == table.lake_rows == 2 * len(turns) for table in verdict.tables)
    assert verdict.tables[0].texts > 20
    path = first_file(mirrors.path, "tables/main/public/by_key")
    rows = pq.read_table(path)
    expected = set()
    for number in range(1, rows.num_columns):
        field, old = rows.schema.field(number), rows.column(number)
        turned = old.take(pa.array([*range(1, rows.num_rows), 0]))
        rows = rows.set_column(number, field, turned)
        if keycode([turned]) != keycode([old]):
            expected.add(layout.unquote(field.name))
    pq.write_table(rows, path)
    [table] = verified(mirrors, "by_key").tables
    assert {column for each in table.differences for column in each.columns if not each.raw} == expected
    assert len(expected) > 40
