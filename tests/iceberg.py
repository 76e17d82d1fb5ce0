"""Engines that read Iceberg tables at a tag: pyiceberg, Polars and DuckDB; all of what a catalog lists."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from headrace.iceberg.catalog import properties_of
from headrace.iceberg.rest import children
from headrace.iceberg.settings import IcebergConfig

os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else it warns that its own is not installed
ENGINES = ("pyiceberg", "polars", "duckdb")


@dataclass(frozen=True)
class Engines:
    """Readers of the catalog that a lake has of its own, or of another one."""

    lake: Path
    uri: str = ""

    @property
    def catalog(self) -> SqlCatalog | RestCatalog:
        if self.uri.startswith("http"):
            return RestCatalog("headrace", uri=self.uri)
        given = {"uri": self.uri} if self.uri else {}
        return SqlCatalog(
            "headrace", **properties_of(IcebergConfig(properties=given), str(self.lake.resolve()))
        )

    def tables(self, namespace: str = "main") -> Iterator[Table]:
        """All tables below a namespace."""
        catalog = self.catalog
        spaces: list[tuple[str, ...]] = [(namespace,)]
        while spaces:
            space = spaces.pop()
            known = children(catalog, space) if isinstance(catalog, RestCatalog) else None
            spaces += catalog.list_namespaces(space) if known is None else known
            yield from (catalog.load_table(name) for name in catalog.list_tables(space))

    def table(self, name: str) -> Table:
        return self.catalog.load_table(f"main.{name}")

    def read(self, engine: str, table: Table, snapshot: int) -> pa.Table:
        """All rows of a snapshot."""
        if engine == "pyiceberg":
            return table.scan(snapshot_id=snapshot).to_arrow()
        if engine == "polars":
            return pl.scan_iceberg(table, snapshot_id=snapshot).collect().to_arrow()
        with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
            for name in ("avro", "iceberg"):
                connection.execute(f"LOAD '{_extension(name)}'")
            connection.execute("SET TimeZone = 'UTC'")
            query = "SELECT * FROM iceberg_scan(?, snapshot_from_id = ?)"
            return connection.execute(query, [table.metadata_location, snapshot]).to_arrow_table()


def tags(table: Table) -> dict[int, int]:
    """The snapshots of a table's tags, by the epochs of their marks."""
    refs = table.metadata.refs
    return {int(name[5:]): ref.snapshot_id for name, ref in refs.items() if name.startswith("mark-")}


def in_order(table: pa.Table) -> list[str]:
    """The rows, comparable: whatever order and kinds of text the engine has."""
    return sorted(str([*row.values()]) for row in table.to_pylist())


def _extension(name: str) -> Any:
    package = find_spec(f"duckdb_extension_{name}")
    assert package is not None
    assert package.origin is not None
    return next(Path(package.origin).parent.rglob(f"{name}.duckdb_extension"))
