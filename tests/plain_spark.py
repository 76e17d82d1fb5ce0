"""A Spark with another project's jars and nothing of ours, in a process of its own.

`carry_out` runs statements one after the other; the rows of a query come back as a file of Arrow.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from headrace_testing.jars import DELTA, DELTA_STORAGE, PYSPARK_OF_DELTA, locate, locate_pyspark

_DEADLINE = 500.0
_RUN = """
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


def carry_out_by_delta(steps: Sequence[tuple[str, str]]) -> None:
    """Carry them out in a Spark that has Delta's own connector."""
    conf = {
        "spark.jars": ",".join(str(locate(jar)) for jar in (DELTA, DELTA_STORAGE)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    carry_out(PYSPARK_OF_DELTA, conf, steps)


def carry_out(pyspark: str, conf: Mapping[str, str], steps: Sequence[tuple[str, str]]) -> None:
    """Carry out statements in their order, in this release of PySpark; leave a query's rows in its file."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environment |= {"PYTHONPATH": str(locate_pyspark(pyspark)), "PYSPARK_PYTHON": sys.executable}
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # it lives for seconds
        **conf,
    }
    with tempfile.TemporaryDirectory() as folder:  # Spark makes its warehouse where it is
        done = subprocess.run(
            [sys.executable, "-c", _RUN],
            cwd=folder,
            input=json.dumps({"conf": settings, "steps": list(steps)}),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_DEADLINE,
        )
    assert done.returncode == 0, re.sub(r"(?m)^\s+at .*\n", "", done.stderr)[-4000:]


def load(file: Path) -> pa.Table:
    """The rows of a query."""
    with pa.OSFile(str(file)) as source:
        return pa.ipc.open_file(source).read_all()
