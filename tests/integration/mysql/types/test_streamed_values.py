"""The binlog and a result set give the same bits of every type, on MySQL and on MariaDB, whoever wrote."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.change_batch import Image, Op
from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.decode.copyrows import CopiedRows
from headrace.decode.kernel import Bytes
from headrace.decode.mysql import result_rows
from headrace.sources.contract.decoder import TableChanges, TableFailure, TableFilter
from headrace.sources.mysql.catalog.table_def import table_number
from headrace.sources.mysql.decode.decoder import MysqlDecoder
from headrace.sources.mysql.flavour import Flavour
from headrace_testing.mysql import Server
from tests.integration.mysql.types.binlogs import Tail, executed
from tests.integration.mysql.types.result_sets import KINDS, EveryType, of_kind

pytestmark = pytest.mark.server


class Streamed:
    """A table of every type, and what the binlog says of it from here on."""

    def __init__(self, server: Server, table: EveryType) -> None:
        self.table = table
        self.name = TableName(table.db.name, "every")
        self.schema = TableSchema(tuple(table.columns), ("id",), True, transaction=TransactionId.GTID)
        self.decoder = MysqlDecoder(Flavour(server.flavour.name))
        self._tail = Tail.of(server)

    def frames(self) -> bytes:
        return self._tail.frames(self.table.db.name)

    def found(self) -> list[TableChanges | TableFailure]:
        return self.decoded(np.frombuffer(self.frames(), np.uint8))

    def decoded(self, data: Bytes) -> list[TableChanges | TableFailure]:
        wanted = {table_number(self.name): TableFilter(self.name, self.schema, 0)}
        return list(self.decoder.decode(data, self.decoder.between([]), wanted))

    def changes(self) -> TableChanges:
        [found] = self.found()
        assert isinstance(found, TableChanges), found
        return found

    def copied(self) -> CopiedRows:
        return result_rows.decode(self.table.rows(), self.table.columns)


@pytest.fixture(params=KINDS)
def streamed(request: pytest.FixtureRequest) -> Iterator[Streamed]:
    server: Server = request.getfixturevalue(f"{request.param}_server")
    with server.database() as db:
        table = EveryType(db, of_kind(server))
        table.create()
        yield Streamed(server, table)


def _side(changes: TableChanges, side: str, op: Op, width: int) -> list[pa.Array]:
    rows = changes.batch.filter(pa.compute.equal(changes.batch["_op"], int(op)))
    return [rows.column(f"{side}{i}") for i in range(width)]


def _copied(copied: CopiedRows) -> list[pa.Array]:
    return [column.combine_chunks() for column in copied.rows.columns]


def _texts(copied: CopiedRows) -> set[tuple[int, int, str]]:
    """The values without a form, by column and row."""
    return {
        (each.column, int(row), text)
        for each in copied.unrepresentable
        for row, text in zip(each.rows, each.texts.to_pylist(), strict=True)
    }


def _bad(changes: TableChanges, time: int, side: str) -> set[tuple[int, int, str]]:
    return {
        (row["column"], row["_ordinal"], row["raw"])
        for row in changes.bad.to_pylist()
        if (row["_time"], row["side"]) == (time, side)
    }


def test_every_value_is_streamed_with_the_bits_that_a_copy_gives(streamed: Streamed) -> None:
    table, width = streamed.table, len(streamed.schema.columns)
    table.insert()
    copied = streamed.copied()
    with table.db.connect() as connection:
        executed(
            connection, "SET SESSION sql_mode = ''", "UPDATE every SET id = -id - 1", "DELETE FROM every"
        )
    changes = streamed.changes()
    rows = _copied(copied)
    assert _side(changes, "n", Op.INSERT, width) == rows
    assert _side(changes, "o", Op.UPDATE, width) == rows
    assert _side(changes, "n", Op.UPDATE, width)[1:] == rows[1:]
    assert {*map(len, _side(changes, "n", Op.DELETE, width))} == {len(rows[0])}
    assert _bad(changes, 8, "n") == _texts(copied) != set()
    assert _bad(changes, 16, "o") == _bad(changes, 16, "n") == _texts(copied)
    images = dict(zip(changes.batch["_op"].to_pylist(), changes.batch["_image"].to_pylist(), strict=True))
    assert images == {Op.INSERT: Image.NONE, Op.UPDATE: Image.FULL, Op.DELETE: Image.FULL}
    names = [f"7-1-{number}" for number in (1, 2, 3)]
    assert changes.batch["_transaction"].unique().to_pylist() == names


def test_the_writers_session_changes_no_bit(streamed: Streamed) -> None:
    table = streamed.table
    written = ", ".join(str(of.values[0].literal) for of in table.types)
    with table.db.connect() as connection:
        executed(connection, "SET SESSION sql_mode = 'PAD_CHAR_TO_FULL_LENGTH', time_zone = '-11:30'")
        executed(connection, f"INSERT INTO every VALUES (0, {written})")
        executed(
            connection, "SET SESSION character_set_results = latin1, sql_mode = ''", "UPDATE every SET id = 1"
        )
    changes, width = streamed.changes(), len(streamed.schema.columns)
    assert _side(changes, "n", Op.UPDATE, width) == _copied(streamed.copied())
    assert _side(changes, "n", Op.INSERT, width)[1:] == _side(changes, "o", Op.UPDATE, width)[1:]


def test_a_change_of_the_layout_fails_its_table_at_its_time_and_keeps_what_came_before(
    streamed: Streamed,
) -> None:
    with streamed.table.db.connect() as connection:
        executed(
            connection,
            "INSERT INTO every (id) VALUES (1)",
            "ALTER TABLE every MODIFY c6 smallint unsigned",
            "INSERT INTO every (id) VALUES (2)",
        )
    before, failure = streamed.found()
    assert isinstance(before, TableChanges)
    assert isinstance(failure, TableFailure)
    assert before.batch["n0"].to_pylist() == [1]
    assert failure.failure.code == "TABLE_LAYOUT_UNKNOWN"
    assert "_time 24" in str(failure.failure.detail)


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("SET SESSION binlog_row_image = MINIMAL", "MY_ROW_IMAGE_PARTIAL"),
        ("SET GLOBAL binlog_row_metadata = MINIMAL", "MY_ROW_METADATA_BARE"),
    ],
)
def test_an_event_that_says_too_little_fails_its_table_at_its_own_transaction(
    streamed: Streamed, setting: str, code: str
) -> None:
    with streamed.table.db.connect() as connection:
        executed(connection, "INSERT INTO every (id) VALUES (1)", "INSERT INTO every (id) VALUES (2)")
        executed(connection, setting, "UPDATE every SET c0 = 5 WHERE id = 2")
        executed(connection, "SET GLOBAL binlog_row_metadata = FULL")
    before, failure = streamed.found()
    assert isinstance(before, TableChanges)
    assert before.batch["n0"].to_pylist() == [1, 2]
    assert isinstance(failure, TableFailure)
    assert failure.failure.code == code
    assert "in the transaction of _time 24" in str(failure.failure.detail)


def test_a_partial_update_of_json_fails_its_table(mysql_server: Server) -> None:
    with mysql_server.database() as db:
        db.execute("CREATE TABLE every (id int PRIMARY KEY, c0 json)")
        db.execute("""INSERT INTO every VALUES (1, CONCAT('{"a": 1, "b": "', REPEAT('x', 500), '"}'))""")
        streamed = Streamed(mysql_server, EveryType(db, []))
        with db.connect() as connection:
            executed(
                connection,
                "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
                "UPDATE every SET c0 = JSON_SET(c0, '$.a', 2)",
            )
        [failure] = streamed.found()
    assert isinstance(failure, TableFailure)
    assert failure.failure.code == "MY_ROW_JSON_PARTIAL"


def test_a_document_of_twenty_megabytes_takes_seconds(mysql_server: Server) -> None:
    with mysql_server.database() as db:
        db.execute("CREATE TABLE every (id int PRIMARY KEY, c0 json)")
        streamed = Streamed(mysql_server, EveryType(db, []))
        part = '"abcd", 1.5, {"k": "\\\\"é"}, 70000, null, '
        db.execute(f"INSERT INTO every VALUES (1, CONCAT('[', REPEAT('{part}', 500000), '0]'))")
        data = np.frombuffer(streamed.frames(), np.uint8)
        begun = time.process_time()
        [changes] = streamed.decoded(data)
        seconds = time.process_time() - begun
        [(shown,)] = db.execute("SELECT CAST(c0 AS CHAR) FROM every")
    assert isinstance(changes, TableChanges)
    [text] = changes.batch["n1"].to_pylist()
    assert len(text.encode()) > 20_000_000
    assert text == shown
    assert seconds < 4  # two for the document


def test_a_hash_that_mariadb_hides_in_its_rows_is_stepped_over(mariadb_server: Server) -> None:
    with mariadb_server.database() as db:
        db.execute("CREATE TABLE every (id int PRIMARY KEY, c0 longtext, c1 int, UNIQUE (c0))")
        streamed = Streamed(mariadb_server, EveryType(db, []))
        db.execute("INSERT INTO every VALUES (1, 'x', 2)")
        changes = streamed.changes()
    assert [changes.batch[f"n{i}"].to_pylist() for i in range(3)] == [[1], ["x"], [2]]
