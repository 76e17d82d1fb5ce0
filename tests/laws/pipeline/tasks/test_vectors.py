"""A table whose files get deletion vectors is at every mark as at its source, and so is its history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core import origins
from headrace.core.change_batch import Op
from headrace.core.history import history
from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.lake.format import datafile
from headrace.lake.format.vector import Vector, file_rows
from headrace.lake.store.open import open_store
from headrace.pipeline.tasks import merge_choice, row_cache
from headrace.pipeline.tasks.compact import Bundle, BundleResult, carry_over, write_bundle
from headrace.pipeline.tasks.files import Writing, read_file, write_sorted
from headrace.pipeline.tasks.merge_choice import Rules
from headrace.pipeline.tasks.merge_vectors import deleted_positions
from headrace.pipeline.tasks.routing import FileRange, Routes
from headrace.pipeline.tasks.row_cache import RowCache
from headrace.pipeline.tasks.table_task import REWRITE, LakeAddress, Outcome, TableTask, pack, to_ipc, unpack
from tests.effort import examples
from tests.laws.core.worlds import (
    FULL,
    KEYED,
    Change,
    Row,
    Side,
    World,
    changes,
    rows,
    sides,
    table,
    truncations,
    worlds,
)
from tests.laws.pipeline.tasks.merged import _events, merged_epoch

LAWS = examples(25)
RULES = {
    "vectors": Rules(floor=0, share=1.0, dead=0.9, small_files=8),  # vectors wherever there can be one
    "worn": Rules(floor=0, share=1.0, dead=0.3, small_files=8),  # soon written anew
    "few": Rules(floor=0, share=1.0, dead=0.9, small_files=2),
    "auto": Rules(floor=1 << 20, share=0.5, dead=0.5, small_files=8),
}


class _Mirror:
    """A table at rest in some files, and what epochs make of it."""

    def __init__(self, folder: Path, schema: TableSchema, present: Sequence[Sequence[Row]]) -> None:
        self.folder = folder
        self.store = open_store(folder)
        self.task = TableTask(TableName("public", "t"), schema, "t", "h", "e", Routes.over(()), 0)
        written = [
            n for some in present for n in write_sorted(Writing(self.store, 1), self.task, table(some))
        ]
        self.files = {
            n.file.path: FileRange(n.file.path, n.file.size, n.file.rows, n.low, n.high) for n in written
        }
        self.history: list[Side] = []
        self.ways: Counter[str] = Counter()
        self.overtaken = 0  # bundles that were published although the stream had merged smaller files of them

    def epoch(self, world: World, numbers: Sequence[int], rule: str) -> Outcome:
        """Merge these transactions, as the driver would, and go on from what came of it."""
        emptied = truncations(world, numbers, self.task.schema)
        routes = Routes.over(list(self.files.values()))
        task = replace(self.task, routes=routes, truncations=emptied, merge_rule=rule, row_cache=1 << 30)
        outcome = merged_epoch(self.folder, world, task, [numbers])
        if outcome.is_scattered:
            found = _events(world, task, numbers)
            moved = to_ipc(origins.origins(pa.concat_tables([origins.traces(found)]), emptied))
            outcome = merged_epoch(self.folder, world, replace(task, origins=moved), [numbers])
        assert outcome.failure is None
        assert rule != REWRITE or not outcome.vectors
        assert outcome.expected_keys == outcome.matched_keys
        for path in outcome.remove:
            del self.files[path]
        self.files |= {
            n.file.path: FileRange(n.file.path, n.file.size, n.file.rows, n.low, n.high) for n in outcome.add
        }
        for path, vector in outcome.vectors:
            assert path not in outcome.remove
            self.files[path] = replace(self.files[path], vector=vector)
        told = [datafile.read(self.store, "h", file) for file in outcome.history]
        straight = [history(task.schema, changes(world, task.schema, numbers))] if task.schema.full else []
        self.history += [side for some in (*told, *straight) for side in sides(some)]
        self.ways.update(dict(outcome.file_ways))
        return outcome

    def compacted(self, random: Random) -> BundleResult:
        """A bundle of the files as they are now: their largest and what is within it, or some of them."""
        files = sorted(self.files.values(), key=lambda file: file.size)
        bundle = Bundle(2, LakeAddress(str(self.folder)), "t", (), 0, self.task)
        if random.random() < 0.5:
            large, smaller = files[-1], tuple(map(file_rows, files[:-1]))
            bundle = replace(bundle, live=(file_rows(large),), smaller=smaller, ends=(large.low, large.high))
        else:
            bundle = replace(bundle, live=tuple(map(file_rows, files[: random.randint(1, 3)])))
        return unpack(write_bundle(pack(bundle)), BundleResult)

    def publish(self, done: BundleResult) -> bool:
        """Exchange the bundle's files as they are by now; False if one of them is gone."""
        carried = carry_over(self.store, done, {path: file.vector for path, file in self.files.items()})
        if carried is None:
            return False
        self.overtaken += len(done.moves) > len(carried.moves)
        for path in done.bundle.paths:
            del self.files[path]
        for path, vector in carried.moves:
            file = self.files[path]
            gone = np.concatenate(
                [deleted_positions(self.task, path, each) for each in (file.vector, vector)]
            )
            self.files[path] = replace(file, vector=Vector.of(gone))
        self.files = {path: file for path, file in self.files.items() if file.alive}
        for n in carried.keyed_files:
            self.files[n.file.path] = FileRange(
                n.file.path, n.file.size, n.file.rows, n.low, n.high, n.file.vector
            )
        return True

    def contents(self) -> list[Row]:
        return [row for file in self.files.values() for row in rows(read_file(self.store, self.task, file))]


@contextmanager
def _mirror(schema: TableSchema, present: Sequence[Sequence[Row]]) -> Iterator[_Mirror]:
    with TemporaryDirectory() as folder, TemporaryDirectory() as cache:
        cached = RowCache(Path(cache), 1 << 30)
        with (
            patch.object(row_cache, "cache_of", lambda most: cached),
            patch("headrace.pipeline.tasks.merge_vectors.cache_of", lambda most: cached),
            patch("headrace.pipeline.tasks.merge_vectors.RULES", RULES),
            patch.object(merge_choice, "_LEAST_POSITIONS", 1),
        ):
            yield _Mirror(Path(folder), schema, present)


def _epochs(world: World, stops: set[int]) -> list[list[int]]:
    numbers = list(range(len(world.transactions)))
    edges = [0, *sorted(stop for stop in stops if stop < len(numbers)), len(numbers)]
    return [numbers[low:high] for low, high in pairwise(edges) if low < high]


def _spread(world: World, files: int) -> list[list[Row]]:
    present = list(world.start.values())
    return [some for some in (present[number::files] for number in range(files)) if some]


@LAWS
@given(
    worlds(min_transactions=2, truncates=False),
    st.sampled_from([KEYED, FULL]),
    st.integers(1, 3),
    st.sets(st.integers(1, 8), min_size=4),
    st.lists(st.sampled_from(["vectors", *RULES, REWRITE]), min_size=5, max_size=5),
)
def test_each_mark_and_all_history_are_as_at_the_source_whatever_the_rule_of_each_epoch(
    world: World, schema: TableSchema, files: int, stops: set[int], rules: list[str]
) -> None:
    with _mirror(schema, _spread(world, files)) as mirror:
        grown = len(world.start)
        for numbers, rule in zip(_epochs(world, stops), rules * 2, strict=False):
            outcome = mirror.epoch(world, numbers, rule)
            state = world.states[numbers[-1]]
            assert Counter(mirror.contents()) == Counter(state.values())
            grown += outcome.rows
            assert grown == len(state)
            assert all(file.alive > 0 for file in mirror.files.values())
        assert sorted(mirror.history) == sorted(world.history())


@LAWS
@given(
    worlds(min_transactions=3, truncates=True),
    st.sampled_from([KEYED, FULL]),
    st.sets(st.integers(1, 8), min_size=4),
)
def test_a_truncation_takes_the_rows_of_files_with_vectors(
    world: World, schema: TableSchema, stops: set[int]
) -> None:
    with _mirror(schema, _spread(world, 2)) as mirror:
        for numbers in _epochs(world, stops):
            mirror.epoch(world, numbers, "vectors")
            assert Counter(mirror.contents()) == Counter(world.states[numbers[-1]].values())


def _busy_world(seed: int) -> World:
    """Rows that change, go, come again under their key or move to another, in thirty transactions."""
    random = Random(seed)
    state: dict[int, Row] = {key: (key, 0, random.randbytes(40).hex()) for key in range(0, 600, 2)}
    world = World(dict(state))
    for number in range(30):
        happened = []
        for _ in range(random.randint(1, 12)):
            old = state.pop(random.choice(sorted(state)))
            kind, key = random.random(), old[0]
            if kind < 0.3:
                happened.append(Change(Op.DELETE, old, None, sent=False))
            if 0.1 < kind < 0.3:
                happened.append(Change(Op.INSERT, None, (key, number, "again"), sent=True))
                state[key] = (key, number, "again")
            elif kind >= 0.3:
                moved = random.randrange(600)
                key = moved if kind > 0.8 and moved not in state else key
                state[key] = (key, number, old[2])
                happened.append(Change(Op.UPDATE, old, state[key], sent=False))
        world.transactions.append(happened)
        world.states.append(dict(state))
    return world


@pytest.mark.parametrize("rule", [*sorted(RULES), "any"])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 8))])
def test_many_epochs_end_as_at_the_source_and_every_way_of_a_file_occurs(rule: str, seed: int) -> None:
    world, random = _busy_world(seed), Random(seed)
    present = list(world.start.values())
    with _mirror(KEYED, [present[:200], present[200:]]) as mirror:
        for number, state in enumerate(world.states):
            now = random.choice([*RULES, REWRITE]) if rule == "any" else rule
            mirror.epoch(world, [number], now)
            assert Counter(mirror.contents()) == Counter(state.values())
            assert rule == "any" or len(mirror.files) <= RULES[rule].small_files + 1
        assert sorted(mirror.history) == sorted(world.history())
    wanted = {"vectors": {"vector"}, "worn": {"vector", "rewrite"}, "few": {"vector", "absorb"}}
    assert wanted.get(rule, set()) <= mirror.ways.keys(), mirror.ways


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(3, 20))]
)
def test_a_bundle_that_is_published_after_further_epochs_loses_none_of_them(seed: int) -> None:
    """It takes in a worn file and what smaller ones hold between its ends, or some files as a whole."""
    world, random = _busy_world(seed), Random(seed)
    present, ended = list(world.start.values()), Counter[bool]()
    with _mirror(KEYED, [present[:150], present[150:]]) as mirror:
        waiting: list[tuple[int, BundleResult]] = []
        for number, state in enumerate(world.states):
            mirror.epoch(world, [number], "vectors")
            waiting.append((number + random.randint(0, 3), mirror.compacted(random)))
            for at, done in [each for each in waiting if each[0] <= number]:
                waiting.remove((at, done))
                ended[mirror.publish(done)] += 1
                assert Counter(mirror.contents()) == Counter(state.values())
        assert sorted(mirror.history) == sorted(world.history())
    assert ended[True] > 5
    assert mirror.overtaken > 0
