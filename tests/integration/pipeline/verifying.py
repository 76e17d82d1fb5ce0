"""Verify as the tests call it, and hands that change a lake behind its back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import headrace
from headrace.core.names import TableName
from headrace.lake.format import layout
from headrace.lake.log.table import LakeTable
from headrace.lake.read.lake import Lake
from headrace.pipeline.state import config as configuration
from headrace.pipeline.state.config import Config
from headrace.pipeline.verify.verdicts import Difference, Verdict
from tests.integration.pipeline.conftest import Mirrors

Change = Callable[[pa.Table], pa.Table]


def config_of(mirrors: Mirrors, **source: Any) -> Config:
    """The mirror's own configuration, as verify is given it."""
    told = {"url": mirrors.database.url(user="app"), **source}
    return configuration.parse({"lake": {"path": str(mirrors.path)}, "source": {"main": told}})


def verified(mirrors: Mirrors, *tables: str, **asked: Any) -> Verdict:
    """Verify the tables, and return the verdict."""
    [verdict] = headrace.verify(config_of(mirrors), tables=tables, spark=mirrors.spark, **asked)
    return verdict


def outcomes(verdict: Verdict) -> dict[str, str]:
    """The outcome of each table."""
    return {table.name: table.outcome for table in verdict.tables}


def named(differences: tuple[Difference, ...]) -> set[tuple[Any, ...]]:
    """Differences in short: kind, values of the key, columns, copies."""
    return {(each.kind, *each.key.values(), each.columns, each.copies) for each in differences}


def rewrite(lake: Path, name: str, change: Change) -> None:
    """Change the rows of a table's first data file where it lies; Delta's log says nothing of it."""
    path = first_file(lake, layout.table_folder("main", TableName("public", name)))
    pq.write_table(change(pq.read_table(path)), path)


def first_file(lake: Path, folder: str) -> Path:
    """The first data file of a Delta table of the lake."""
    table = LakeTable(Lake(lake).store, folder)
    table.refresh()
    return Path(lake, folder, min(table.files()))


def setting(column: str, value: Any, *, where: int, key: str = "id") -> Change:
    """One value of the row with this key becomes another."""

    def change(rows: pa.Table) -> pa.Table:
        number = rows.column_names.index(column)
        new = pa.scalar(value, rows.schema.types[number])
        values = pc.if_else(pc.equal(rows[key], where), new, rows[column])
        return rows.set_column(number, rows.schema.field(number), values)

    return change


def without(ids: list[int]) -> Change:
    """The rows with these ids are not there."""
    return lambda rows: rows.filter(pc.invert(pc.is_in(rows["id"], pa.array(ids, rows["id"].type))))


def twice(ids: list[int]) -> Change:
    """The rows with these ids are there once more."""
    return lambda rows: pa.concat_tables(
        [rows, rows.filter(pc.is_in(rows["id"], pa.array(ids, rows["id"].type)))]
    )
