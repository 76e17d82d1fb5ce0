"""Rate at which bytes become Arrow: each step beside its peers, on the same bytes, in one run.

    python bench/decode_rate.py [--rows N] [--repeat N]

The rows have 8 columns: bigint, integer, two texts, numeric(12,2), timestamptz, boolean, double
precision. Peers: the reference twin (a plain Python loop over the bytes), and psycopg's C text loaders
on the values already cut out by us, which is less work than the step beside it does. One process, one
thread; seconds are of CPU time, the best of the repeats, since a machine is rarely quiet.
"""

from __future__ import annotations

import argparse
import random
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg.pq import Format

from headrace.core.schema import Column, TableSchema
from headrace.decode import copydata, copyrows, pgoutput
from headrace.decode.kernel import Bytes
from headrace.decode.pgoutput import batch
from headrace.decode.values import decode_column
from headrace_testing.figures import keep
from headrace_testing.reference import framing as slow_framing
from headrace_testing.reference import rows as slow_rows
from headrace_testing.reference import values as slow_values

UTC = pa.timestamp("us", tz="UTC")
COLUMNS = (
    Column("id", pa.int64(), "int", "bigint"),
    Column("n", pa.int32(), "int", "integer"),
    Column("name", pa.string(), "text", "text"),
    Column("note", pa.string(), "text", "text"),
    Column("amount", pa.decimal128(12, 2), "decimal", "numeric(12,2)"),
    Column("at", UTC, "timestamptz", "timestamptz"),
    Column("flag", pa.bool_(), "bool", "boolean"),
    Column("ratio", pa.float64(), "float", "double precision"),
)
OIDS = (20, 23, 25, 25, 1700, 1184, 16, 701)
SCHEMA = TableSchema(COLUMNS, ("id",), full=False)
PER_TRANSACTION = 100
Row = list[bytes | None]


def made_rows(count: int) -> list[Row]:
    """Rows like those of an application; one note in ten is NULL."""
    dice = random.Random(1)
    return [
        [
            b"%d" % (10_000_000 + i),
            b"%d" % dice.randrange(-(10**6), 10**6),
            b"customer-%06d" % dice.randrange(10**6),
            None if dice.random() < 0.1 else b"a note of some length, number %d" % i,
            b"%d.%02d" % (dice.randrange(10**5), dice.randrange(100)),
            b"2026-%02d-%02d 13:51:30.%06d+00"
            % (dice.randrange(1, 13), dice.randrange(1, 29), dice.randrange(1, 10**6)),
            b"t" if i % 3 else b"f",
            repr(dice.random()).encode(),
        ]
        for i in range(count)
    ]


def copy_data(payload: bytes) -> bytes:
    return b"d" + struct.pack(">I", len(payload) + 4) + payload


def insert(row: Row) -> bytes:
    values = b"".join(b"n" if v is None else b"t" + struct.pack(">I", len(v)) + v for v in row)
    return copy_data(b"w" + bytes(24) + b"I" + struct.pack(">I", 16384) + b"N" + b"\x00\x08" + values)


def stream_of(rows: list[Row]) -> Bytes:
    """The rows as inserts, in transactions of a hundred."""
    begin = copy_data(b"w" + bytes(24) + b"B" + struct.pack(">qqI", 1, 2, 3))
    commit = copy_data(b"w" + bytes(24) + b"C" + struct.pack(">Bqqq", 0, 1, 2, 3))
    parts = []
    for at in range(0, len(rows), PER_TRANSACTION):
        parts += [begin, *map(insert, rows[at : at + PER_TRANSACTION]), commit]
    return np.frombuffer(b"".join(parts), np.uint8)


def payload_of(rows: list[Row]) -> Bytes:
    """The rows as COPY text."""
    lines = (b"\t".join(map(slow_rows.encode, row)) + b"\n" for row in rows)
    return np.frombuffer(b"".join(lines), np.uint8)


def changes(data: Bytes, messages: pgoutput.Messages) -> Any:
    mine = messages.take(np.flatnonzero(messages.relation == 16384))
    zeros = np.zeros(len(mine), np.int64)
    meta = batch.PgoutputChangeMeta(zeros, zeros, zeros, zeros)
    return batch.changes(data, mine, np.arange(8), SCHEMA, meta)


def copied(data: Bytes) -> Any:
    pairs = zip(copyrows.text_columns(data, 8), COLUMNS, strict=True)
    return [decode_column(text, column.form, column.type) for text, column in pairs]


def by_reference(rows: list[Row]) -> None:
    for row in rows:
        for value, column in zip(row, COLUMNS, strict=True):
            if value is not None:
                slow_values.parse(value, column.form, column.type)


def changes_by_reference(data: bytes) -> None:
    messages, _, _ = slow_framing.scan(data)
    cut = [
        slow_rows.change(data[m.start : m.stop], 8)[2] for m in messages if m.relation and m.kind == ord("I")
    ]
    by_reference(cut)  # type: ignore[arg-type]


def copied_by_reference(data: bytes) -> None:
    by_reference(slow_rows.copy_rows(data, 8))


def by_psycopg(rows: list[Row]) -> None:
    """psycopg's loaders as its own COPY calls them, one row at a time."""
    transformer = psycopg.adapt.Transformer()
    transformer.set_loader_types(OIDS, Format.TEXT)
    for row in rows:
        transformer.load_sequence(row)


def best(repeat: int, step: Callable[[], object]) -> float:
    took = []
    for _ in range(repeat):
        start = time.process_time()
        step()
        took.append(time.process_time() - start)
    return min(took)


def show(name: str, count: int, what: str, size: int, seconds: float) -> None:
    print(f"{name:<44} {count / seconds / 1e6:9.3f} M {what:<9} {size / seconds / 1e6:9.0f} MB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    rows = made_rows(given.rows)
    few = rows[: max(given.rows // 50, 1000)]
    stream, payload = stream_of(rows), payload_of(rows)
    small_stream, small_payload = stream_of(few).tobytes(), payload_of(few).tobytes()
    messages = pgoutput.scan(stream)

    def timed(name: str, count: int, what: str, size: int, step: Callable[[], object]) -> float:
        seconds = best(given.repeat, step)
        show(name, count, what, size, seconds)
        return seconds

    timed("copydata.frames", len(messages), "messages", len(stream), lambda: copydata.frames(stream))
    scan = timed("pgoutput.scan", len(messages), "messages", len(stream), lambda: pgoutput.scan(stream))
    cut = timed("pgoutput.changes", len(rows), "rows", len(stream), lambda: changes(stream, messages))
    keep(million_rows_a_second=len(rows) / (scan + cut) / 1e6)
    timed(
        "  beside: reference, scan and changes",
        len(few),
        "rows",
        len(small_stream),
        lambda: changes_by_reference(small_stream),
    )
    timed("copyrows.text_columns", len(rows), "rows", len(payload), lambda: copyrows.text_columns(payload, 8))
    timed("copyrows.text_columns and values", len(rows), "rows", len(payload), lambda: copied(payload))
    timed(
        "  beside: reference",
        len(few),
        "rows",
        len(small_payload),
        lambda: copied_by_reference(small_payload),
    )
    timed(
        "  beside: psycopg's text loaders alone",
        len(few),
        "rows",
        len(small_payload),
        lambda: by_psycopg(few),
    )
    texts = copyrows.text_columns(payload, 8)
    for text, column in zip(texts, COLUMNS, strict=True):
        size = int(text.lengths.sum())
        timed(
            f"  values: {column.source_type}",
            len(rows),
            "values",
            size,
            lambda text=text, column=column: decode_column(text, column.form, column.type),  # type: ignore[misc]
        )


if __name__ == "__main__":
    main()
