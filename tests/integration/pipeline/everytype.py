"""Tables with a column of every type, filled from the cases; and what a lake must then hold of them.

    create   the types of users that the cases name, and a table with one column a type
    insert   rows in which each type takes its values in turn, each row another one
    update   the same rows, with the values turned on by some steps
    wrong    where the lake's rows are not, bit for bit, what the cases say

A column is called as its type is written, which also is a name that has to be quoted everywhere. A row
is known by its `id`, its *turn* says which value each of its columns has.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from headrace.core.keycode import keycode
from headrace.core.names import TableName
from headrace.lake.log import errors_table
from headrace.lake.read.lake import Lake
from headrace_testing.oracle.postgres_rows import Connection, pin
from headrace_testing.postgres import Database
from tests.cases.types.cases import Type, Value, column, types

Turns = Mapping[int, int]  # by the row's id

_OF_USERS = """
CREATE TYPE mood AS ENUM ('so so', 'it''s "fine", ok')
CREATE SCHEMA "Odd"
CREATE TYPE "Odd"."mood" AS ENUM ('V1')
CREATE TYPE pair AS (a int, b text)
CREATE DOMAIN token AS text CHECK (value <> '')
CREATE DOMAIN price AS numeric(8,2)
CREATE DOMAIN special_price AS price CHECK (value > 0)
CREATE DOMAIN moment AS timestamp
CREATE DOMAIN three_bits AS varbit(3)
CREATE DOMAIN tags AS text[]
GRANT USAGE ON SCHEMA "Odd" TO app
"""


def create_types(database: Database) -> list[Type]:
    """Make the types that the cases name and no server has of its own; those that are there then."""
    for statement in _OF_USERS.strip().splitlines():
        database.execute(statement)
    # Of the test servers only the one from pip has this extension.
    if database.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"):
        database.execute("CREATE EXTENSION vector")
    known = types()
    return [of for of in known if database.execute("SELECT to_regtype(%s) IS NOT NULL", [of.name])[0][0]]


def create(database: Database, name: str, types: list[Type], *, key: str | None, full: bool) -> None:
    """A table with a column of each type; `key` is its primary key."""
    columns = [f"{quoted(each)} {each.name}" for each in types]
    constraint = [f"PRIMARY KEY ({key})"] if key else []
    database.execute(f"CREATE TABLE {name} ({', '.join(['id int', *columns, *constraint])})")
    database.execute(f"ALTER TABLE {name} OWNER TO app")
    if full:
        database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")


def insert(connection: Connection, name: str, types: list[Type], turns: Turns) -> None:
    """Rows, each with the values of its turn."""
    pin(connection)
    for number, turn in turns.items():
        values = sql.SQL(", ").join(map(_literal, _row(types, turn)))
        query = sql.SQL("INSERT INTO public.{} VALUES ({}, {})")
        connection.execute(query.format(sql.Identifier(name), sql.Literal(number), values))


def update(connection: Connection, name: str, types: list[Type], turns: Turns) -> None:
    """Give the rows the values of other turns."""
    pin(connection)
    for number, turn in turns.items():
        sets = [
            sql.SQL("{} = {}").format(sql.Identifier(of.name), _literal(value))
            for of, value in zip(types, _row(types, turn), strict=True)
        ]
        query = sql.SQL("UPDATE public.{} SET {} WHERE id = {}")
        connection.execute(query.format(sql.Identifier(name), sql.SQL(", ").join(sets), sql.Literal(number)))


def wrong(rows: pa.Table, types: list[Type], turns: Turns) -> list[str]:
    """List the differences between the lake's rows and the values that the cases promise; compare bits."""
    if sorted(rows["id"].to_pylist()) != sorted(turns):
        return [f"ids {sorted(rows['id'].to_pylist())} instead of {sorted(turns)}"]
    chosen = [turns[number] for number in rows["id"].to_pylist()]
    return [text for of in types for text in _wrong_column(rows.column(of.name), of, chosen)]


def _wrong_column(have: pa.ChunkedArray, of: Type, turns: list[int]) -> Iterator[str]:
    values = [of.turn(turn) for turn in turns]
    want = column(of, values)
    if have.type != want.type:
        yield f"{of.name}: {have.type} instead of {want.type}"
        return
    same = pc.equal(keycode([have]), keycode([want])).to_pylist()
    for row, equal in enumerate(same):
        if not equal:
            yield f"{of.name}: {values[row].literal!r} is {have[row]!r} instead of {want[row]!r}"


def standing(lake: Lake, name: str) -> Counter[tuple[int, str, str]]:
    """Count what stands in `errors/` of a table: id of the row, column, raw text."""
    frame = errors_table.standing(lake.store, "errors/main", TableName("public", name))
    return Counter(
        (int(json.loads(key)["id"]), column, raw)
        for key, column, raw in frame.select("key", "column", "raw").rows()
    )


def errors(types: list[Type], turns: Turns) -> Counter[tuple[int, str, str]]:
    """Count what should stand in `errors/` of the table."""
    return Counter(
        (number, of.name, value.raw)
        for number, turn in turns.items()
        for of in types
        if (value := of.turn(turn)).raw is not None
    )


def _row(types: list[Type], turn: int) -> list[Value]:
    return [of.turn(turn) for of in types]


def _literal(value: Value) -> sql.Composable:
    return sql.Literal(value.literal)


def quoted(of: Type) -> str:
    """The name of the type's column."""
    return '"' + of.name.replace('"', '""') + '"'
