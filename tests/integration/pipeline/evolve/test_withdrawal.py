"""Tables that the application can't write because our publication names them leave it, whatever else goes on.

key dropped ─► UPDATE fails ─► out of the publication ─► UPDATE works        within seconds, though
                                                                             a request takes long
                                                                             others are held by somebody
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headrace.lake.format import requests, statusfile
from headrace.pipeline.maintain import maintenance
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.serving import serving

pytestmark = pytest.mark.server

TABLES = ("a", "b", "c")


@pytest.fixture
def mirrored(mirrors: Mirrors) -> Mirrors:
    for name in TABLES:
        mirrors.database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, n int); INSERT INTO {name} VALUES (1, 1)", user="app"
        )
    mirrors.once()
    return mirrors


def writes(database: Database, table: str) -> bool:
    """Tell whether the application's UPDATE works."""
    try:
        database.execute(f"UPDATE {table} SET n = n", user="app")
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return False
    return True


def warned(mirrors: Mirrors) -> Mapping[str, str]:
    """Read the warnings in the run's status."""
    status = statusfile.read(mirrors.lake.store, "main")
    return {} if status is None else status.record.warnings


def without_key(table: str) -> str:
    return f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey"


def retyped(table: str) -> str:
    """DDL after which the table is copied anew, and a row that has it looked at."""
    return f"ALTER TABLE {table} ALTER n TYPE text USING md5(n::text); INSERT INTO {table} VALUES (2, '2')"


def test_a_request_that_takes_long_keeps_none_in_and_no_ddl_waiting(
    mirrored: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands, over = threading.Event(), threading.Event()

    def stand(_ledger: object) -> None:
        stands.set()
        assert over.wait(20)

    monkeypatch.setattr(maintenance, "_await_durable", stand)
    with serving(mirrored) as served:
        request = requests.ask(mirrored.lake.store, "main", "maintain", {})
        served.until(stands.is_set, "maintenance")
        mirrored.database.execute(without_key("a"), user="app")
        mirrored.database.execute(retyped("b"), user="app")
        served.until(partial(writes, mirrored.database, "a"), "the application's UPDATE")
        served.until(partial(_has_text, mirrored, "b"), "the table as it is by now")
        assert requests.answer_to(mirrored.lake.store, "main", request) is None
        over.set()
        served.until(
            lambda: requests.answer_to(mirrored.lake.store, "main", request) is not None, "the answer"
        )
        answer = requests.answer_to(mirrored.lake.store, "main", request)
        assert answer is not None
        assert "error" not in answer


def _has_text(mirrors: Mirrors, table: str) -> bool:
    cut = mirrors.lake.at()
    return (
        f"public.{table}" in cut.marks["main"].versions
        and cut.arrow(table).schema.field("n").type == pa.string()
    )


@contextmanager
def held(database: Database, *altered: str) -> Iterator[psycopg.Connection[Any]]:
    """Run DDL in one transaction; somebody else has its tables from the moment that it commits."""
    tables = sorted({statement.split()[2] for statement in altered})
    with database.connect(user="app") as holder, database.connect(user="app") as author:
        author.autocommit = holder.autocommit = False
        for statement in altered:
            author.execute(statement.encode())
        lock = f"LOCK TABLE {', '.join(tables)} IN SHARE UPDATE EXCLUSIVE MODE".encode()
        waiting = threading.Thread(target=holder.execute, args=(lock,))
        waiting.start()
        waits = f"SELECT 1 FROM pg_locks WHERE NOT granted AND pid = {holder.info.backend_pid}"
        wait_for(lambda: bool(database.execute(waits)), "a waiter")
        author.commit()
        waiting.join()
        yield holder


def test_a_table_that_somebody_holds_keeps_no_other_in_or_out(mirrored: Mirrors) -> None:
    database = mirrored.database
    with serving(mirrored) as served, held(database, without_key("a")) as holder:
        database.execute(f"{without_key('b')}; {retyped('c')}", user="app")
        served.until(partial(writes, database, "b"), "its own UPDATE")
        assert not writes(database, "a")
        served.until(lambda: "WITHDRAWAL_WAITS" in warned(mirrored), "a warning")
        served.until(partial(_has_text, mirrored, "c"), "the table as it is by now")
        holder.rollback()
        served.until(partial(writes, database, "a"), "its UPDATE too")
        served.until(lambda: "WITHDRAWAL_WAITS" not in warned(mirrored), "no warning")
