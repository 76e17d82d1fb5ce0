"""Cost of exporting a mark to Iceberg, with the SQLite catalog that a lake has of its own.

    python bench/iceberg.py [--tables N] [--millions N] [--marks N] [--pace SECONDS]

    few     a mark that changes 4 tables, with 10 new data files and their histories: bar 0.25 s, 0.2 CPU-s
    many    a mark that changes 3 of so many tables, with its tag on all of them: bar 5 s
    attach  the first export of a lake of so many million rows; it writes no data file: bar 10 s
    beside  the median time of marks while a thread exports now and then, to that without: bar +5 %

The lake is written by the pipeline's own ledger, without a server. The figures of `few` and `many` are the
median of five exports after the first one, which makes the tables. `beside` takes turns: marks with an
export, and as many without, so that the load of the machine is the same for both. Four marks of 10 files
begin in a second, and an export every 5 s (by default: every minute); then marks follow each other at once,
and an export every second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from headrace.core.history import history_schema
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.core.schema import Column, TableSchema
from headrace.iceberg.export import Exporter
from headrace.iceberg.settings import IcebergConfig
from headrace.iceberg.watch import exporting
from headrace.lake.format import exportfile, formatfile
from headrace.lake.store.open import open_store
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import SourceRecord, TableRecord
from headrace.pipeline.state.table_state import State
from headrace.pipeline.tasks.files import Writing, write_history, write_sorted
from headrace.pipeline.tasks.table_task import Outcome
from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.upstream import PostgresUpstream
from headrace_testing.figures import keep

ROWS, EXPORTS = 1000, 5
MILLION, TURNS = 1_000_000, 4
SCHEMA = TableSchema(
    (Column("id", pa.int64(), "int8", "bigint"), Column("v", pa.string(), "text", "text")), ("id",), full=True
)


@dataclass
class Mirrored:
    """A lake, and the tables that a source of it has."""

    ledger: Ledger
    names: Sequence[TableName]
    time: int = 1000

    @classmethod
    def made(cls, path: Path, tables: int) -> Mirrored:
        store = open_store(path)
        formatfile.create_lake(store)
        made = cls(Ledger(store, "main"), [TableName("public", f"t{n:04}") for n in range(tables)])
        since = made.time
        details: dict[str, list[str]] = {"attributes": [], "types": []}
        records = tuple(
            TableRecord(name, State.LIVE, number, SCHEMA, details, None, since=since)
            for number, name in enumerate(made.names, 1)
        )
        upstream = to_record(PostgresUpstream("s", "p"))
        source = SourceRecord("postgres", "host=nowhere", {}, upstream, made.position, ("*.*",))
        empty = tuple(Outcome(name) for name in made.names)
        made.publish("copy", empty, records=records, new_tables=tuple(made.names), source=source)
        return made

    @property
    def position(self) -> Position:
        return Position(self.time, str(Lsn(self.time)))

    def publish(self, kind: str, outcomes: tuple[Outcome, ...], **more: object) -> None:
        ledger = self.ledger
        now = int(datetime.now(UTC).timestamp() * 1_000_000)
        epoch = Epoch(kind, self.position, outcomes=outcomes, begun_at=now, **more)  # type: ignore[arg-type]
        ledger.sync(ledger.publish(epoch))

    def change(self, files: Sequence[int]) -> None:
        """An epoch that gives the first tables so many new files each, and history."""
        self.time += 100
        self.publish("stream", tuple(map(self._outcome, self.names, files)), all_seen=True)

    def grow(self, name: TableName, number: int) -> None:
        """An epoch that gives a table a data file of a million rows, and no history."""
        self.time += 100
        task = self.ledger.outline(self.ledger.tables[name])
        writing = Writing(self.ledger.store, self.ledger.mark.epoch + 1)
        numbers = pa.array(range(number * MILLION, (number + 1) * MILLION), pa.int64())
        piece = pa.table([numbers, numbers.cast(pa.string())], schema=SCHEMA.arrow())
        add = tuple(write_sorted(writing, task, piece))
        self.publish("stream", (Outcome(name, add=add, changes=MILLION),), all_seen=True)

    def _outcome(self, name: TableName, files: int) -> Outcome:
        task = self.ledger.outline(self.ledger.tables[name])
        writing = Writing(self.ledger.store, self.ledger.mark.epoch + 1)
        begin = self.time * ROWS
        pieces = [
            pa.table({"id": range(start, start + ROWS), "v": ["x"] * ROWS}, schema=SCHEMA.arrow())
            for start in range(begin, begin + files * ROWS, ROWS)
        ]
        rows = pa.concat_tables(pieces)
        own = [(self.time - 1, 1, n, 7, datetime.now(UTC)) for n in range(rows.num_rows)]
        columns = [*rows.columns, *(pa.array(each) for each in zip(*own, strict=True))]
        schema = history_schema(SCHEMA)
        cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        history = write_history(writing, task, pa.Table.from_arrays(cast, schema=schema))
        add = tuple(file for piece in pieces for file in write_sorted(writing, task, piece))
        return Outcome(name, add=add, history=history, changes=rows.num_rows)


def measure(tables: int, files: Sequence[int]) -> tuple[float, float, float]:
    """The seconds of the first export, then the median of an export and of its CPU time."""
    with tempfile.TemporaryDirectory() as folder:
        mirrored = Mirrored.made(Path(folder) / "lake", tables)
        exporter = Exporter(mirrored.ledger.store, "main", "bench", timedelta(minutes=45))
        exporter.attach(IcebergConfig())
        begun = time.monotonic()
        exporter.export()
        first = time.monotonic() - begun
        taken = []
        for _ in range(EXPORTS):
            mirrored.change(files)
            begun, used = time.monotonic(), time.process_time()
            assert exporter.export() is not None
            taken.append((time.monotonic() - begun, time.process_time() - used))
    wall, cpu = (statistics.median(each) for each in zip(*taken, strict=True))
    return first, wall, cpu


def measure_attach(millions: int) -> float:
    """The seconds of attaching a lake of so many million rows, in files of a million."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lake"
        mirrored = Mirrored.made(path, 4)
        for number in range(millions):
            mirrored.grow(mirrored.names[number % 4], number)
        before = set(path.rglob("*.parquet"))
        begun = time.monotonic()
        exporter = Exporter(mirrored.ledger.store, "main", "bench", timedelta(minutes=45))
        exporter.attach(IcebergConfig())
        assert exporter.export() is not None
        seconds = time.monotonic() - begun
        assert set(path.rglob("*.parquet")) == before, "a data file was written"
    return seconds


def measure_beside(marks: int, pace: float, every: str) -> tuple[float, float]:
    """The median seconds of a mark without an export, and beside one; one begins every `pace` seconds."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        mirrored = Mirrored.made(Path(folder) / "lake", 4)
        store, config = mirrored.ledger.store, IcebergConfig(every=every)
        for turn in range(2 * TURNS):
            is_beside = turn % 2 == 1
            with ExitStack() as stack:
                if is_beside:
                    stack.enter_context(exporting(store, "main", "bench", timedelta(minutes=45), config))
                for _ in range(marks // TURNS):
                    begun = time.monotonic()
                    mirrored.change((3, 3, 2, 2))
                    seconds[is_beside].append(time.monotonic() - begun)
                    time.sleep(max(0.0, begun + pace - time.monotonic()))
        record = exportfile.read(store, "main")
        assert record is not None
        assert len(record.marks) >= TURNS, "nothing was exported meanwhile"
    return statistics.median(seconds[False]), statistics.median(seconds[True])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--millions", type=int, default=20)
    parser.add_argument("--marks", type=int, default=200, help="of each kind")
    parser.add_argument("--pace", type=float, default=0.25, help="seconds between the beginnings of marks")
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    first, few, few_cpu = measure(4, (3, 3, 2, 2))
    print(f"few   {few:.3f} s, {few_cpu:.3f} CPU-s; the first export {first:.2f} s")
    first, many, many_cpu = measure(args.tables, (1, 1, 1))
    print(f"many  {many:.2f} s, {many_cpu:.2f} CPU-s of {args.tables} tables; the first export {first:.2f} s")
    attach = measure_attach(args.millions)
    print(f"attach {attach:.2f} s, {args.millions} million rows")
    beside = {}
    for pace, every in ((args.pace, "5s"), (0.0, "1s")):
        without, with_one = measure_beside(args.marks, pace, every)
        took = f"{without * 1000:.0f} ms a mark without an export, {with_one * 1000:.0f} ms with one"
        print(f"beside {took} every {every}")
        beside[pace] = with_one / without - 1
    keep(iceberg_few_seconds=few, iceberg_few_cpu=few_cpu, iceberg_many_seconds=many)
    keep(iceberg_attach_seconds=attach, iceberg_beside=beside[args.pace])
    keep(iceberg_beside_without_pause=beside[0.0])


if __name__ == "__main__":
    main()
