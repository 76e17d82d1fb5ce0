"""A typed stream straight from PostgreSQL: values as in a lake, and where the stream ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import HeadraceError
from headrace.spark.source.direct import beginning
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.pipeline import everytype
from tests.integration.spark.source.direct import TypedQuery, direct_plan, refused


@pytest.fixture
def orders(database: Database) -> Database:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, note text, _time date, price numeric(9,2))")
    database.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    database.execute("INSERT INTO orders SELECT g, 'n' || g, '2026-01-01', g FROM generate_series(1, 10) g")
    return database


@pytest.fixture
def queries() -> Iterator[Callable[..., TypedQuery]]:
    """Makes queries, whose receivers end with the test."""
    made: list[TypedQuery] = []

    def query(*args: Any) -> TypedQuery:
        made.append(TypedQuery(*args))
        return made[-1]

    yield query
    for each in made:
        each.close()


def plan_of(database: Database, folder: Path, **options: Any) -> Any:
    return direct_plan(database.url(), folder / "state", **{"table": "public.orders", **options})


def ids(query: TypedQuery) -> list[int]:
    return sorted(query.table()["id"].to_pylist())


def test_every_type_has_the_values_of_a_lake(
    database: Database, queries: Callable[..., TypedQuery], tmp_path: Path
) -> None:
    """Rows come by the snapshot and by the stream, are updated, and go."""
    known = everytype.create_types(database)
    types = [each for each in known if all(value.raw is None for value in each.values)]
    assert len(types) > len(known) / 2
    steps = max(len(each.values) for each in types) + 1
    turns = {number: number for number in range(steps)}
    everytype.create(database, "t", types, key="id", full=True)

    def write(step: Callable[..., None]) -> None:
        with database.connect() as connection, connection.transaction():
            step(connection, "t", types, turns)

    write(everytype.insert)
    query = queries(plan_of(database, tmp_path, table="t"))
    query.catch_up()
    assert everytype.wrong(query.table(), types, turns) == []
    turns = {100 + number: number for number in turns}
    write(everytype.insert)
    query.catch_up()
    turns |= {number: number for number in range(steps)}
    assert everytype.wrong(query.table(), types, turns) == []
    turns = {number: turn + 1 for number, turn in turns.items()}
    write(everytype.update)
    query.catch_up()
    assert everytype.wrong(query.table(), types, turns) == []
    database.execute("DELETE FROM t")
    query.catch_up()
    assert query.table().num_rows == 0


def test_our_columns_have_other_names_than_the_tables_and_its_columns_are_those_of_the_beginning(
    orders: Database, queries: Callable[..., TypedQuery], tmp_path: Path
) -> None:
    plan = plan_of(orders, tmp_path)
    assert plan.batch_schema().names == ["id", "note", "_time", "price", "__time", "_diff"]
    orders.execute("ALTER TABLE orders ADD COLUMN more int")
    query = queries(plan)
    with refused("DIRECT_COLUMNS_CHANGED"):
        query.catch_up()
    plan = plan_of(orders, tmp_path)
    again = queries(plan)
    again.catch_up()
    assert again.table()["price"].to_pylist()[0] is not None
    orders.execute("DROP TABLE orders")
    assert plan_of(orders, tmp_path).columns == plan.columns  # as the state has them
    orders.execute("CREATE TABLE shops (id int); ALTER TABLE shops REPLICA IDENTITY FULL")
    for table, code in (("public.orders", "PG_PATTERN_EMPTY"), ("public.*", "DIRECT_TABLE_NOT_ONE")):
        with refused(code):
            plan_of(orders, tmp_path / "other", table=table)


@pytest.mark.parametrize("unfit", [pytest.param("'infinity', 1", marks=pytest.mark.full), "NULL, 'NaN'"])
def test_a_value_that_its_type_cannot_hold_ends_the_stream_before_its_transaction(
    orders: Database, queries: Callable[..., TypedQuery], tmp_path: Path, unfit: str
) -> None:
    query = queries(plan_of(orders, tmp_path))
    query.catch_up()
    for number in range(11, 20):
        orders.execute(f"INSERT INTO orders VALUES ({number}, 'fit', NULL, 1)")
    orders.execute(f"INSERT INTO orders VALUES (20, 'with it', NULL, 1), (21, 'unfit', {unfit})")
    orders.execute("INSERT INTO orders VALUES (22, 'later', NULL, 1)")
    with refused("DIRECT_VALUE_UNFIT") as error:
        query.catch_up()
    assert ids(query) == list(range(1, 20))
    column = "_time" if "infinity" in unfit else "price"
    assert f"public.orders, column {column}" in error.value.primary
    assert "the stream is offered up to 0/" in str(error.value.detail)
    assert "infinity" not in str(error.value)  # no value of a row
    assert "NaN" not in str(error.value)
    query.close()
    with refused("DIRECT_VALUE_UNFIT"):
        queries(plan_of(orders, tmp_path), query.at).catch_up()
    with refused("DIRECT_VALUE_UNFIT"):
        queries(direct_plan(orders.url(), tmp_path / "other", table="orders")).catch_up()


@pytest.mark.parametrize(
    ("statement", "seen"),
    [
        ("ADD COLUMN more int", "in the stream"),
        pytest.param("DROP COLUMN note", "in the stream", marks=pytest.mark.full),
        pytest.param("RENAME note TO text", "in the stream", marks=pytest.mark.full),
        pytest.param("ALTER note TYPE varchar(9) USING 'x' || id", "in the catalog", marks=pytest.mark.full),
        ("DROP COLUMN note, ADD COLUMN note text", "in the catalog"),
    ],
)
def test_ddl_ends_the_stream_before_what_its_columns_cannot_say(
    orders: Database, queries: Callable[..., TypedQuery], tmp_path: Path, statement: str, seen: str
) -> None:
    """The stream ends at the last look that saw the table as it was, unless a layout shows the DDL."""
    query = queries(plan_of(orders, tmp_path))
    query.catch_up()
    orders.execute("INSERT INTO orders (id) VALUES (11)")
    orders.execute(f"ALTER TABLE orders {statement}")
    orders.execute("INSERT INTO orders (id) VALUES (12)")
    with refused("DIRECT_TABLE_ALTERED"):
        query.catch_up()
    assert ids(query) == list(range(1, 12 if seen == "in the stream" else 11))


def test_ddl_ends_the_stream_though_nobody_writes(
    orders: Database, queries: Callable[..., TypedQuery], tmp_path: Path
) -> None:
    query = queries(plan_of(orders, tmp_path))
    query.catch_up()
    orders.execute("ALTER TABLE orders ADD COLUMN more int")
    with refused("DIRECT_TABLE_ALTERED"):
        wait_for(lambda: query.stream.latest(query.at) > query.at, "the change is noticed")


def test_a_table_that_may_be_altered_right_now_waits(
    orders: Database, queries: Callable[..., TypedQuery], tmp_path: Path
) -> None:
    query = queries(plan_of(orders, tmp_path))
    query.catch_up()
    with orders.connect() as session, session.transaction():
        session.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        session.execute("INSERT INTO orders (id) VALUES (11)")
        assert query.stream.latest(query.at) == query.at
    query.catch_up()
    assert ids(query) == list(range(1, 12))


@pytest.mark.parametrize("table", ["public.*", '"public"."ord?rs"', "orders, orders"])
def test_a_table_that_is_not_one_is_refused(orders: Database, tmp_path: Path, table: str) -> None:
    with pytest.raises(HeadraceError):
        plan_of(orders, tmp_path, table=table)
    assert not (tmp_path / "state").exists()


def test_a_truncation_ends_a_typed_stream(
    orders: Database, queries: Callable[..., TypedQuery], tmp_path: Path
) -> None:
    query = queries(plan_of(orders, tmp_path))
    query.catch_up()
    orders.execute("TRUNCATE orders")
    with refused("DIRECT_TABLE_TRUNCATED"):
        query.catch_up()


def test_changes_that_the_snapshot_holds_are_taken_back(
    orders: Database, queries: Callable[..., TypedQuery], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = beginning.SnapshotCopy.run

    def later(self: beginning.SnapshotCopy, plan: Any) -> Any:
        orders.execute("UPDATE orders SET note = 'both' WHERE id < 6")
        orders.execute("DELETE FROM orders WHERE id = 10")
        return copy(self, plan)

    monkeypatch.setattr(beginning.SnapshotCopy, "run", later)
    query = queries(plan_of(orders, tmp_path))
    query.catch_up()
    assert ids(query) == list(range(1, 10))
    assert query.table()["note"].to_pylist().count("both") == 5
