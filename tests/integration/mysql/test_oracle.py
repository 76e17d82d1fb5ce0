"""MySQL and MariaDB as judges of a lake: a value has one text in both, a recording is of one moment."""

from __future__ import annotations

import datetime
import math
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from headrace.core.names import TableName
from headrace.sources.mysql.position import parse
from headrace_testing.canonical import difference, lake_rows
from headrace_testing.mysql import Database, Server, mariadb, mysql, replica
from headrace_testing.mysql.server import run
from headrace_testing.oracle.contract import Disconnected, Rejected
from headrace_testing.oracle.mysql_rows import source_rows
from headrace_testing.oracle.registry import oracle_of
from headrace_testing.postmaster import wait_for
from headrace_testing.workload import Bag, Keyed, Large, Transfers, Workload, running

pytestmark = pytest.mark.server

MICROS = pa.timestamp("us")
INSTANT = pa.timestamp("us", tz="UTC")
WIDE = pa.decimal128(20, 0)
POINT = bytes.fromhex("000000000101000000000000000000f03f000000000000f03f")

# type of the source, its literals, type of the lake, the lake's values
VALUES: list[tuple[str, list[str], pa.DataType, list[Any]]] = [
    ("tinyint(1)", ["-128", "9"], pa.int8(), [-128, 9]),
    ("tinyint unsigned zerofill", ["7", "255"], pa.int16(), [7, 255]),
    ("mediumint", ["-8388608"], pa.int32(), [-8388608]),
    ("int(10) unsigned", ["4294967295"], pa.int64(), [4294967295]),
    ("bigint", ["-9223372036854775808"], pa.int64(), [-(2**63)]),
    ("bigint unsigned", ["18446744073709551615"], WIDE, [Decimal(2**64 - 1)]),
    ("decimal(8,4) unsigned zerofill", ["1.5"], pa.decimal128(8, 4), [Decimal("1.5")]),
    (
        "decimal(65,30)",
        ["-0.000000000000000000000000000001", "9" * 35],
        pa.string(),
        ["-0.000000000000000000000000000001", "9" * 35 + "." + "0" * 30],
    ),
    (
        "float",
        ["3.3", "1.4e-45", "3.4028234e38", "16777217"],
        pa.float32(),
        [3.3, 1.4e-45, 3.4028234e38, 2.0**24],
    ),
    ("float(10,2)", ["5.615"], pa.float32(), [5.62]),
    (
        "double",
        [
            "0.1e0 + 0.2e0",
            "4.9e-324",
            "1.7976931348623157e308",
            "2.2250738585072011e-308",
            "9007199254740993",
        ],
        pa.float64(),
        [0.1 + 0.2, 4.9e-324, 1.7976931348623157e308, 2.2250738585072011e-308, 2.0**53],
    ),
    ("bit(1)", ["b'1'", "b'0'"], pa.bool_(), [True, False]),
    ("bit(10)", ["b'1010000101'"], pa.int16(), [0b1010000101]),
    ("bit(64)", ["x'8000000000000001'"], WIDE, [Decimal(2**63 + 1)]),
    ("char(4)", ["'ab  '", "''"], pa.string(), ["ab", ""]),
    (
        "varchar(40)",
        ["'a,\"b\\n\\t\\\\N'", "'日本語 😀'", "'ab  '"],
        pa.string(),
        ['a,"b\n\t\\N', "日本語 😀", "ab  "],
    ),
    ("varchar(20) charset latin1", ["'ÀÆÉ€'"], pa.string(), ["ÀÆÉ€"]),
    ("text charset cp932", ["'ひびぴ'"], pa.string(), ["ひびぴ"]),
    ("char(3) charset ucs2", ["'测试'"], pa.string(), ["测试"]),
    ("enum('a','b,c')", ["'b,c'", "''"], pa.string(), ["b,c", ""]),
    ("set('a','b','c')", ["'c,a'", "''"], pa.string(), ["a,c", ""]),
    ("binary(3)", ["x'01'"], pa.binary(), [b"\x01\x00\x00"]),
    ("varbinary(9)", ["x'00ff'", "''"], pa.binary(), [b"\x00\xff", b""]),
    ("blob", ["x'0a5c00'"], pa.binary(), [b"\n\\\x00"]),
    ("year", ["1901", "0", "2155"], pa.int16(), [1901, 0, 2155]),
    (
        "date",
        [
            "'1969-12-31'",
            "'0001-01-01'",
            "'9999-12-31'",
            "0",
            "'2018-00-01'",
            "'2018-01-00'",
            "'2018-02-31'",
            "'0000-12-31'",
        ],
        pa.date32(),
        [-1, datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None, None, None, None, None],
    ),
    (
        "datetime(6)",
        ["'1969-12-31 23:59:59.999999'", "'0010-01-19 17:17:17.123456'", "0", "'2000-01-00 10:00:00'"],
        MICROS,
        [
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
            datetime.datetime(10, 1, 19, 17, 17, 17, 123456),
            None,
            None,
        ],
    ),
    ("datetime", ["'9999-12-31 23:59:59'"], MICROS, [datetime.datetime(9999, 12, 31, 23, 59, 59)]),
    (
        "timestamp(3) NULL",
        ["'2018-06-26 12:34:56.78'", "0"],
        INSTANT,
        [datetime.datetime(2018, 6, 26, 10, 34, 56, 780000, tzinfo=datetime.UTC), None],
    ),
    (
        "time(6)",
        ["'-838:59:58.999999'", "'00:00:00.5'"],
        pa.string(),
        ["-838:59:58.999999", "00:00:00.500000"],
    ),
    ("time", ["'123:00:00'"], pa.string(), ["123:00:00"]),
    ("point", ["ST_GeomFromText('POINT(1 1)')"], pa.binary(), [POINT]),
]
OF_MYSQL: list[tuple[str, list[str], pa.DataType, list[Any]]] = [
    ("float", ["-0e0"], pa.float32(), [-0.0]),
    ("double", ["-0e0"], pa.float64(), [-0.0]),
    ("json", ['\'{"bb": 1.50, "a":null}\'', "'null'"], pa.string(), ['{"a": null, "bb": 1.5}', "null"]),
    ("vector(2)", ["to_vector('[1.1,-0]')"], pa.list_(pa.float32()), [[1.1, -0.0]]),
]
OF_MARIADB: list[tuple[str, list[str], pa.DataType, list[Any]]] = [
    ("double", ["-0e0", "'-0'"], pa.float64(), [0.0, 0.0]),  # it stores no sign of nothing
    ("json", ['\'{"bb": 1.50, "a":null}\''], pa.string(), ['{"bb": 1.50, "a":null}']),
    (
        "uuid",
        ["'01020304-0506-0708-090A-0B0C0D0E0F10'"],
        pa.string(),
        ["01020304-0506-0708-090a-0b0c0d0e0f10"],
    ),
    ("inet6", ["'2001:DB8::0:1'"], pa.string(), ["2001:db8::1"]),
]


@pytest.fixture(params=("mysql", "mariadb"))
def db(request: pytest.FixtureRequest) -> Iterator[Database]:
    server = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(server, Server)
    server.start()
    with server.database() as made:
        yield made


def _rows(db: Database, table: str) -> Any:
    with db.connect() as connection:
        return source_rows(connection, TableName(db.name, table))


def test_a_value_has_one_text(db: Database) -> None:
    """Under settings of the writer that the reader has to be safe from."""
    hostile = "SET time_zone = '+02:00', sql_mode = 'ALLOW_INVALID_DATES,PAD_CHAR_TO_FULL_LENGTH'"
    differing = {}
    with db.connect(init_command=hostile) as writer:
        for kind, literals, lake_type, values in VALUES + (
            OF_MARIADB if db.server.flavour.is_mariadb else OF_MYSQL
        ):
            run(writer, "DROP TABLE IF EXISTS `odd``name`")
            run(writer, f"CREATE TABLE `odd``name` (id int, `the``value` {kind})")
            for number, literal in enumerate([*literals, "NULL"]):
                run(writer, f"INSERT INTO `odd``name` VALUES ({number}, {literal})")
            held = pa.array([*values, None], lake_type)
            lake = lake_rows(pa.table({"id": pa.array(range(len(held)), pa.int32()), "the`value": held}))
            source = source_rows(writer, TableName(db.name, "odd`name"))
            assert source.names == lake.names == ("id", "the`value")
            if rows := difference(lake.frame, source.frame).rows():
                differing[kind] = rows
            run(writer, hostile)
    assert differing == {}


def test_a_number_has_its_own_bits(db: Database, seed: int) -> None:
    dice = random.Random(seed)
    doubles = [struct.unpack("<d", dice.randbytes(8))[0] for _ in range(300)]
    floats = [struct.unpack("<f", dice.randbytes(4))[0] for _ in range(300)]
    finite = [pair for pair in zip(doubles, floats, strict=True) if all(map(math.isfinite, pair))]
    db.execute("CREATE TABLE t (a double, b float)")
    with db.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s)", [(repr(a), repr(b)) for a, b in finite])
    columns = zip(*finite, strict=True)
    held = [
        pa.array(column, kind) for column, kind in zip(columns, (pa.float64(), pa.float32()), strict=True)
    ]
    lake = lake_rows(pa.table(held, names=["a", "b"]))
    assert difference(lake.frame, _rows(db, "t").frame).rows() == []


def test_generated_and_invisible_columns_are_told_with_the_others(db: Database) -> None:
    db.execute("CREATE TABLE t (a int PRIMARY KEY, b int AS (2 * a) VIRTUAL, c int INVISIBLE DEFAULT 7)")
    db.execute("INSERT INTO t (a) VALUES (15)")
    found = _rows(db, "t")
    assert found.names == ("a", "b", "c")
    assert found.frame.rows() == [("15", "30", "7", 1)]


def test_a_key_is_told_in_its_own_order(db: Database) -> None:
    db.execute("CREATE TABLE t (a int, b int, c int, PRIMARY KEY (c, a))")
    db.execute("CREATE TABLE bag (a int)")
    with oracle_of(db.url()).moment(db.url(user="app")) as moment:
        assert moment.key(TableName(db.name, "t")) == ("c", "a")
        assert moment.key(TableName(db.name, "bag")) == ()


def test_a_moment_stands_still(db: Database) -> None:
    db.execute("CREATE TABLE t (a int PRIMARY KEY)")
    with oracle_of(db.url()).moment(db.url(user="app")) as moment:
        db.execute("INSERT INTO t VALUES (1)")
        assert moment.rows(TableName(db.name, "t")).frame.height == 0
    assert _rows(db, "t").frame.height == 1


def test_a_recording_has_whole_transactions_and_their_count(db: Database, seed: int) -> None:
    url, work = db.url(user="app"), Transfers()
    tables = [str(TableName(db.name, name)) for name in work.names]
    before = oracle_of(url).record(url, []).position
    with running(work, url, seed=seed, writers=3, pause=0.001) as writing:
        recordings = []
        for count in (10, 60):
            wait_for(lambda count=count: writing.committed > count, "transfers")  # type: ignore[misc]
            recordings.append(oracle_of(url).record(url, tables))
    after = oracle_of(url).record(url, tables)
    assert before < recordings[0].position < recordings[1].position < after.position
    for recording in (*recordings, after):
        out, into = (recording.rows[table].select(("transfer", "revision", "parts")) for table in tables)
        # A transfer's rows of one revision are in both tables, as many as it has parts.
        assert difference(out.frame, into.frame).rows() == []
        assert all(int(parts) == n for _, _, parts, n in out.frame.rows())


UNTIL = {"mysql": "SQL_AFTER_GTIDS =", "mariadb": "MASTER_GTID_POS ="}


@pytest.mark.full
@pytest.mark.parametrize("kind", [mysql, mariadb])
def test_a_recording_is_what_a_replica_shows_that_stops_at_its_position(
    kind: Callable[[], AbstractContextManager[Server]], seed: int
) -> None:
    """The server itself replays its log up to there, and no further."""
    with kind() as source, replica(source) as second, source.database("shop") as db:
        second.catch_up()
        second.stop()
        url, work = db.url(user="app"), Keyed(rows=20, keys=50)
        table = TableName("shop", work.name)
        with running(work, url, seed=seed, writers=3) as writing:
            wait_for(lambda: writing.committed > 100, "a hundred transactions")
            recording = oracle_of(url).record(url, [str(table)])
            wait_for(lambda: writing.committed > 200, "a hundred more")
        place = f"{UNTIL[source.flavour.name]} '{recording.position.text}'"
        second.server.execute(f"START REPLICA UNTIL {place}")
        executed = second.server.flavour.executed
        wait_for(
            lambda: parse(second.server.execute(executed)[0][0]) == parse(recording.position.text),
            "the replica stops there",
        )
        with second.server.connect() as connection:
            shown = source_rows(connection, table)
        assert difference(shown.frame, recording.rows[str(table)].frame).rows() == []
        assert difference(shown.frame, _rows(db, work.name).frame).rows() != []


@pytest.mark.parametrize(
    "work", [Keyed(rows=20, keys=50), Bag(), Large(pause=0.0)], ids=["keyed", "bag", "large"]
)
def test_a_workload_changes_rows_on_these_servers(db: Database, work: Workload, seed: int) -> None:
    with running(work, db.url(user="app"), seed=seed, writers=2, times=20) as writing:
        wait_for(lambda: writing.finished, "the writers end")
    assert writing.committed > writing.failed
    assert _rows(db, work.name).frame.height > 0  # type: ignore[attr-defined]


def test_errors_that_a_writer_must_expect_are_those_of_the_contract(db: Database) -> None:
    oracle = oracle_of(db.url())
    with oracle.session(db.url(user="app")) as one, oracle.session(db.url(user="app")) as other:
        one.execute("CREATE TABLE t (a int PRIMARY KEY, n int)")
        one.execute("INSERT INTO t VALUES (1, 0), (2, 0)")
        one.commit()
        with pytest.raises(Rejected):
            other.execute("INSERT INTO t VALUES (1, 1)")
        with pytest.raises(pymysql.err.ProgrammingError):
            other.execute("INSERT INTO nowhere VALUES (1)")
        one.make_counter("numbers")
        assert (one.next_number("numbers"), other.next_number("numbers")) == (1, 2)
        one.rollback()
        assert one.next_number("numbers") == 3
        db.server.crash()
        with pytest.raises(Disconnected):
            one.execute("UPDATE t SET n = 1")
        with pytest.raises(Disconnected):
            one.commit()
    with pytest.raises(Disconnected), oracle.session(db.url(user="app")):
        pass


def test_a_login_keeps_its_secret_apart(db: Database) -> None:
    login = oracle_of(db.url()).login(db.url(user="app"))
    assert db.server.password not in login.address
    assert login.environment == {"MYSQL_PWD": db.server.password}
