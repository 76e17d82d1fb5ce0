"""A real server's binlog into a real spool, over restarts: each transaction is there once, in order."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.core.errors import HeadraceError
from headrace.core.hashing import HashKey
from headrace.core.names import TableName
from headrace.core.position import STEP
from headrace.core.records import to_record
from headrace.ingest.replay_check import RecentTransactions
from headrace.ingest.store_stream import Intake
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.contract.stream import Orders, Stream
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import identify
from headrace.sources.mysql.stream_source import STREAM_SOURCE
from headrace.sources.mysql.upstream import MysqlUpstream
from headrace.spool.layout import Kind
from headrace.spool.reader import SpoolReader
from headrace.spool.writer import SpoolWriter
from headrace_testing.mysql import Database
from tests.integration.mysql.stream.reading import position
from tests.integration.mysql.stream.test_dump import run

BASE = 1 << 33
DEADLINE = 60.0


@pytest.fixture(params=["mysql", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found


def orders_of(database: Database) -> Orders:
    """An order to follow a table from now on."""
    address = MysqlAddress.parse(database.server.url(user="mirror"))
    with connect(address, role="test") as session:
        identity = to_record(identify(session))
    upstream = MysqlUpstream(((database.name, "t"),), BASE)
    start = upstream.log.position(position(database.server))
    return Orders(database.server.url(user="mirror"), identity, to_record(upstream), start, start)


@contextmanager
def receiving(folder: Path, orders: Orders) -> Iterator[tuple[SpoolWriter, Intake, Stream]]:
    """A session of a receiver; as `ingest.worker` does it."""
    with SpoolWriter(folder, 1 << 30, orders.frontier.time) as writer:
        writer.places.say(orders.frontier)
        known = RecentTransactions.of(
            folder, lambda sent, again: STREAM_SOURCE.history_changed({}, sent, again)
        )
        reached = writer.places.newest
        assert reached is not None
        with closing(STREAM_SOURCE.open_stream(replace(orders, received_until=reached))) as stream:
            yield writer, Intake(writer, known.from_start(stream.start.time)), stream


@contextmanager
def received(folder: Path, orders: Orders) -> Iterator[tuple[SpoolWriter, Intake]]:
    """A session of a receiver up to where the server is."""
    with receiving(folder, orders) as (writer, intake, stream):
        quiet, deadline = 0, time.monotonic() + DEADLINE
        while quiet < 3:
            if time.monotonic() > deadline:
                raise TimeoutError("the stream does not end")
            came = stream.read(0.1)
            quiet = quiet + 1 if came is None else 0
            if came is not None:
                intake.take(came)
        intake.settle()
        yield writer, intake


def test_a_spool_has_each_transaction_once_over_sessions(database: Database, tmp_path: Path) -> None:
    server = database.server
    run(database, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY)")
    orders = orders_of(database)
    log = MysqlUpstream.of(orders.upstream).log
    run(database, "INSERT INTO t VALUES (1)", "INSERT INTO other VALUES (1)")
    run(database, "XA START 'x'", "INSERT INTO t VALUES (2)", "XA END 'x'", "XA PREPARE 'x'")
    run(database, "INSERT INTO other VALUES (2)")
    with received(tmp_path, orders) as (writer, intake):
        assert len(intake.running) == 1
        assert writer.places.newest is not None
        assert " open " in writer.places.newest.text
        assert writer.frontier == log.position(writer.places.newest.text).time
    run(database, "XA COMMIT 'x'", "INSERT INTO t VALUES (3), (4)")
    with received(tmp_path, orders) as (writer, intake):
        assert len(intake.running) == 0
        assert writer.places.newest == log.position(position(server))
        found = SpoolReader(tmp_path).transactions(0)
        mine = found[found["changes"] > 0]
        first = orders.frontier.time
        assert [(each["time"] - first) // STEP for each in mine] == [0, 4, 5]
        kinds = [Kind.TRANSACTION, Kind.STREAMED, Kind.TRANSACTION]
        assert [Kind(each["kind"]) for each in mine] == kinds


def test_another_server_behind_the_name_is_refused(
    mysql_database: Database, mariadb_database: Database
) -> None:
    for database, other in ((mysql_database, mariadb_database), (mariadb_database, mysql_database)):
        orders = replace(orders_of(database), address=other.server.url(user="mirror"))
        with pytest.raises(HeadraceError) as refused:
            STREAM_SOURCE.open_stream(orders)
        assert refused.value.code == "MY_ANOTHER_SERVER"


def test_a_receiver_of_binlogs_loads_no_arrow() -> None:
    asked = "import sys, headrace.sources.mysql.stream_source; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


CANARY, SHOWN = "canary-77ab01", "shown-55cd02"
KEY = HashKey("5f0c6a1d9e3b47c2" * 2)


def test_no_spool_has_values_of_columns_that_must_not_leave(database: Database, tmp_path: Path) -> None:
    """By rows of any size and image, in running transactions, and as the constant of an ALTER TABLE."""
    table = f"{database.name}.t"
    columns = "id int PRIMARY KEY, s varchar(90), secret varchar(90), b longtext, n decimal(20), j json"
    run(database, f"CREATE TABLE t ({columns})")
    rules = ColumnRules.parse(json.dumps({table: {"exclude": ["b", "n", "j"], "hash": ["secret"]}}))
    orders = orders_of(database)
    fixed = rules.fix_columns({TableName.parse(table): ["id", "s", "secret"]})
    known = replace(MysqlUpstream.of(orders.upstream), columns=fixed.text)
    orders = replace(orders, upstream=to_record(known), hash_key=KEY.text)
    secret = f"'{CANARY}', '{CANARY}', 1234567890123, '{{\"a\": \"{CANARY}\"}}'"
    run(database, f"INSERT INTO t VALUES (1, '{SHOWN}', {secret}), (2, NULL, NULL, NULL, NULL, NULL)")
    run(database, f"UPDATE t SET secret = CONCAT(secret, 'x'), b = REPEAT('{CANARY}', 60000)")
    minimal = "SET SESSION binlog_row_image = MINIMAL"
    run(database, minimal, f"UPDATE t SET secret = '{CANARY}-m' WHERE id = 1")
    run(database, f"ALTER TABLE t ADD COLUMN late varchar(90) NOT NULL DEFAULT '{CANARY}', ADD COLUMN x int")
    row = f"INSERT INTO t VALUES (3, '{SHOWN}', {secret}, '{CANARY}', 7)"
    run(database, "XA START 'y'", row, "XA END 'y'", "XA PREPARE 'y'")
    try:
        with received(tmp_path, orders) as (writer, _):
            assert writer.frontier > orders.frontier.time
    finally:
        run(database, "XA ROLLBACK 'y'")
    spooled = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert spooled.count(SHOWN.encode()) >= 3
    assert CANARY.encode() not in spooled
    hashes = [KEY.hash(text.encode()).encode() for text in (CANARY, f"{CANARY}x")]
    assert [spooled.count(each) for each in hashes] == [3, 1]  # an insert, an old row, one of XA; a new row
    assert KEY.text.encode() not in spooled
