"""Iceberg's own runtime for Spark reads each table at each mark, and history, as ours do.

It is a client of the REST catalog that other tests run against, written by the authors of the specification.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.iceberg.export import Exporter
from headrace.iceberg.settings import IcebergConfig
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from headrace_testing.iceberg_rest import serve
from headrace_testing.jars import ICEBERG, PYSPARK_OF_ICEBERG, locate, locate_pyspark
from tests.iceberg import in_order
from tests.readers.sample import NAMES, Sample

_DEADLINE = 500.0
_READ = """
import json, sys
import pyarrow as pa
from pyspark.sql import SparkSession

asked = json.load(sys.stdin)
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
for name, value in asked["conf"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for path, query in asked["steps"]:
    rows = spark.sql(query)
    if path:
        table = rows.toArrow()
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
"""


def carry_out(uri: str, steps: list[tuple[str, str]]) -> None:
    """Carry out statements in their order, and leave the rows of a query in its file."""
    conf = {
        "spark.jars": str(locate(ICEBERG)),
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": uri,
        "spark.sql.catalog.lake.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "spark.sql.session.timeZone": "UTC",
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environment |= {"PYTHONPATH": str(locate_pyspark(PYSPARK_OF_ICEBERG)), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", _READ],
        input=json.dumps({"conf": conf, "steps": steps}),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_DEADLINE,
    )
    assert done.returncode == 0, re.sub(r"(?m)^\s+at .*\n", "", done.stderr)[-4000:]


@pytest.mark.full
@pytest.mark.spark
def test_it_reads_each_table_at_each_mark_and_its_write_is_noticed(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        exporter = Exporter(open_store(tmp_path / "lake"), "main", "id", timedelta(hours=1))

        class Exported(Sample):
            def _publish(self, steps: object, frontier: str) -> None:
                super()._publish(steps, frontier)  # type: ignore[arg-type]
                exporter.attach(IcebergConfig(properties={"type": "rest", "uri": server.uri}))
                exporter.export()
                assert exporter.left_out == {}

        sample = Exported(exporter.store)
        files = {(epoch, name): str(tmp_path / f"{epoch} {name}.arrow") for epoch in (2, 3) for name in NAMES}
        history = str(tmp_path / "history.arrow")
        steps = [
            (file, f"SELECT * FROM lake.main.{name.replace(chr(34), '`')} VERSION AS OF 'mark-{epoch}'")
            for (epoch, name), file in files.items()
        ]
        steps.append((history, "SELECT * FROM lake.main.`Sales Data`.history.Order_1"))
        steps.append(("", "INSERT INTO lake.main.public.empty VALUES (1, 2)"))
        carry_out(server.uri, steps)
        for key, file in files.items():
            expected = sample.expected[key]
            found = _load(file).rename_columns(expected.column_names).cast(expected.schema)
            assert in_order(found) == in_order(expected), key
        ours = Lake(sample.store.url).at(epoch=3).history('"Sales Data"."Order"')
        rows = [row for row in _load(history).to_pylist() if row["_time"] < 1 << 60]
        assert sorted(str([*row.values()]) for row in rows) == in_order(ours)
        exporter.export()
        assert {n: e.code for n, e in exporter.left_out.items()} == {
            "main.public.empty": "ICEBERG_FOREIGN_COMMIT"
        }


def _load(file: str) -> pa.Table:
    with pa.OSFile(file) as source:
        return pa.ipc.open_file(source).read_all()
