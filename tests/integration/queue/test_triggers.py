"""Triggers write exactly what statements did to the table: each row, as our own sessions print it.

The oracle is the table itself: the events since the table was empty add up to its contents, whatever the
statements were. For values of every type the oracle is a copy of the same rows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psycopg
import pytest

from headrace.decode import copyrows
from headrace.decode.queue import composite
from headrace.decode.text import TEXT, TextColumn
from headrace.sources.queue.creation import read_queue
from headrace_testing.postgres import Database
from tests.integration.pipeline import everytype
from tests.integration.queue.capturing import EVENTS, LAKE, Capturing, capturing, executed

pytestmark = pytest.mark.server

# A session that prints values as nobody expects them, and reads statements otherwise.
HOSTILE = {
    "DateStyle": "German, DMY",
    "TimeZone": "Asia/Kolkata",
    "IntervalStyle": "sql_standard",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "lc_monetary": "C.utf8",
    "xmlbinary": "hex",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "transform_null_equals": "on",
    "plpgsql.variable_conflict": "use_column",
    "plpgsql.extra_errors": "all",
    "default_transaction_isolation": "serializable",
    "statement_timeout": "20s",
    "session_replication_role": "replica",
}


@pytest.fixture
def queue(database: Database) -> Iterator[Capturing]:
    with capturing(database) as opened:
        yield opened


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_every_type_is_the_same_by_copy_and_by_trigger(database: Database, isolation: str) -> None:
    _types_agree(database, isolation)


@pytest.mark.full
def test_every_version_captures_types_and_statements_alike(any_database: Database) -> None:
    _types_agree(any_database, "read committed")
    any_database.execute("DROP SCHEMA headrace CASCADE")
    with capturing(any_database) as queue:
        _statements_agree(any_database, queue)


def _types_agree(database: Database, isolation: str) -> None:
    known = everytype.create_types(database)
    turns = {number: number for number in range(max(len(each.values) for each in known) + 1)}
    everytype.create(database, "plain", known, key=None, full=False)
    everytype.create(database, "t", known, key="id", full=False)
    with database.connect() as connection, connection.transaction():
        everytype.insert(connection, "plain", known, turns)
    with capturing(database, "postgres") as queue:
        queue.capture("t")
        with database.connect() as connection:
            for name, value in HOSTILE.items():
                connection.execute("SELECT set_config(%s, %s, false)", [name, value])
            connection.execute('SET search_path = "Odd", pg_temp')
            connection.execute("SELECT set_config('default_transaction_isolation', %s, false)", [isolation])
            connection.execute("INSERT INTO public.t SELECT * FROM public.plain")
            connection.execute("UPDATE public.t SET id = -id - 1")
            [(shown,)] = connection.execute("SELECT now()::text").fetchall()
            assert "IST" in shown, "the session prints as it was told"
        # The old rows of the update are those of the copy, the new ones those of the table by now.
        width = len(known) + 1
        for table, order, diff, sign in (("plain", "id", -1, "[0-9]"), ("t", "id DESC", 1, "-")):
            copied = _copied(queue, f"SELECT * FROM public.{table} ORDER BY {order}", width)
            assert len(copied[0]) == len(turns)
            chosen = f"SELECT row FROM ({EVENTS}) e WHERE diff = {diff} AND row ~ '^.{sign}'"
            assert _captured(queue, chosen, width) == copied
        queue.agree("t")


def _copied(queue: Capturing, query: str, ncols: int) -> list[list[bytes | None]]:
    with queue.session.cursor().copy(f"COPY ({query}) TO STDOUT".encode()) as rows:
        data = b"".join(bytes(part) for part in rows)
    return [_values(column) for column in copyrows.text_columns(np.frombuffer(data, np.uint8), ncols)]


def _captured(queue: Capturing, query: str, ncols: int) -> list[list[bytes | None]]:
    rows = [row.encode() for (row,) in queue.session.execute(f"{query} ORDER BY id".encode()).fetchall()]
    columns = composite.columns(TextColumn.of(rows), ncols)
    order = np.argsort([abs(int(value or b"0")) for value in _values(columns[0])], kind="stable")
    return [_values(column.take(order)) for column in columns]


def _values(column: TextColumn) -> list[bytes | None]:
    return [
        column.data[start : start + length].tobytes() if kind == TEXT else None
        for kind, start, length in zip(column.kinds, column.starts, column.lengths, strict=True)
    ]


# --- statements -----------------------------------------------------------------------------------

PARENT_AND_CHILD = """
CREATE TABLE parent (id int PRIMARY KEY, v text, w int UNIQUE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE tail (c int REFERENCES child ON DELETE SET NULL ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED);
"""

STATEMENTS = {
    "key updates": ["UPDATE parent SET id = id + 1000"],
    "a swap within one statement": [
        "UPDATE parent SET w = CASE w WHEN 1 THEN 2 ELSE 1 END WHERE w IN (1, 2)"
    ],
    "no row": ["UPDATE parent SET v = 'x' WHERE false", "DELETE FROM child WHERE false"],
    "a cascade": ["DELETE FROM parent WHERE id % 3 = 0", "UPDATE parent SET id = -id"],
    "on conflict": [
        "INSERT INTO parent SELECT n, 'again', n FROM generate_series(1, 40) n"
        " ON CONFLICT (id) DO UPDATE SET v = 'met', id = -parent.id"
    ],
    "merge": [
        "MERGE INTO parent p USING generate_series(10, 60) n ON p.id = n"
        " WHEN MATCHED AND n % 3 = 0 THEN DELETE WHEN MATCHED AND n % 3 = 1 THEN UPDATE SET id = -n, v = 'm'"
        " WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN INSERT VALUES (n, 'new', n + 500)"
    ],
    "statements within one": [
        "WITH gone AS (DELETE FROM child WHERE id < 10 RETURNING *), more AS"
        " (INSERT INTO parent SELECT id + 7000, 'w', id + 7000 FROM gone RETURNING id)"
        " UPDATE parent SET v = 'with' WHERE id < 5"
    ],
    "copy": ["COPY parent (id, w) FROM PROGRAM 'printf \"7001,7001\\n7002,\\n\"' (FORMAT csv)"],
    "truncate": ["TRUNCATE parent CASCADE", "INSERT INTO parent VALUES (1, 'behind', 1)"],
    "truncate within": [
        "BEGIN",
        "DELETE FROM tail WHERE c = 7",
        "TRUNCATE tail",
        "INSERT INTO tail VALUES (NULL), (NULL)",
        "COMMIT",
    ],
    "savepoints": [
        "BEGIN",
        "INSERT INTO parent VALUES (8000, 'stays', 8000)",
        "SAVEPOINT s",
        "DELETE FROM parent WHERE id < 20",
        "TRUNCATE tail",
        "ROLLBACK TO s",
        "UPDATE parent SET v = 'kept' WHERE id = 8000",
        "COMMIT",
    ],
    "what is deferred": [
        "BEGIN",
        "UPDATE parent SET w = w + 1",
        "UPDATE tail SET c = 1 WHERE c = 2",
        "SET CONSTRAINTS ALL IMMEDIATE",
        "DELETE FROM parent WHERE id = 1",
        "COMMIT",
    ],
    "a rollback": ["BEGIN", "DELETE FROM parent", "TRUNCATE tail", "ROLLBACK"],
    "prepared": ["BEGIN", "DELETE FROM child WHERE id < 9", "PREPARE TRANSACTION 'p'", "COMMIT PREPARED 'p'"],
    "a repeatable read": [
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "SELECT count(*) FROM parent",
        "DELETE FROM child WHERE id < 9",
        "COMMIT",
    ],
    "the replica role": [
        "SET session_replication_role = replica",
        "UPDATE parent SET v = 'replica'",
        "COPY child (id) FROM PROGRAM 'echo 9001'",
        "RESET session_replication_role",
    ],
    "an identity of nothing": ["ALTER TABLE child REPLICA IDENTITY NOTHING", "UPDATE child SET id = -id"],
}


def test_events_make_the_tables_whatever_the_statements(database: Database, queue: Capturing) -> None:
    _statements_agree(database, queue)


def _statements_agree(database: Database, queue: Capturing) -> None:
    tables = ("parent", "child", "tail")
    for name, statements in STATEMENTS.items():
        executed(database, [f"DROP TABLE IF EXISTS {', '.join(tables)}; {PARENT_AND_CHILD}"])
        queue.capture(*tables)
        executed(
            database,
            [
                "INSERT INTO parent SELECT n, 'v' || n, n FROM generate_series(1, 30) n",
                "INSERT INTO child SELECT n, n FROM generate_series(1, 30) n",
                "INSERT INTO tail SELECT n FROM generate_series(1, 30) n",
            ],
        )
        before = {table: queue.contents(table) for table in tables}
        # COPY FROM PROGRAM, and the replica role, are a superuser's.
        executed(database, statements, user="postgres")
        queue.agree(*tables)
        changed = {table: queue.contents(table) for table in tables} != before
        assert changed == (name not in ("no row", "a rollback")), name


def test_generated_columns_come_as_a_copy_has_them(database: Database, queue: Capturing) -> None:
    """A stored one with its value; of a virtual one a row that triggers see has none."""
    executed(
        database,
        [
            "CREATE TABLE g (id int PRIMARY KEY, a int, s int GENERATED ALWAYS AS (a * 2) STORED,"
            " v int GENERATED ALWAYS AS (a * 3) VIRTUAL, i int GENERATED ALWAYS AS IDENTITY, z text)"
        ],
    )
    queue.capture("g")
    executed(database, ["INSERT INTO g (id, a, z) VALUES (1, 10, 'z')", "UPDATE g SET a = 11"])
    assert [row for _, _, row in queue.events("g")] == ["(1,10,20,,1,z)", "(1,10,20,,1,z)", "(1,11,22,,1,z)"]


def test_no_column_is_taken_for_a_name_of_ours(database: Database, queue: Capturing) -> None:
    names = "o n old_rows new_rows writer relation place emptied event begun mark capture tg_op tg_relid"
    names += " tg_when id tx diff row q current name text oid bigint found pg_catalog"
    columns = ", ".join(f'"{name}" text' for name in names.split())
    executed(database, [f"CREATE TABLE odd ({columns})"])
    queue.capture("odd")
    values = ", ".join(f"'{number}'" for number, _ in enumerate(names.split()))
    executed(database, [f"INSERT INTO odd VALUES ({values})", 'UPDATE odd SET "n" = NULL', "TRUNCATE odd"])
    assert [diff for _, diff, _ in queue.events("odd")] == [1, -1, 1, 2, 0]
    executed(database, [f"INSERT INTO odd VALUES ({values})"])
    queue.agree("odd")


def test_a_truncate_amid_which_a_trigger_wrote_the_table_is_told_apart(
    database: Database, queue: Capturing
) -> None:
    """An application's trigger on TRUNCATE writes rows whose events lie between the two of the truncation."""
    executed(
        database,
        [
            "CREATE TABLE t (id int)",
            "CREATE TABLE u (id int)",
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN"
            " EXECUTE format(''INSERT INTO t VALUES (%s)'', TG_ARGV[0]); RETURN NULL; END'",
        ],
    )
    queue.capture("t", "u")
    executed(
        database, ["INSERT INTO t VALUES (1)", "TRUNCATE t", "INSERT INTO t VALUES (2)", "TRUNCATE t, u"]
    )
    assert [diff for _, diff, _ in queue.events("t")] == [1, 2, 0, 1, 2, 0]
    for when, name in (("BEFORE", "zz"), ("AFTER", "aa")):
        executed(
            database, [f"CREATE TRIGGER {name} {when} TRUNCATE ON t EXECUTE FUNCTION f('7')", "TRUNCATE t"]
        )
        assert [diff for _, diff, _ in queue.events("t")][-1] == 3
        executed(database, [f"DROP TRIGGER {name} ON t", "TRUNCATE t"])
        assert [diff for _, diff, _ in queue.events("t")][-1] == 0
    executed(
        database,
        [
            "CREATE FUNCTION g() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM t WHERE false;"
            " BEGIN INSERT INTO t VALUES (9); PERFORM 1 / 0; EXCEPTION WHEN OTHERS THEN NULL; END;"
            " RETURN NULL; END $$",
            "CREATE TRIGGER zz BEFORE TRUNCATE ON t EXECUTE FUNCTION g()",
            "TRUNCATE t",
            "DROP TRIGGER zz ON t",
        ],
    )
    assert [diff for _, diff, _ in queue.events("t")][-1] == 0, "nothing was written in between"
    executed(database, ["CREATE TRIGGER zz AFTER TRUNCATE ON t EXECUTE FUNCTION f('8')", "TRUNCATE t, u"])
    assert [diff for _, diff, _ in queue.events("t")][-3:] == [2, 0, 1]
    queue.agree("t")


def test_temporary_tables_and_operators_of_the_writer_are_never_met(
    database: Database, queue: Capturing
) -> None:
    executed(database, ["CREATE TABLE t (id int)"])
    queue.capture("t")
    executed(
        database,
        [
            "CREATE TEMP TABLE text (a int)",
            "CREATE TEMP TABLE old_rows (a int)",
            "CREATE TEMP TABLE new_rows (a int)",
            "CREATE TEMP TABLE queue (name text, current smallint)",
            "CREATE SCHEMA evil",
            "CREATE FUNCTION evil.no(smallint, integer) RETURNS bool LANGUAGE sql AS 'SELECT false'",
            "CREATE OPERATOR evil.= (LEFTARG = smallint, RIGHTARG = integer, FUNCTION = evil.no)",
            "CREATE FUNCTION evil.nextval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT 1/0::bigint'",
            "CREATE FUNCTION evil.spelled(public.t) RETURNS pg_catalog.text LANGUAGE sql AS $$SELECT 'no'$$",
            "CREATE CAST (public.t AS pg_catalog.text) WITH FUNCTION evil.spelled(public.t)",
            "SET search_path = evil, pg_temp, pg_catalog",
            "INSERT INTO public.t VALUES (1), (2)",
            "UPDATE public.t SET id = 3 WHERE id = 1",
            "DROP CAST (public.t AS pg_catalog.text)",
        ],
    )
    queue.agree("t")
    assert len(queue.events("t")) == 4


def test_no_view_of_the_writer_is_read_as_us_by_a_trigger_of_his(
    database: Database, queue: Capturing
) -> None:
    """Whoever may name the function can hang it on a table of their own, without its transition tables."""
    executed(database, ["CREATE TABLE t (id int)"])
    queue.capture("t")
    before = read_queue(queue.session, LAKE.objects)
    database.execute(
        "CREATE ROLE clerk; GRANT USAGE ON SCHEMA headrace TO clerk; CREATE SCHEMA own AUTHORIZATION clerk;"
        "GRANT EXECUTE ON FUNCTION headrace.capture_main() TO clerk; GRANT TEMPORARY ON DATABASE"
        f" {database.name} TO clerk"
    )
    try:
        with database.connect() as connection:
            for statement in (
                "SET ROLE clerk",
                "CREATE TABLE own.told (who text)",
                "GRANT INSERT ON own.told TO PUBLIC; GRANT USAGE ON SCHEMA own TO PUBLIC",
                "CREATE FUNCTION own.tell() RETURNS int LANGUAGE sql AS"
                " 'INSERT INTO own.told SELECT current_user RETURNING 1'",
                "CREATE TEMP VIEW old_rows AS SELECT own.tell() AS a",
                "CREATE TEMP VIEW new_rows AS SELECT own.tell() AS a",
                "CREATE TABLE own.t (id int)",
                "CREATE TRIGGER a AFTER INSERT ON own.t EXECUTE FUNCTION headrace.capture_main()",
                "CREATE TRIGGER b AFTER UPDATE ON own.t EXECUTE FUNCTION headrace.capture_main()",
                "CREATE TRIGGER c AFTER DELETE ON own.t EXECUTE FUNCTION headrace.capture_main()",
                "INSERT INTO own.t VALUES (1)",
                "UPDATE own.t SET id = 2",
                "DELETE FROM own.t",
                # Nor is a change of his table one of the queue's events.
                "CREATE TRIGGER d AFTER INSERT ON own.t EXECUTE FUNCTION headrace.guard_main()",
                "INSERT INTO own.t VALUES (1)",
            ):
                connection.execute(statement.encode())
            assert connection.execute("SELECT who FROM own.told").fetchall() == []
        assert read_queue(queue.session, LAKE.objects) == before
    finally:
        database.execute("DROP OWNED BY clerk CASCADE; DROP ROLE clerk")


def test_no_type_of_the_writer_has_the_function_run_its_checks(database: Database, queue: Capturing) -> None:
    """Temporary types are found before all others, whatever the search path; the function runs as us."""
    executed(database, ["CREATE TABLE t (id int)"])
    queue.capture("t")
    # The words of SQL's own among the types can't be taken; these can.
    names = ["oid", "text", "name", "regclass", "xid8", "pg_lsn"]
    with database.connect() as connection:
        connection.execute("CREATE FUNCTION pg_temp.no() RETURNS bool LANGUAGE sql AS 'SELECT 1 / 0 = 0'")
        for name in names:
            base, check = f"pg_catalog.{name}", "CHECK (pg_temp.no())"
            connection.execute(f'CREATE DOMAIN pg_temp."{name}" AS {base} {check}'.encode())
        for statement in (
            "INSERT INTO public.t VALUES (1)",
            "UPDATE public.t SET id = 2",
            "TRUNCATE public.t",
        ):
            connection.execute(statement.encode())
    assert [diff for _, diff, _ in queue.events("t")] == [1, -1, 1, 2, 0]


def test_a_writer_needs_no_right_in_our_schema(database: Database, queue: Capturing) -> None:
    executed(database, ["CREATE TABLE t (id int)"])
    queue.capture("t")
    database.execute("CREATE ROLE clerk; GRANT ALL ON t TO clerk; GRANT USAGE ON SCHEMA public TO clerk")
    try:
        with database.connect() as connection:
            connection.execute("SET ROLE clerk")
            connection.execute("INSERT INTO public.t VALUES (1)")
            connection.execute("TRUNCATE public.t")
            connection.execute("INSERT INTO public.t VALUES (2)")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT * FROM headrace.event_main_0")
        queue.agree("t")
    finally:
        database.execute("DROP OWNED BY clerk; DROP ROLE clerk")


def test_lastval_is_the_applications(database: Database, queue: Capturing) -> None:
    """Drivers ask for it behind an INSERT, by a user who has no right to a sequence of ours."""
    executed(database, ["CREATE TABLE t (id serial PRIMARY KEY, v text)"])
    queue.capture("t")
    with database.connect(user="app") as connection:
        connection.execute("INSERT INTO t (v) VALUES ('a'), ('b')")
        connection.execute("UPDATE t SET v = 'c'")
        assert connection.execute("SELECT lastval()").fetchall() == [(2,)]
        connection.execute("TRUNCATE t")
        assert connection.execute("SELECT lastval()").fetchall() == [(2,)]


def test_no_two_events_have_one_number(database: Database, queue: Capturing) -> None:
    """Not those of writers that write at once, nor those of one statement; the later one has the greater."""
    executed(database, ["CREATE TABLE t (id int, v text)"])
    queue.capture("t")

    def write(writer: int) -> None:
        rows = f"INSERT INTO t SELECT {writer}, n::text FROM generate_series(1, 20) n"
        executed(database, [rows, f"UPDATE t SET v = v || 'x' WHERE id = {writer}"] * 10)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    found = queue.session.execute(f"SELECT count(*), count(DISTINCT id) FROM ({EVENTS}) e".encode())
    [(events, numbers)] = found.fetchall()
    assert events == numbers == 4 * sum(20 + 2 * 20 * turn for turn in range(1, 11))
    queue.agree("t")
    executed(database, ["INSERT INTO t SELECT n, 'in order' FROM generate_series(1, 5000) n"])
    ordered = [row for _, _, row in queue.events("t")][-5000:]
    assert ordered == [f'({n},"in order")' for n in range(1, 5001)]


def test_a_statement_without_rows_gives_its_transaction_no_id(database: Database, queue: Capturing) -> None:
    executed(database, ["CREATE TABLE t (id int)"])
    queue.capture("t")
    with database.connect(user="app") as connection, connection.transaction():
        connection.execute("UPDATE t SET id = 1")
        connection.execute("DELETE FROM t")
        assert connection.execute("SELECT pg_current_xact_id_if_assigned()").fetchall() == [(None,)]


# --- statements within statements on one table ----------------------------------------------------

NESTED = """
CREATE TABLE n (id int PRIMARY KEY, depth int, v int, parent int REFERENCES n ON DELETE CASCADE);
CREATE FUNCTION step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() > 5 THEN RETURN NULL; END IF;
    -- One in so many rows, and fewer the more there are: five deep, and not for ever.
    IF random() < 3.0 / (SELECT count(*) FROM n) THEN
        UPDATE n SET v = v + 1 WHERE id = (SELECT min(id) FROM n WHERE depth < pg_trigger_depth());
    END IF;
    IF random() < 2.0 / (SELECT count(*) FROM n) THEN
        INSERT INTO n SELECT 1 + max(id), pg_trigger_depth(), 0, min(id) FROM n;
    END IF;
    IF random() < 1.0 / (SELECT count(*) FROM n) THEN
        DELETE FROM n WHERE id = (SELECT max(id) FROM n);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER a_rows AFTER INSERT OR UPDATE OR DELETE ON n FOR EACH ROW EXECUTE FUNCTION step();
CREATE TRIGGER zz_statements AFTER INSERT OR UPDATE OR DELETE ON n EXECUTE FUNCTION step();
CREATE FUNCTION bump(int) RETURNS int LANGUAGE sql VOLATILE AS
    'UPDATE n SET v = v + 1 WHERE id = $1; SELECT $1';
"""


def test_statements_five_deep_on_one_table_net_to_what_it_holds(database: Database, queue: Capturing) -> None:
    seed = random.randrange(1 << 30)
    executed(database, [NESTED])
    queue.capture("n")
    rolls = random.Random(seed)
    with database.connect(user="app") as connection:
        connection.execute("SELECT setseed(%s)", [rolls.random()])
        connection.execute("INSERT INTO n SELECT k, 0, 0, NULLIF(k / 2, 0) FROM generate_series(1, 20) k")
        for _ in range(60):
            statement = rolls.choice(
                [
                    "UPDATE n SET v = v + 1 WHERE id % 5 = {k} % 5",
                    "UPDATE n SET id = id + 1000, v = 0 WHERE id = {k} AND NOT EXISTS"
                    " (SELECT FROM n c WHERE c.parent = n.id)",
                    "DELETE FROM n WHERE id = {k}",
                    "INSERT INTO n SELECT {k} + 100000 + max(id), 0, 0, NULL FROM n",
                    "UPDATE n SET v = bump({k}) WHERE id BETWEEN {k} + 1 AND {k} + 3",
                ]
            ).format(k=rolls.randrange(1, 40))
            failure = _failure(connection, statement)
            assert failure is None or "headrace" not in failure, (seed, failure)
            assert queue.net("n") == queue.contents("n"), seed


def test_who_folds_by_ids_is_wrong_where_a_statement_fires_another(
    database: Database, queue: Capturing
) -> None:
    """Events of an inner statement come before those of the outer one, whose changes came first."""
    executed(
        database,
        [
            "CREATE TABLE n (id int PRIMARY KEY, v int)",
            "CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF NEW.v < 10 THEN UPDATE n SET v = 11 WHERE id = NEW.id; END IF; RETURN NULL; END $$",
            "CREATE TRIGGER again AFTER UPDATE ON n FOR EACH ROW EXECUTE FUNCTION again()",
        ],
    )
    queue.capture("n")
    executed(database, ["INSERT INTO n VALUES (1, 0)", "UPDATE n SET v = 1"])
    queue.agree("n")
    assert queue.contents("n").keys() == {"(1,11)"}
    assert _folded(queue) == {"(1,1)"}


def _failure(connection: psycopg.Connection[Any], statement: str) -> str | None:
    """Run a statement that the table's own constraints may refuse."""
    try:
        connection.execute(statement.encode())
    except psycopg.errors.DatabaseError as error:
        return str(error)
    return None


def _folded(queue: Capturing) -> set[str | None]:
    """A fold by ids, the newest event of a key being the last."""
    rows: dict[str, str | None] = {}
    for _, diff, row in queue.events("n"):
        assert row is not None
        rows[row.partition(",")[0]] = row if diff > 0 else None
    return {row for row in rows.values() if row is not None}
