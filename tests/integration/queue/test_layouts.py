"""DDL beside writers: no write fails, no row stands under a layout that a look did not see with its tick.

Writers keep their sessions, and with them plans that are older than each DDL. After each look the rows of all
ticks up to it are held against the layout that it saw.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import psycopg
import pytest

from headrace.core.names import TableName
from headrace.sources.contract.values import TableDef
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.queue import capture, readers, tick
from headrace.sources.queue.batch import TickBatch
from headrace.sources.queue.catalog.definitions import LookMemory
from headrace.sources.queue.ddl import column_times, following
from headrace.sources.queue.ddl.schema_check import check
from headrace.sources.queue.decode import layouts
from headrace.sources.queue.position import TickPlace
from headrace_testing.postgres import Database, Server
from tests.integration.queue.capturing import EVENTS, LAKE, Capturing, capturing, executed

pytestmark = pytest.mark.server

T = TableName("public", "t")
TABLE = "CREATE TABLE t (id serial PRIMARY KEY, a int DEFAULT 1, b text DEFAULT 'b')"


@pytest.fixture
def queue(database: Database) -> Iterator[Capturing]:
    executed(database, [TABLE])
    with capturing(database) as opened:
        opened.capture("t")
        first = tick.take(opened.session, LAKE.objects)
        readers.register(opened.session, LAKE, first)
        yield opened


def defined(queue: Capturing) -> TableDef:
    """The table as the lake records it."""
    found = capture.define(queue.session, LAKE, capture.examine(queue.session, LAKE, [T]).fit_defs).defs[T]
    return replace(found, details=json.loads(json.dumps(found.details)))


DDL = {
    "added": (["ALTER TABLE t ADD c int"], 'column "c" was added'),
    "dropped": (["ALTER TABLE t DROP b"], 'column "b" was dropped'),
    "renamed": (["ALTER TABLE t RENAME b TO c"], 'column "b" was renamed to "c"'),
    "another type": (["ALTER TABLE t ALTER a TYPE bigint"], "the type of column"),
    "there and back": (
        ["ALTER TABLE t ALTER b TYPE text USING 'x'"],
        "it was rewritten",
    ),
    "table renamed": (["ALTER TABLE t RENAME TO u"], "the table was renamed to public.u"),
    "made anew": (["DROP TABLE t", "CREATE TABLE t (id int)"], "it was dropped"),
    "key": (["ALTER TABLE t DROP CONSTRAINT t_pkey"], "its replica identity changed"),
    "trigger disabled": (
        ["ALTER TABLE t DISABLE TRIGGER headrace_main_insert"],
        'trigger "headrace_main_insert" is disabled',
    ),
    "disabled and enabled": (
        ["ALTER TABLE t DISABLE TRIGGER ALL", "ALTER TABLE t ENABLE TRIGGER ALL"],
        "its triggers, the function that they call, or who else writes it was altered",
    ),
    "inherits for a moment": (
        [
            "CREATE TABLE p (id int NOT NULL, a int, b text)",
            "ALTER TABLE t INHERIT p",
            "UPDATE p SET a = 7",
            "ALTER TABLE t NO INHERIT p",
        ],
        "its place in a partition tree changed",
    ),
    "is inherited from for a moment": (
        ["CREATE TABLE c () INHERITS (t)", "DROP TABLE c"],
        "its publication, row filter or column list changed, or what makes it a member of it",
    ),
    "function": (["DROP FUNCTION headrace.capture_main CASCADE"], "the function"),
}


def test_a_table_that_others_write_without_its_triggers_is_stopped(
    database: Database, queue: Capturing
) -> None:
    """It was fit when it was chosen. One that had children long ago is told as well as others."""
    executed(database, ["CREATE TABLE c () INHERITS (t)", "DROP TABLE c"])
    known = {"t": defined(queue)}
    for made, gone, code in (
        ("CREATE TABLE c () INHERITS (t)", "DROP TABLE c", "QUEUE_INHERITED"),
        ("CREATE TABLE p (a int); ALTER TABLE t INHERIT p", "ALTER TABLE t NO INHERIT p", "QUEUE_INHERITED"),
        (
            "CREATE SUBSCRIPTION s CONNECTION 'dbname=x' PUBLICATION p"
            " WITH (connect = false, slot_name = NONE);"
            "INSERT INTO pg_subscription_rel SELECT s.oid, 't'::regclass, 'r', NULL FROM pg_subscription s",
            "DELETE FROM pg_subscription_rel; DROP SUBSCRIPTION s",
            "QUEUE_SUBSCRIBED",
        ),
    ):
        tables = capture.examine(queue.session, LAKE, [T]).fit_defs
        assert check(queue.session, LAKE, known).changes == {}
        database.execute(made)
        assert "t" in check(queue.session, LAKE, known).changes, made
        assert capture.define(queue.session, LAKE, tables).errors[T].code == code
        database.execute(gone)
        known = {"t": defined(queue)}


def test_a_look_sees_ddl_with_the_first_tick_that_could_show_its_rows(
    database: Database, queue: Capturing
) -> None:
    memory = LookMemory()
    for name, (statements, what) in DDL.items():
        executed(database, [f"DROP TABLE IF EXISTS t, u; {TABLE}"])
        queue.capture("t")
        tick.take(queue.session, LAKE.objects)
        known = {"t": defined(queue)}
        looked = check(queue.session, LAKE, known, memory)
        assert (looked.changes, looked.locked_tables, looked.news, looked.upstream_error) == (
            {},
            frozenset(),
            {},
            None,
        ), name
        with database.connect(user="app") as connection:
            with connection.transaction():
                for statement in statements:
                    connection.execute(statement.encode())
                tick.take(queue.session, LAKE.objects)
                # Nobody sees it yet, and no row of it.
                assert check(queue.session, LAKE, known, memory).changes == {}, name
            tick.take(queue.session, LAKE.objects)
            assert check(queue.session, LAKE, known, memory).changes["t"].what.startswith(what), name


def test_a_look_at_a_quiet_source_tells_later_rows_from_those_before(
    database: Database, queue: Capturing
) -> None:
    """It takes a tick that shows the DDL; a row of the other layout in that one is a reason to copy."""
    for rows, followed in (([], True), (["INSERT INTO t DEFAULT VALUES"], False)):
        executed(database, [f"DROP TABLE t; {TABLE}"])
        queue.capture("t")
        tick.take(queue.session, LAKE.objects)
        known = {"t": defined(queue)}
        executed(database, [*rows, "ALTER TABLE t DROP b, ADD c int"])
        change = check(queue.session, LAKE, known).changes["t"]
        assert (change.derivation is not None) == followed
        if followed:
            assert change.now is not None
            executed(database, ["INSERT INTO t DEFAULT VALUES"])
            time = LAKE.log.time(tick.take(queue.session, LAKE.objects).number)
            found = layouts.from_details(change.now.details)
            [place] = found.of_rows(np.array([3], np.int32), np.array([time]))
            assert found.layouts[place] is found.layouts[-1]


def test_a_row_too_long_to_be_asked_counts_as_one_of_either_layout(
    queue: Capturing, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes no expression to 256 MB, and a look that failed would stop all tables."""
    before = tick.take(queue.session, LAKE.objects)
    executed(database, ["INSERT INTO t (b) VALUES ('a,\"b')"])
    ticked = tick.take(queue.session, LAKE.objects)
    batch = TickBatch.between(before.snapshot, ticked.snapshot)
    number = defined(queue).number

    def written() -> list[bool]:
        return [
            column_times.has_rows_of(queue.session, LAKE.objects, batch, number, count) for count in (2, 3, 4)
        ]

    assert written() == [False, True, False]
    monkeypatch.setattr(column_times, "_LONG", 5)
    assert written() == [True, True, True]


def test_maintenance_is_no_change(database: Database, queue: Capturing) -> None:
    known = {"t": defined(queue)}
    executed(
        database,
        [
            "INSERT INTO t DEFAULT VALUES",
            "TRUNCATE t",
            "VACUUM FULL t",
            "ANALYZE t",
            "REINDEX TABLE t",
            "CLUSTER t USING t_pkey",
            "GRANT SELECT ON t TO public",
            "CREATE INDEX ON t (a)",
            "ALTER TABLE t ADD CHECK (a > 0)",
            "ALTER TABLE t REPLICA IDENTITY FULL",
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "CREATE TRIGGER zz AFTER INSERT ON t EXECUTE FUNCTION f()",
            "ALTER TABLE t DISABLE TRIGGER zz",
        ],
    )
    assert check(queue.session, LAKE, known).changes == {}


def test_a_queue_that_is_another_one_is_told(database: Database, queue: Capturing) -> None:
    known = {"t": defined(queue)}
    executed(database, ["DROP TABLE headrace.event_main_1"])
    found = check(queue.session, LAKE, known).upstream_error
    assert found is not None
    assert found.code == "QUEUE_REMADE"
    executed(database, ["DROP SCHEMA headrace CASCADE"])
    found = check(queue.session, LAKE, known).upstream_error
    assert found is not None
    assert found.detail is not None
    assert found.detail.startswith("it is gone")


# --- writers beside it ----------------------------------------------------------------------------

STATEMENTS = (
    "INSERT INTO t DEFAULT VALUES",
    "INSERT INTO t SELECT FROM generate_series(1, 5)",
    "UPDATE t SET id = id + 1000000 WHERE id = (SELECT max(id) FROM t WHERE id < 1000000)",
    "DELETE FROM t WHERE id = (SELECT min(id) FROM t)",
)
ALTERATIONS = (
    "ALTER TABLE t ADD c{n} int DEFAULT {n}",
    "ALTER TABLE t ADD c{n} text DEFAULT gen_random_uuid()::text",
    "ALTER TABLE t DROP {column}",
    "ALTER TABLE t RENAME {column} TO c{n}",
    "ALTER TABLE t ALTER {column} TYPE text",
    "ALTER TABLE t ALTER {column} DROP DEFAULT",
    "ALTER TABLE t ADD g{n} int GENERATED ALWAYS AS (id / 2) STORED",
    "ALTER TABLE t SET (fillfactor = 90)",
    "VACUUM FULL t",
)


@dataclass
class Writer:
    """A session that writes all the time, by statements that name no column but the key."""

    database: Database
    failures: list[str] = field(default_factory=list)
    count: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def write(self) -> None:
        with self.database.connect(user="app") as connection:
            connection.prepare_threshold = 1  # its plans outlive DDL
            while not self.over.is_set():
                self._step(connection)

    def _step(self, connection: psycopg.Connection[Any]) -> None:
        try:
            with connection.transaction():
                for statement in random.sample(STATEMENTS, 2):
                    connection.execute(statement.encode(), prepare=True)
        except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
            return
        except psycopg.Error as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            return
        self.count += 1


def test_no_write_fails_and_no_row_stands_under_another_layout(database: Database, queue: Capturing) -> None:
    seed = random.randrange(1 << 30)
    rolls = random.Random(seed)
    writers = [Writer(database) for _ in range(3)]
    threads = [threading.Thread(target=writer.write) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        with closing(connect(PostgresAddress.parse(database.url(user="app")), role="test")) as session:
            known, memory, changed = {"t": defined(queue)}, LookMemory(), 0
            reached = tick.newest(session, LAKE.objects).tick
            assert reached is not None
            for number in range(25):
                _alter(database, rolls, number)
                for _ in range(2):
                    tick.take(session, LAKE.objects)
                    looked = check(session, LAKE, known, memory)
                    ahead = TickPlace.parse(looked.end.text).tick
                    if not looked.changes:
                        rows = _rows_between(session, reached.number, ahead)
                        assert _widths(rows) <= {len(known["t"].details["attributes"])}, seed
                    else:
                        changed += 1
                        now = looked.changes["t"].now
                        assert now is not None, seed
                        known = {"t": now}
                    found = tick.find(session, LAKE.objects, ahead)
                    assert found is not None
                    reached = found
    finally:
        for writer in writers:
            writer.over.set()
        for thread in threads:
            thread.join()
    assert [failure for writer in writers for failure in writer.failures] == [], seed
    assert all(writer.count for writer in writers), seed
    assert changed > 5, seed


def _alter(database: Database, rolls: random.Random, number: int) -> None:
    rows = database.execute(
        "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 1"
        " AND NOT attisdropped AND attgenerated = ''"
    )
    columns = [name for (name,) in rows] or ["none"]
    statement = rolls.choice(ALTERATIONS if len(columns) > 1 else ALTERATIONS[:2])
    executed(database, [statement.format(n=number, column=rolls.choice(columns))])


def _rows_between(session: psycopg.Connection[Any], low: int, high: int) -> list[str]:
    """The rows of the ticks from behind `low` up to `high`."""
    rows = session.execute(
        f"SELECT e.row FROM ({EVENTS}) e, headrace.tick a, headrace.tick b"
        " WHERE a.tick = %(low)s AND b.tick = %(high)s AND e.diff IN (1, -1)"
        " AND pg_visible_in_snapshot(e.tx::text::xid8, b.snapshot)"
        " AND NOT pg_visible_in_snapshot(e.tx::text::xid8, a.snapshot)".encode(),
        {"low": low, "high": high},
    )
    return [row for (row,) in rows.fetchall()]


def _widths(rows: list[str]) -> set[int]:
    """Count the fields of the rows; no value here holds a comma."""
    return {row.count(",") + 1 for row in rows}


def test_a_layout_that_is_rolled_back_leaves_no_row(database: Database, queue: Capturing) -> None:
    known: Mapping[str, TableDef] = {"t": defined(queue)}
    with database.connect(user="app") as connection:
        connection.execute("INSERT INTO t DEFAULT VALUES")
        with connection.transaction():
            with connection.transaction() as inner:
                connection.execute("ALTER TABLE t ADD c int DEFAULT 7")
                connection.execute("INSERT INTO t DEFAULT VALUES")
                raise psycopg.Rollback(inner)
            connection.execute("INSERT INTO t DEFAULT VALUES")
    tick.take(queue.session, LAKE.objects)
    assert check(queue.session, LAKE, known).changes == {}
    assert [row for _, _, row in queue.events("t")] == ["(1,1,b)", "(3,1,b)"]


def test_a_statement_before_ddl_and_one_behind_it_in_one_transaction_have_a_layout_each(
    database: Database, queue: Capturing
) -> None:
    """One tick holds both layouts; it is behind the last mark, because the look sees the DDL with it."""
    known = {"t": defined(queue)}
    executed(
        database,
        [
            "BEGIN",
            "INSERT INTO t DEFAULT VALUES",
            "ALTER TABLE t DROP a, ADD c int DEFAULT 7",
            "INSERT INTO t DEFAULT VALUES",
            "UPDATE t SET id = -id",
            "COMMIT",
        ],
    )
    rows = [row for _, _, row in queue.events("t")]
    assert rows == ["(1,1,b)", "(2,b,7)", "(1,b,7)", "(2,b,7)", "(-1,b,7)", "(-2,b,7)"]
    tick.take(queue.session, LAKE.objects)
    assert "t" in check(queue.session, LAKE, known).changes


# --- types ----------------------------------------------------------------------------------------

ALIKE = {(25, 1042), (25, 1043), (1043, 25), (1043, 1042), (1560, 1562), (1562, 1560), (194, 25)}
TOLD_BY_TEXTS = {17, 23}


def test_every_type_that_is_altered_in_place_is_known(queue_server: Server) -> None:
    with queue_server.database() as database:
        casts = database.execute(
            "SELECT castsource::int8, casttarget::int8 FROM pg_cast WHERE castmethod = 'b'"
        )
    known = following.BY_NAME | following.OTHERWISE | TOLD_BY_TEXTS
    assert [pair for pair in casts if pair[1] not in known and pair not in ALIKE] == []
    # Who was known by its name may have been altered to and fro; others not, or both ways print alike.
    cycles = {pair for pair in casts if pair[::-1] in casts and pair not in ALIKE}
    assert {target for _, target in cycles} <= following.BY_NAME | TOLD_BY_TEXTS
