"""Filters and lists that are altered while rows cross them: what is in a mark is one part, wholly."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace_testing import validators
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.parts.comparing import differing
from tests.integration.pipeline.verifying import outcomes, verified

pytestmark = pytest.mark.server

ROUNDS = 5
PARTS = ("WHERE (n > 40)", "WHERE (n < 60)", "", "WHERE (n % 2 = 0)")
LISTS = ("(id, n)", "(id, n, s)", "(n, id) WHERE (n > 30)", "")


@contextmanager
def _writing(database: Database, seed: int) -> Iterator[None]:
    """Transactions of several statements each, which take rows in and out; some are rolled back."""
    stop = threading.Event()

    def write() -> None:
        dice = random.Random(seed)
        with database.connect(user="app") as connection:
            while not stop.is_set():
                connection.execute(b"BEGIN")
                for table in ("whole", "keyed", "sound"):
                    row, n = dice.randrange(200), dice.randrange(100)
                    connection.execute(f"UPDATE {table} SET n = {n} WHERE id = {row}".encode())
                    connection.execute(f"DELETE FROM {table} WHERE id = {(row + 7) % 200}".encode())
                    values = f"({(row + 7) % 200}, {n}, 'row {n}')"
                    connection.execute(f"INSERT INTO {table} VALUES {values}".encode())
                connection.execute(b"ROLLBACK" if dice.random() < 0.2 else b"COMMIT")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


@pytest.mark.parametrize("handoff", ["slot", pytest.param("chunks", marks=pytest.mark.full)])
def test_parts_that_are_altered_beside_writers_are_copied_anew_exactly(
    mirrors: Mirrors, seed: int, handoff: str
) -> None:
    database, dice = mirrors.database, random.Random(seed)
    for name in ("whole", "keyed", "sound"):
        key = "PRIMARY KEY (id, n)" if name == "keyed" else "PRIMARY KEY (id)"
        database.execute(
            f"CREATE TABLE {name} (id int, n int, s text, {key}); INSERT INTO {name}"
            " SELECT i, i % 100, 'first' FROM generate_series(0, 199) i",
            user="app",
        )
    database.execute("ALTER TABLE whole REPLICA IDENTITY FULL; CREATE SCHEMA oracle")
    database.execute("CREATE PUBLICATION p FOR TABLE whole, keyed, sound WHERE (id < 100)", user="app")
    mirrors.options = {"publication": "p", "handoff": handoff}
    part = listed = ""
    with _writing(database, seed):
        mirrors.once()
        for _ in range(ROUNDS):
            part, listed = dice.choice(PARTS), dice.choice(LISTS)
            database.execute(
                "ALTER PUBLICATION p DROP TABLE whole, keyed;"
                f" ALTER PUBLICATION p ADD TABLE whole {part}, keyed {listed}",
                user="app",
            )
            mirrors.once()
    mirrors.once()
    columns = listed.partition(" WHERE")[0].strip("()") or "*"
    database.execute(
        f"CREATE VIEW oracle.whole AS SELECT * FROM whole {part};"
        f" CREATE VIEW oracle.keyed AS SELECT {'id, n' if columns == 'n, id' else columns} FROM keyed"
        f" {'WHERE n > 30' if 'WHERE' in listed else ''};"
        " CREATE VIEW oracle.sound AS SELECT * FROM sound WHERE id < 100"
    )
    names = ["whole", "keyed", "sound"]
    assert differing(mirrors, names) == {}
    assert outcomes(verified(mirrors)) == {f"public.{name}": "equal" for name in sorted(names)}
    assert validators.definite(mirrors.lake, tables=["public.sound", "public.whole"]) == []
