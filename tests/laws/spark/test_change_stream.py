"""Batches of a stream of changes, whatever their limits, partition the changes and sum up to the table."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import HeadraceError
from headrace.lake.format import datafile, layout
from headrace.lake.format.vector import FileRows
from headrace.lake.store.open import open_store
from headrace.spark.source import changes
from headrace.spark.source.change_rows import ChangesTask, StreamPlan, read, sequences
from headrace.spark.source.changes import ChangeStream, plan_stream
from headrace.spark.source.offsets import Offset
from headrace.spark.source.options import StreamOptions
from tests.laws.lake.chronicle import AWKWARD, Chronicle, Row, Transaction, counted

NAME = "public.orders"
_NULLS = [None] * (len(AWKWARD) - 2)
_times = st.integers(min_value=0, max_value=2**63 - 1)


def row(key: int, value: str) -> Row:
    return (key, value, *_NULLS)


@pytest.fixture(scope="module")
def chronicle(tmp_path_factory: pytest.TempPathFactory, seed: int) -> Chronicle:
    """Eight marks of random inserts, updates (of keys, too) and deletes of rows with a key."""
    dice, made = random.Random(seed), Chronicle(str(tmp_path_factory.mktemp("lakes") / "lake"))
    held = dict.fromkeys(range(8), "")
    made.copy({NAME: [row(*each) for each in held.items()]}, 1000)
    for mark in range(7):
        lsns = [1010 + 100 * mark + 10 * step for step in range(dice.randint(0, 3))]
        made.publish([Transaction(lsn, mark, {NAME: list(_updates(dice, held))}) for lsn in lsns])
    return made


def _updates(dice: random.Random, held: dict[int, str]) -> Iterator[tuple[Row, int]]:
    for _ in range(dice.randint(1, 4)):
        key, other = dice.choice(sorted(held)), dice.randrange(30)
        match dice.choice(["insert", "update", "move", "delete"]):
            case "insert" if other not in held:
                held[other] = "new"
                yield row(other, "new"), 1
            case "update":
                yield row(key, held[key]), -1
                held[key] += "x"
                yield row(key, held[key]), 1
            case "move" if other not in held:
                yield row(key, held[key]), -1
                held[other] = held.pop(key)
                yield row(other, held[other]), 1
            case "delete" if len(held) > 2:
                yield row(key, held.pop(key)), -1


def plan(chronicle: Chronicle, form: str = "changes", **options: Any) -> StreamPlan:
    wishes = StreamOptions(chronicle.path, NAME, "changes", **options)
    return replace(plan_stream(wishes), form=form, key=("id",))


def batches(found: StreamPlan) -> Iterator[tuple[Offset, pa.Table]]:
    """The batches of a query, each with its end; offsets go the way of a checkpoint."""
    stream, start = ChangeStream(found), found.start
    while (end := stream.latest(Offset.from_json(json.loads(json.dumps(start.as_json()))))) != start:
        tasks = stream.tasks(start, end)
        rows = [batch for task in tasks for batch in read(found, task)]
        yield end, pa.Table.from_batches(rows, schema=found.batch_schema())
        start = end


def together(found: StreamPlan) -> pa.Table:
    return pa.concat_tables([rows for _, rows in batches(found)])


def summed(state: Counter[bytes], rows: pa.Table) -> Counter[bytes]:
    for sign in (1, -1):
        some = rows.filter(pc.field("__diff") == sign).select(AWKWARD.names).cast(AWKWARD)
        for code, times in counted(some).items():
            state[code] += sign * times
    return +state


@pytest.mark.parametrize("most", [1, 2, 3, None])
def test_the_sum_of_the_batches_is_the_table_at_each_end(chronicle: Chronicle, most: int | None) -> None:
    for after in [None, *(str(mark.epoch) for mark in chronicle.lake.marks()[1:])]:
        found = plan(chronicle, after=after, max_marks=most)
        state = Counter() if after is None else Counter(chronicle.state(found.start.time)[NAME])
        ends = []
        for end, rows in batches(found):
            state = summed(state, rows)
            assert state == chronicle.state(end.time)[NAME]
            ends.append(end)
        assert ends == sorted(ends)
        assert not ends or ends[-1].epoch == chronicle.mark.epoch
        if most == 1 and after is not None:
            assert [end.epoch for end in ends] == list(range(int(after) + 1, chronicle.mark.epoch + 1))


def test_batches_of_any_limits_partition_the_changes(chronicle: Chronicle) -> None:
    whole = together(plan(chronicle, after="2"))
    for most in (1, 2, 5):
        parts = together(plan(chronicle, after="2", max_marks=most))
        assert parts.sort_by("_sequence").num_rows == whole.num_rows
        assert counted(parts.drop_columns(["_sequence"])) == counted(whole.drop_columns(["_sequence"]))
    between = plan(chronicle, after=f"0/{chronicle.mark.time:X}")
    assert together(between)["_time"].to_pylist() == [chronicle.mark.time] * together(between).num_rows


def test_the_last_rows_of_keys_lead_to_the_table(chronicle: Chronicle) -> None:
    for most in (1, 3, None):
        held: dict[int, Any] = {}
        for end, rows in batches(plan(chronicle, "upserts", max_marks=most)):
            keys = rows["id"].to_pylist()
            assert len(set(keys)) == len(keys)
            for each in rows.to_pylist():
                held[each["id"]] = each if each["_op"] == "upsert" else None
            there = [tuple(each[name] for name in AWKWARD.names) for each in held.values() if each]
            expected = chronicle.state(end.time)[NAME]
            assert (
                counted(
                    pa.Table.from_pylist([dict(zip(AWKWARD.names, r, strict=True)) for r in there], AWKWARD)
                )
                == expected
            )


def test_the_feed_says_the_same_in_the_words_of_delta(chronicle: Chronicle) -> None:
    rows, feed = together(plan(chronicle, after="2")), together(plan(chronicle, "feed", after="2"))
    kinds = {("insert", 1): "insert", ("delete", -1): "delete", ("update", -1): "update_preimage"}
    expected = [
        kinds.get((each["_op"], each["__diff"]), "update_postimage")
        for each in rows.sort_by("_sequence").to_pylist()
    ]
    assert Counter(feed["_change_type"].to_pylist()) == Counter(expected)
    assert {"insert", "delete", "update_preimage", "update_postimage"} <= set(expected)
    times = {mark.epoch: mark.time for mark in chronicle.lake.marks()}
    marks = sorted(times.items())
    for time, version in zip(rows["_time"].to_pylist(), feed["_commit_version"].to_pylist(), strict=True):
        assert version == next(epoch for epoch, until in marks if until >= time)


def test_operations_do_not_hang_on_how_files_are_cut(chronicle: Chronicle, monkeypatch: Any) -> None:
    """Each row in a file and a task of its own: the halves of an update are found all the same."""
    found = plan(chronicle, after="2")
    whole = together(found).sort_by([("_sequence", "ascending"), ("__diff", "ascending")])
    monkeypatch.setattr(changes, "TASK_BYTES", 0)
    [task] = ChangeStream(found).tasks(found.start, ChangeStream(found).latest(found.start))[:1]
    assert isinstance(task, ChangesTask)
    store, folder = open_store(chronicle.path), "cut/apart"
    paths = []
    for path in {*task.files.paths, *task.beside, *_all_paths(chronicle)}:
        rows = datafile.read(store, task.files.folder, FileRows(path))
        for at in range(rows.num_rows):
            paths.append(layout.file_name(1))
            datafile.write(store, folder, paths[-1], rows.slice(at, 1))
    apart: list[pa.RecordBatch] = []
    for path in paths:
        others = tuple(each for each in paths if each != path)
        one = replace(task, files=replace(task.files, folder=folder, paths=(path,)), beside=others)
        apart += read(found, one)
    table = pa.Table.from_batches(apart).sort_by([("_sequence", "ascending"), ("__diff", "ascending")])
    assert table["_op"].to_pylist() == whole["_op"].to_pylist()
    assert table["_sequence"].to_pylist() == whole["_sequence"].to_pylist()


def _all_paths(chronicle: Chronicle) -> list[str]:
    keys = open_store(chronicle.path).list("history")
    return [key.rpartition("/")[2] for key in keys if key.endswith(".parquet") and "_delta_log" not in key]


def test_keys_are_shared_among_tasks(chronicle: Chronicle, monkeypatch: Any) -> None:
    whole = together(plan(chronicle, "upserts", after="2")).sort_by("id")
    monkeypatch.setattr(changes, "TASK_BYTES", 0)
    found = plan(chronicle, "upserts", after="2")
    stream = ChangeStream(found)
    tasks = stream.tasks(found.start, stream.latest(found.start))
    assert len(tasks) > 2
    parts = pa.Table.from_batches([batch for task in tasks for batch in read(found, task)]).sort_by("id")
    assert parts.to_pylist() == whole.to_pylist()


def test_a_stream_ends_at_the_newest_mark_of_its_start(tmp_path: Path) -> None:
    made = Chronicle(str(tmp_path / "lake"))
    made.copy({NAME: [row(1, "a")]}, 1000)
    made.publish([Transaction(1010, 1, {NAME: [(row(2, "b"), 1)]})])
    found = plan(made, after="2")
    stream = ChangeStream(found)
    stream.end_at_newest()
    made.publish([Transaction(1020, 1, {NAME: [(row(3, "c"), 1)]})])
    end = stream.latest(found.start)
    assert end.epoch == 3
    assert stream.latest(end) == end
    assert ChangeStream(found).latest(end).epoch == 4


def test_a_lake_that_is_restored_below_a_query_is_another(tmp_path: Path) -> None:
    """The query's tables stay open and show the marks from before: the plan of its start tells."""
    made = Chronicle(str(tmp_path / "lake"))
    made.copy({NAME: [row(1, "a")]}, 1000)
    found = plan(made, after="2")
    stream = ChangeStream(found)
    made.publish([Transaction(1010, 1, {NAME: [(row(2, "b"), 1)]})])
    start = stream.latest(found.start)
    assert stream.tasks(found.start, start)
    store, key = open_store(made.path), layout.plan_key("main", start.epoch)
    before = json.loads(store.get(key) or b"")
    store.put(key, json.dumps(before | {"plan_id": "another"}).encode())
    made.publish([Transaction(1020, 1, {NAME: [(row(3, "c"), 1)]})])
    with pytest.raises(HeadraceError) as raised:
        stream.latest(start)
    assert raised.value.code == "STREAM_OTHER_LAKE"


def _refused(stream: ChangeStream, start: Offset) -> HeadraceError:
    with pytest.raises(HeadraceError) as raised:
        stream.tasks(start, stream.latest(start))
    return raised.value


def test_what_would_be_a_gap_is_refused(chronicle: Chronicle) -> None:
    found = plan(chronicle, after="3")
    stream = ChangeStream(found)
    broken = _refused(stream, replace(found.start, time=5, epoch=1, plan_id="?"))
    assert broken.code == "STREAM_OTHER_LAKE"
    early = replace(found.start, time=5)
    assert _refused(stream, early).code == "LAKE_HISTORY_BROKEN"
    assert "after=" in _refused(stream, early).hint
    assert _refused(stream, replace(found.start, lake="other")).code == "STREAM_OTHER_LAKE"
    newest = stream.latest(found.start)
    assert stream.latest(newest) == newest
    assert _refused(stream, replace(newest, lake="other")).code == "STREAM_OTHER_LAKE"
    assert _refused(stream, replace(found.start, epoch=99)).code == "STREAM_OTHER_LAKE"
    less = replace(found, schema=AWKWARD.remove(2))
    assert _refused(ChangeStream(less), found.start).code == "STREAM_COLUMNS_CHANGED"
    more = replace(found, schema=AWKWARD.append(pa.field("new", pa.int64())))
    assert _refused(ChangeStream(more), found.start).code == "STREAM_COLUMNS_CHANGED"
    later = replace(more, epoch=99)  # a column that came after the end of the batch
    assert ChangeStream(later).tasks(found.start, ChangeStream(later).latest(found.start))
    with pytest.raises(HeadraceError) as raised:
        Offset.from_json({"partition": 3})
    assert raised.value.code == "STREAM_OFFSET_MALFORMED"
    with pytest.raises(HeadraceError) as keyless:
        plan_stream(StreamOptions(chronicle.path, NAME, "upserts"))
    assert keyless.value.code == "STREAM_NO_KEY"


@given(_times, _times, _times, _times)
def test_a_sequence_is_the_order_of_commits(time: int, ordinal: int, other: int, place: int) -> None:
    one, two = sequences(np.array([time, other]), np.array([ordinal, place])).to_pylist()
    assert (one < two) == ((time, ordinal) < (other, place))
    assert int(one) == (time << 63) + ordinal


@given(_times, _times)
def test_offsets_are_ordered_and_survive_json(time: int, other: int) -> None:
    one, two = Offset(time, 1, "lake", "main", "p"), Offset(other, 1, "lake", "main", "q")
    assert (one < two) == (time < other)
    assert Offset.from_json(json.loads(json.dumps(one.as_json()))) == one
