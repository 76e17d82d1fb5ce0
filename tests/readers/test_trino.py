"""Trino reads each table at each mark, and history, as ours do: by Delta, and by Iceberg.

Its connector delta_lake cuts instants to milliseconds, refuses files whose deletion vectors stand in the log,
as ours do, and writes to no directory. Its connector iceberg does none of it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from headrace.cli.main import main
from headrace.core.names import TableName
from headrace.iceberg.export import Exporter
from headrace.iceberg.settings import IcebergConfig
from headrace.lake.format import layout
from headrace.lake.format.plan import TableStep
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from headrace_testing.iceberg_rest import serve
from headrace_testing.postgres import Database
from headrace_testing.trino import QueryError, TrinoServer, trino
from tests.readers.sample import PLAIN, SOURCE, Sample

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrinoServer]:
    with trino(tmp_path_factory.mktemp("trino")) as running:
        yield running


def test_it_runs_the_views_of_each_mark_and_reads_history(
    server: TrinoServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = Sample(open_store(tmp_path / "lake"))
    url = sample.store.url
    for epoch in (2, 3):
        assert main(["views", "--lake", url, "--engine", "trino", "--epoch", str(epoch)]) == 0
        _make_views(server, capsys.readouterr().out.splitlines(), once=epoch == 2)
        for name in PLAIN:
            found = server.run(f"SELECT * FROM {_quoted(name)}")
            assert (name, sorted(map(str, found))) == (name, _spelled(sample.expected[epoch, name]))
        with pytest.raises(QueryError, match="storage type for deletion vector: i"):
            server.run("SELECT * FROM public.worn")
        assert server.run("SELECT id FROM public.kinds WHERE dec > 0") == [[2**63 - 1]]
    server.run("CALL delta.system.vacuum('public', 'kinds', '7d')")
    with pytest.raises(QueryError, match="Writes are not enabled on the file filesystem"):
        server.run("INSERT INTO delta.public.empty VALUES (1, 2)")
    folder = layout.history_folder(SOURCE, TableName("Sales Data", "Order"), 1)
    server.run(f"CALL delta.system.register_table('public', 'history', 'file://{url}/{folder}')")
    found = server.run("SELECT * FROM delta.public.history WHERE _time < 1000")
    ours = Lake(url).at(epoch=3).history('"Sales Data"."Order"')
    assert sorted(map(str, found)) == _spelled(ours)


class _Exported(Sample):
    """The sample, each mark of it exported to a catalog."""

    def __init__(self, folder: Path, config: IcebergConfig) -> None:
        self.exporter = Exporter(open_store(folder), "main", "id", timedelta(hours=1), config)
        super().__init__(self.exporter.store)

    def _publish(self, steps: list[TableStep], frontier: str) -> None:
        super()._publish(steps, frontier)
        self.exporter.export()

    @property
    def left_out(self) -> dict[str, str]:
        return {name: error.code for name, error in self.exporter.left_out.items()}


def test_it_reads_each_iceberg_table_at_each_tag_and_its_write_is_noticed(
    server: TrinoServer, tmp_path: Path
) -> None:
    with serve(tmp_path) as rest:
        sample = _Exported(tmp_path / "lake", IcebergConfig(properties={"type": "rest", "uri": rest.uri}))
        _make_catalog(
            server,
            "rest",
            {
                "iceberg.catalog.type": "rest",
                "iceberg.rest-catalog.uri": rest.uri,
                "iceberg.rest-catalog.nested-namespace-enabled": "true",
                "iceberg.rest-catalog.case-insensitive-name-matching": "true",
            },
        )
        _reads_each_tag(server, "rest", sample, PLAIN)
        found = server.run('SELECT * FROM rest."main.Sales Data.history"."Order_1" WHERE _time < 1000')
        ours = Lake(sample.store.url).at(epoch=3).history('"Sales Data"."Order"')
        assert sorted(map(str, found)) == _spelled(ours, "microseconds")
        server.run('INSERT INTO rest."main.public".empty VALUES (1, 2)')
        sample.exporter.export()
        assert sample.left_out == {
            "public.worn": "ICEBERG_DELETED_ROWS",
            "main.public.empty": "ICEBERG_FOREIGN_COMMIT",
        }


@pytest.mark.server
def test_it_reads_an_sql_catalog_in_postgresql(
    server: TrinoServer, database: Database, tmp_path: Path
) -> None:
    """Names in lower case: it has no other ones of such a catalog."""
    url = database.url(user="app")
    uri = url.replace("postgresql:", "postgresql+psycopg:", 1)
    sample = _Exported(tmp_path / "lake", IcebergConfig(properties={"type": "sql", "uri": uri}))
    place = urlsplit(url)
    _make_catalog(
        server,
        "jdbc",
        {
            "iceberg.catalog.type": "jdbc",
            "iceberg.jdbc-catalog.driver-class": "org.postgresql.Driver",
            "iceberg.jdbc-catalog.connection-url": f"jdbc:postgresql://{place.hostname}:{place.port}{place.path}",
            "iceberg.jdbc-catalog.connection-user": "app",
            "iceberg.jdbc-catalog.connection-password": database.server.password,
            "iceberg.jdbc-catalog.catalog-name": "headrace",
            "iceberg.jdbc-catalog.default-warehouse-dir": f"file://{tmp_path}/warehouse",
        },
    )
    _reads_each_tag(server, "jdbc", sample, [name for name in PLAIN if name.islower()])


def _make_catalog(server: TrinoServer, name: str, settings: Mapping[str, str]) -> None:
    settings = {**settings, "fs.hadoop.enabled": "true"}
    said = ", ".join(f"\"{key}\" = '{value}'" for key, value in settings.items())
    server.run(f"CREATE CATALOG {name} USING iceberg WITH ({said})")


def _reads_each_tag(server: TrinoServer, catalog: str, sample: _Exported, names: Sequence[str]) -> None:
    assert sample.left_out == {"public.worn": "ICEBERG_DELETED_ROWS"}
    for epoch in (2, 3):
        for name in names:
            table = TableName.parse(name)
            place = f'{catalog}."main.{table.schema}"."{table.name}"'
            found = server.run(f"SELECT * FROM {place} FOR VERSION AS OF 'mark-{epoch}'")
            expected = _spelled(sample.expected[epoch, name], "microseconds")
            assert (name, epoch, sorted(map(str, found))) == (name, epoch, expected)


def _make_views(server: TrinoServer, lines: list[str], *, once: bool) -> None:
    for line in lines:
        if line.startswith("-- once: ") and once:
            server.run(line.removeprefix("-- once: ").rstrip(";"))
        elif not line.startswith("--"):
            server.run(line.rstrip(";"))


def _quoted(name: str) -> str:
    table = TableName.parse(name)
    return f'"{table.schema}"."{table.name}"'


def _spelled(rows: pa.Table, instants: str = "milliseconds") -> list[str]:
    """Rows as Trino's protocol has them, in one order."""
    return sorted(str([_value(value, instants) for value in row.values()]) for row in rows.to_pylist())


def _value(value: Any, instants: str) -> Any:
    if isinstance(value, list):
        return [_value(each, instants) for each in value]
    if isinstance(value, datetime):
        return _moment(value, instants)
    return next((spell(value) for kind, spell in _SPELLED.items() if isinstance(value, kind)), value)


def _moment(value: datetime, instants: str) -> str:
    if value.tzinfo is None:
        return value.isoformat(sep=" ", timespec="microseconds")
    plain = value.astimezone(UTC).replace(tzinfo=None)
    return f"{plain.isoformat(sep=' ', timespec=instants)} UTC"


def _float(value: float) -> float | str:
    text = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(str(value))
    return value if text is None else text


_SPELLED: dict[type, Callable[[Any], Any]] = {
    date: str,
    bytes: lambda value: base64.b64encode(value).decode(),
    Decimal: str,
    float: _float,
}
