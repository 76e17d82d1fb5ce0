"""A source's ledger knows what the source waits for, and what it may acknowledge."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.core import failpoint
from headrace.core.errors import Misconfigured, Transient
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.lake.format import formatfile, layout
from headrace.lake.log import durable
from headrace.lake.log.commit import Claim
from headrace.lake.log.durable import Durable
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from headrace.pipeline.resync.replacement import staged_record
from headrace.pipeline.state import ledger as ledger_module
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger, _late_files
from headrace.pipeline.state.records import LateFile, TableRecord, is_file_needed
from headrace.pipeline.state.table_state import State
from headrace.sources.postgres.upstream import PostgresUpstream
from tests.places import place_at
from tests.records import source_record
from tests.unit.core.batches import text_table

SOURCE = source_record(upstream=PostgresUpstream("s", "p", publication_oid=5), start=place_at(0x10))
NAME = TableName("public", "late")
WAITS = TableRecord(NAME, State.PENDING, 5, text_table(), {}, place_at(0x20), late=True)
_WHEN = ("before", "after")
COPIED = replace(staged_record(WAITS, "1-0", place_at(0x90)), state=State.JOINING, frontier=None)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    store = open_store(str(tmp_path / "lake"))
    formatfile.create_lake(store)
    made = Ledger(store, "main")
    made.publish(Epoch("open", place_at(0x80), records=(WAITS,), source=SOURCE))
    return made


def _write(ledger: Ledger, file: LateFile) -> None:
    """A file of ten bytes, in which nothing is."""
    nothing = b"0123456789" + b"[]" + (2).to_bytes(8, "big")
    ledger.store.put_if_absent(layout.late_key("main", file.name), nothing)


def test_a_table_that_waits_for_its_copy_is_awaited(ledger: Ledger) -> None:
    assert ledger.awaited_tables == {NAME: WAITS}
    assert ledger.position == place_at(0x80), "what the stream has for it from 0/20 on is kept in the lake"


def test_while_a_lost_position_is_left_only_new_copies_are_awaited_and_followed(ledger: Ledger) -> None:
    """The stream that the table waited in is no more, and what was kept of it goes."""
    file = LateFile("1", place_at(0x84), frozenset({NAME}), 10, 1, False, 18, 0)
    _write(ledger, file)
    ledger.publish(Epoch("stream", place_at(0x84), late_file=file))
    assert ledger.kept == {"1": file}
    source = replace(SOURCE, recovering=place_at(0x90))
    ledger.publish(Epoch("lost", place_at(0x84), records=(COPIED,), source=source))
    assert (ledger.awaited_tables, ledger.kept) == ({}, {})
    assert ledger.catching_up == []
    assert ledger.followed_tables == [COPIED]
    assert ledger.position == place_at(0x90)
    again = Ledger(ledger.store, "main")
    assert (again.awaited_tables, again.position) == ({}, place_at(0x90))


def test_until_when_a_mark_is_complete_is_said_again_by_those_that_bring_nothing(ledger: Ledger) -> None:
    """A copy, a stop, a takeover; and a clock that was set back."""
    moment = datetime(2026, 11, 22, 12, 0, 0, 123457, tzinfo=UTC)
    ledger.publish(
        Epoch("stream", place_at(0x90), complete_until=int(moment.timestamp()) * 1_000_000 + 123_457)
    )
    ledger.publish(Epoch("stop", place_at(0x90)))
    ledger.publish(Epoch("stream", place_at(0xA0), complete_until=5))
    Ledger(ledger.store, "main")
    told = [mark.complete_until for mark in Lake(ledger.store.url).marks()]
    assert told == [None, None, moment, moment, moment, moment]


def test_of_several_sources_the_one_that_has_not_reached_a_moment_is_named(ledger: Ledger) -> None:
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    until = int(moment.timestamp()) * 1_000_000
    ledger.publish(Epoch("empty", place_at(0x90), complete_until=until + 1))
    other = Ledger(ledger.store, "other")
    other.publish(Epoch("open", place_at(0x80), source=SOURCE, complete_until=until - 1))
    lake = Lake(ledger.store.url)
    with pytest.raises(Misconfigured) as refused:
        lake.at(timestamp=moment)
    assert refused.value.code == "LAKE_NOT_REACHED"
    assert 'source "other"' in str(refused.value.detail)
    other.publish(Epoch("empty", place_at(0x80), complete_until=until))
    assert {name: place.time for name, place in lake.at(timestamp=moment).places.items()} == {
        "main": 0x8F,
        "other": 0x7F,
    }


def test_what_is_kept_of_the_stream_goes_when_every_table_has_taken_it(ledger: Ledger) -> None:
    first, second = (
        LateFile(name, place_at(reached), frozenset({NAME}), 10, 1, False, 18, 0)
        for name, reached in (("1", 0x90), ("2", 0xA0))
    )
    for file in (first, second):
        _write(ledger, file)
        ledger.publish(Epoch("stream", file.frontier, late_file=file))
    assert ledger.kept == {"1": first, "2": second}
    taking = replace(WAITS, state=State.CATCHING_UP)
    for applied, left in ((0x20, {"1", "2"}), (0x90, {"2"}), (0xA0, set())):
        ledger.publish(Epoch("late", place_at(0xA0), records=(replace(taking, frontier=place_at(applied)),)))
        assert set(ledger.kept) == left
    assert Ledger(ledger.store, "main").kept == {}


def test_an_attempt_after_the_first_goes_on_without_an_epoch_of_its_own(ledger: Ledger) -> None:
    claim = Claim()
    first = Ledger(ledger.store, "main", claim=claim)
    for _ in range(3):
        assert Ledger(ledger.store, "main", claim=claim).mark == first.mark


def test_an_attempt_after_the_first_takes_nothing_back_from_a_successor(ledger: Ledger) -> None:
    claim = Claim()
    Ledger(ledger.store, "main", claim=claim)
    successor = Ledger(ledger.store, "main")
    with pytest.raises(Misconfigured) as caught:
        Ledger(ledger.store, "main", claim=claim)
    assert caught.value.code == "LAKE_FENCED"
    successor.publish(Epoch("empty", place_at(0x90)))  # who goes on, unharmed


@pytest.mark.parametrize("step", [f"lake.{step}.{when}" for step in ("plan", "mark") for when in _WHEN])
def test_an_attempt_after_the_first_finishes_what_its_own_process_began(
    ledger: Ledger, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = Claim()
    broken = Ledger(ledger.store, "main", claim=claim)
    failpoint._fired.clear()
    monkeypatch.setenv(failpoint.VARIABLE, f"{step}=error")
    with pytest.raises(Transient):
        broken.publish(Epoch("empty", place_at(0x90)))
    again = Ledger(ledger.store, "main", claim=claim)
    assert again.mark.epoch == broken.mark.epoch + (step != "lake.plan.before")
    again.publish(Epoch("empty", place_at(0xA0)))


def test_a_failed_sync_is_done_again_by_the_next_attempt_with_new_files(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells once that a disk refused a file, and takes what was lost for clean from then on."""
    claim = Claim()
    plan = Ledger(ledger.store, "main", claim=claim).publish(Epoch("empty", place_at(0x90)))
    root = Path(ledger.store.url)
    [victim] = root.glob(f"marks/main/e{plan.epoch:012d}-*.parquet")
    number, fsync = victim.stat().st_ino, os.fsync

    def refusing(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == number:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    failing = Ledger(ledger.store, "main", claim=claim)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refusing)
        with pytest.raises(Transient) as caught:
            failing.sync()
        assert caught.value.code == "LAKE_STORE"
        assert not failing.durable
    again = Ledger(ledger.store, "main", claim=claim)
    assert not again.durable
    again.sync()
    assert again.durable
    assert victim.stat().st_ino != number


def test_a_file_kept_for_a_late_table_that_the_disk_refused_is_written_anew_by_the_next_attempt(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = Claim()
    first = Ledger(ledger.store, "main", claim=claim)
    kept = LateFile("1", place_at(0x90), frozenset({NAME}), 10, 1, False, 18, 0)
    key = layout.late_key("main", kept.name)
    ledger.store.put_if_absent(key, b"0123456789" + b"[]" + (2).to_bytes(8, "big"))
    plan = first.publish(Epoch("stream", kept.frontier, late_file=kept))
    victim = Path(ledger.store.url) / key
    number, fsync = victim.stat().st_ino, os.fsync

    def refusing(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == number:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refusing)
        with pytest.raises(Transient):
            first.sync(plan)
    Ledger(ledger.store, "main", claim=claim).sync()
    assert victim.stat().st_ino != number


def test_a_file_that_took_in_others_is_synced_before_the_next_owner_lets_those_go(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that owner first makes a mark of its own durable, as when it follows another server."""
    one = LateFile("1", place_at(0x90), frozenset({NAME}), 10, 1, False, 18, 0)
    both = replace(one, name="2", frontier=place_at(0xA0), replaces=frozenset({"1"}))
    for file in (one, both):
        _write(ledger, file)
        ledger.publish(Epoch("stream", file.frontier, late_file=file))
    keys = [layout.late_key("main", file.name) for file in (one, both)]
    number, synced, fsync = (Path(ledger.store.url) / keys[1]).stat().st_ino, list[bool](), os.fsync

    def watched(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == number:
            synced.append(ledger.store.exists(keys[0]))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    again = Ledger(ledger.store, "main")
    again.sync(again.publish(Epoch("switch", place_at(0xA0))))
    assert synced == [True]
    assert [ledger.store.exists(key) for key in keys] == [False, True]


def test_a_writer_that_was_frozen_sets_back_nothing_of_what_its_successor_made_durable(
    ledger: Ledger,
) -> None:
    plan = ledger.publish(Epoch("empty", place_at(0x90)))
    successor = Ledger(ledger.store, "main")
    successor.sync(successor.publish(Epoch("empty", place_at(0xA0))))
    with pytest.raises(Misconfigured) as caught:
        ledger.sync(plan)  # and nothing is acknowledged
    assert caught.value.code == "LAKE_FENCED"
    assert durable.read(ledger.store, "main") == Durable(successor.mark.epoch)


def test_files_that_wait_for_a_copy_are_asked_anew_only_where_a_table_moved_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A table that waits for a day leaves 86,000 of them, and each epoch adds one."""
    asked, needed = list[str](), is_file_needed

    def counted(file: LateFile, behind: Mapping[TableName, Position]) -> bool:
        asked.append(file.name)
        return needed(file, behind)

    monkeypatch.setattr(ledger_module, "is_file_needed", counted)
    files = [LateFile(f"{n}", place_at(0x30 + n), frozenset({NAME}), 1, 1, False, 9, 0) for n in range(4)]
    known = {file.name: file for file in files[:3]}
    waits, took = {NAME: place_at(0x20)}, {NAME: place_at(0x32)}
    assert list(_late_files(known, files[3], waits, same=True)) == ["0", "1", "2", "3"]
    assert asked == ["3"]
    assert list(_late_files(known, files[3], took, same=False)) == ["3"]
    assert _late_files(known, files[3], waits, same=True) == _late_files(known, files[3], waits, same=False)
