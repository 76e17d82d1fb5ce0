"""Every type both ways: through the snapshot and through the stream, told apart by nothing.

The rows of `tests/cases/types` come by the copy, then the same again by inserts; they are updated, and
they go. Three tables take part: one whose stream carries old keys, one whose stream carries whole old rows,
and one without a key, whose rows are there twice. Each time the lake must hold what the cases say, bit for
bit, and `errors/` exactly the texts that the lake's types cannot hold.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.testing import validators
from headrace.testing.postgres import Database
from tests.cases.types.cases import types
from tests.integration.pipeline import everytype
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.everytype import Turns

pytestmark = [pytest.mark.spark, pytest.mark.server]

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
    "row_security": "off",
    "default_transaction_isolation": "serializable",
    "standard_conforming_strings": "off",
    "quote_all_identifiers": "on",
}


@pytest.mark.parametrize("hostile", [False, True], ids=["plain", "hostile"])
def test_every_type_is_the_same_by_copy_and_by_stream(
    mirrors: Mirrors, database: Database, hostile: bool
) -> None:
    """Once in the driver under ordinary settings, once on Spark under hostile ones."""
    mirrors.options["driver_epochs"] = 0 if hostile else 20_000
    _create(database, hostile=hostile)
    _insert(database, COPIED)
    mirrors.once()
    _holds(mirrors, COPIED)

    _insert(database, STREAMED)
    mirrors.once()
    _holds(mirrors, COPIED | STREAMED)
    _inserts_are_told(mirrors, STREAMED)

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
    assert validators.definite(mirrors.lake) == []


def _create(database: Database, *, hostile: bool) -> None:
    everytype.create_types(database)
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
