"""A dump that is restored over a table while it is mirrored, by the server's own programs."""

from __future__ import annotations

import subprocess

import pytest

from headrace.core.errors import ShapeChanged
from headrace_testing import validators
from headrace_testing.mysql import Database
from tests.conformance.conftest import Mirror
from tests.conformance.sources import execute
from tests.integration.mysql.mirrors.judging import assert_exact, kinds

pytestmark = pytest.mark.server


def _dump(database: Database, table: str) -> bytes:
    """A dump of the table as a DBA takes it."""
    mariadb = database.server.flavour.is_mariadb
    words = database.server.tool("mariadb-dump" if mariadb else "mysqldump")
    options = [] if mariadb else ["--set-gtid-purged=OFF"]
    return _run(database, [*words, *_login(database), *options, database.name, table])


def _restore(database: Database, dump: bytes) -> None:
    words = database.server.tool("mariadb" if database.server.flavour.is_mariadb else "mysql")
    _run(database, [*words, *_login(database), database.name], dump)


def _login(database: Database) -> list[str]:
    return ["--no-defaults", "--user=root", f"--socket={database.server.socket}"]


def _run(database: Database, words: list[str], given: bytes = b"") -> bytes:
    return subprocess.run(words, input=given, capture_output=True, check=True).stdout


@kinds("mysql")
def test_a_dump_that_is_restored_over_a_table_stops_it_alone(mirror: Mirror, database: Database) -> None:
    """The log has DROP, CREATE and INSERT, which would look like the old rows and some more."""
    place = mirror.place
    for table in ("restored", "other"):
        rows = ", ".join(f"({i}, 'it''s')" for i in range(50))
        execute(
            place, f"CREATE TABLE {table} (id int PRIMARY KEY, s text)", f"INSERT INTO {table} VALUES {rows}"
        )
    first = mirror.once().at().mark
    dump = _dump(database, "restored")
    assert b"DROP TABLE IF EXISTS" in dump
    assert b"INSERT INTO" in dump
    execute(place, "UPDATE restored SET s = 'newer than the dump'", "DELETE FROM other WHERE id < 25")
    _restore(database, dump)
    execute(place, "INSERT INTO restored VALUES (50, 'later')", "INSERT INTO other VALUES (50, 'later')")
    error = mirror.stops(on_ddl="stop")
    restored, other = (str(place.table(name)) for name in ("restored", "other"))
    assert (type(error), error.code) == (ShapeChanged, "TABLE_ALTERED")
    assert f"headrace tables resync {restored}" in error.hint
    lake = mirror.lake
    assert set(lake.at().mark.versions) == {other}
    assert lake.at(epoch=first.epoch).arrow(restored).num_rows == 50
    assert validators.exact(lake, place.url, values=True) == []
    mirror.ask("resync", "restored")
    execute(place, "DELETE FROM restored WHERE id = 7", "UPDATE other SET s = 'last'")
    lake = mirror.once()
    assert set(lake.at().mark.versions) == {restored, other}
    assert_exact(lake, place.url)
