"""The classes that Spark calls: thin, over the plans that they are made of.

None takes filters (`pushFilters`): with `spark.sql.python.filterPushdown.enabled` Spark 4.3 keeps one list of
partitions for all uses of a DataFrame, so that two filters over it lose rows, and so does the next query
without one. Whoever wants files left out reads `cut.table`.

Spark pickles a reader to its executors. It asks for partitions and for rows in different processes, so a
reader holds its plan and nothing that is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.spark.source.table_read import TableRead


class TableReader(DataSourceReader):
    """Reads a table at a mark."""

    def __init__(self, plan: TableRead) -> None:
        self.plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task; Spark makes one of None where there is none."""
        from headrace.spark.source.planning import tasks  # late: executors load this module, and no Delta

        return [InputPartition(files) for files in tasks(self.plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        return self.plan.read(partition.value or ())
