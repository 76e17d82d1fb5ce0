"""Rate at which row events of MySQL become Arrow: each step on the same bytes, in one run.

    python bench/mysql_decode_rate.py [--rows N] [--repeat N] [--rows-per-event N]

The rows have 8 columns: bigint, int, two varchars, decimal(12,2), datetime(6), tinyint, double; transactions
are of a hundred rows. Beside it stands the twin of the row walk, a plain Python loop over the same bytes. One
process, one thread; seconds are of CPU time, the best of the repeats.
"""

from __future__ import annotations

import argparse
import random
import resource
import struct
import time
from collections.abc import Callable, Iterator

import numpy as np

from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.decode.kernel import Bytes
from headrace.decode.mysql.framing import scan
from headrace.sources.contract.decoder import TableChanges, TableFilter
from headrace.sources.mysql.catalog.table_def import table_number
from headrace.sources.mysql.decode.context import MysqlStreamContext
from headrace.sources.mysql.decode.decoder import MysqlDecoder
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.stream import frames
from headrace.sources.mysql.types.columns import column_of
from headrace_testing.reference.mysql import row_events as reference

NAME = TableName("shop", "orders")
TYPES = (
    *(("id", "bigint"), ("n", "int"), ("name", "varchar(40)"), ("note", "varchar(300)")),
    *(("amount", "decimal(12,2)"), ("at", "datetime(6)"), ("flag", "tinyint"), ("ratio", "double")),
)
SCHEMA = TableSchema(
    tuple(column_of(name, kind, "utf8mb4") for name, kind in TYPES),
    ("id",),
    full=True,
    transaction=TransactionId.GTID,
)
DECODER = MysqlDecoder(Flavour.MYSQL)
TABLES = {table_number(NAME): TableFilter(NAME, SCHEMA, 0)}
PER_TRANSACTION = 100
PIECE = 32 << 20


def table_map() -> bytes:
    """The table map of the rows, with all that FULL metadata says."""
    names = b"".join(bytes([len(name)]) + name.encode() for name, _ in TYPES)
    fields = (
        b"\x01\x01\x00"
        + b"\x03\x06\xfc\xff\x00\xfc\xff\x00"
        + bytes([4, len(names)])
        + names
        + b"\x08\x01\x00"
    )
    kinds, metadata = bytes([8, 3, 15, 15, 246, 18, 1, 5]), struct.pack("<HHBBBB", 160, 1200, 12, 2, 6, 8)
    head = struct.pack("<IHH", 7, 0, 1) + b"\x04shop\x00\x06orders\x00"
    return head + bytes([8]) + kinds + bytes([len(metadata)]) + metadata + b"\xfe" + fields


def image(dice: random.Random, number: int) -> bytes:
    """A row like those of an application; one note in ten is NULL."""
    name, note = b"customer-%06d" % dice.randrange(10**6), b"a note of some length, number %d" % number
    absent = dice.random() < 0.1
    moment = (2026 * 13 + dice.randrange(1, 13)) << 22 | dice.randrange(1, 29) << 17 | 13 << 12 | 51 << 6 | 30
    return b"".join(
        (
            b"\x08" if absent else b"\x00",
            struct.pack("<qi", 10_000_000 + number, dice.randrange(-(10**6), 10**6)),
            bytes([len(name)]) + name,
            b"" if absent else struct.pack("<H", len(note)) + note,
            (dice.randrange(10**5) | 1 << 39).to_bytes(5, "big") + bytes([dice.randrange(100)]),
            (moment | 1 << 39).to_bytes(5, "big") + dice.randrange(10**6).to_bytes(3, "big"),
            bytes([number % 3 > 0]) + struct.pack("<d", dice.random()),
        )
    )


def stream_of(count: int, per_event: int) -> Bytes:
    """The rows as inserts, in transactions of a hundred."""
    dice = random.Random(1)
    head = struct.pack("<IHH", 7, 0, 1) + b"\x02\x00" + b"\x08\xff"
    told = frames.frame(19, 0, 1, table_map())
    parts = []
    for first in range(0, count, PER_TRANSACTION):
        begun = frames.begin(8 * first, first, f"3e11fa47-71ca-11e1-9e33-c80aa9429562:{first}")
        parts += [frames.frame(frames.BEGIN, 0, 1, begun), told]
        for at in range(first, first + PER_TRANSACTION, per_event):
            rows = b"".join(image(dice, number) for number in range(at, at + per_event))
            parts.append(frames.frame(30, 0, 1, head + rows))
    return np.frombuffer(b"".join(parts), np.uint8)


def decoded(data: Bytes, context: MysqlStreamContext) -> int:
    found = list(DECODER.decode(data, context, TABLES))
    assert all(isinstance(each, TableChanges) for each in found), found
    return sum(each.batch.num_rows for each in found if isinstance(each, TableChanges))


def in_pieces(data: Bytes) -> Iterator[int]:
    """All of it, a piece at a time."""
    context: MysqlStreamContext = MysqlStreamContext()
    at = 0
    while at < len(data):
        length, behind = DECODER.split(data[at : at + PIECE], context)
        yield decoded(data[at : at + length], context)
        at, context = at + length, behind


def best(repeat: int, step: Callable[[], object]) -> float:
    took = []
    for _ in range(repeat):
        start = time.process_time()
        step()
        took.append(time.process_time() - start)
    return min(took)


def show(name: str, count: int, size: int, seconds: float) -> None:
    print(f"{name:<44} {count / seconds / 1e6:9.3f} M rows/s {size / seconds / 1e6:9.0f} MB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--rows-per-event", type=int, default=1)
    given = parser.parse_args()
    rows = given.rows
    data = stream_of(rows, given.rows_per_event)
    few = stream_of(5000, given.rows_per_event)
    size, per = len(data), given.rows_per_event
    print(f"{rows} rows, {per} an event, {size / rows:.0f} bytes a row")
    show("framing.scan", rows, size, best(given.repeat, lambda: scan(data)))
    show("decode", rows, size, best(given.repeat, lambda: decoded(data, MysqlStreamContext())))
    show("split and decode, in pieces of 32 MB", rows, size, best(given.repeat, lambda: sum(in_pieces(data))))
    show("  beside: the twin, rows only", 5000, len(few), best(1, lambda: reference.rows_of(few.tobytes())))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak of the process {peak:.0f} MB, of which the bytes are {size / 1e6:.0f}")


if __name__ == "__main__":
    main()
