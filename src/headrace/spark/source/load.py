"""The door of `format("headrace")`: what `pyspark_headrace` calls, in whichever process Spark calls that.

schema()    plan(options)              the driver's worker, once for each `load()`
reader()    reader(plan)               the driver's worker, each time that the plan is carried out
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.core.errors import Misconfigured
from headrace.spark.session import require_pyspark
from headrace.spark.source import types
from headrace.spark.source.options import parse
from headrace.spark.source.planning import plan_read

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType

    from headrace.spark.source.table_read import TableRead


def plan(options: Mapping[str, str]) -> TableRead:
    """Resolve the options; raises a coded error for whatever is wrong with them."""
    require_pyspark()
    return plan_read(parse(options))


def schema(read: TableRead) -> StructType:
    return types.struct(read.batch_schema())


def reader(read: TableRead | None) -> DataSourceReader:
    """The reader of a batch query."""
    from headrace.spark.source import readers

    if read is None:
        raise _schema_given_error()
    return readers.TableReader(read)


def _schema_given_error() -> Misconfigured:
    """Without `schema()` there is no place where a mark would be resolved once."""
    return Misconfigured(
        "SPARK_SCHEMA_GIVEN",
        'format("headrace") has a schema of its own',
        hint='leave .schema(...) out; .option("columns", "id, name") chooses columns, .select(...) casts',
    )
