"""Jobs keep their promises on every engine, against the driver's runner as the plain twin."""

from __future__ import annotations

import base64
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.core.errors import Definite, Misconfigured, Transient
from headrace.core.records import to_record
from headrace.spark.depot import Depot
from headrace.spark.jobs import Background, DriverRunner, Runner
from headrace.spark.paths import Probe, local_probe, prove_shared
from headrace.spark.secrets import seal
from headrace.spark.session import SparkConfig, open_session
from headrace.spark.warmth import Heartbeat, warm
from tests.integration.spark import work
from tests.integration.spark.conftest import ENGINES, Engine

# Connect on a local server complains about settings that only the server's start can take.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:Failed to set spark")]

# What no cluster and no client can change is asked of one engine in every run, of all in the full one.
alike = pytest.mark.parametrize(
    "engine",
    [name if name == "local" else pytest.param(name, marks=pytest.mark.full) for name in ENGINES],
    indirect=True,
)

WORDS = [b"abcaab", b"abd", b"", b"xyzzy" * 40, b"a" * 300]


def test_results_come_in_item_order(engine: Engine) -> None:
    items = [str(position % 4).encode() for position in range(70)]
    assert engine.runner.run(work.several, items) == DriverRunner().run(work.several, items)


@alike
def test_no_items_need_no_job(engine: Engine) -> None:
    assert engine.runner.run(work.echo, []) == []
    assert engine.runner.run_grouped(work.by_letter, work.joined, []) == []


@alike
def test_work_in_the_background_steps_back_and_its_workers_do_not(engine: Engine) -> None:
    """Also where they are the same workers, as far as one can see."""
    usual = int(DriverRunner().run(work.niceness, [b""])[0])
    background = Background(engine.runner)
    assert background.run(work.niceness, [b""] * 4) == [b"%d" % min(usual + 10, 19)] * 4
    assert engine.runner.run(work.niceness, [b""] * 4) == [b"%d" % usual] * 4
    with pytest.raises(Definite, match="TEST_REFUSED"):
        background.run(work.refuse, [b"bad"])


@alike
def test_work_in_spare_time_gives_way_at_once_and_its_workers_do_not(engine: Engine) -> None:
    spare = Background(engine.runner, spare=True)
    assert spare.run(work.policy, [b""] * 4) == [b"%d" % os.SCHED_IDLE] * 4
    assert Background(engine.runner).run(work.policy, [b""] * 4) == [b"%d" % os.SCHED_OTHER] * 4
    assert engine.runner.run(work.policy, [b""] * 4) == [b"%d" % os.SCHED_OTHER] * 4


@pytest.mark.parametrize("engine", ["local", pytest.param("cluster", marks=pytest.mark.full)], indirect=True)
def test_a_job_gets_the_first_slot_that_one_in_the_background_leaves(engine: Engine, tmp_path: Path) -> None:
    """Connect's client can't ask for that: which pool a job is in is said within the server."""
    engine.runner.run(work.echo, [b""] * 2)  # both slots are there
    jobs = engine.session.jobs.sparkContext.statusTracker()
    with ThreadPoolExecutor(2) as threads:
        long = threads.submit(
            Background(engine.runner).run,
            partial(work.wait_for_leave, str(tmp_path)),
            [b"first"] * 2 + [b"rest"] * 6,
        )
        work.wait_for(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
        short = threads.submit(engine.runner.run, work.echo, [b"now"])
        work.wait_for(lambda: len(jobs.getActiveStageIds()) == 2)  # a job is active before it has tasks
        (tmp_path / "first").touch()
        try:
            assert short.result(timeout=30) == [b"now"]
        finally:
            (tmp_path / "rest").touch()
        assert len(long.result()) == 8


@alike
def test_a_partial_travels_with_its_arguments(engine: Engine) -> None:
    assert engine.runner.run(partial(work.shout, b"!"), [b"a"]) == [b"A!"]


@pytest.mark.parametrize("merge", [work.joined, work.first_only])
def test_groups_merge_as_they_do_in_the_driver(engine: Engine, merge: work.Merge) -> None:
    ours = engine.runner.run_grouped(work.by_letter, merge, WORDS)
    assert ours == DriverRunner().run_grouped(work.by_letter, merge, WORDS)


def test_an_error_keeps_its_family_code_and_hint(engine: Engine) -> None:
    with pytest.raises(Definite) as caught:
        engine.runner.run(work.refuse, [b"good", b"bad", b"good"])
    expected = {"family": "definite", "code": "TEST_REFUSED", "primary": "no", "detail": "a table"}
    assert to_record(caught.value) == {**expected, "hint": "do nothing"}
    assert "work.py" in caught.value.__notes__[0]


@alike
def test_a_bug_tells_its_place_and_no_value(engine: Engine) -> None:
    with pytest.raises(RuntimeError, match="ValueError in a task") as caught:
        engine.runner.run(work.stumble, [b"4711-secret"])
    assert "in stumble" in str(caught.value)
    assert "4711" not in str(caught.value)


@alike
def test_want_of_memory_in_a_task_is_transient(engine: Engine) -> None:
    with pytest.raises(Transient, match="SPARK_TASK_OUT_OF_MEMORY"):
        engine.runner.run(work.exhaust, [b""])


@alike
def test_errors_of_split_and_merge_are_raised(engine: Engine) -> None:
    with pytest.raises(Definite, match="TEST_REFUSED"):
        engine.runner.run_grouped(work.refuse_split, work.refuse_merge, [b"ab", b"bad"])
    with pytest.raises(Definite, match="TEST_MERGE_REFUSED"):
        engine.runner.run_grouped(work.by_letter, work.refuse_merge, [b"ab"])


def test_a_worker_killed_in_mid_task_is_replaced_without_effect(engine: Engine, tmp_path: Path) -> None:
    items = [b"one", b"two", b"die", b"four"]
    assert engine.runner.run(partial(work.die_once, str(tmp_path)), items) == items
    assert len(list(tmp_path.glob("die*"))) > 1


@pytest.mark.parametrize(
    "engine", ["local", pytest.param("cluster", marks=pytest.mark.full), "connect"], indirect=True
)
def test_a_task_that_always_dies_is_transient(engine: Engine) -> None:
    with pytest.raises(Transient) as caught:
        engine.runner.run(work.die, [b"x"])
    assert caught.value.code == "SPARK_JOB_FAILED"
    assert "\tat " not in str(caught.value)
    assert engine.runner.run(work.echo, [b"alive"]) == [b"alive"]


@alike
def test_workers_are_used_again(engine: Engine) -> None:
    warm(engine.runner)
    first = {pid for _ in range(3) for pid in engine.runner.run(work.who, [b"0.3"] * 2)}
    engine.runner.run_grouped(work.by_letter, work.first_only, WORDS)
    again = {pid for _ in range(3) for pid in engine.runner.run(work.who, [b"0.3"] * 2)}
    assert again <= first
    assert str(os.getpid()).encode() not in first


@alike
def test_two_hundred_megabytes_pass_through_a_shuffle(engine: Engine) -> None:
    weighed = engine.runner.run_grouped(
        work.megabytes, work.weigh, [str(item).encode() for item in range(10)]
    )
    assert weighed == [f"{group} 10 {10 * (2 << 20)}".encode() for group in range(10)]


@alike
def test_a_merge_of_four_hundred_megabytes_holds_a_few_of_them(engine: Engine) -> None:
    (answer,) = engine.runner.run_grouped(work.one_group, work.weigh_memory, [b""] * 10)
    total, grown = map(int, answer.split())
    assert total == 400 << 20
    assert grown < 150 << 20


def test_large_items_arrive_whole(engine: Engine) -> None:
    sizes = [1 << 20, 0, 30 << 20, 7]
    lengths = engine.runner.run(work.length, [bytes(size) for size in sizes])
    assert lengths == [str(size).encode() for size in sizes]


def test_what_is_too_large_for_a_row_goes_by_way_of_the_lake(engine: Engine, tmp_path: Path) -> None:
    """Items, blobs, results, and what all items share; nothing is left of it when the job is over."""
    runner = Runner(engine.session, Depot(str(tmp_path), limit=1000))
    items = [b"7" * size for size in (2000, 3, 1001)]
    assert runner.run(work.echo, items) == items
    assert runner.run_grouped(work.one_blob, work.whole, items) == [b"".join(items)]
    with runner.share(bytes(100_000)) as name:
        assert len(name) < 1000
        assert runner.run(work.length_of_shared, [name, name]) == [b"100000"] * 2
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_between_two_tasks_of_a_worker_the_collector_has_little_to_look_through(engine: Engine) -> None:
    for _ in range(3):
        found = engine.runner.run(work.seen_by_the_collector, [b""] * 4)
    for seen, left_alone in (map(int, answer.split()) for answer in found):
        assert seen < 30_000 < left_alone


def test_a_secret_is_in_no_plan_and_no_event_log(engine: Engine) -> None:
    secret = "correct-horse-battery"
    sealed, key = seal(secret)
    task = partial(work.unseal, key)
    assert engine.runner.run(task, [sealed.data] * 3) == [str(len(secret)).encode()] * 3
    for half in (sealed.data, key.pad):
        engine.runner.run(partial(work.shout, half), [half])
    log = b"".join(path.read_bytes() for path in engine.events.rglob("*") if path.is_file())
    assert b"SparkListenerJobEnd" in log
    assert b"MapInArrow" in log
    for form in (secret.encode(), secret.encode("utf-16-le"), base64.b64encode(secret.encode())[:-2]):
        assert form not in log


def test_driver_and_tasks_share_a_directory(engine: Engine, tmp_path: Path) -> None:
    prove_shared(engine.runner, 2, local_probe(tmp_path))
    assert list((tmp_path / "_headrace").iterdir()) == []


@pytest.mark.parametrize("blind", ["tasks", "driver"])
@alike
def test_a_directory_that_is_not_shared_is_found(engine: Engine, tmp_path: Path, blind: str) -> None:
    here = local_probe(tmp_path / "driver")
    apart = (os.getpid(), str(tmp_path))
    if blind == "driver":
        probe = Probe("somewhere", partial(work.write_apart, *apart), here.read, here.remove)
    else:
        probe = Probe("somewhere", here.write, partial(work.read_apart, *apart), here.remove)
    with pytest.raises(Misconfigured) as caught:
        prove_shared(engine.runner, 2, probe)
    assert caught.value.code == "SPARK_LAKE_NOT_SHARED"
    assert caught.value.detail is not None
    assert ("the driver does not see" in caught.value.detail) == (blind == "driver")


@alike
def test_a_heartbeat_beats_while_idle_and_stops(engine: Engine) -> None:
    with Heartbeat(engine.runner, every=0.2) as heart:
        work.wait_for(lambda: heart.beats >= 2)
        assert heart.alive()
    assert not heart.alive()


def _full_collections(engine: Engine) -> int:
    """The number of times that the JVM looked through all of its memory."""
    jvm: Any = engine.session.spark._jvm
    beans = jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    return sum(bean.getCollectionCount() for bean in beans if bean.getName() == "MarkSweepCompact")


@alike
def test_a_heartbeat_lets_workers_end_and_begins_again_with_a_job(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest, rests = engine.runner.rest, list[None]()
    before = 0 if engine.session.connect else _full_collections(engine)
    rest()
    assert engine.session.connect or _full_collections(engine) == before + 1
    monkeypatch.setattr(engine.runner, "rest", lambda: rests.append(None))
    with Heartbeat(engine.runner, every=0.2, most=2) as heart:
        work.wait_for(lambda: heart.beats >= 2)
        jobs = engine.runner.jobs
        work.wait_for(lambda: engine.runner.idle_seconds() > 1)
        assert (heart.beats, engine.runner.jobs, heart.alive()) == (2, jobs, True)
        assert len(rests) == 1
        engine.runner.run(work.echo, [b"a"])
        work.wait_for(lambda: heart.beats == 4)


def test_a_borrowed_session_is_left_as_it_was(engine: Engine) -> None:
    watched = ["spark.sql.adaptive.enabled", "spark.sql.execution.arrow.maxRecordsPerBatch"]
    before = [engine.session.spark.conf.get(key) for key in watched]
    with open_session(SparkConfig(master="local[7]")) as borrowed:
        assert not borrowed.is_owned
        assert borrowed.jobs.conf.get(watched[0]) == "false"
        assert Runner(borrowed).run(work.echo, [b"a"]) == [b"a"]
    assert SparkSession.getActiveSession() is engine.session.spark
    assert [engine.session.spark.conf.get(key) for key in watched] == before
    # Connect before 4.1 has no second session, so that this one of ours is set as well.
    shared = engine.session.jobs is engine.session.spark
    assert before == (["false", "32"] if shared else ["true", "10000"])
    assert engine.session.spark.range(3).count() == 3


def test_slots_are_the_tasks_that_run_at_once(engine: Engine) -> None:
    assert engine.session.tasks_at_once() == 2
