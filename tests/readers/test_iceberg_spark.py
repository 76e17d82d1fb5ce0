"""Iceberg's own runtime for Spark reads each table at each mark, and history, as ours do.

It is a client of the REST catalog that other tests run against, written by the authors of the specification.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from headrace.iceberg.export import Exporter
from headrace.iceberg.settings import IcebergConfig
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from headrace_testing.iceberg_rest import serve
from headrace_testing.jars import ICEBERG, PYSPARK_OF_ICEBERG, locate
from tests.iceberg import in_order
from tests.plain_spark import carry_out, load
from tests.readers.sample import PLAIN, Sample


def settings(uri: str) -> dict[str, str]:
    return {
        "spark.jars": str(locate(ICEBERG)),
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": uri,
        "spark.sql.catalog.lake.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
    }


@pytest.mark.full
@pytest.mark.spark
def test_it_reads_each_table_at_each_mark_and_its_write_is_noticed(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        exporter = Exporter(open_store(tmp_path / "lake"), "main", "id", timedelta(hours=1))

        def left_out() -> dict[str, str]:
            return {name: error.code for name, error in exporter.left_out.items()}

        class Exported(Sample):
            def _publish(self, steps: object, frontier: str) -> None:
                super()._publish(steps, frontier)  # type: ignore[arg-type]
                exporter.attach(IcebergConfig(properties={"type": "rest", "uri": server.uri}))
                exporter.export()
                assert left_out() == {"public.worn": "ICEBERG_DELETED_ROWS"}

        sample = Exported(exporter.store)
        files = {(epoch, name): tmp_path / f"{epoch} {name}.arrow" for epoch in (2, 3) for name in PLAIN}
        history = tmp_path / "history.arrow"
        steps = [
            (str(file), f"SELECT * FROM lake.main.{name.replace(chr(34), '`')} VERSION AS OF 'mark-{epoch}'")
            for (epoch, name), file in files.items()
        ]
        steps.append((str(history), "SELECT * FROM lake.main.`Sales Data`.history.Order_1"))
        steps.append(("", "INSERT INTO lake.main.public.empty VALUES (1, 2)"))
        carry_out(PYSPARK_OF_ICEBERG, settings(server.uri), steps)
        for key, file in files.items():
            expected = sample.expected[key]
            found = load(file).rename_columns(expected.column_names).cast(expected.schema)
            assert in_order(found) == in_order(expected), key
        ours = Lake(sample.store.url).at(epoch=3).history('"Sales Data"."Order"')
        rows = [row for row in load(history).to_pylist() if row["_time"] < 1 << 60]
        assert sorted(str([*row.values()]) for row in rows) == in_order(ours)
        exporter.export()
        foreign = {"main.public.empty": "ICEBERG_FOREIGN_COMMIT"}
        assert left_out() == {"public.worn": "ICEBERG_DELETED_ROWS"} | foreign
