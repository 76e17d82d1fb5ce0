"""Rows carry the name of the transaction that made them, a number or a text."""

import pyarrow as pa

from headrace.core import difference
from headrace.core.change_batch import change_schema
from headrace.core.history import history_schema
from headrace.core.key_events import KeyEvent
from headrace.core.records import from_record, to_record
from headrace.core.schema import Column, TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.core.truncation import Truncation, ends, take_back

COLUMNS = (Column("id", pa.int64(), "int", "bigint", nullable=False),)
SCHEMA = TableSchema(COLUMNS, key=("id",), full=True, transaction=TransactionId.GTID)
ROWS = pa.table({"id": pa.array([1, 2], pa.int64())}, schema=SCHEMA.arrow())
EMPTIED = Truncation(time=80, ordinal=3, transaction="u:5", commit_ts=1)


def test_history_calls_a_gtid_by_its_name() -> None:
    assert history_schema(SCHEMA).field("_gtid").type == pa.string()
    assert change_schema(SCHEMA).field("_transaction").type == pa.string()


def test_a_schema_remembers_how_transactions_are_named() -> None:
    assert from_record(TableSchema, to_record(SCHEMA)) == SCHEMA


def test_rows_that_a_truncation_took_name_its_transaction() -> None:
    told = take_back(SCHEMA, ROWS, EMPTIED)
    assert told["_gtid"].to_pylist() == ["u:5", "u:5"]
    assert told["_time"].to_pylist() == [80, 80]


def test_deletes_at_a_truncation_name_its_transaction() -> None:
    kinds = {"_key": pa.large_binary(), "_time": pa.int64(), "_ordinal": pa.int64()}
    kinds |= {"_transaction": pa.string(), "_commit_ts": pa.timestamp("us", "UTC"), "_event": pa.uint8()}
    values = [[b"k"], [8], [0], ["u:1"], [1], [int(KeyEvent.INSERT)]]
    events = pa.table(
        [pa.array(v, t) for v, t in zip(values, kinds.values(), strict=True)], names=list(kinds)
    )
    found = ends([EMPTIED], events, pa.array([], pa.large_binary()))
    assert found["_transaction"].to_pylist() == ["u:5"]


def test_a_difference_that_no_transaction_made_names_nobody() -> None:
    told = difference.history(
        SCHEMA, ROWS.slice(0, 1), ROWS, difference.DifferenceMoment(time=8, commit_ts=1)
    )
    assert told["_gtid"].to_pylist() == [""]
