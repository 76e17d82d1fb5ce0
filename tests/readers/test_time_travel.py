"""Time travel on Spark is the same sum as in memory, for every type, and prunes as a mark does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.errors import Definite, Misconfigured
from headrace.core.names import TableName
from headrace.lake.format import datafile, formatfile, layout, schemas
from headrace.lake.format.plan import Plan, TableStep
from headrace.lake.format.vector import FileRows
from headrace.lake.log.commit import open_log
from headrace.lake.log.marks import Mark
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from headrace.spark.session import SparkConfig, open_session
from tests.lakes import Bucket
from tests.laws.lake.chronicle import AWKWARD, VALUES, Chronicle, Row, Transaction, counted
from tests.places import place_at

pytestmark = pytest.mark.spark
NAME = '"S x"."B"'


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with open_session(SparkConfig(master="local[2]")) as session:
        yield session.spark


@pytest.fixture(scope="module")
def chronicle(tmp_path_factory: pytest.TempPathFactory, seed: int) -> Chronicle:
    """Sixteen transactions in four marks, over rows that come again and again."""
    dice = random.Random(seed)
    made = Chronicle(str(tmp_path_factory.mktemp("lakes") / "lake"))
    held = [_row(dice) for _ in range(40)]
    made.copy({NAME: held}, 1000)
    held, lsn = list(held), 1000
    for _ in range(4):
        epoch = []
        for _ in range(4):
            lsn += dice.randint(1, 50)
            epoch.append(Transaction(lsn, dice.randint(0, 60), {NAME: _updates(dice, held)}))
        made.publish(epoch)
    return made


def _row(dice: random.Random) -> Row:
    return tuple(dice.choice(values) for values in VALUES.values())


def _updates(dice: random.Random, held: list[Row]) -> list[tuple[Row, int]]:
    gone = [(held.pop(dice.randrange(len(held))), -1) for _ in range(6)]
    come = [(row, 1) for row in [*[_row(dice)] * 3, *dice.sample(held, 3)]]
    held += [row for row, _ in come]
    return gone + come


def _times(chronicle: Chronicle) -> list[int]:
    return sorted(time for time in chronicle.states if time >= 999)


def test_every_position_is_the_same_on_spark(chronicle: Chronicle, spark: Any) -> None:
    times = _times(chronicle)
    between = [
        time for time in times if chronicle.lake.at(position=place_at(time + 1)).places["main"].mark is None
    ]
    assert len(between) > 8
    for time in [*between[::2], times[-1]]:
        frame = chronicle.lake.at(position=place_at(time + 1)).table(spark, NAME)
        assert frame.columns == AWKWARD.names
        assert counted(frame.toArrow().cast(AWKWARD)) == chronicle.state(time)[NAME]


def test_the_changes_lead_from_one_place_to_the_other(chronicle: Chronicle, spark: Any) -> None:
    times = _times(chronicle)
    after, until = times[3], times[-4]
    rows = chronicle.lake.changes(
        spark, NAME, after=place_at(after + 1), until=chronicle.lake.at(position=place_at(until + 1))
    ).toArrow()
    # The user has a column of our name, so ours has another.
    assert rows.column_names == [*AWKWARD.names, "_time", "__diff"]
    assert all(after < time <= until for time in rows["_time"].to_pylist())
    state = Counter(chronicle.state(after)[NAME])
    for diff in (1, -1):
        some = rows.filter(pa.compute.field("__diff") == diff).select(AWKWARD.names).cast(AWKWARD)
        for code, times_there in counted(some).items():
            state[code] += diff * times_there
    assert +state == chronicle.state(until)[NAME]
    everything = chronicle.lake.changes(spark, NAME)
    assert everything.count() == 16 * 12
    _are_alike_without_spark(chronicle, rows, after, until)
    with pytest.raises(Misconfigured) as backwards:
        chronicle.lake.changes(spark, NAME, after=place_at(until), until=place_at(after))
    assert backwards.value.code == "LAKE_CHANGES_BACKWARDS"
    with pytest.raises(Definite) as broken:
        chronicle.lake.changes(spark, NAME, after=place_at(50))
    assert broken.value.code == "LAKE_HISTORY_BROKEN"
    assert broken.value.detail is not None
    begin = int(broken.value.hint.rpartition("after=")[2])  # the mark that the hint names
    assert chronicle.lake.changes(spark, NAME, after=begin).count() > 0


def _are_alike_without_spark(chronicle: Chronicle, rows: pa.Table, after: int, until: int) -> None:
    """The updates of Spark are those of Arrow and Polars, bit for bit."""
    lake, start, end = chronicle.lake, place_at(after + 1), place_at(until + 1)
    arrow = lake.changes_arrow(NAME, after=start, until=end)
    polars = lake.changes_polars(NAME, after=start, until=end).collect()
    assert arrow.column_names == polars.columns == rows.column_names
    want = counted(rows.cast(arrow.schema))
    assert counted(arrow) == want
    assert counted(polars.to_arrow().cast(arrow.schema)) == want
    assert lake.changes_arrow(NAME).num_rows == 16 * 12
    cut = lake.at()
    history = cut.history(NAME)
    lazily = cut.history_polars(NAME).collect()
    assert lazily.columns == history.column_names
    assert counted(lazily.to_arrow().cast(history.schema)) == counted(history)
    assert lake.changes_polars(NAME, after=cut).collect().height == 0


def test_a_lake_in_a_bucket_is_travelled_and_told_on_a_spark_that_knows_none(
    any_bucket: Bucket, spark: Any
) -> None:
    made, dice = Chronicle(any_bucket.address), random.Random(1)
    held = [_row(dice) for _ in range(12)]
    made.copy({NAME: held}, 1000)
    made.publish([Transaction(1000 + 10 * n, 0, {NAME: _updates(dice, held)}) for n in (1, 2)])
    frame = made.lake.at(position=place_at(1011)).table(spark, NAME)
    assert counted(frame.toArrow().cast(AWKWARD)) == made.state(1010)[NAME]
    assert made.lake.changes(spark, NAME, after=place_at(1011)).count() == 12
    assert made.lake.changes_polars(NAME, after=place_at(1011)).collect().height == 12


def test_history_of_another_table_is_never_shown(tmp_path: Path, spark: Any) -> None:
    """A sum below zero is an error on either engine."""
    made = Chronicle(str(tmp_path / "lake"))
    row = _row(random.Random(1))
    made.copy({NAME: [row]}, 1000)
    made.publish([Transaction(1010, 0, {NAME: [(row, -1)]}), Transaction(1100, 0, {NAME: [(row, 1)]})])
    folder = layout.history_folder("main", TableName.parse(NAME), 1)
    store = open_store(tmp_path / "lake")
    [path] = [key for key in store.list(folder) if key.endswith(".parquet")]
    doubled = datafile.read(store, folder, FileRows(path.rsplit("/", 1)[1]))
    store.delete(path)
    twice = pa.concat_tables([doubled.slice(0, 1)] * 2)
    datafile.write(store, folder, path.rsplit("/", 1)[1], twice)
    cut = made.lake.at(position=place_at(1012))
    with pytest.raises(Definite) as raised:
        cut.arrow(NAME)
    assert raised.value.code == "COLLECTION_NEGATIVE"
    with pytest.raises(Exception, match="COLLECTION_NEGATIVE"):
        cut.table(spark, NAME).count()


@pytest.mark.parametrize("size", [200_000, pytest.param(5_000_000, marks=pytest.mark.full)])
def test_a_query_for_a_key_touches_few_files(tmp_path: Path, spark: Any, size: int) -> None:
    lake = _large(tmp_path / "lake", size, files=40)
    frame = lake.at().table(spark, "public.t")
    assert len(frame.inputFiles()) == 40
    one = frame.where(f"id = {size // 3}")
    assert len(one.inputFiles()) <= 2
    assert [tuple(row) for row in one.collect()] == [(size // 3, f"row {size // 3}")]
    assert len(frame.where(f"id = {size + 1}").inputFiles()) == 0
    assert frame.count() == size
    assert frame.where(f"id > {size - 10}").count() == 9


def _large(path: Path, size: int, files: int) -> Lake:
    """A table in files by key, whose ends overlap a little, as merges leave them."""
    store = open_store(path)
    formatfile.create_lake(store)
    log = open_log(store, "main")
    mark = log.takeover().mark
    folder, each = layout.table_folder("main", TableName("public", "t")), size // files
    added = []
    for number in range(files):
        ids = list(range(number * each, (number + 1) * each))
        rows = pa.table({"id": ids, "s": [f"row {i}" for i in ids]})
        added.append(datafile.write(store, folder, layout.file_name(2), rows))
    step = TableStep(folder, -1, tuple(added), schema=schemas.encode(rows.schema))
    plan = Plan("main", mark.epoch + 1, "p", "copy", 1, "0/10", 15, steps=(step,), versions={"public.t": 0})
    log.put_plan(plan)
    assert isinstance(log.finish(plan), Mark)
    return Lake(path)
