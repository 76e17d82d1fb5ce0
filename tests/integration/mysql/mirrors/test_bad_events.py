"""Sound events that say what no server says: their tables stop, coded, and the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from headrace.core.errors import Definite
from headrace.pipeline.state.records import tables_of
from headrace.pipeline.state.table_state import State
from headrace_testing import validators
from headrace_testing.mysql import Database
from headrace_testing.mysql.event_faults import altered, with_body
from headrace_testing.proxy import Proxy
from tests.conformance.conftest import Mirror
from tests.conformance.sources import execute
from tests.integration.mysql.mirrors.judging import assert_exact, kinds

pytestmark = pytest.mark.server

TABLE_MAP = 19
ASKED = "SELECT argument FROM mysql.general_log WHERE CONVERT(argument USING utf8mb4) LIKE '%odd%'"
CODES = {
    "short_row": "MY_BAD_ROW",
    "no_column": "MY_BAD_TABLE_MAP",
    "odd_type": "MY_UNKNOWN_COLUMN_TYPE",
}


def _faults(chunks: Iterator[bytes], rows: int) -> Iterator[bytes]:
    """The first rows lack their last byte, the second map has no column, the third an unknown one."""
    first = altered(rows, 1, lambda event: [with_body(event, lambda body: body[:-1])])
    second = altered(
        TABLE_MAP, 2, lambda event: [with_body(event, lambda body: body.replace(LONE, b"\0\0\0"))]
    )
    third = altered(
        TABLE_MAP, 3, lambda event: [with_body(event, lambda body: body.replace(LONE, b"\1\xc8\0"))]
    )
    return third(second(first(chunks)))


LONE = b"\1\3\0"  # one column, of four bytes, without metadata


@kinds("mariadb")
def test_a_table_that_cannot_be_read_stops_alone(mirror: Mirror, database: Database) -> None:
    server, place = database.server, mirror.place
    for table in (*CODES, "sound"):
        execute(place, f"CREATE TABLE {table} (id int PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
    first = mirror.once().at().mark
    for table in (*CODES, "sound"):
        execute(place, f"INSERT INTO {table} VALUES (2)")
    with Proxy(server.host, server.port) as proxy:
        proxy.alter(lambda chunks: _faults(chunks, 23 if server.flavour.is_mariadb else 30))
        url = database.url(user="app", port=proxy.port, **{"ssl-mode": "DISABLED"})
        error = mirror.stops(url=url)
    assert isinstance(error, Definite)
    assert error.code in CODES.values()
    lake, sound = mirror.lake, str(place.table("sound"))
    assert set(lake.at().mark.versions) == {sound}
    assert validators.exact(lake, place.url, values=True) == []
    for table, code in CODES.items():
        name = str(place.table(table))
        assert lake.at(epoch=first.epoch).arrow(name).num_rows == 1
        with pytest.raises(Definite, match=code):
            lake.at().arrow(name)
    mirror.ask("resync", *CODES)
    execute(place, *(f"INSERT INTO {table} VALUES (3)" for table in (*CODES, "sound")))
    lake = mirror.once()
    assert len(lake.at().mark.versions) == 4
    assert_exact(lake, place.url)


@kinds("mysql")
def test_an_old_row_that_the_lake_does_not_have_stops_its_table(mirror: Mirror, database: Database) -> None:
    """History would remove a row that it never had. Writes past the log are noticed here as well."""
    place = mirror.place
    keyed = ("updated", "deleted", "moved", "twice", "sound")
    for table in keyed:
        execute(
            place,
            f"CREATE TABLE {table} (id int PRIMARY KEY, n int)",
            f"INSERT INTO {table} VALUES (1, 1), (2, 2)",
        )
    execute(place, "CREATE TABLE keyless (id int, n int)", "INSERT INTO keyless VALUES (1, 1), (2, 2)")
    first = mirror.once().at().mark
    with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        for table in (*keyed, "keyless"):
            if table != "sound":
                cursor.execute(f"UPDATE {table} SET n = 7 WHERE id = 1")
    execute(
        place,
        "UPDATE updated SET n = 8 WHERE id = 1",
        "DELETE FROM deleted WHERE id = 1",
        "UPDATE moved SET id = 3 WHERE id = 1",
        *("UPDATE twice SET n = n + 1 WHERE id = 1", "UPDATE twice SET n = 1 WHERE id = 1"),
        *("UPDATE sound SET n = n + 1, id = id + 5", "DELETE FROM sound WHERE id = 6"),
        "UPDATE keyless SET n = 8 WHERE id = 1",
    )
    error = mirror.stops()
    assert error.code in ("ROW_DIFFERS", "ROW_MISSING")
    lake = mirror.lake
    assert set(lake.at().mark.versions) == {str(place.table("sound"))}
    for table in (*keyed[:-1], "keyless"):
        name = str(place.table(table))
        assert lake.at(epoch=first.epoch).arrow(name).num_rows == 2
        with pytest.raises(Definite, match="ROW_MISSING" if table == "keyless" else "ROW_DIFFERS"):
            lake.at().arrow(name)
    mirror.ask("resync", *keyed[:-1], "keyless")
    lake = mirror.once()
    assert_exact(lake, place.url)
    assert validators.travelled(lake, tables=[str(place.table("sound"))]) == []


def _renamed(event: bytes) -> list[bytes]:
    return [with_body(event, lambda body: body.replace(b"number", b"letter"))]


def _misworded(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Every map names a column otherwise than the catalog does."""
    for number in range(1, 9):
        chunks = altered(TABLE_MAP, number, _renamed)(chunks)
    return chunks


@kinds("mysql")
def test_a_table_that_copies_do_not_help_is_copied_twice_and_then_left_alone(
    mirror: Mirror, database: Database
) -> None:
    place, server = mirror.place, database.server
    execute(
        place, "CREATE TABLE odd (number int PRIMARY KEY)", "CREATE TABLE sound (id int PRIMARY KEY, n int)"
    )
    mirror.once()
    found: list[tuple[State, int]] = []
    asked: list[list[tuple[object, ...]]] = []
    server.execute("SET GLOBAL log_output = 'TABLE'")
    with Proxy(server.host, server.port) as proxy:
        proxy.alter(_misworded)
        url = database.url(user="app", port=proxy.port, **{"ssl-mode": "DISABLED"})
        for number in range(4):
            execute(place, f"INSERT INTO odd VALUES ({number})", f"INSERT INTO sound VALUES ({number}, 1)")
            server.execute("SET GLOBAL general_log = ON")
            with suppress(Definite):
                mirror.once(url=url)
            server.execute("SET GLOBAL general_log = OFF")
            asked.append(server.execute(ASKED))
            server.execute("TRUNCATE mysql.general_log")
            record = tables_of(mirror.lake.catalog())[place.table("odd")]
            found.append((record.state, record.alteration.times if record.alteration else 0))
    assert found == [(State.LIVE, 1), (State.LIVE, 2), *[(State.STOPPED, 2)] * 2]
    assert [bool(statements) for statements in asked] == [True, True, True, False]
    assert set(mirror.lake.at().mark.versions) == {str(place.table("sound"))}
    error = mirror.stops()
    assert error.code == "TABLE_LAYOUT_UNKNOWN"
    assert "TABLE_COPIED_IN_VAIN" in str(error)
    mirror.ask("resync", "odd")  # a person says that it may be read now
    lake = mirror.once()
    assert set(lake.at().mark.versions) == {str(place.table("odd")), str(place.table("sound"))}
    assert_exact(lake, place.url)
