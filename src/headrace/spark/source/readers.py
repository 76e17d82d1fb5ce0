"""The classes that Spark calls: thin, over the plans that they are made of.

None takes filters (`pushFilters`): with `spark.sql.python.filterPushdown.enabled` Spark 4.3 keeps one list of
partitions for all uses of a DataFrame, so that two filters over it lose rows, and so does the next query
without one. Whoever wants files left out reads `cut.table`.

Spark pickles a reader to its executors. It asks for partitions and for rows in different processes, so what
travels is the plan, and nothing that is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from headrace.spark.source import change_rows
from headrace.spark.source.change_rows import StreamPlan
from headrace.spark.source.direct import rows as direct_rows
from headrace.spark.source.direct.offsets import DirectOffset
from headrace.spark.source.direct.rows import DirectPlan
from headrace.spark.source.offsets import Offset

try:  # from PySpark 4.2 on
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark's mark of a reader that can end at the newest mark of its start."""


if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.spark.source.changes import ChangeStream
    from headrace.spark.source.direct.stream import DirectStream
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


class _ChangeReader(DataSourceStreamReader):
    """Reads the changes of a table: what is alike in all versions of PySpark."""

    def __init__(self, plan: StreamPlan) -> None:
        self.plan = plan
        self._opened: ChangeStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None}

    @property
    def stream(self) -> ChangeStream:
        """The stream, opened when it is first needed."""
        from headrace.spark.source.changes import ChangeStream  # late, as above

        if self._opened is None:
            self._opened = ChangeStream(self.plan)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        return self.plan.start.as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch; Spark asks again for one that was not committed."""
        tasks = self.stream.tasks(Offset.from_json(start), Offset.from_json(end))
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        return change_rows.read(self.plan, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: a lake keeps what it holds, whoever has read it."""


class ChangeReader(_ChangeReader, SupportsTriggerAvailableNow):
    """For PySpark 4.2 and later, which says where a query stands."""

    def prepareForTriggerAvailableNow(self) -> None:
        self.stream.end_at_newest()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:
        """The end of the next batch; the query's own `max_marks` is the limit."""
        return self.stream.latest(Offset.from_json(start)).as_json()


class OlderChangeReader(_ChangeReader):
    """For PySpark 4.0 and 4.1, which do not say where a query stands when they ask for the end of a batch.

    So a batch goes up to the newest mark: `max_marks` would be counted from a place that is not known.
    """

    def __init__(self, plan: StreamPlan) -> None:
        super().__init__(replace(plan, max_marks=None))
        self._last: Offset | None = None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._last = Offset.from_json(end)
        return super().partitions(start, end)

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """The end of the next batch."""
        return self.stream.latest(self._last).as_json()


class _DirectReader(DataSourceStreamReader):
    """Streams a source without a lake: what is alike in all versions of PySpark."""

    def __init__(self, plan: DirectPlan) -> None:
        self.plan = plan
        self._opened: DirectStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None}

    @property
    def stream(self) -> DirectStream:
        """The stream, opened when it is first needed."""
        from headrace.spark.source.direct.stream import DirectStream  # late, as above

        if self._opened is None:
            self._opened = DirectStream(self.plan)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        return self.stream.initial().as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of batches; Spark asks again for those that were not committed."""
        tasks = self.stream.tasks(DirectOffset.from_json(start), DirectOffset.from_json(end))
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        return direct_rows.read(self.plan, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Let the source forget what Spark has."""
        self.stream.commit(DirectOffset.from_json(end))


class DirectReader(_DirectReader, SupportsTriggerAvailableNow):
    """For PySpark 4.2 and later, which says where a query stands."""

    def prepareForTriggerAvailableNow(self) -> None:
        self.stream.end_at_newest()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:
        """The end of the next batch."""
        return self.stream.latest(DirectOffset.from_json(start)).as_json()


class OlderDirectReader(_DirectReader):
    """For PySpark 4.0 and 4.1: a batch goes up to the newest, and the first up to the source's own end.

    They tell a source neither where a query stands nor that it shall end with what there is now.
    """

    _asked = False

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """The end of the next batch."""
        if not self._asked:
            self._asked = True
            self.stream.end_at_newest()
            self.stream.latest(None)
            self.stream.go_on()
        return self.stream.latest(None).as_json()


def direct_reader(plan: DirectPlan) -> DataSourceStreamReader:
    """The reader of a direct stream for the installed PySpark."""
    newer = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
    return DirectReader(plan) if newer else OlderDirectReader(plan)


def stream_reader(plan: StreamPlan) -> DataSourceStreamReader:
    """The reader for the installed PySpark."""
    newer = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
    return ChangeReader(plan) if newer else OlderChangeReader(plan)
