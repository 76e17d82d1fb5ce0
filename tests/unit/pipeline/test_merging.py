"""A merge in the driver: what becomes of the events of a group, without a source and without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.core.events import events
from headrace.core.frontier import LsnFrontier
from headrace.core.handoff import ByPosition, ByXid, Handoff
from headrace.core.names import TableName
from headrace.core.position import Lsn
from headrace.pipeline.merging import merge
from headrace.pipeline.routing import Routes
from headrace.pipeline.tasks import LakeAddress, Outcome, Part, TableTask, pack, to_ipc, unpack
from tests.unit.core.batches import batch, insert, text_table

SCHEMA = text_table()


def _merged(lake: Path, handoff: Handoff | None) -> Outcome:
    """Two inserts, at 5 and at 15, into an empty table."""
    task = TableTask(TableName("public", "t"), SCHEMA, "t", "h", "e", Routes.over(()), 0, handoff)
    found = events(SCHEMA, batch(SCHEMA, insert(5, ("a", "1", "")), insert(15, ("b", "2", ""))))
    found = found.append_column("_home", pa.array([True] * found.num_rows))
    [blob] = merge("t:0", iter([pack(Part(1, LakeAddress(str(lake)), task, to_ipc(found)))]))
    return unpack(blob, Outcome)


@pytest.mark.parametrize(
    ("handoff", "told"),
    [
        (None, [5, 15]),
        (ByPosition(LsnFrontier(Lsn(5))), [5, 15]),
        (ByXid(100, 100, (), LsnFrontier(Lsn(10))), [15]),
    ],
)
def test_history_of_a_copy_begins_where_the_copy_is_exact(
    tmp_path: Path, handoff: Handoff | None, told: list[int]
) -> None:
    outcome = _merged(tmp_path, handoff)
    assert outcome.failure is None
    assert outcome.rows == 2, "what is not in the copy is applied to it in any case"
    times = [pq.read_table(tmp_path / "h" / file.path)["_time"].to_pylist() for file in outcome.history]
    assert [time for file in times for time in file] == told
