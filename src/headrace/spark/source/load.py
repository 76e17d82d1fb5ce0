"""The door of `format("headrace")`: `pyspark_headrace` calls it, in whichever process Spark calls that.

schema()          plan(options)          the driver's worker, once for each `load()`
reader()          reader(plan)           the driver's worker, each time that the plan is carried out
streamReader()    stream_reader(plan)    a process of its own, for as long as the query runs
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.core.errors import Misconfigured
from headrace.spark.session import require_pyspark
from headrace.spark.source import types
from headrace.spark.source.change_rows import StreamPlan
from headrace.spark.source.changes import plan_stream
from headrace.spark.source.direct.rows import DirectPlan
from headrace.spark.source.options import DirectOptions, StreamOptions, parse, wrong_way_error
from headrace.spark.source.planning import plan_read
from headrace.spark.source.table_read import TableRead

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


AnyPlan = TableRead | StreamPlan | DirectPlan


def plan(options: Mapping[str, str]) -> AnyPlan:
    """Resolve the options; raises a coded error for whatever is wrong with them."""
    require_pyspark()
    wishes = parse(options)
    if isinstance(wishes, DirectOptions):
        from headrace.spark.source.direct.beginning import plan_direct  # late: with the receiver's supervisor

        return plan_direct(wishes)
    return plan_stream(wishes) if isinstance(wishes, StreamOptions) else plan_read(wishes)


def schema(plan: AnyPlan) -> StructType:
    return types.struct(plan.batch_schema())


def reader(plan: AnyPlan | None) -> DataSourceReader:
    """The reader of a batch query."""
    from headrace.spark.source import readers

    if plan is None:
        raise _schema_given_error()
    if not isinstance(plan, TableRead):
        raise wrong_way_error("as" if isinstance(plan, StreamPlan) else "url", streams=True)
    return readers.TableReader(plan)


def stream_reader(plan: AnyPlan | None) -> DataSourceStreamReader:
    """The reader of a streaming query, as the installed PySpark calls it."""
    from headrace.spark.source import readers

    if plan is None:
        raise _schema_given_error()
    if isinstance(plan, TableRead):
        raise wrong_way_error("table", streams=False)
    return readers.direct_reader(plan) if isinstance(plan, DirectPlan) else readers.stream_reader(plan)


def _schema_given_error() -> Misconfigured:
    """Without `schema()` there is no place where a mark would be resolved once."""
    return Misconfigured(
        "SPARK_SCHEMA_GIVEN",
        'format("headrace") has a schema of its own',
        hint='leave .schema(...) out; .option("columns", "id, name") chooses columns, .select(...) casts',
    )
