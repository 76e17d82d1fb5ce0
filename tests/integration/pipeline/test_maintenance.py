"""Maintenance of a lake that is being written: by a command beside a run, and by the run itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import headrace
from headrace.lake.format import layout
from headrace.pipeline.commands import ask, upkeep
from headrace.pipeline.maintain import maintenance
from headrace_testing import validators, workload
from headrace_testing.mirror_process import Program
from headrace_testing.postgres import Database
from headrace_testing.wholeness import transfers
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.refused import configuration
from tests.integration.pipeline.serving import Served, serving
from tests.integration.pipeline.typed import typed
from tests.lakes import has_vectors
from tests.nursery import Nursery

pytestmark = pytest.mark.server


@contextmanager
def _written(mirrors: Mirrors, database: Database, seed: int, *kinds: workload.Workload) -> Iterator[Served]:
    """A run, and writers, until the block ends."""
    url = database.url(user="app")
    workload.make_tables(url, *kinds)
    mirrors.once()
    with serving(mirrors) as served, ExitStack() as stack:
        for kind in kinds:
            work = workload.running(kind, url, seed=seed, writers=1, pause=0.02, prepare=False)
            stack.enter_context(work)
        yield served


def _marks(mirrors: Mirrors) -> int:
    return mirrors.lake.at().mark.epoch


@pytest.mark.parametrize("merge", ["vectors", pytest.param("rewrite", marks=pytest.mark.full)])
def test_maintenance_beside_a_run_disturbs_no_mark(
    mirrors: Mirrors, database: Database, seed: int, program: Program, nursery: Nursery, merge: str
) -> None:
    """By the command, in a process of its own: to it this one is the living owner."""
    mirrors.options["merge"] = merge
    command = ["maintain", "--json", "--lake", str(mirrors.path), "--marks", "0s", "--grace", "0s"]
    kinds = (workload.Transfers(), workload.Keyed(), workload.Bag())
    with _written(mirrors, database, seed, *kinds) as served:
        for _ in range(2):
            epoch = _marks(mirrors)
            served.until(lambda epoch=epoch: _marks(mirrors) > epoch + 8, "some marks")  # type: ignore[misc]
            done = typed(program, nursery, *command)
            assert done.returncode == 0, done.stderr
            report = json.loads(done.stdout)["main"]
            assert report["left_alone"] == {}
            assert report["marks"]["dropped"] > 5
            assert report["compacted"]["before"] > report["compacted"]["after"] > 0
        epoch = _marks(mirrors)
        served.until(lambda: _marks(mirrors) > epoch + 3, "marks after it")
    mirrors.once()
    assert served.codes == []
    assert validators.exact(mirrors.lake, database.url()) == []
    assert validators.consistent(mirrors.lake) == []
    verdict = transfers(mirrors.lake)
    assert (verdict.violations, verdict.times > 20) == ([], True)
    assert has_vectors(mirrors.lake) == (merge == "vectors")
    if merge == "vectors":
        mirrors.options["merge"] = "rewrite"
        report = ask.ask(str(mirrors.path), "maintain", {"rewrite": True})
        assert report["compacted"]["before"] > 0
        assert not has_vectors(mirrors.lake)
        assert validators.exact(mirrors.lake, database.url()) == []


def test_a_run_maintains_its_lake_by_itself(
    mirrors: Mirrors, database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance starts as soon as it is worth it; the test lowers that bar instead of waiting."""
    monkeypatch.setattr(upkeep, "EVERY_MARKS", 15)
    monkeypatch.setattr(maintenance, "LEAST", {True: (2, 10)})

    folder = layout.requests_folder("main")

    def maintained() -> bool:
        return any(mark.kind == "maintain" for mark in mirrors.lake.marks())

    with _written(mirrors, database, seed, workload.Bag()) as served:
        served.until(maintained, "its own maintenance")
        served.until(lambda: mirrors.lake.store.list(folder) == (), "the end of it")
    mirrors.once()
    assert validators.exact(mirrors.lake, database.url()) == []
    assert validators.definite(mirrors.lake) == []


def test_a_run_leaves_its_lake_alone_where_that_is_wanted(
    mirrors: Mirrors, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "EVERY_MARKS", 1)
    monkeypatch.setattr(maintenance, "LEAST", {True: (2, 2)})
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
    for maintain, kinds in (("off", False), ("auto", True)):
        for _ in range(2):
            config = configuration(mirrors.path, url=database.url(user="app"))
            config["lake"]["maintain"] = maintain
            headrace.mirror(config, spark=mirrors.spark, once=True)
        assert any(mark.kind == "maintain" for mark in mirrors.lake.marks()) == kinds
    assert validators.exact(mirrors.lake, database.url()) == []
