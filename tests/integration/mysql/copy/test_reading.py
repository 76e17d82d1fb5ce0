"""Tables of real servers, read in pieces at one moment that is joined to the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.errors import HeadraceError
from headrace.core.handoff import ByPosition
from headrace.core.names import TableName
from headrace.core.position import STEP
from headrace.core.schema import TableSchema
from headrace.sources.contract.copying import Piece, Reader
from headrace.sources.mysql.copy import follower, key_range, locks, measure, reader, selection
from headrace.sources.mysql.copy.locks import idle
from headrace.sources.mysql.copy.reader import MomentReader
from headrace.sources.mysql.copy.selection import FetchedRows, fetch
from headrace.sources.mysql.position import MysqlTimeline
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.log_end import DomainForgotten
from headrace.sources.mysql.session.statements import MysqlConnection, query, rows
from headrace.sources.mysql.types.printing import print_values
from headrace_testing.mysql import Database
from headrace_testing.mysql.server import run
from headrace_testing.postmaster import wait_for
from headrace_testing.proxy import Proxy
from tests.integration.mysql.copy.copies import BASE, copied, defined
from tests.integration.mysql.copy.moments import SECONDS, TOTAL, Transfers, executed

pytestmark = pytest.mark.server


def test_all_pieces_show_the_moment_of_the_handoff_while_others_write(
    bank: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = executed(bank)
    with Transfers(bank, 4) as transfers:
        wait_for(lambda: transfers.done > 50, "the writers")
        with copied(bank, "a", "b", "moves", readers=3) as copy:
            handoff = copy.snapshot.handoff
            rows = copy.rows()
    money = sum(sum(rows[name]["v"].to_pylist()) for name in ("a", "b"))
    frontier = handoff.until
    assert frontier is not None
    # Nothing else wrote to this server: each transfer is one transaction of the log.
    assert (money, rows["moves"].num_rows) == (TOTAL, (frontier.time - BASE - before) // STEP)
    for own in copy.handoffs:
        assert own.until is not None
        assert own.until == frontier


# A key of each kind that a table is cut by, and values of it in no order of any of our types.
KEYS: Mapping[str, tuple[str, Callable[[int], object]]] = {
    "signed": ("int", lambda n: n * 7919 % 3001 - 1500),
    "unsigned": ("bigint unsigned", lambda n: (1 << 64) - 1 - n * 7919 % 3001),
    "text": ("varchar(40) COLLATE utf8mb4_unicode_ci", lambda n: f"{'aÄzßÅ'[n % 5]}{n * 7919 % 3001}"),
    "latin": ("varchar(40) CHARACTER SET latin1", lambda n: f"{'éÿa '[n % 4]}x{n}"),
    "bytes": ("varbinary(40)", lambda n: bytes([n * 7 % 256, 0, 39, 92, n % 256, n // 256])),
    "decimals": ("decimal(30,10)", lambda n: f"{n - 200}.{n:010d}"),
    "dates": ("date", lambda n: f"{1000 + n}-0{1 + n % 9}-11"),
    "moments": ("datetime(6)", lambda n: f"{1000 + n}-12-31 23:59:59.{n:06d}"),
    "stamps": ("timestamp(3)", lambda n: f"2001-01-01 00:{n // 60:02d}:{n % 60:02d}.{n % 1000:03d}"),
}
HOSTILE = "we`ird \"t'able% \N{SNOWMAN}\\"
ROWS = 400


def test_each_row_is_in_one_piece_whatever_its_key_is(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "STEP_BYTES", 1 << 14)
    expected: dict[str, set[int]] = {}
    with database.connect() as connection, connection.cursor() as cursor:
        for name, (type_of, key) in KEYS.items():
            cursor.execute(
                f"CREATE TABLE `{name}` (k {type_of} NOT NULL, n int, v char(250), PRIMARY KEY (k, n))"
            )
            rows = [(key(n), n) for n in range(ROWS)]
            cursor.executemany(f"INSERT INTO `{name}` VALUES (%s, %s, REPEAT('v', 240))", rows)
            expected[name] = set(range(ROWS))
        hostile = "`{}`".format(HOSTILE.replace("`", "``"))
        cursor.execute(f"CREATE TABLE {hostile} (`k%` int PRIMARY KEY, n int, v char(250))")
        values = ", ".join(f"({n}, {n}, REPEAT('v', 240))" for n in range(ROWS))
        cursor.execute(f"INSERT INTO {hostile} VALUES {values}")
        cursor.execute("CREATE TABLE keyless (n int, v char(250))")
        cursor.executemany("INSERT INTO keyless VALUES (%s, REPEAT('v', 240))", [(n,) for n in range(ROWS)])
        cursor.execute("CREATE TABLE nothing (n int PRIMARY KEY)")
        connection.commit()
        tables = [*KEYS, HOSTILE, "keyless", "nothing"]
        spelled = ", ".join("`{}`".format(name.replace("`", "``")) for name in tables)
        cursor.execute(f"ANALYZE TABLE {spelled}")
    expected |= {HOSTILE: set(range(ROWS)), "keyless": set(range(ROWS)), "nothing": set()}
    with copied(database, *tables, target=1 << 14) as copy:
        assert copy.snapshot.handoff.until is not None
        tables_read = copy.rows()
        assert copy.codes() == {}
    assert {name: sorted(found["n"].to_pylist()) for name, found in tables_read.items()} == {
        name: sorted(numbers) for name, numbers in expected.items()
    }
    pieces = [piece.table.name for share in copy.shares for piece in share]
    assert all(pieces.count(name) > 3 for name in (*KEYS, HOSTILE)), pieces
    assert [pieces.count(name) for name in ("keyless", "nothing")] == [1, 1]


def test_rows_whose_keys_move_are_in_one_piece(bank: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "STEP_BYTES", 1 << 14)
    with bank.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE moving (id int PRIMARY KEY, v char(250))")
        cursor.executemany("INSERT INTO moving VALUES (%s, REPEAT('v', 240))", [(n,) for n in range(ROWS)])
        connection.commit()
        cursor.execute("ANALYZE TABLE moving")
    over = threading.Event()
    moves = 0

    def move() -> None:
        nonlocal moves
        with bank.connect() as connection, connection.cursor() as cursor:
            while not over.is_set():
                at = moves % ROWS
                cursor.execute("UPDATE moving SET id = -id - 1 WHERE id = %s OR id = %s", [at, -at - 1])
                connection.commit()
                moves += 1

    thread = threading.Thread(target=move)
    thread.start()
    try:
        wait_for(lambda: moves > 20, "the moves")
        with copied(bank, "moving", target=1 << 14) as copy:
            assert copy.snapshot.handoff.until is not None
            found = copy.rows()["moving"]["id"].to_pylist()
        assert len(copy.shares[0]) + len(copy.shares[1]) > 3
    finally:
        over.set()
        thread.join()
    assert sorted(n if n >= 0 else -n - 1 for n in found) == list(range(ROWS))


def test_a_table_that_is_gone_when_the_others_are_locked_is_left_out_alone(bank: Database) -> None:
    with copied(bank, "a", "b", readers=1) as copy:
        bank.execute("RENAME TABLE b TO away")
        assert copy.snapshot.handoff.until is not None
        bank.execute("RENAME TABLE away TO b")
        assert copy.codes() == {"b": "MY_READER_LATE"}
        assert copy.rows()["a"].num_rows == 10


def test_what_happens_to_a_table_behind_the_moment_is_seen_when_it_is_read(bank: Database) -> None:
    tables = ("altered", "dropped", "emptied", "replaced", "swapped")
    for name in tables:
        bank.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)")
        bank.execute(f"INSERT INTO {name} VALUES (1, 1)")
    made = bank.execute("SELECT NOW()")
    wait_for(lambda: bank.execute("SELECT NOW()") != made, "another second")
    bank.execute("CREATE TABLE other (id int PRIMARY KEY, v int)")
    bank.execute("INSERT INTO other VALUES (2, 2)")
    going_on = threading.Event()

    def wait(_: Reader, piece: Piece) -> None:
        assert piece.table.name == "a" or going_on.wait(SECONDS)

    with copied(bank, "a", *tables, readers=1, before=wait) as copy:
        assert copy.snapshot.handoff.until is not None
        bank.execute("ALTER TABLE altered DROP COLUMN v")
        bank.execute("ALTER TABLE altered ADD COLUMN v int DEFAULT 77")
        bank.execute("DROP TABLE dropped")
        bank.execute("TRUNCATE TABLE emptied")
        bank.execute("DROP TABLE replaced")
        bank.execute("CREATE TABLE replaced (id int PRIMARY KEY, v int)")
        bank.execute("RENAME TABLE swapped TO away, other TO swapped")
        going_on.set()
        assert copy.rows().keys() == {"a"}
        assert set(copy.codes().values()) <= {"MY_COPY_OVERTAKEN", "MY_STATEMENT_OVERRULED", "MY_TABLE_GONE"}


def test_a_copy_is_exact_from_behind_what_was_done_to_its_table_meanwhile(bank: Database) -> None:
    """Rows of an exchanged partition may be older than the moment, and the table has no mark of it."""
    bank.execute(
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)"
        " (PARTITION p VALUES LESS THAN (10), PARTITION q VALUES LESS THAN (20))"
    )
    bank.execute("CREATE TABLE other (id int PRIMARY KEY)")
    bank.execute("INSERT INTO other VALUES (1)")
    going_on = threading.Event()

    def wait(_: Reader, piece: Piece) -> None:
        assert piece.table.name == "a" or going_on.wait(SECONDS)

    with copied(bank, "a", "parts", readers=1, before=wait) as copy:
        handoff = copy.snapshot.handoff
        bank.execute("ALTER TABLE parts EXCHANGE PARTITION p WITH TABLE other")
        going_on.set()
        assert copy.rows()["parts"].to_pylist() == [{"id": 1}]
        settled = copy.snapshot.settle()
    assert handoff.until is not None
    assert settled.until is not None
    assert settled.until.time == BASE + executed(bank) > handoff.until.time
    times = pa.array([handoff.until.time - 1, settled.until.time - 1])
    assert settled.holds(times, None).to_pylist() == [True, False]


def test_what_was_read_counts_though_the_leader_is_gone(bank: Database) -> None:
    """Its connection may have been ended by anybody; how far the log is another one can ask."""
    with copied(bank, "a", "b") as copy:
        handoff = copy.snapshot.handoff
        assert set(copy.rows()) == {"a", "b"}
        bank.execute(f"KILL {copy.snapshot.ticket['leader']['connection']}")
        bank.execute("INSERT INTO moves VALUES ()")
        settled = copy.snapshot.settle()
        assert isinstance(handoff, ByPosition)
        assert isinstance(settled, ByPosition)
        assert settled.frontier == handoff.frontier
        assert settled.settled_at is not None
        assert settled.settled_at.time == BASE + executed(bank)


def test_a_piece_may_be_read_for_longer_than_a_session_may_sleep(
    bank: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader waits all the while, and so does each session of the reader."""
    _impatient(monkeypatch)
    address, order = MysqlAddress.parse(bank.url(user="mirror")), list[str]()

    def read_long(reader: Reader, piece: Piece) -> None:
        order.append(piece.table.name)
        if len(order) == 1:
            return
        assert isinstance(reader, MomentReader)
        with connect(address, role="test") as sleeper:
            idle(sleeper, 2 * locks.KEPT_SECONDS)
            there = f"SELECT COUNT(*) FROM information_schema.processlist WHERE id = {sleeper.connection_id}"
            wait_for(lambda: bank.execute(there) == [(0,)], "the end of the sleeping session")

    with copied(bank, "a", "b", readers=1, compare=True, before=read_long) as copy:
        assert copy.snapshot.handoff.until is not None
        assert copy.codes() == {}
        assert {name: rows.num_rows for name, rows in copy.rows().items()} == {"a": 10, "b": 10}
        assert copy.snapshot.alive()
    assert len(order) == 2


def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that are ended after a second or two, and whose keepers look often."""
    for name, seconds in {"KEPT_SECONDS": 1, "PING_SECONDS": 0.2, "LOOK_SECONDS": 0.1}.items():
        monkeypatch.setattr(locks, name, seconds)
    monkeypatch.setattr(locks, "KEPT_SECONDS", 1)
    monkeypatch.setattr(follower, "UNREAD_SECONDS", 1)


@pytest.mark.parametrize("amid_rows", [False, True])
def test_the_view_of_a_machine_that_vanished_ends_within_seconds(
    database: Database, monkeypatch: pytest.MonkeyPatch, amid_rows: bool
) -> None:
    _impatient(monkeypatch)
    database.execute("CREATE TABLE large (v longtext)")
    for _ in range(3):
        database.execute("INSERT INTO large VALUES (REPEAT('v', 8000000))")
    ours = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'mirror'"
    server = database.server
    ended = threading.Event()
    with Proxy(server.host, server.port) as proxy:

        def vanish(reader: Reader, piece: Piece) -> None:
            assert isinstance(reader, MomentReader)
            view = reader._follower.reading(piece.table)
            reader._follower.witness()
            amid = rows(view, "SELECT * FROM large") if amid_rows else nullcontext()
            with suppress(HeadraceError), amid:
                assert database.execute(ours) == [(3,)]  # and the leader, and who looks on beside the view
                proxy.stall()
                wait_for(lambda: database.execute(ours) == [(0,)], "the end of the views")
                ended.set()
                proxy.cut()
                proxy.resume()

        with suppress(HeadraceError), copied(database, "large", before=vanish, port=proxy.port) as copy:
            assert copy.snapshot.handoff.until is not None
            copy.answers()
    assert ended.is_set()


# How the rows of a table lie, and whether they can be read along that.
WALKS: Mapping[str, tuple[str, Callable[[int], object], bool]] = {
    "reals": ("k float NOT NULL, PRIMARY KEY (k)", lambda n: n / 7 - 3, True),
    "doubles": ("k double NOT NULL, PRIMARY KEY (k)", lambda n: (n - 20) / 3e300, True),
    "labels": (
        "k enum('z', 'it''s', 'a') NOT NULL, PRIMARY KEY (k, n)",
        lambda n: ["z", "it's", "a"][n % 3],
        True,
    ),
    "escapes": (
        r"k enum('c', 'a\\b', 'd') NOT NULL, PRIMARY KEY (k, n)",
        lambda n: ["c", "a\\b"][n % 2],
        True,
    ),
    "bits": ("k bit(9) NOT NULL, PRIMARY KEY (k)", lambda n: n * 5, True),
    "flags": ("k bit NOT NULL, PRIMARY KEY (k, n)", lambda n: n % 2, True),
    "years": ("k year NOT NULL, PRIMARY KEY (k, n)", lambda n: [0, 1999, 2024][n % 3], True),
    "spans": ("k time(6) NOT NULL, PRIMARY KEY (k)", lambda n: f"{n * 7 - 100}:00:01.5", True),
    "zeros": ("k date NOT NULL, UNIQUE (k, n)", lambda n: ["0000-00-00", "2024-01-31"][n % 2], True),
    "letters": (
        "k varchar(9) CHARACTER SET latin1 NOT NULL, UNIQUE (k), UNIQUE (n)",
        lambda n: f"{'éÿa '[n % 4]}{n}",
        True,
    ),
    "outlier": ("k bigint NOT NULL, PRIMARY KEY (k)", lambda n: n if n else 1 << 62, True),
    "codes": ("k varchar(9) CHARACTER SET sjis NOT NULL, PRIMARY KEY (k)", lambda n: f"{n}", False),
    "empty_label": ("k enum('', 'b') NOT NULL, PRIMARY KEY (k, n)", lambda n: ["", "b"][n % 2], False),
    "prefixes": ("k varchar(90) NOT NULL, PRIMARY KEY (k(3))", lambda n: f"{n:03d}", False),
    "nothing": ("k int", lambda n: n % 5, False),
}
WALKED = 40


def test_a_table_is_read_in_short_steps_whatever_its_key_is(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: dict[str, list[int]] = {}

    def counted(session: MysqlConnection, table: TableName, *arguments: Any, **more: Any) -> FetchedRows:
        found = fetch(session, table, *arguments, **more)
        steps.setdefault(table.name, []).append(found.count)
        return found

    monkeypatch.setattr(reader, "fetch", counted)
    monkeypatch.setattr(reader, "FIRST_ROWS", 7)
    monkeypatch.setattr(reader, "STEP_BYTES", 60)
    monkeypatch.setattr(selection, "MEMORY_BYTES", 64)  # the others go through a file
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for name, (definition, key, _) in WALKS.items():
            cursor.execute(f"CREATE TABLE {name} (n int NOT NULL, {definition})")
            cursor.executemany(
                f"INSERT INTO {name} (n, k) VALUES (%s, %s)", [(n, key(n)) for n in range(WALKED)]
            )
        connection.commit()
    with copied(database, *WALKS, readers=1) as copy:
        assert copy.snapshot.handoff.until is not None
        assert copy.codes() == {}
        found = {name: sorted(each["n"].to_pylist()) for name, each in copy.rows().items()}
    assert all(numbers == list(range(WALKED)) for numbers in found.values()), found
    assert found.keys() == WALKS.keys()
    walked = {name: counts[0] == 7 and max(counts) < WALKED / 2 for name, counts in steps.items()}
    assert walked == {name: fit for name, (_, _, fit) in WALKS.items()}


def test_an_index_of_expressions_is_no_way_through_a_table(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog names no column of it, and a column may be called so."""
    monkeypatch.setattr(reader, "FIRST_ROWS", 7)
    mysql_database.execute(
        "CREATE TABLE t (n int NOT NULL, `None` int NOT NULL, UNIQUE KEY ((coalesce(n, 0))))"
    )
    mysql_database.execute("INSERT INTO t VALUES " + ", ".join(f"({n}, {n % 3})" for n in range(WALKED)))
    with copied(mysql_database, "t", readers=1) as copy:
        assert copy.snapshot.handoff.until is not None
        assert copy.codes() == {}
        assert sorted(copy.rows()["t"]["n"].to_pylist()) == list(range(WALKED))


def test_a_step_is_read_by_the_index_alone(database: Database) -> None:
    """Else each one would begin where the table begins."""
    database.execute("CREATE TABLE t (e enum('a', 'b', 'c') NOT NULL, f float NOT NULL, PRIMARY KEY (e, f))")
    database.execute(
        "INSERT INTO t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900)"
        " SELECT CASE i % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'b' ELSE 'c' END, i FROM n"
    )
    [table] = defined(database, "t").values()
    last = pa.table({"e": ["b"], "f": pa.array([898.0], pa.float32())})
    beyond = key_range.beyond(table.schema.columns, last)
    with connect(MysqlAddress.parse(database.url(user="mirror")), role="test") as session:
        read = "SHOW SESSION STATUS WHERE variable_name LIKE 'Handler_read%' AND value > 0"
        before = sum(int(str(value)) for _, value in query(session, read))
        found = query(session, f"SELECT f FROM t FORCE INDEX (PRIMARY) WHERE {beyond} ORDER BY e, f LIMIT 20")
        after = sum(int(str(value)) for _, value in query(session, read))
    assert [value for (value,) in found] == [2 + 3 * n for n in range(20)]
    assert after - before < 100


def test_nobody_waits_for_a_reader_whose_rows_are_not_taken(database: Database) -> None:
    """The rows of a table without a key are had in one go; whoever writes files of them takes his time."""
    database.execute("CREATE TABLE keyless (v longtext)")
    for _ in range(24):
        database.execute("INSERT INTO keyless VALUES (REPEAT('v', 1000000))")
    done: list[str] = []

    def flush(reader: Reader, piece: Piece) -> None:
        [table] = defined(database, "keyless").values()
        with reader.read(table.schema.columns, piece) as one, database.connect() as other:
            next(one.rows)
            run(other, "SET lock_wait_timeout = 5")
            run(other, "FLUSH TABLES WITH READ LOCK")
            run(other, "UNLOCK TABLES")
            if not database.server.flavour.is_mariadb:
                run(other, "ALTER TABLE keyless COMMENT = 'altered'")
            done.append("flushed")
            assert sum(copied.rows.num_rows for copied in one.rows) >= 1

    with copied(database, "keyless", readers=1, before=flush) as copy:
        assert copy.snapshot.handoff.until is not None
        copy.answers()
    assert done == ["flushed"]


def test_a_reader_gives_way_to_who_waits_for_its_table(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, width in (("a", 1), ("b", 9_000)):  # the least is read first
        database.execute(f"CREATE TABLE {name} (v longtext)")
        for _ in range(10):
            database.execute(f"INSERT INTO {name} VALUES (REPEAT('v', {width}))")
    database.execute("ANALYZE TABLE a, b")
    database.server.execute("GRANT PROCESS ON *.* TO mirror")
    held = Event()

    def long(session: MysqlConnection, table: TableName, *arguments: Any, **more: Any) -> FetchedRows:
        held.set()
        query(session, "SELECT SLEEP(60)", seconds=90)
        return fetch(session, table, *arguments, **more)

    def alter() -> None:
        assert held.wait(SECONDS)
        database.execute("ALTER TABLE a COMMENT = 'altered'")

    monkeypatch.setattr(reader, "fetch", long)
    altering = threading.Thread(target=alter)
    altering.start()
    begun = time.monotonic()
    try:
        with copied(database, "a", "b", readers=1) as copy:
            assert copy.snapshot.handoff.until is not None
            assert copy.codes() == {"a": "MY_COPY_GAVE_WAY", "b": "MY_READER_LATE"}
            altering.join(SECONDS)
            assert not altering.is_alive()
    finally:
        database.server.execute("REVOKE PROCESS ON *.* FROM mirror")
    assert time.monotonic() - begun < 30


def test_a_reader_that_loses_a_deadlock_reads_nothing_any_more(mariadb_database: Database) -> None:
    """MariaDB keeps its locks of what it has read, so it may stand in a circle with who wants two tables."""
    bank = mariadb_database
    for name, width in (("a", 9_000), ("b", 1), ("c", 20_000)):  # the least is read first
        bank.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v longtext)")
        for i in range(10):
            bank.execute(f"INSERT INTO {name} VALUES ({i}, REPEAT('v', {width}))")
    bank.execute("ANALYZE TABLE a, b, c")
    waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%lock'"
    order: list[str] = []

    def lock(_: Reader, piece: Piece) -> None:
        order.append(piece.table.name)
        if piece.table.name == "a":
            others.start()
            wait_for(lambda: bank.execute(waits) == [(1,)], "a session that waits for b")

    others = threading.Thread(target=lambda: bank.execute("LOCK TABLES a WRITE, b WRITE"))
    with copied(bank, "a", "b", "c", readers=1, before=lock) as copy:
        assert copy.snapshot.handoff.until is not None
        assert copy.codes() == {"a": "MY_READER_LATE", "c": "MY_READER_LATE"}
        assert copy.rows()["b"].num_rows == 10
    others.join()
    assert order == ["b", "a", "c"]


def test_a_domain_that_the_server_has_forgotten_is_no_place_to_join(mariadb_database: Database) -> None:
    mariadb_database.execute("CREATE TABLE a (id int PRIMARY KEY)")
    with mariadb_database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION gtid_domain_id = 77")
        cursor.execute("INSERT INTO a VALUES (1)")
        connection.commit()
        cursor.execute("SELECT @@global.gtid_binlog_pos")
        reached = MysqlTimeline(BASE).position(str(cursor.fetchall()[0][0]))
        with copied(mariadb_database, "a", reached=reached) as copy:
            assert copy.snapshot.handoff.until == reached
        cursor.execute("FLUSH BINARY LOGS")

        def is_purged() -> bool:
            """Tell whether one log is left; the engine may need the others for a moment."""
            cursor.execute("SHOW BINARY LOGS")
            logs = [row[0] for row in cursor.fetchall()]
            cursor.execute("PURGE BINARY LOGS TO %s", [logs[-1]])
            return len(logs) == 1

        wait_for(is_purged, "the logs to go")
        cursor.execute("FLUSH BINARY LOGS DELETE_DOMAIN_ID = (77)")
    with copied(mariadb_database, "a", reached=reached) as copy, pytest.raises(DomainForgotten) as refused:
        assert copy.snapshot.handoff
    assert (refused.value.code, refused.value.detail) == ("MY_DOMAIN_FORGOTTEN", "domains: 77")
    assert "DELETE_DOMAIN_ID" in refused.value.hint


def test_a_value_that_mariadb_leaves_out_for_its_size_stops_its_table(mariadb_database: Database) -> None:
    """A text of another charset is converted, and what is converted may not be larger than a packet."""
    bank = mariadb_database
    bank.execute("SET GLOBAL max_allowed_packet = 268435456")
    bank.execute("CREATE TABLE a (id int PRIMARY KEY)")
    bank.execute("CREATE TABLE large (id int PRIMARY KEY, v longtext CHARACTER SET latin1)")
    # A warning of each row that loses nothing: the server lists no more of them than some.
    bank.execute("ALTER TABLE large ADD n int AS (v + 0) VIRTUAL, ADD k decimal(9, 2) AS (v + 1) VIRTUAL")
    harmless = ", ".join(f"({n}, 'v')" for n in range(2, 1200))
    bank.execute(f"INSERT IGNORE INTO large (id, v) VALUES {harmless}, (1200, REPEAT('v', 2000000))")
    bank.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        with copied(bank, "a", "large", readers=1) as copy:
            assert copy.snapshot.handoff.until is not None
            assert copy.codes() == {"large": "MY_COPY_WARNED"}
            assert copy.rows().keys() == {"a"}
            [error] = copy.errors()
    finally:
        bank.execute("SET GLOBAL max_allowed_packet = 268435456")
    assert (error.detail, "max_allowed_packet" in error.hint) == ("warning 1301", True)


def test_a_warning_that_loses_nothing_stops_no_table(database: Database) -> None:
    """The application reads the same zeros, whether the server lists the warnings or not."""
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(
            "CREATE TABLE t (id int PRIMARY KEY, txt varchar(9) CHARACTER SET latin1, doc longtext,"
            " n int AS (txt + 0) VIRTUAL,"
            " price decimal(9, 2) AS (JSON_UNQUOTE(JSON_EXTRACT(doc, '$.p'))) VIRTUAL)"
        )
        values = [(n, "abc", '{"p": "none"}') for n in range(1200)]
        cursor.executemany("INSERT INTO t (id, txt, doc) VALUES (%s, %s, %s)", values)
        connection.commit()
    most = database.execute("SELECT @@global.max_error_count")[0][0]
    for count in (most, 0):
        database.execute(f"SET GLOBAL max_error_count = {count}")
        try:
            with copied(database, "t", readers=1) as copy:
                assert copy.snapshot.handoff.until is not None
                assert copy.codes() == {}
                found = copy.rows()["t"]
        finally:
            database.execute(f"SET GLOBAL max_error_count = {most}")
        assert (found["n"].to_pylist(), set(found["txt"].to_pylist())) == ([0] * 1200, {"abc"})


def test_a_table_that_the_server_cannot_read_stops_alone(bank: Database) -> None:
    def discard(_: Reader, piece: Piece) -> None:
        if piece.table.name == "b":
            bank.execute("ALTER TABLE b DISCARD TABLESPACE")

    with copied(bank, "a", "b", readers=1, before=discard) as copy:
        assert copy.snapshot.handoff.until is not None
        assert copy.codes() == {"b": "MY_TABLE_UNREADABLE"}
        assert copy.rows()["a"].num_rows == 10
        [error] = copy.errors()
    assert error.detail is not None
    assert error.detail.startswith("error 1814")
    assert f"headrace tables resync {bank.name}.b" in error.hint


def test_keys_are_found_with_the_pieces_that_hold_them(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "STEP_BYTES", 1 << 14)
    database.execute(
        "CREATE TABLE t (k varchar(20) COLLATE utf8mb4_unicode_ci, b varbinary(9), f double, d datetime(6),"
        " v char(250), PRIMARY KEY (k, b, f, d))"
    )
    rows = [
        (f"{'aÄ%'[n % 3]}{n}", bytes([0, n % 256]), n / 7, f"2001-01-01 00:00:00.{n:06d}")
        for n in range(ROWS)
    ]
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s, %s, %s, REPEAT('v', 240))", rows)
        connection.commit()
        cursor.execute("ANALYZE TABLE t")
    [table] = defined(database, "t").values()
    columns = [column.combine_chunks() for column in _keys(table.schema, rows).columns]
    keys = list(zip(*(print_values(column).to_pylist() for column in columns), strict=True))
    # The last one's letters are in another case: the collation finds it, and it is another key.
    asked = [keys[3], keys[130], keys[371], (keys[6][0].upper(), *keys[6][1:])]
    found: list[tuple[int, pa.Table]] = []

    def look_up(reading: Reader, _: Piece) -> None:
        if not found:
            found.extend(reading.look_up(table.schema, pieces, asked))

    pieces: list[Piece] = []
    with copied(database, "t", readers=1, target=1 << 14, before=look_up, dealt=pieces) as copy:
        assert copy.snapshot.handoff.until is not None
        tables = [answer for _, answer in copy.answers() if isinstance(answer, pa.Table)]
        held = [each["k"].to_pylist() for each in tables]
    texts = [(number, text) for number, some in found for text in some["k"].to_pylist()]
    assert sorted(text for _, text in texts) == sorted(rows[n][0] for n in (3, 130, 371))
    assert len(held) > 3
    assert all(text in held[number] for number, text in texts)


def _keys(schema: TableSchema, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    """The keys of rows as the lake has them."""
    dates = [datetime.fromisoformat(str(row[3])) for row in rows]
    values = [*zip(*(row[:3] for row in rows), strict=True), dates]
    arrow = schema.arrow()
    return pa.table(
        {name: pa.array(list(v), arrow.field(name).type) for name, v in zip(schema.key, values, strict=True)}
    )
