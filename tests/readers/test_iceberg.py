"""Engines of Iceberg read from an exported lake what each mark holds: of files without field ids, too."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalogBaseTable
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateTable

from headrace.core.names import TableName
from headrace.iceberg.export import Exporter
from headrace.iceberg.settings import IcebergConfig
from headrace.lake.format.plan import TableStep
from headrace.lake.store.open import open_store
from headrace_testing.iceberg_rest import serve, serve_apache
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


@pytest.mark.full
def test_a_server_of_apache_iceberg_has_each_table_at_each_mark(tmp_path: Path) -> None:
    """With every type, a column that is added, and a table that is copied anew under others."""
    with serve_apache(tmp_path) as server:
        config = IcebergConfig(properties={"type": "rest", "uri": server.uri})
        exporter = Exporter(open_store(tmp_path / "lake"), "main", "id", timedelta(hours=1), config)

        class Exported(Sample):
            def _publish(self, steps: list[TableStep], frontier: str) -> None:
                super()._publish(steps, frontier)
                exporter.export()
                left_out = {name: error.code for name, error in exporter.left_out.items()}
                assert left_out == {"public.worn": "ICEBERG_DELETED_ROWS"}

        sample = Exported(exporter.store)
        engines = Engines(tmp_path / "lake", server.uri)
        for engine in ENGINES:
            for (epoch, name), expected in sample.expected.items():
                if name in PLAIN:
                    called = TableName.parse(name)
                    table = engines.catalog.load_table((f"main.{called.schema}", called.name))
                    found = engines.read(engine, table, tags(table)[epoch])
                    found = found.rename_columns(expected.column_names).cast(expected.schema)
                    assert in_order(found) == in_order(expected), (engine, epoch, name)
        exporter.detach()
        assert engines.catalog.list_namespaces() == []


def test_a_table_that_iceberg_cannot_show_keeps_no_other_from_it(tmp_path: Path) -> None:
    """A name with a dot; a file of which the log tells nothing, in a new table and in one that was shown."""

    class Unfit(Sample):
        def _first_mark(self) -> None:
            rows = pa.table({"id": [1], "n": pa.array([1], pa.int32())})
            self._dotted, self._silent = self._make('public."a.b"', rows), self._make("public.silent", rows)
            super()._first_mark()

        def _publish(self, steps: list[TableStep], frontier: str) -> None:
            if frontier == "0/20":
                steps = [*steps, self._dotted, self._without_statistics(self._silent)]
            else:
                steps = [steps[0], self._without_statistics(steps[1]), *steps[2:]]
            super()._publish(steps, frontier)
            exporter.attach(IcebergConfig())
            exporter.export()
            codes.append({name: error.code for name, error in exporter.left_out.items()})

        def _without_statistics(self, step: TableStep) -> TableStep:
            return replace(step, add=tuple(replace(file, stats="{}") for file in step.add))

    codes: list[dict[str, str]] = []
    exporter = Exporter(open_store(tmp_path), "main", "id", timedelta(hours=1))
    sample, engines = Unfit(exporter.store), Engines(tmp_path)
    unfit = {
        'public."a.b"': "ICEBERG_NAME",
        "public.worn": "ICEBERG_DELETED_ROWS",
        "main.public.silent": "ICEBERG_ROWS_UNKNOWN",
    }
    assert codes == [unfit, {**unfit, "main.public.grown": "ICEBERG_ROWS_UNKNOWN"}]
    shown = {name: list(tags(engines.table(name))) for name in ("public.kinds", "public.grown")}
    assert shown == {"public.kinds": [2, 3], "public.grown": [2]}, "what there was stays"
    found = engines.read("pyiceberg", table := engines.table("public.grown"), tags(table)[2])
    assert in_order(found) == in_order(sample.expected[2, "public.grown"])
    assert exporter.export() is None
    again = Exporter(exporter.store, "main", "id", timedelta(hours=1))
    assert again.export() is None
    assert {name: error.code for name, error in again.left_out.items()} == {
        name: code for name, code in unfit.items() if code != "ICEBERG_ROWS_UNKNOWN"
    }


@pytest.mark.parametrize("kind", ["sql", "rest", "folding"])
def test_a_name_that_the_catalog_takes_for_another_keeps_no_other_table_from_it(
    tmp_path: Path, kind: str
) -> None:
    """A catalog that knows no case, and one that has all names in lower case; each export tries again."""
    database = tmp_path / "server.db"
    with sqlite3.connect(database) as connection:
        if kind != "folding":
            for table in SqlCatalogBaseTable.metadata.tables.values():
                made = str(CreateTable(table).compile(dialect=sqlite.dialect()))
                connection.execute(re.sub(r"VARCHAR\(255\)", r"\g<0> COLLATE NOCASE", made))
    with serve(tmp_path) as server:
        server.folds = kind == "folding"
        uri = f"sqlite:///{database}" if kind == "sql" else server.uri
        config = IcebergConfig(properties={"type": "sql" if kind == "sql" else "rest", "uri": uri})
        exporter = Exporter(open_store(tmp_path / "lake"), "main", "id", timedelta(hours=1), config)

        class Cased(Sample):
            def _publish(self, steps: list[TableStep], frontier: str) -> None:
                if frontier == "0/20":
                    rows = pa.table({"id": [1]})
                    names = ("public.Kinds", '"sales data".x')
                    steps = [*steps, *(self._make(name, rows) for name in names)]
                super()._publish(steps, frontier)
                exporter.export()
                codes.append({name: error.code for name, error in exporter.left_out.items()})

        codes: list[dict[str, str]] = []
        Cased(exporter.store)
        names = {
            "sql": ["public.kinds"],
            "rest": ["public.kinds", "sales data.x"],
            "folding": ["public.Kinds", "Sales Data.Order", "Sales Data.history.Order_1"],
        }[kind]
        refused = {f"main.{name}": "ICEBERG_NAME" for name in names}
        assert codes == [refused | {"public.worn": "ICEBERG_DELETED_ROWS"}] * 2
        engines = Engines(tmp_path / "lake", uri)
        assert list(tags(engines.table("public.grown"))) == [2, 3]
        assert len([*engines.tables()]) == {"sql": 8, "rest": 7, "folding": 6}[kind]
        exporter.detach()
        assert server.catalog.list_namespaces() == []


def test_a_table_that_a_mark_lacks_has_no_tag_of_it(exported: tuple[Sample, Engines]) -> None:
    stopped = exported[1].table("public.stopped")
    assert list(tags(stopped)) == [2]
    assert pa.types.is_integer(stopped.scan().to_arrow()["id"].type)
