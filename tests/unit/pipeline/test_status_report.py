"""A status speaks of a set-back server in that server's positions, and says at once who owns a source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.core.errors import Definite
from headrace.core.names import TableName
from headrace.lake.format import statusfile
from headrace.lake.format.status import PositionStatus, SourceStatus
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.pipeline import status_report
from headrace.pipeline.copy.context import CopyProgress
from headrace.pipeline.copy.scheduler import CopyScheduler
from headrace.pipeline.state import choice
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_state import State
from headrace.pipeline.status_report import Beside, Facts, Reporter, _since
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from tests.places import place_at
from tests.unit.core.batches import text_table

LIVE = TableRecord(TableName("public", "t"), State.LIVE, 5, text_table(), {}, None, since=0x70)
ERROR = Definite("TABLE_CHANGED", "it is another", hint="copy it anew")
LATER = PostgresTimeline(1 << 32)  # the server's next life


def _run(frontier: Any) -> Any:
    source = SimpleNamespace(kind="postgres", at=LATER.at)
    return cast(Any, SimpleNamespace(ledger=SimpleNamespace(frontier=frontier, source=source)))


def test_a_table_that_stopped_in_an_earlier_life_of_the_server_is_exact_from_where_it_was_then() -> None:
    stopped = LIVE.with_error(ERROR, place_at(0x150))
    assert _since(_run(LATER.position(Lsn(0x90))), stopped, 0x70) == "0/70"


def test_so_are_tables_while_the_lost_position_is_left() -> None:
    assert _since(_run(place_at(0x150)), LIVE, 0x70) == "0/70"


def test_in_the_next_life_its_own_positions_are_shown() -> None:
    assert _since(_run(LATER.position(Lsn(0x90))), LIVE, (1 << 32) + 0x80) == "0/80"


def test_a_status_goes_into_a_bucket_when_it_has_news_or_none_went_for_a_while(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(bucket)
    clock = [1000.0]
    monkeypatch.setattr("headrace.pipeline.status_report.time.monotonic", lambda: clock[0])
    reporter = Reporter(store, "main")

    def written() -> bool:
        before = statusfile.read(store, "main")
        clock[0] += 1
        assert reporter.tell()
        now = statusfile.read(store, "main")
        assert now is not None
        return before is None or now.record.updated_at != before.record.updated_at

    assert [written() for _ in range(10)] == [True, *[False] * 6, True, False, False]
    reporter.warn("PG_SLOW", "it is slow")
    assert [written() for _ in range(3)] == [True, False, False]
    reporter.settle("stopped")
    stopped = statusfile.read(store, "main")
    assert stopped is not None
    assert stopped.record.state == "stopped"


def test_a_run_that_begins_replaces_the_last_word_of_the_one_before_at_once(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    before = Reporter(store, "main")
    before.settle("stopped")
    now = Reporter(store, "main")
    now.start()
    try:
        said = statusfile.read(store, "main")
        assert said is not None
        assert said.record.state == "starting"
    finally:
        now.leave()


def test_the_first_run_of_a_lake_leaves_nothing_before_it_is_admitted(tmp_path: Path) -> None:
    reporter = Reporter(open_store(str(tmp_path)), "main")
    reporter.start()
    reporter.leave()
    assert list(tmp_path.iterdir()) == []


def test_a_copy_that_begins_while_the_progress_of_others_is_read_ends_nothing() -> None:
    copies = CopyScheduler(connections=4)
    copies.room.progress[TableName("public", "t0")] = CopyProgress(1, 1)
    for number, _ in enumerate(Facts(copies=copies).progress.values(), 1):
        copies.room.progress[TableName("public", f"t{number}")] = CopyProgress(1, 1)  # as its thread does
    assert len(copies.progress) == 2


def test_a_new_copy_that_came_to_nothing_is_warned_of_until_it_is_asked_for_again(tmp_path: Path) -> None:
    name, other = LIVE.name, TableName("public", "u")
    reporter = Reporter(open_store(str(tmp_path)), "main")
    tables = {each: replace(LIVE, name=each) for each in (name, other)}
    ledger = cast(Any, SimpleNamespace(tables=tables, staged={}, recovering=False))
    for each in tables:
        reporter.gave_up(each, ERROR)
    reporter.facts.prune(ledger)
    assert reporter.facts.waits() == {
        "TABLE_CHANGED": "public.t was not copied anew: it is another; "
        "public.u was not copied anew: it is another"
    }
    ledger.staged = {name: LIVE}
    ledger.tables = {name: LIVE, other: tables[other].with_error(ERROR, place_at(0x150))}
    reporter.facts.prune(ledger)
    assert reporter.facts.waits() == {}


def test_a_run_that_ended_waits_for_nothing_and_goes_on_from_what_was_last_seen(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    before = Reporter(store, "main")
    before.watch.position = PositionStatus("0/150", waiting_since="2026-01-01T00:00:00+00:00")
    before.watch.hears()
    before.facts.copies = cast(Any, SimpleNamespace(waits_for=[ERROR], progress={}))
    assert before.facts.waits()
    before.settle("stopped")
    said = _said(store)
    assert said.warnings == {}
    now = Reporter(store, "main")
    now.start()
    now.settle("failed", ERROR)  # before it had met the source
    assert (_said(store).position, _said(store).contact_at) == (said.position, said.contact_at)


def _said(store: Store) -> SourceStatus:
    found = statusfile.read(store, "main")
    assert found is not None
    # The lag is as of now.
    position = found.record.position
    return (
        found.record if position is None else replace(found.record, position=replace(position, lag_seconds=0))
    )


def test_the_tables_beside_are_asked_for_the_more_seldom_the_longer_that_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Marks wait for it: of ten thousand tables it takes seconds."""
    clock = [1000.0]

    def slow(*_: object) -> dict[str, str]:
        clock[0] += 5
        return {}

    monkeypatch.setattr(status_report, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(choice, "find_unmirrored", slow)
    beside, source = Beside(), SimpleNamespace(upstream={})
    run = cast(Any, SimpleNamespace(tables=lambda _: {}))
    config = cast(Any, SimpleNamespace(new_tables="ask"))
    ledger = cast(Any, SimpleNamespace(source=source, tables={}))
    assert beside.due
    beside.refresh(run, config, ledger)
    clock[0] += 200 * 5 - 1
    assert not beside.due
    clock[0] += 1
    assert beside.due
