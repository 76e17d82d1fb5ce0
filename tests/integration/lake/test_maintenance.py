"""Maintenance loses nothing that can be read, whatever it compacts, thins or deletes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.core.errors import Definite, HeadraceError, Misconfigured
from headrace.core.history import history_ids
from headrace.core.names import TableName
from headrace.lake.format import datafile, delta_line, layout, requests
from headrace.lake.log import horizon, table
from headrace.lake.log.table import LakeTable
from headrace.lake.retain import sweep
from headrace.lake.retain.sweep import Sweeper, SweepResult
from headrace.lake.retain.thinning import Keeping
from headrace.lake.store.contract import Store
from headrace.pipeline.maintain import maintenance
from headrace.pipeline.maintain.maintenance import maintain
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.table_state import State
from headrace.pipeline.tasks.compact import Survey
from tests.integration.lake.household import NAMES, SCHEMA, Household
from tests.lakes import IN_BUCKETS_LONG
from tests.places import place_at

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
AT_ONCE = {"marks": "0s", "grace": "0s"}


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory, seed: int) -> Household:
    """Ten marks of last week, and ten of the last hours."""
    made = Household(tmp_path_factory.mktemp("household") / "lake", seed)
    made.live(10, ago=9 * DAY, every=9 * HOUR)
    made.live(10, ago=3 * HOUR, every=timedelta(minutes=15))
    return made


@pytest.fixture
def household(lived_in: Household, tmp_path: Path) -> Household:
    """Give each test its own copy of the household."""
    return lived_in.copied(tmp_path / "lake")


def _files(household: Household) -> set[str]:
    return {key for key in household.place.store.list("") if key.endswith(".parquet")}


def _live(household: Household, folder: str) -> int:
    return len(household.ledger.live.table(folder).files())


def test_everything_is_as_it_was_after_it_and_after_what_comes_then(household: Household) -> None:
    marks = len(household.lake.marks())
    for number in range(3):
        report = household.maintained(**AT_ONCE)
        assert report["left_alone"] == {}
        assert report["deleted"]["files"] > 0
        assert household.wrong() == []
        household.live(3)
        assert household.wrong(most=5) == [], number
    household.again()
    assert household.wrong(most=5) == []
    assert len(household.lake.marks()) < marks
    for name in NAMES:
        assert _live(household, household.ledger.task_folder(name)) < 10
        history = household.ledger.live.table(layout.history_folder("main", name, 1))
        assert len(history.files()) < 10
        ids = [datafile.read_ids(household.place.store, history.folder, path) for path in history.live()]
        assert {tuple(each.values()) for each in ids} == {history_ids(SCHEMA)}, "also in those put together"


def test_marks_stay_for_their_time_then_one_a_day(household: Household) -> None:
    marks = household.lake.marks()
    young = [mark.epoch for mark in marks if household.now - mark.published_at < DAY]
    assert household.maintained(marks="1d")["marks"]["dropped"] > 0
    kept = household.lake.marks()
    assert {mark.epoch for mark in kept} >= set(young)
    days = [mark.published_at.date() for mark in kept if household.now - mark.published_at > 7 * DAY]
    assert len(days) - len(set(days)) <= 1  # the first mark of all stays, whatever its day
    assert {mark.published_at.date() for mark in marks if household.now - mark.published_at > 7 * DAY} == set(
        days
    )
    assert household.wrong() == []


def test_a_table_that_sits_marks_out_is_read_at_all_times_after_they_went(tmp_path: Path, seed: int) -> None:
    """Somebody holds it now and then: also when a mark is published that stays."""
    household, [held, _] = Household(tmp_path / "lake", seed), NAMES
    for number in range(40):
        household.now = datetime.now(UTC) - 3 * DAY + number * timedelta(minutes=6)
        household.epoch(1, absent=frozenset({held} if number % 10 in (3, 4, 9) else ()))
    household.now = datetime.now(UTC)
    household.live(1)
    household.maintained(**AT_ONCE)
    marks = household.lake.marks()
    assert len(marks) < 10
    assert {str(held) in mark.versions for mark in marks} == {True, False}
    assert household.wrong(most=60) == []
    without = next(mark for mark in marks[1:] if str(held) not in mark.versions)
    before = max(time for time in household.states if time < without.time)
    assert str(held) in household.lake.at(position=place_at(before + 1)).tables()


def test_a_sweep_that_is_cut_goes_on_where_it_ended(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that takes six minutes for each table: one is swept at a time, and each has its turn."""
    clock, swept, table_of = [datetime.now(UTC)], list[str](), Sweeper._table

    class Clock(datetime):
        @classmethod
        def now(cls, _: object = None) -> datetime:  # type: ignore[override]
            return clock[0]

    def slowly(sweeper: Sweeper, folder: str, pins: Mapping[int, int], found: SweepResult) -> None:
        swept.append(folder)
        clock[0] += timedelta(minutes=6)
        table_of(sweeper, folder, pins, found)

    monkeypatch.setattr(sweep, "datetime", Clock)
    monkeypatch.setattr(Sweeper, "_table", slowly)
    place, keeping = household.place, Keeping.of(grace="1h")
    for _ in range(5):
        Sweeper(place.store, "main", keeping, household.ledger.mark.epoch, clock[0], frozenset()).sweep(_fail)
    tables = [folder for folder in swept if folder != layout.marks_folder("main")]
    assert len(tables) == len(set(tables)) == 5
    assert household.wrong() == []


def _fail(folder: str, error: HeadraceError) -> None:
    raise error


def test_a_sweep_opens_no_version_that_an_earlier_one_has_looked_into(
    lived_in: Household, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table's old versions are as many as its days: opening each of them takes longer every day."""
    household = lived_in.copied(tmp_path / "lake")
    household.maintained(**AT_ONCE)
    pinned = {mark.epoch for mark in household.lake.marks()}
    household.live(4)
    opened, at = list[tuple[str, int]](), LakeTable.at

    def counted(table: LakeTable, version: int) -> LakeTable:
        opened.append((table.folder, version))
        return at(table, version)

    monkeypatch.setattr(LakeTable, "at", counted)
    before = _versions(household, pinned)
    household.maintained(**AT_ONCE)
    monkeypatch.undo()
    assert [each for each in opened if each[1] in before.get(each[0], ())] == []
    assert household.wrong() == []


def _versions(household: Household, epochs: set[int]) -> dict[str, set[int]]:
    """The versions of tables that these marks name."""
    found: dict[str, set[int]] = {}
    for mark in household.lake.marks():
        for name, version in mark.versions.items() if mark.epoch in epochs else ():
            found.setdefault(layout.table_folder("main", TableName.parse(name)), set()).add(version)
    return found


def test_what_dropped_marks_told_is_told_by_those_that_stay(household: Household) -> None:
    before = household.lake.marks()
    household.maintained(**AT_ONCE)
    after = household.lake.marks()  # those of maintenance itself bring nothing
    assert sum(mark.transactions for mark in after) == sum(mark.transactions for mark in before)
    assert sum(mark.changes for mark in after) == sum(mark.changes for mark in before)
    for timestamp in (before[4].published_at, before[15].published_at):
        place = household.lake.at(timestamp=timestamp).places["main"]
        latest = [mark.time for mark in before if (mark.upstream_commit_ts or timestamp) <= timestamp]
        assert household.state(place.time) == household.state(max(latest))


def test_a_reader_keeps_what_it_opened_for_the_grace_time(household: Household) -> None:
    lake = household.lake
    cuts = [lake.at(epoch=mark.epoch) for mark in lake.marks()[2::3]]
    between = [lake.at(position=place_at(time + 1)) for time in sorted(household.states)[1::5]]
    files = _files(household)
    household.maintained(marks="0s", grace="1h", retention="2d")
    assert files <= _files(household)
    for cut in [*cuts, *between]:
        for name in NAMES:
            have = dict(zip(*cut.arrow(str(name)).to_pydict().values(), strict=True))
            assert have == household.state(cut.places["main"].time)[name]
    household.maintained(marks="0s", grace="0s", retention="2d")
    assert not files <= _files(household)


def test_a_mark_that_was_thinned_out_holds_its_files_for_the_grace_time(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were removed long ago, and needed by a mark until now."""
    household = Household(tmp_path / "lake", seed)
    monkeypatch.setattr(table, "time", SimpleNamespace(time=lambda: household.now.timestamp()))
    monkeypatch.setattr(delta_line, "_now", lambda: int(household.now.timestamp() * 1000))
    household.live(12, ago=3 * DAY, every=timedelta(minutes=1))
    monkeypatch.undo()
    for key in _files(household):
        os.utime(household.path / key, (0, 0))
    lake = household.lake
    cuts = [lake.at(epoch=mark.epoch) for mark in lake.marks()[3:9]]
    files = _files(household)
    assert household.maintained(marks="0s", grace="1h")["marks"]["dropped"] > 5
    for cut in cuts:
        for name in NAMES:
            have = dict(zip(*cut.arrow(str(name)).to_pydict().values(), strict=True))
            assert have == household.state(cut.mark.time)[name]
    assert household.maintained(**AT_ONCE)["deleted"]["files"] > 0
    assert not files <= _files(household)


def test_a_clock_that_jumps_ahead_lets_no_history_go(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's own clock is in the marks. Once ours is right again, nothing waits for that year."""
    real = datetime.now(UTC)
    household.publish(
        Epoch("empty", household.frontier, all_seen=True, complete_until=int(real.timestamp() * 1_000_000))
    )
    monkeypatch.setattr(maintenance, "datetime", SimpleNamespace(now=lambda _: real + 365 * DAY))
    household.maintained(retention="2d", marks="5d", grace="1h")
    reach = horizon.read(household.place.store, "main")
    early = [time for time in household.states if reach is None or time > reach.time]
    assert len(early) > len(household.states) // 3
    monkeypatch.setattr(maintenance, "datetime", SimpleNamespace(now=lambda _: real + timedelta(hours=2)))
    household.maintained(retention="2d", marks="5d", grace="1h")
    monkeypatch.undo()
    found = horizon.read(household.place.store, "main")
    assert found is not None
    assert found.since <= real + timedelta(hours=2)
    assert household.wrong(since=found.time) == []


def test_what_a_table_had_before_its_columns_changed_is_put_together_too(household: Household) -> None:
    name = NAMES[0]
    record = household.ledger.tables[name]
    later = replace(household.ledger.outline(record), history_folder=layout.history_folder("main", name, 2))
    survey = Survey("main", 99, household.ledger.address, (later,), 2)
    old = layout.history_folder("main", name, 1)
    assert [bundle.folder for bundle in survey.bundles() if bundle.folder.startswith("history")] == [old]


def test_history_goes_after_its_retention_and_reading_before_says_what_is_kept(household: Household) -> None:
    early = sorted(household.states)[3]
    report = household.maintained(retention="2d", **AT_ONCE)
    household.maintained(retention="2d", **AT_ONCE)
    found = horizon.read(household.place.store, "main")
    assert found is not None
    assert report["history"]["reaches_back_to"] == str(place_at(found.time + 1))
    assert household.wrong(since=found.time) == []
    for name, record in household.ledger.tables.items():
        assert record.since == found.time + 1, name
    with pytest.raises(Definite) as refused:
        household.lake.at(position=place_at(early + 1)).arrow("public.a")
    assert refused.value.code == "LAKE_TABLE_NOT_EXACT"
    assert str(place_at(found.time + 1)) in str(refused.value)
    with pytest.raises(Misconfigured) as late:
        household.lake.at(timestamp=household.now - 8 * DAY)
    assert late.value.code == "LAKE_NO_MARK"
    # It is told as the server spelled it then, also in a later life of it.
    source = household.ledger.source
    assert source is not None
    household.publish(
        Epoch(
            "empty",
            household.ledger.frontier,
            source=replace(source, upstream=source.upstream | {"base": 1 << 40}),
        )
    )
    report = household.maintained(retention="2d", **AT_ONCE)
    assert report["history"]["reaches_back_to"] == str(place_at(found.time + 1))
    # Reaching back further again is not to be had, and asking for it harms nothing.
    household.maintained(retention="30d", **AT_ONCE)
    assert horizon.read(household.place.store, "main") == found


def test_all_history_can_go(household: Household) -> None:
    household.maintained(retention="0s", **AT_ONCE)
    for name in NAMES:
        assert _live(household, layout.history_folder("main", name, 1)) == 0
    household.live(2)
    found = horizon.read(household.place.store, "main")
    assert found is not None
    assert household.wrong(since=found.time) == []


def test_a_reader_that_looked_before_history_went_is_not_told_a_part_of_it(household: Household) -> None:
    early = sorted(household.states)[3]
    cut = household.lake.at(position=place_at(early + 1))
    household.maintained(retention="2d", **AT_ONCE)
    with pytest.raises(Definite) as refused:
        cut.arrow("public.a")
    assert refused.value.code == "LAKE_TABLE_NOT_EXACT"


def test_a_rehearsal_changes_nothing(household: Household) -> None:
    before = household.place.store.list("")
    report = household.maintained(dry_run=True, retention="2d", **AT_ONCE)
    assert household.place.store.list("") == before
    assert report["compacted"]["before"] > report["compacted"]["after"] > 0
    assert report["marks"]["dropped"] > 0
    assert report["history"]["reaches_back_to"] is not None


def test_a_table_that_the_last_mark_left_out_is_left_out_again(household: Household) -> None:
    household.epoch(2, absent=frozenset(NAMES[:1]))
    household.maintained(**AT_ONCE)
    assert household.lake.marks()[-1].kind == "maintain"
    assert set(household.lake.marks()[-1].versions) == {str(NAMES[1])}
    household.live(1)
    assert household.wrong(most=5) == []


def test_epochs_that_come_between_cost_a_bundle_and_no_row(household: Household) -> None:
    """The loop goes on while files are put together in a thread."""
    steps = maintain(household.owner, AT_ONCE)
    errand = next(steps)
    for _ in range(1000):
        done = errand()
        household.epoch(2)
        try:
            errand = steps.send(done)
        except StopIteration:
            break
        household.learn()
    household.learn()
    assert household.wrong() == []
    household.maintained(**AT_ONCE)
    assert household.wrong() == []


def _append(household: Household) -> None:
    rows = pa.table({"id": pa.array([999], pa.int64()), "v": ["x"]}, schema=SCHEMA.arrow())
    write_deltalake(str(household.path / household.ledger.task_folder(NAMES[0])), rows, mode="append")


def _rewrite(household: Household) -> None:
    folder = household.ledger.task_folder(NAMES[0])
    DeltaTable(str(household.path / folder)).optimize.compact()


def test_a_table_that_another_program_changed_is_left_alone(household: Household) -> None:
    folder = household.ledger.task_folder(NAMES[0])
    _append(household)
    report = household.maintained(**AT_ONCE)
    assert report["left_alone"] == {"public.a": "LAKE_FOREIGN_COMMIT"}
    table = household.ledger.live.table(folder)
    newest = table.entry(table.version)
    assert newest is not None
    assert newest.plan_id is None
    assert _live(household, household.ledger.task_folder(NAMES[1])) == 1


def test_a_table_that_another_program_compacted_is_the_same_table(household: Household) -> None:
    _rewrite(household)
    household.maintained(**AT_ONCE)
    household.live(2)
    assert household.wrong() == []


def test_files_of_writers_that_were_ended_go_and_those_of_the_future_stay(household: Household) -> None:
    store, folder = household.place.store, household.ledger.task_folder(NAMES[0])
    rows = pa.table({"id": [1], "v": ["x"]}, schema=SCHEMA.arrow())
    old = datafile.write(store, folder, layout.file_name(3), rows).path
    coming = datafile.write(store, folder, layout.file_name(10_000), rows).path
    store.put(f"{folder}/notes-of-somebody.parquet", b"not ours")
    household.maintained(marks="0s", grace="1h")
    assert store.exists(f"{folder}/{old}")
    household.maintained(**AT_ONCE)
    assert not store.exists(f"{folder}/{old}")
    assert store.exists(f"{folder}/{coming}")
    assert store.exists(f"{folder}/notes-of-somebody.parquet")


def test_logs_and_plans_are_let_go_and_what_is_kept_is_opened(tmp_path: Path, seed: int) -> None:
    household = Household(tmp_path / "lake", seed)
    household.live(70, ago=20 * DAY, every=6 * HOUR)
    store, folder = household.place.store, household.ledger.task_folder(NAMES[0])
    before = len(store.list(f"{folder}/_delta_log"))
    for _ in range(2):
        household.maintained(retention="5d", **AT_ONCE)
    assert len(store.list(f"{folder}/_delta_log")) < before
    assert len(store.list(layout.plans_folder("main"))) < 10
    found = horizon.read(store, "main")
    assert found is not None
    assert household.wrong(since=found.time) == []
    household.again()
    household.live(2)
    assert household.wrong(since=found.time, most=5) == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"retention": "-1d"}, "DURATION_MALFORMED"),
        ({"retention": "soon"}, "DURATION_MALFORMED"),
        ({"marks": "1 day"}, "DURATION_MALFORMED"),
        ({"grace": "30d"}, "KEEPING_TOO_LONG"),
        ({"marks": "2w"}, "KEEPING_TOO_LONG"),
    ],
)
def test_what_is_no_duration_is_refused_before_anything_is_done(
    household: Household, arguments: dict[str, str], code: str
) -> None:
    before = household.place.store.list("")
    with pytest.raises(Misconfigured) as refused:
        household.maintained(**arguments)
    assert refused.value.code == code
    assert household.place.store.list("") == before


@pytest.mark.parametrize("any_store", ["local", *IN_BUCKETS_LONG], indirect=True)
def test_a_lake_in_a_bucket_is_maintained_alike(tmp_path: Path, seed: int, any_store: Store) -> None:
    household = Household(tmp_path / "unused", seed, any_store)
    household.live(3, ago=9 * DAY, every=9 * HOUR)
    household.live(3)
    for _ in range(2):
        report = household.maintained(retention="2d", **AT_ONCE)
        assert report["left_alone"] == {}
    assert report["deleted"]["files"] > 0
    found = horizon.read(any_store, "main")
    assert found is not None
    household.live(1)
    assert household.wrong(since=found.time, most=3) == []


def test_a_table_that_is_being_copied_keeps_files_that_no_plan_names_yet(household: Household) -> None:
    store, name = household.place.store, NAMES[0]
    record = replace(household.ledger.tables[name], state=State.PENDING)
    household.publish(Epoch("stream", household.frontier, records=(record,)))
    rows = pa.table({"id": [1], "v": ["x"]}, schema=SCHEMA.arrow())
    copied = datafile.write(store, household.ledger.task_folder(name), layout.file_name(3), rows).path
    household.maintained(**AT_ONCE)
    assert store.exists(f"{household.ledger.task_folder(name)}/{copied}")


def test_answers_that_nobody_fetched_are_forgotten(household: Household) -> None:
    store = household.place.store
    long_ago = household.now - 3 * DAY
    old = requests.ask(store, "main", "maintain", {}, now=long_ago)
    waiting = requests.ask(store, "main", "maintain", {}, now=long_ago)
    new = requests.ask(store, "main", "maintain", {}, now=household.now)
    for each in (old, new):
        requests.answer(store, "main", each, {})
    assert household.maintained()["deleted"]["requests"] == 1
    assert requests.answer_to(store, "main", old) is None
    assert requests.answer_to(store, "main", new) == {}
    assert requests.pending(store, "main") == [waiting]


def test_no_transaction_of_the_future_hides_behind_marks_that_went(household: Household) -> None:
    """Commit timestamps need not rise: the one that is too late is told by a mark that is thinned out."""
    now = household.now - timedelta(minutes=1)
    for number, ahead in enumerate((0, 5, -1, -2)):
        household.now = now + timedelta(seconds=ahead)
        household.epoch(1)
        if number == 0:
            limit, states = household.now, dict(household.state(household.frontier.last))
    before = household.lake.at(timestamp=limit).places["main"].time
    household.maintained(**AT_ONCE)
    after = household.lake.at(timestamp=limit).places["main"].time
    assert household.state(after) == household.state(before) == states
