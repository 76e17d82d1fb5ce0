"""MariaDB 11.8: what it logs otherwise than 10.11 is mirrored exactly, or refused by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.core.errors import HeadraceError
from headrace.decode.mysql.collations import CHARSETS
from headrace.lake.read.lake import Lake
from headrace.pipeline.state.records import tables_of
from headrace_testing import validators
from headrace_testing.mysql import Database, Server, mariadb
from headrace_testing.mysql.flavours import MARIADB_11
from tests.conformance.conftest import Mirror
from tests.integration.mysql.mirrors.judging import assert_exact

pytestmark = [pytest.mark.server, pytest.mark.full]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with mariadb(flavour=MARIADB_11) as made:
        yield made


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    with server.database() as made:
        yield made


def _begun(lake: Lake) -> dict[str, int | None]:
    """The time from which on the lake has each table without a gap."""
    return {name.name: record.since for name, record in tables_of(lake.catalog()).items()}


def test_every_collation_of_the_server_is_known(server: Server) -> None:
    found = server.execute(
        "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"
    )
    assert {number: charset for number, charset in found if CHARSETS.get(number) != charset} == {}


def test_vectors_and_newer_collations_are_followed_without_a_copy(mirror: Mirror, database: Database) -> None:
    tables = {
        "vectors": (
            "id int PRIMARY KEY, v vector(3) NOT NULL, w vector(100)",
            "vec_fromtext('[1,2.5,-3]'), NULL",
        ),
        "keyless": ("id int, v vector(2)", "vec_fromtext('[0,1]')"),
        "mb4": ("id int PRIMARY KEY, s varchar(20) COLLATE utf8mb4_general1400_as_ci", "'é𝄞'"),
        "mb3": ("id int PRIMARY KEY, s text COLLATE utf8mb3_general1400_as_ci", "'é'"),
    }
    with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for name, (columns, values) in tables.items():
            cursor.execute(f"CREATE TABLE {name} ({columns})")
            cursor.execute(f"INSERT INTO {name} VALUES (1, {values}), (2, {values}), (3, {values})")
        before = _begun(mirror.once())
        for name, (_, values) in tables.items():
            cursor.execute(f"INSERT INTO {name} VALUES (4, {values})")
            cursor.execute(f"UPDATE {name} SET id = 5 WHERE id = 1")
            cursor.execute(f"DELETE FROM {name} WHERE id = 2")
    lake = mirror.once()
    assert _begun(lake) == before
    assert_exact(lake, database.url())
    assert validators.travelled(lake) == []


def test_tables_whose_generated_columns_are_in_no_image_are_refused_by_name(
    mirror: Mirror, database: Database
) -> None:
    with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE plain (id int PRIMARY KEY)")
        cursor.execute("CREATE TABLE made (id int PRIMARY KEY, v int AS (id + 1), s int AS (id * 2) STORED)")
    with pytest.raises(HeadraceError) as refused:
        mirror.once(tables=[f"{database.name}.made", f"{database.name}.plain"])
    assert "MY_GENERATED_UNLOGGED" in str(refused.value)
    assert set(mirror.once().at().mark.versions) == {str(mirror.place.table("plain"))}
