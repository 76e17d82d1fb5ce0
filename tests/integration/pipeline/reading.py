"""A table of a cut as other engines read it, brought to the types that pyarrow reads."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from headrace.lake.read.cut import Cut


def readings(cut: Cut, spark: Any, name: str) -> dict[str, pa.Table]:
    """By the engine: Spark, Polars, and delta-rs on the version that the mark names."""
    expected = cut.arrow(name)
    delta: Any = pa.table(DeltaTable(cut.url(name), version=cut.version(name)).scan())
    found = {
        "spark": cut.table(spark, name).toArrow(),
        "polars": cut.polars(name).collect().to_arrow(),
        # delta-rs shows columns as the lake spells them.
        "delta": delta.rename_columns(expected.column_names),
    }
    for engine, rows in found.items():
        assert (engine, rows.column_names) == (engine, expected.column_names)
    return {engine: rows.cast(expected.schema) for engine, rows in found.items()}
