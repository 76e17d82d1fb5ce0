"""Every type both ways: through the snapshot and through the stream, told apart by nothing.

The rows of `tests/cases/types` come by the copy, then the same again by inserts; they are updated, and
they go. Three tables take part: one whose stream carries old keys, one whose stream carries whole old rows,
and one without a key, whose rows are there twice. Each time the lake must hold what the cases say, bit for
bit, and `errors/` exactly the texts that the lake's types cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace_testing import validators
from headrace_testing.oracle.postgres_rows import Connection
from headrace_testing.postgres import Database, Server
from tests.cases.types.cases import Type, types
from tests.integration.pipeline import everytype
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.everytype import Turns
from tests.integration.pipeline.reading import readings

pytestmark = pytest.mark.server

KEYED = ("by_key", "by_image")
BAG = "bag"
TYPES = types()
STEPS = max(len(each.values) for each in TYPES) + 1
COPIED = {number: number for number in range(STEPS)}
STREAMED = {100 + number: number for number in range(STEPS)}

# A session that prints values as nobody expects them, and what would hide rows or functions from it.
HOSTILE: Mapping[str, str] = {
    "DateStyle": "SQL, DMY",
    "TimeZone": "Asia/Kolkata",
    "IntervalStyle": "sql_standard",
    "extra_float_digits": "-5",
    "bytea_output": "escape",
    "search_path": '"Odd"',
    "lc_monetary": "C.utf8",
    "xmlbinary": "hex",
    "row_security": "on",
    "default_transaction_isolation": "serializable",
    "standard_conforming_strings": "off",
    "quote_all_identifiers": "on",
}


@pytest.mark.spark
@pytest.mark.parametrize(
    "hostile", [pytest.param(False, marks=pytest.mark.full), True], ids=["plain", "hostile"]
)
def test_every_type_is_the_same_by_copy_and_by_stream(
    mirrors: Mirrors, database: Database, spark: Any, hostile: bool
) -> None:
    """On Spark under hostile settings; in the full run once more in the driver, under ordinary ones."""
    mirrors.options["driver_epochs"] = 0 if hostile else 20_000
    _create(database, hostile=hostile)
    _insert(database, COPIED)
    mirrors.once()
    _holds(mirrors, COPIED)

    _insert(database, STREAMED)
    mirrors.once()
    _holds(mirrors, COPIED | STREAMED)
    _inserts_are_told(mirrors, STREAMED)
    for engine, rows in readings(mirrors.lake.at(), spark, "public.by_key").items():
        assert (engine, everytype.wrong(rows, TYPES, COPIED | STREAMED)) == (engine, [])

    before = mirrors.lake.marks()[-1].time
    turned = {number: turn + 1 for number, turn in (COPIED | STREAMED).items()}
    _update(database, turned)
    mirrors.once()
    _holds(mirrors, turned)
    _updates_are_told(mirrors, before, COPIED | STREAMED, turned)

    for name in (*KEYED, BAG):
        database.execute(f"DELETE FROM public.{name}")
    mirrors.once()
    _holds(mirrors, {})
    assert validators.consistent(mirrors.lake) == []


@pytest.mark.spark
@pytest.mark.full
def test_every_type_is_the_same_on_every_version(
    any_database: Database, tmp_path: Path, spark: Any, any_postgres: Server
) -> None:
    mirrors = Mirrors(any_database, tmp_path / "lake", spark)
    known = everytype.create_types(any_database)
    assert len(known) >= len(TYPES) - (0 if any_postgres.version.startswith("18") else 3)
    everytype.create(any_database, "t", known, key="id", full=False)
    for turns in (COPIED, STREAMED):
        with any_database.connect() as connection, connection.transaction():
            everytype.insert(connection, "t", known, turns)
        mirrors.once()
    rows = mirrors.lake.at().arrow("public.t")
    assert everytype.wrong(rows, known, COPIED | STREAMED) == []
    assert everytype.standing(mirrors.lake, "t") == everytype.errors(known, COPIED | STREAMED)


def _create(database: Database, *, hostile: bool) -> None:
    assert everytype.create_types(database) == TYPES
    everytype.create(database, "by_key", TYPES, key="id", full=False)
    everytype.create(database, "by_image", TYPES, key="id", full=True)
    everytype.create(database, BAG, TYPES, key=None, full=True)
    if hostile:
        for name, value in HOSTILE.items():
            # The writer pins its own settings; a role's in a database go with the database.
            shown = value if name == "search_path" else f"'{value}'"
            database.execute(f"ALTER DATABASE {database.name} SET {name} = {shown}")
            database.execute(f"ALTER ROLE app IN DATABASE {database.name} SET {name} = {shown}")


def _insert(database: Database, turns: Turns) -> None:
    with database.connect() as connection, connection.transaction():
        for name in (*KEYED, BAG, BAG):
            everytype.insert(connection, name, TYPES, turns)


def _update(database: Database, turns: Turns) -> None:
    with database.connect() as connection, connection.transaction():
        for name in (*KEYED, BAG):
            everytype.update(connection, name, TYPES, turns)


def _holds(mirrors: Mirrors, turns: Turns) -> None:
    """The newest mark has exactly these rows, and `errors/` what they cannot hold."""
    lake = mirrors.lake
    cut = lake.at()
    for name in KEYED:
        assert everytype.wrong(cut.arrow(f"public.{name}"), TYPES, turns) == []
    twice = cut.arrow(f"public.{BAG}")
    assert twice.num_rows == 2 * len(turns)
    for copy in _copies(twice):
        assert everytype.wrong(copy, TYPES, turns) == []
    for name in (*KEYED, BAG):
        assert everytype.standing(lake, name) == everytype.errors(TYPES, turns)
    assert validators.exact(lake, mirrors.database.url()) == []


def _copies(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows of a table in which each is there twice, once and once more."""
    ordered = rows.sort_by("id")
    even, odd = (pa.array(range(first, rows.num_rows, 2), pa.int64()) for first in (0, 1))
    return ordered.take(even), ordered.take(odd)


def _inserts_are_told(mirrors: Mirrors, turns: Turns) -> None:
    for name in KEYED:
        told = mirrors.lake.history(f"public.{name}")
        assert set(told["_diff"].to_pylist()) == {1}
        assert everytype.wrong(told, TYPES, turns) == []


def _updates_are_told(mirrors: Mirrors, after: int, before: Turns, turned: Turns) -> None:
    """History after a time has each row as it was and as it became."""
    for name in KEYED:
        told = mirrors.lake.history(f"public.{name}")
        told = told.filter(pc.greater(told["_time"], after))
        for diff, turns in ((-1, before), (1, turned)):
            side = told.filter(pc.equal(told["_diff"], diff))
            assert everytype.wrong(side, TYPES, turns) == []


# Types without an order that an index could be made of, and one that takes no value on this server.
UNORDERED = frozenset(
    """json xml json[] box box[] circle line lseg path polygon point jsonpath pg_snapshot xid
    vector(3) halfvec sparsevec""".split()
)
IN_ONE_KEY = 24  # an index has 32 columns at most


def test_a_key_may_be_of_any_type_that_has_an_order(mirrors: Mirrors, database: Database) -> None:
    """Rows come by copy and by stream, move from key to key, and go by their keys."""
    everytype.create_types(database)
    ordered = [each.of_key() for each in TYPES if each.name not in UNORDERED]
    groups = [ordered[start : start + IN_ONE_KEY] for start in range(0, len(ordered), IN_ONE_KEY)]
    for number, group in enumerate(groups):
        key = ", ".join([*map(everytype.quoted, reversed(group)), "id"])
        everytype.create(database, f"keyed_{number}", group, key=key, full=False)
    turns = {number: number for number in range(4)}
    _write(database, everytype.insert, groups, turns)
    _keys_hold(mirrors, groups, turns)
    more = {10 + number: number for number in range(4)}
    _write(database, everytype.insert, groups, more)
    turned = {number: turn + 1 for number, turn in (turns | more).items()}
    _write(database, everytype.update, groups, turned)
    _keys_hold(mirrors, groups, turned)
    for number in range(len(groups)):
        database.execute(f"DELETE FROM keyed_{number}")
    _keys_hold(mirrors, groups, {})


def _write(
    database: Database,
    how: Callable[[Connection, str, list[Type], Turns], None],
    groups: list[list[Type]],
    turns: Turns,
) -> None:
    with database.connect() as connection, connection.transaction():
        for number, group in enumerate(groups):
            how(connection, f"keyed_{number}", group, turns)


def _keys_hold(mirrors: Mirrors, groups: list[list[Type]], turns: Turns) -> None:
    cut = mirrors.once().at()
    for number, group in enumerate(groups):
        assert everytype.wrong(cut.arrow(f"public.keyed_{number}"), group, turns) == []


# Values that lie out of line, so that an update that leaves them alone does not send them.
LONG = {
    "text": "repeat('é', 6000)",
    "json": "to_json(array(SELECT g FROM generate_series(1, 3000) g))",
    "jsonb": "to_jsonb(array(SELECT g FROM generate_series(1, 3000) g))",
    "bytea": "decode(repeat('00ff5c0a', 3000), 'hex')",
    "numeric": "repeat('123456789', 1500)::numeric",
    "bit varying": "repeat('10', 20000)::varbit",
    "tsvector": "(SELECT string_agg(md5(g::text), ' ')::tsvector FROM generate_series(1, 300) g)",
    "int4multirange": "(SELECT range_agg(int4range(g * 2, g * 2 + 1)) FROM generate_series(1, 2000) g)",
    "integer[]": "array(SELECT g FROM generate_series(1, 3000) g)",
    "numeric(8,2)[]": "array(SELECT g::numeric(8,2) FROM generate_series(1, 3000) g)",
    "text[]": "array(SELECT md5(g::text) FROM generate_series(1, 300) g)",
    "bytea[]": "array(SELECT decode(md5(g::text), 'hex') FROM generate_series(1, 300) g)",
    "date[]": "array(SELECT '2000-01-01'::date + g FROM generate_series(1, 3000) g)",
    "timestamp with time zone[]": "array(SELECT to_timestamp(g) FROM generate_series(1, 3000) g)",
    "uuid[]": "array(SELECT md5(g::text)::uuid FROM generate_series(1, 300) g)",
    "json[]": "array(SELECT to_json(g) FROM generate_series(1, 3000) g)",
}


def test_an_unchanged_long_value_of_any_type_is_kept(mirrors: Mirrors, database: Database) -> None:
    names = ("by_key", "by_image")
    for name in names:
        _create_long(database, name, full=name == "by_image")
        _insert_long(database, name, 1, 6)
    _is_exact(mirrors)
    for name in names:
        _insert_long(database, name, 7, 9)
        database.execute(f"UPDATE {name} SET n = n + 1")
        database.execute(f"UPDATE {name} SET id = id + 10 WHERE id IN (2, 3, 8)")
        database.execute(f"UPDATE {name} SET n = n + 1 WHERE id IN (12, 18)")
    _is_exact(mirrors)
    for name in names:
        some = ", ".join(f'"{of}" = {value}' for of, value in list(LONG.items())[::2])
        none = ", ".join(f'"{of}" = NULL' for of in list(LONG)[1::2])
        database.execute(f"UPDATE {name} SET {none} WHERE id = 1")
        database.execute(f"UPDATE {name} SET id = 20, {none} WHERE id = 4")
        database.execute(f"UPDATE {name} SET {some} WHERE id = 12")
        database.execute(f"DELETE FROM {name} WHERE id IN (9, 13)")
    _is_exact(mirrors)


def _create_long(database: Database, name: str, *, full: bool) -> None:
    columns = ", ".join(f'"{of}" {of}' for of in LONG)
    database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int, {columns})", user="app")
    for of in LONG:
        # Not even compressed: the length alone decides.
        database.execute(f'ALTER TABLE {name} ALTER "{of}" SET STORAGE EXTERNAL')
    if full:
        database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")


def _insert_long(database: Database, name: str, first: int, last: int) -> None:
    values = ", ".join(LONG.values())
    database.execute(f"INSERT INTO {name} SELECT i, 0, {values} FROM generate_series({first}, {last}) i")


def _is_exact(mirrors: Mirrors) -> None:
    lake = mirrors.once()
    assert validators.exact(lake, mirrors.database.url()) == []
    assert validators.definite(lake) == []
