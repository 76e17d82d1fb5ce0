"""A binlog dump of real servers: what was committed comes, once and in order, and nothing else is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from headrace.core.errors import HeadraceError
from headrace.sources.mysql.stream import gathering
from headrace.sources.mysql.stream.gathering import EventGroup, Gathering
from headrace_testing.mysql import Database, Server
from tests.integration.mysql.stream.reading import LOG, position, reading

SECRET = "s3cret-of-mine"


@pytest.fixture(params=["mysql", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found


def run(database: Database, *statements: str) -> None:
    """Some statements of one session."""
    with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def names(words: list[str]) -> list[str]:
    """The frames without the names of transactions; a table by its name alone."""
    return ["BEGIN" if word.startswith("BEGIN") else word.partition(".")[2] or word for word in words]


def rows(server: Server, verb: str) -> str:
    kinds = {"insert": (30, 23), "update": (31, 24), "delete": (32, 25)}
    return f"rows {kinds[verb][server.flavour.is_mariadb]}"


def test_the_rows_of_wanted_tables_come_and_the_rest_is_progress(database: Database) -> None:
    server = database.server
    run(database, "CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE other (id int PRIMARY KEY)")
    with reading(server, [(database.name, "t")]) as reader:
        run(
            database,
            *("BEGIN", "INSERT INTO t VALUES (1, 'a'), (2, 'b')", "INSERT INTO other VALUES (1)"),
            *(
                "SAVEPOINT s",
                "INSERT INTO t VALUES (3, 'c')",
                "ROLLBACK TO s",
                "UPDATE t SET v = 'x'",
                "COMMIT",
            ),
            *("INSERT INTO other VALUES (2)", "BEGIN", "INSERT INTO t VALUES (9, 'z')", "ROLLBACK"),
            *("DELETE FROM t WHERE id = 1", "FLUSH LOGS", "INSERT INTO t VALUES (4, 'd')"),
            f"CREATE USER {database.name}_u@localhost IDENTIFIED BY '{SECRET}'",
            f"DROP USER {database.name}_u@localhost",
            "CREATE TEMPORARY TABLE t (id int)",
            *("INSERT INTO t VALUES (1)", "DROP TEMPORARY TABLE t"),
        )
        insert, update, delete = (rows(server, verb) for verb in ("insert", "update", "delete"))
        assert names(reader.catch_up()) == [
            *("BEGIN", "map", insert, "map", update),
            *("BEGIN", "map", delete),
            *("BEGIN", "map", insert),
        ]
        assert [changes for _, changes, _ in reader.ended] == [2, 1, 1]
        assert SECRET.encode() not in reader.data
        assert reader.position == LOG.position(position(server))
        reader.heard = None
        end, clock = reader.until_heard()
        assert end == reader.position.time
        assert abs(clock / 1e6 - time.time()) < 60


def test_statements_on_wanted_tables_are_marked_where_they_happened(database: Database) -> None:
    server = database.server
    run(database, *(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in "abcd"))
    run(database, "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2")
    with reading(server, [(database.name, name) for name in "abcdp"]) as reader:
        run(
            database,
            *("INSERT INTO a VALUES (1)", "TRUNCATE /* DROP TABLE b */ a", "ALTER TABLE a ADD KEY k (id)"),
            "RENAME TABLE a TO x, b TO a, x TO b",
            *("ALTER TABLE c ADD COLUMN v int", "ALTER TABLE p TRUNCATE PARTITION p0"),
            *("CREATE TABLE e SELECT 1 AS one", "DROP /*!50100 TABLE */ IF EXISTS d, e", "ANALYZE TABLE a"),
            *("SET SESSION binlog_format = 'STATEMENT'", f"UPDATE a SET id = 7 /* {SECRET} */"),
        )
        found = names(reader.catch_up())
        assert found == [
            *("BEGIN", "map", rows(server, "insert"), "BEGIN", "a emptied", "BEGIN", "a rebuilt"),
            *("BEGIN", "a renamed", "b renamed", "BEGIN", "c altered", "BEGIN", "p partitions"),
            *("BEGIN", "d dropped"),
            *("BEGIN", *(f"{name} by_statement" for name in "abcdp")),
        ]
        assert SECRET.encode() not in reader.data
    with reading(server, [(database.name, "a")]) as reader:
        run(database, f"DROP DATABASE {database.name}")
        assert names(reader.catch_up()) == ["BEGIN", "a dropped"]


def test_what_a_transaction_took_back_never_comes(database: Database) -> None:
    """MariaDB logs it where the transaction made a temporary table, or changed one without transactions."""
    server = database.server
    run(database, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE m (id int) ENGINE=MyISAM")
    unsafe = "INSERT INTO m VALUES (1)" if server.flavour.is_mariadb else "DO 0"
    with reading(server, [(database.name, "t")]) as reader:
        run(
            database,
            *("BEGIN", "INSERT INTO t VALUES (1)", "SAVEPOINT s", "CREATE TEMPORARY TABLE x (id int)"),
            *("INSERT INTO t VALUES (2)", "ROLLBACK TO s", "UPDATE t SET id = 3", "COMMIT"),
            *("BEGIN", "INSERT INTO t VALUES (4)", "DROP TEMPORARY TABLE x", "ROLLBACK"),
            *("BEGIN", "SAVEPOINT s", "INSERT INTO t VALUES (5)", unsafe, "ROLLBACK TO s", "COMMIT"),
            "DELETE FROM t",
        )
        insert, update, delete = (rows(server, verb) for verb in ("insert", "update", "delete"))
        changes = [*("BEGIN", "map", insert, "map", update), *("BEGIN", "map", delete)]
        assert names(reader.catch_up()) == changes
        assert [changed for _, changed, _ in reader.ended] == [2, 1]


def test_the_savepoints_of_a_transaction_take_no_more_than_their_room(
    mariadb_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To one of the first it is rolled back as ever; to a later one its table is not known any more."""
    monkeypatch.setattr(gathering, "MOST_SAVEPOINTS", 3)
    known, remember = list[int](), Gathering.set_savepoint

    def remembered(self: Gathering, group: EventGroup, name: bytes) -> None:
        remember(self, group, name)
        known.append(len(group.savepoints))

    monkeypatch.setattr(Gathering, "set_savepoint", remembered)
    database = mariadb_database
    run(database, "CREATE TABLE t (id int PRIMARY KEY)")
    many = [(f"SAVEPOINT s{i}", f"INSERT INTO t VALUES ({i})") for i in range(8)]
    temporary = "CREATE TEMPORARY TABLE {}"
    with reading(database.server, [(database.name, "t")]) as reader:
        for number, back_to in enumerate((2, 6)):
            made = temporary.format(f"x{number} (id int)")
            run(
                database,
                *("BEGIN", *(statement for pair in many for statement in pair), made),
                *(f"ROLLBACK TO s{back_to}", "COMMIT", "DELETE FROM t"),
            )
        insert = rows(database.server, "insert")
        first, _, second, _ = _transactions(names(reader.catch_up()))
        assert first == ["map", insert, "map", insert]
        assert second[-1] == "t rolled_back"
        assert max(known) == 3


def _transactions(words: Sequence[str]) -> list[list[str]]:
    """Words of each transaction."""
    found: list[list[str]] = []
    for word in words:
        if word == "BEGIN":
            found.append([])
        else:
            found[-1].append(word)
    return found


def test_prepared_transactions_run_until_their_end_over_restarts_of_both_sides(database: Database) -> None:
    server = database.server
    run(database, "CREATE TABLE t (id int PRIMARY KEY)")
    start, table = position(server), [(database.name, "t")]
    # MySQL logs this number with its sign in the PREPARE, and without in the COMMIT.
    kept = f"'it''s', X'00FF', {(1 << 31) - 1 if server.flavour.is_mariadb else 3_000_000_000}"
    for number, xid in enumerate([kept, "'gone'"]):
        insert = f"INSERT INTO t VALUES ({number})"
        run(database, f"XA START {xid}", insert, f"XA END {xid}", f"XA PREPARE {xid}")
    with reading(server, table, start) as reader:
        assert reader.catch_up() == []
        assert [len(data) > 0 for data in reader.running.values()] == [True, True]
        stop = reader.position
        assert " open " in stop.text
    server.restart()
    with reading(server, table, stop.text) as reader:
        run(database, "INSERT INTO t VALUES (10)", f"XA COMMIT {kept}", "XA ROLLBACK 'gone'")
        insert = "INSERT INTO t VALUES (11)"
        run(database, "XA START 'one'", insert, "XA END 'one'", "XA COMMIT 'one' ONE PHASE")
        words = reader.catch_up()
        assert names(words)[:3] == ["BEGIN", "map", rows(server, "insert")]
        times = [time for time, _, _ in reader.ended]
        assert [changes for _, changes, _ in reader.ended] == [1, 1, 1]
        assert times == sorted(times)
        assert times[0] >= stop.time
        ended = reader.ended[1][2]
        assert ended in reader.running
        assert ended not in reader.gone
        assert len(reader.gone) == 1
        assert reader.position == LOG.position(position(server))


def test_a_stream_that_is_begun_anew_goes_on_at_the_exact_set(database: Database) -> None:
    server = database.server
    run(database, "CREATE TABLE t (id int PRIMARY KEY)")
    start, table = position(server), [(database.name, "t")]
    for number in range(6):
        run(database, f"INSERT INTO t VALUES ({number})")
    with reading(server, table, start) as whole:
        expected = whole.catch_up()
        ended = whole.ended
    cuts = [start, *(_behind(start, server, number) for number in (2, 5))]
    for at, cut in zip((0, 2, 5), cuts, strict=True):
        with reading(server, table, cut) as reader:
            assert reader.catch_up() == expected[3 * at :]
            assert reader.ended == ended[at:]


def _behind(start: str, server: Server, number: int) -> str:
    """The position so many transactions behind another one, of a server whose only writer we are."""
    if server.flavour.is_mariadb:
        domain, own, last = start.split(",")[0].split("-")
        return ",".join([f"{domain}-{own}-{int(last) + number}", *start.split(",")[1:]])
    [(uuid,)] = server.execute("SELECT @@global.server_uuid")
    return f"{start},{uuid}:1-{_last(start, str(uuid)) + number}"


def _last(text: str, uuid: str) -> int:
    [part] = [each for each in text.replace("\n", "").split(",") if each.startswith(uuid)]
    return int(part.split(":")[1].split("-")[-1])


def test_a_change_larger_than_a_packet_comes_whole(database: Database) -> None:
    server = database.server
    run(database, "CREATE TABLE t (id int PRIMARY KEY, v longblob)")
    run(database, "SET GLOBAL max_allowed_packet = 268435456")
    start = position(server)
    with reading(server, [(database.name, "t")]) as reader:
        run(database, "INSERT INTO t VALUES (1, REPEAT('x', 40000000))", "INSERT INTO t VALUES (2, 'y')")
        insert = rows(server, "insert")
        assert names(reader.catch_up()) == ["BEGIN", "map", insert, "BEGIN", "map", insert]
        assert reader.data.count(b"x" * 1000) == 40_000
    run(database, "SET GLOBAL max_allowed_packet = 1048576")  # what was logged before is sent all the same
    try:
        with reading(server, [(database.name, "t")], start) as again:
            assert len(again.catch_up()) == 6
    finally:
        run(database, "SET GLOBAL max_allowed_packet = 268435456")


def test_what_the_server_lacks_or_has_purged_is_refused(database: Database) -> None:
    server, table = database.server, [(database.name, "t")]
    run(database, "CREATE TABLE t (id int PRIMARY KEY)")
    start = position(server)
    with pytest.raises(HeadraceError) as behind, reading(server, table, _behind(start, server, 1000)):
        pass
    assert behind.value.code == "MY_SERVER_BEHIND"
    run(database, "INSERT INTO t VALUES (1)")
    server.purge()
    run(database, "INSERT INTO t VALUES (2)")
    with pytest.raises(HeadraceError) as purged, reading(server, table, start) as reader:
        reader.catch_up()
    assert purged.value.code == "MY_BINLOG_PURGED"


def test_a_purge_of_rows_that_are_prepared_still_says_so(mysql_database: Database) -> None:
    server, table = mysql_database.server, [(mysql_database.name, "t")]
    run(mysql_database, "CREATE TABLE t (id int PRIMARY KEY)")
    with reading(server, table) as reader:
        run(mysql_database, "XA START 'x'", "INSERT INTO t VALUES (1)", "XA END 'x'", "XA PREPARE 'x'")
        reader.catch_up()
        stop = reader.position.text
    server.purge()
    with pytest.raises(HeadraceError) as purged, reading(server, table, stop):
        pass
    run(mysql_database, "XA ROLLBACK 'x'")
    assert purged.value.code == "MY_BINLOG_PURGED"
    assert "XA RECOVER" in purged.value.hint


def test_two_dumps_live_side_by_side_and_one_that_is_cut_is_lost(database: Database) -> None:
    server, table = database.server, [(database.name, "t")]
    run(database, "CREATE TABLE t (id int PRIMARY KEY)")
    with reading(server, table) as one, reading(server, table) as other:
        assert one.dump.server_id != other.dump.server_id
        run(database, "INSERT INTO t VALUES (1)")
        assert one.catch_up() == other.catch_up() != []
        for number, *_ in server.execute(
            "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
        ):
            server.execute(f"KILL {number}")
        one.heard = None
        with pytest.raises(HeadraceError) as lost:
            one.until_cut()
        assert lost.value.code == "MY_CONNECTION_LOST"


def test_mysqls_compressed_and_tagged_transactions_come_like_others(mysql_database: Database) -> None:
    server = mysql_database.server
    run(mysql_database, "CREATE TABLE t (id int PRIMARY KEY, v json)")
    with reading(server, [(mysql_database.name, "t")]) as reader:
        run(
            mysql_database,
            *("SET SESSION binlog_transaction_compression = ON", "INSERT INTO t VALUES (1, '{\"a\": 1}')"),
            *("SET SESSION binlog_transaction_compression = OFF", "SET gtid_next = 'automatic:blue'"),
            *("INSERT INTO t VALUES (2, '{\"a\": 2}')", "SET gtid_next = 'automatic'"),
            *(
                "SET SESSION binlog_row_value_options = PARTIAL_JSON",
                "UPDATE t SET v = JSON_SET(v, '$.a', 3)",
            ),
        )
        found = reader.catch_up()
        assert names(found) == ["BEGIN", "map", "rows 30"] * 2 + ["BEGIN", "map", "rows 39"]
        assert found[3].startswith("BEGIN ")
        assert ":blue:" in found[3] or "blue:" in found[3]
        tagged = reader.position
    with reading(server, [(mysql_database.name, "t")], tagged.text) as reader:
        run(mysql_database, "DELETE FROM t")
        assert names(reader.catch_up()) == ["BEGIN", "map", "rows 32"]


def test_a_large_compressed_transaction_comes_in_many_small_reads(mysql_database: Database) -> None:
    server = mysql_database.server
    run(mysql_database, "CREATE TABLE t (id int PRIMARY KEY, v longtext)")
    with reading(server, [(mysql_database.name, "t")]) as reader:
        run(
            mysql_database,
            *(
                "SET SESSION binlog_transaction_compression = ON",
                "SET SESSION cte_max_recursion_depth = 3000",
            ),
            "INSERT INTO t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3000) "
            "SELECT i, REPEAT('abcdefgh', 1250) FROM n",
        )
        target = LOG.position(position(server)).time
        sizes = []
        while reader.position.time < target:
            received = reader.dump.read(0.2)
            sizes += [] if received is None else [len(received.data)]
        assert sum(sizes) > 30_000_000
        assert max(sizes) < 2_000_000


def test_mariadbs_domains_and_compressed_events_come_like_others(mariadb_database: Database) -> None:
    server = mariadb_database.server
    run(mariadb_database, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    with reading(server, [(mariadb_database.name, "t")]) as reader:
        many = ", ".join(f"({number}, REPEAT('a', 90))" for number in range(50))
        server.execute("SET GLOBAL log_bin_compress = ON")
        run(mariadb_database, f"INSERT INTO t VALUES {many}", f"TRUNCATE t /* {'x' * 500} */")
        server.execute("SET GLOBAL log_bin_compress = OFF")
        run(mariadb_database, "SET SESSION gtid_domain_id = 8", "INSERT INTO t VALUES (1, 'a')")
        found = reader.catch_up()
        assert names(found) == ["BEGIN", "map", "rows 23", "BEGIN", "t emptied", "BEGIN", "map", "rows 23"]
        assert found[5].startswith("BEGIN 8-")
        assert len(reader.data) > 50 * 90
