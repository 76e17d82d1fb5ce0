"""`format("headrace")` beside Spark's own reader and beside an empty Python source.

python bench/data_source.py [--rows 4000000] [--triggers 40]

batch read       a table of ten columns, all and a third of them, to noop; the peer reads the same files
stream           the table's history by AvailableNow, to noop
trigger          one mark in each batch, to noop; the peer is a Python source of one empty batch a trigger
import           the module that every Spark session imports
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.history import own_fields
from headrace.core.names import TableName
from headrace.lake.format import datafile, formatfile, layout, schemas
from headrace.lake.format.plan import Plan, TableStep
from headrace.lake.log.commit import EpochLog, open_log
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.spark.session import SparkConfig, open_session
from headrace_testing.figures import keep

TABLE = TableName("public", "orders")
FILE_ROWS = 500_000
COLUMNS = [f"n{at}" for at in range(6)] + ["f0", "f1", "s0", "s1"]
THIRD = "n0, f0, s0"


def rows(count: int, seed: int) -> pa.Table:
    """Six integers, two doubles and two short texts."""
    dice = np.random.default_rng(seed)
    numbers = [pa.array(dice.integers(0, 1 << 40, count)) for _ in range(6)]
    doubles = [pa.array(dice.random(count)) for _ in range(2)]
    texts = [pa.array(np.char.add("text ", dice.integers(0, 1 << 20, count).astype(str))) for _ in range(2)]
    return pa.table([*numbers, *doubles, *texts], names=COLUMNS)


def history(table: pa.Table, first: int) -> pa.Table:
    """Inserts of these rows, a thousand in each transaction."""
    count = table.num_rows
    times = first + np.arange(count) // 1000 * 8
    own = [times, np.ones(count, np.int64), np.arange(count) % 1000, times % (1 << 31), times]
    for field, values in zip(own_fields().values(), own, strict=True):
        table = table.append_column(field, pa.array(values).cast(field.type))
    return table


class BenchLake:
    """A lake of one table, which its writer goes on with."""

    def __init__(self, path: str, count: int) -> None:
        self.store: Store = open_store(path)
        formatfile.create_lake(self.store)
        self.log: EpochLog = open_log(self.store, "main")
        self.epoch = self.log.takeover().mark.epoch
        self.versions = {layout.table_folder("main", TABLE): -1, layout.history_folder("main", TABLE, 1): -1}
        self.time = 0
        self.publish(rows(1, 0))
        for at in range(0, count, FILE_ROWS):
            self.publish(rows(min(FILE_ROWS, count - at), at + 1))

    def publish(self, table: pa.Table) -> None:
        """An epoch that inserts these rows."""
        self.epoch += 1
        told = history(table, self.time + 8)
        self.time = told["_time"][-1].as_py()
        steps = [self._step(folder, part) for folder, part in zip(self.versions, (table, told), strict=True)]
        versions = {str(TABLE): self.versions[layout.table_folder("main", TABLE)]}
        state = {"source": {"kind": "postgres"}, f"table/{TABLE}": {"since": 1}}
        self.log.put_plan(
            plan := Plan(
                source="main",
                epoch=self.epoch,
                plan_id=f"p{self.epoch}",
                kind="stream",
                incarnation=1,
                frontier=f"0/{self.time + 1:X}",
                time=self.time,
                steps=tuple(steps),
                versions=versions,
                state=state,
            )
        )
        self.log.finish(plan)

    def _step(self, folder: str, table: pa.Table) -> TableStep:
        base = self.versions[folder]
        self.versions[folder] += 1
        file = datafile.write(self.store, folder, layout.file_name(self.epoch), table)
        return TableStep(folder, base, (file,), schema=schemas.encode(table.schema) if base < 0 else None)


def best(work: Callable[[], object], times: int = 3) -> float:
    """The seconds of the quickest of some tries."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def read(spark: Any, lake: str, **options: Any) -> Any:
    return spark.read.format("headrace").options(lake=lake, table=str(TABLE), **options).load()


def say(name: str, figure: str, beside: str = "") -> None:
    print(f"{name:44} {figure:>18} {beside}", flush=True)


def speed(count: int, seconds: float) -> str:
    return f"{count / seconds / 1e6:.2f} M rows/s"


def batch(spark: Any, lake: str, count: int) -> None:
    files = f"{lake}/{layout.table_folder('main', TABLE)}/*.parquet"
    peer = best(lambda: noop(spark.read.parquet(files)))
    ours = best(lambda: noop(read(spark, lake)))
    third = best(lambda: noop(read(spark, lake, columns=THIRD)))
    say("spark.read.parquet, all columns", speed(count, peer))
    say("format(headrace), all columns", speed(count, ours), f"{peer / ours:.2f} of the peer (bar 0.5)")
    say("format(headrace), a third of the columns", speed(count, third), f"{ours / third:.2f} of all (bar 2)")
    keep(batch_of_parquet=peer / ours, third_of_all=ours / third)


def run_stream(spark: Any, lake: str, form: str) -> None:
    with tempfile.TemporaryDirectory() as checkpoint:
        frame = spark.readStream.format("headrace").options(lake=lake, table=str(TABLE), after=2)
        writer = frame.option("as", form).load().writeStream.format("noop")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()


def stream(spark: Any, lake: str, count: int) -> None:
    for form in ("changes", "feed"):
        seconds = best(partial(run_stream, spark, lake, form), 2)
        say(f"stream, {form}, AvailableNow", speed(count, seconds), "(bar 1)")
        keep(**{f"million_{form}_a_second": count / seconds / 1e6})


def triggers(spark: Any, lake: BenchLake, path: str, wanted: int) -> None:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"n": 0}

        def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
            return {"n": start["n"] + 1}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (1,)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "nothing"

        def schema(self) -> str:
            return "id INT"

        def streamReader(self, schema: object) -> DataSourceStreamReader:
            return Reader()

    spark.dataSource.register(Source)
    peer = _milliseconds(spark.readStream.format("nothing").load(), wanted)
    for number in range(wanted + 10):
        lake.publish(rows(1, number))
    first = lake.epoch - wanted - 10
    frame = spark.readStream.format("headrace").options(lake=path, table=str(TABLE), after=first, max_marks=1)
    ours = _milliseconds(frame.option("as", "changes").load(), wanted)
    say("trigger of an empty Python source", f"{peer:.0f} ms")
    say("trigger of one mark", f"{ours:.0f} ms", f"{ours / peer:.2f} of the peer (bar 1.3)")
    keep(trigger_of_empty=ours / peer)


def _milliseconds(frame: Any, wanted: int) -> float:
    """The median of a trigger, without the first ones."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="0 seconds").start()
        deadline = time.monotonic() + 300
        while query.lastProgress is None or query.lastProgress["batchId"] < wanted - 1:
            if time.monotonic() > deadline or query.exception() is not None:
                raise RuntimeError(f"the query does not go on: {query.exception()}")
            query.awaitTermination(0.1)
        query.stop()
        taken = [
            each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]
        ]
    return float(statistics.median(taken[5:]))


def import_time() -> None:
    look = "import time; a = time.process_time(); import pyspark_headrace; print(time.process_time() - a)"
    taken = [float(subprocess.check_output([sys.executable, "-c", look])) for _ in range(5)]
    say("import of pyspark_headrace", f"{min(taken) * 1000:.2f} ms", "(bar 2)")


def main() -> int:
    """Measures and prints; judges nothing, since a machine that others use decides the ratios too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--triggers", type=int, default=40)
    chosen = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder, open_session(SparkConfig(master="local[2]")) as session:
        path = str(Path(folder) / "lake")
        lake = BenchLake(path, chosen.rows)
        batch(session.spark, path, chosen.rows)
        stream(session.spark, path, chosen.rows)
        triggers(session.spark, lake, path, chosen.triggers)
    import_time()
    return 0


if __name__ == "__main__":
    sys.exit(main())
