"""A merge in the driver: what becomes of the events of a group, without a source and without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.core.change_batch import BAD, Image
from headrace.core.handoff import ByPosition, ByXid, Handoff
from headrace.core.key_events import events
from headrace.core.names import TableName
from headrace.core.origins import origins, traces, with_origins
from headrace.lake.format import schemas
from headrace.lake.format.plan import DataFile, TableStep
from headrace.lake.log import errors_table
from headrace.lake.log.table import LakeTable, Stamp
from headrace.lake.store.open import open_store
from headrace.pipeline.tasks import raw_values
from headrace.pipeline.tasks.files import Writing, write_sorted
from headrace.pipeline.tasks.merge import merge, merge_events
from headrace.pipeline.tasks.partition import of_events
from headrace.pipeline.tasks.routing import FileRange, Routes
from headrace.pipeline.tasks.table_task import (
    LakeAddress,
    Outcome,
    SlicePart,
    TableTask,
    from_ipc,
    pack,
    to_ipc,
    unpack,
)
from tests.places import place_at
from tests.unit.core.batches import Change, batch, delete, insert, table_of, text_table, update

SCHEMA = text_table()


def _merged(lake: Path, handoff: Handoff | None) -> Outcome:
    """Two inserts, at 5 and at 15, into an empty table."""
    task = TableTask(TableName("public", "t"), SCHEMA, "t", "h", "e", Routes.over(()), 0, handoff)
    found = events(SCHEMA, batch(SCHEMA, insert(5, ("a", "1", "")), insert(15, ("b", "2", ""))))
    found = found.append_column("_home", pa.array([True] * found.num_rows))
    [blob] = merge("t:0", iter([pack(SlicePart(1, LakeAddress(str(lake)), task, to_ipc(found)))]))
    return unpack(blob, Outcome)


@pytest.mark.parametrize(
    ("handoff", "told"),
    [
        (None, [5, 15]),
        (ByPosition(place_at(5)), [5, 15]),
        (ByXid(100, 100, (), place_at(10)), [15]),
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


def test_a_row_that_comes_to_a_key_of_another_file_stops_the_table(tmp_path: Path) -> None:
    """Its events are folded where it was found; the file that holds the new key has to say so."""
    store = open_store(tmp_path)
    task = TableTask(TableName("public", "t"), SCHEMA, "t", "h", "e", Routes.over(()), 0)
    [new] = write_sorted(Writing(store, 1), task, table_of(SCHEMA, ("b", "1", "")))
    file = FileRange(new.file.path, new.file.size, 1, new.low, new.high)
    moved = update(5, ("b", "1", None), old=("a", None, None), image=Image.KEY, holes={2})
    happened = events(SCHEMA, batch(SCHEMA, moved))
    found = with_origins(happened, origins(traces(happened)))
    shares = of_events(replace(task, routes=Routes.over([file])), found)
    [(_, own, probe)] = [share for share in shares if share[2]["_probe"].to_pylist() == [True]]
    outcome = merge_events(Writing(store, 2), own, probe)
    assert outcome.failure is not None
    assert outcome.failure.code == "ROW_PRESENT"


@pytest.mark.parametrize("ordered", [False, True])
def test_events_of_one_time_are_netted_across_slices_before_a_row_is_vouched_for(
    tmp_path: Path, ordered: bool
) -> None:
    """The inner statement's slice holds what came last, of a row that is there and of one that is not."""
    schema = replace(text_table(full=True), is_ordered=ordered)
    store, name = open_store(tmp_path), TableName("public", "t")
    task = TableTask(name, schema, "t", "h", "e", Routes.over(()), 0)
    present = table_of(schema, ("a", "0", ""))
    [new] = write_sorted(Writing(store, 1), task, present)
    task = replace(task, routes=Routes.over([FileRange(new.file.path, 1, 1, new.low, new.high)]))

    def went(*row: str) -> Change:
        return delete(5, row, image=Image.FULL)

    def came(*row: str) -> Change:
        return insert(5, row)

    inner = (went("a", "1", ""), came("a", "2", ""), went("b", "1", ""), came("b", "2", ""))
    outer = (went("a", "0", ""), came("a", "1", ""), came("b", "1", ""))
    parts = []
    for some in (inner, outer):
        found = events(schema, batch(schema, *some)).append_column("_home", pa.array([True] * len(some)))
        parts.append(pack(SlicePart(2, LakeAddress(str(tmp_path)), task, to_ipc(found))))
    [blob] = merge("t:0", iter(parts))
    outcome = unpack(blob, Outcome)
    if ordered:
        assert outcome.failure is not None
        return
    assert outcome.failure is None
    assert outcome.expected_keys == outcome.matched_keys
    assert outcome.expected_keys[0] == 1, "the row of b was nowhere when the time began"
    rows = pa.concat_tables([pq.read_table(tmp_path / "t" / file.file.path) for file in outcome.add])
    assert [(row["id"], row["small"]) for row in rows.to_pylist()] == [("a", "2"), ("b", "2")]


def _said(tmp_path: Path, rows: int, change: Change) -> tuple[Outcome, int]:
    """Return what a change of one row adds to `errors/`, where so many rows have a value without a lake form.

    The file about the keys of others is gone, so whoever reads it fails.
    """
    store = open_store(tmp_path)
    task = TableTask(TableName("public", "t"), SCHEMA, "t", "h", "e", Routes.over(()), 0, raw_columns=(1,))
    present = table_of(SCHEMA, *((str(number), None, "") for number in range(rows)))
    [new] = write_sorted(Writing(store, 1), task, present)
    raw = pa.repeat(pa.scalar("infinity"), rows)
    said = raw_values.write_errors(store, task, 1, raw_values.of_copied_rows(task, present, 1, raw, 1))
    files = tuple(each for each in said if isinstance(each, DataFile))
    assert sum(file.rows for file in files) == rows, "many are written where they arise"
    others = table_of(SCHEMA, ("others", None, ""))
    unread = errors_table.write(
        store, "e", "unread.parquet", raw_values.of_copied_rows(task, others, 1, raw[:1], 1)
    )
    step = TableStep("e", -1, (*files, unread), (), schemas.encode(errors_table.ERRORS))
    assert LakeTable(store, "e").write(step, Stamp("headrace/main", 1, "p"))
    (tmp_path / "e" / unread.path).unlink()
    task = replace(task, routes=Routes.over([FileRange(new.file.path, 1, rows, new.low, new.high)]))
    bad = BAD.empty_table()
    found = events(raw_values.extend(task), raw_values.widen(task, batch(SCHEMA, change), bad))
    found = found.append_column("_home", pa.array([True] * found.num_rows))
    outcome = merge_events(Writing(store, 2), task, found)
    assert outcome.failure is None
    return outcome, sum(from_ipc(each).num_rows for each in outcome.errors if isinstance(each, bytes))


def test_an_update_that_leaves_such_a_value_alone_adds_nothing_to_errors(tmp_path: Path) -> None:
    kept = update(5, ("7", None, "new"), holes={1})
    assert _said(tmp_path / "kept", 2000, kept)[1] == 0
    assert _said(tmp_path / "gone", 2000, update(5, ("7", "a value", "new")))[1] == 1
