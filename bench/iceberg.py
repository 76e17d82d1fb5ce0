"""Cost of exporting a mark to Iceberg, with the SQLite catalog that a lake has of its own.

    python bench/iceberg.py [--tables N]

    few     a mark that changes 4 tables, with 10 new data files and their histories: bar 0.25 s, 0.2 CPU-s
    many    a mark that changes 3 of so many tables, with its tag on all of them: bar 5 s

The lake is written by the pipeline's own ledger, without a server. Each figure is the median of five exports
after the first one, which makes the tables.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
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
from headrace.lake.format import formatfile
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    first, few, few_cpu = measure(4, (3, 3, 2, 2))
    print(f"few   {few:.3f} s, {few_cpu:.3f} CPU-s; the first export {first:.2f} s")
    first, many, many_cpu = measure(args.tables, (1, 1, 1))
    print(f"many  {many:.2f} s, {many_cpu:.2f} CPU-s of {args.tables} tables; the first export {first:.2f} s")
    keep(iceberg_few_seconds=few, iceberg_few_cpu=few_cpu, iceberg_many_seconds=many)


if __name__ == "__main__":
    main()
