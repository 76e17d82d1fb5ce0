"""Engines of Iceberg read from an exported lake what each mark holds: of files without field ids, too."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.core.names import TableName
from headrace.iceberg.export import Exporter
from headrace.iceberg.settings import IcebergConfig
from headrace.lake.store.open import open_store
from tests.iceberg import ENGINES, Engines, in_order, tags
from tests.readers.sample import PLAIN, Sample


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sample, Engines]:
    """Each mark of the sample, exported when it was the newest."""
    path = tmp_path_factory.mktemp("lakes") / "a lake, {é}?"

    class Exported(Sample):
        def _publish(self, steps: object, frontier: str) -> None:
            super()._publish(steps, frontier)  # type: ignore[arg-type]
            exporter = Exporter(self.store, "main", "id", timedelta(hours=1))
            exporter.attach(IcebergConfig())
            exporter.export()
            left_out = {name: error.code for name, error in exporter.left_out.items()}
            assert left_out == {"public.worn": "ICEBERG_DELETED_ROWS"}

    return Exported(open_store(path)), Engines(Path(path))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("epoch", [2, 3])
def test_each_engine_reads_each_table_at_each_mark(
    exported: tuple[Sample, Engines], engine: str, name: str, epoch: int
) -> None:
    sample, engines = exported
    called = TableName.parse(name)
    table = engines.catalog.load_table((f"main.{called.schema}", called.name))
    found = engines.read(engine, table, tags(table)[epoch])
    expected = sample.expected[epoch, name]
    assert len(found.column_names) == len(expected.column_names)
    found = found.rename_columns(expected.column_names).cast(expected.schema)
    assert in_order(found) == in_order(expected)


def test_a_table_that_a_mark_lacks_has_no_tag_of_it(exported: tuple[Sample, Engines]) -> None:
    stopped = exported[1].table("public.stopped")
    assert list(tags(stopped)) == [2]
    assert pa.types.is_integer(stopped.scan().to_arrow()["id"].type)
