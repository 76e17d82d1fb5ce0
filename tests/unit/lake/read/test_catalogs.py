"""The catalogs of marks that a reader remembers."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.core.errors import Definite
from headrace.lake.format import layout
from headrace.lake.format.plan import Plan
from headrace.lake.log import catalog
from headrace.lake.log.marks import Mark, mark_of
from headrace.lake.read.catalogs import Catalogs
from headrace.lake.store.contract import Store

READS = 2_000  # so many that without a lock one of them goes wrong
NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)


def _published(store: Store, epoch: int, state: dict[str, Any], plan_id: str = "p") -> Mark:
    """The mark of a plan that takes the place of whatever stood at its epoch."""
    plan = Plan("main", epoch, plan_id, "stream", 0, "0/0", -1, state=state)
    store.delete(layout.plan_key("main", epoch))
    store.put_if_absent(layout.plan_key("main", epoch), plan.to_json().encode())
    return mark_of(plan, NOW)


def test_the_catalog_of_a_mark_is_folded_once(local_store: Store) -> None:
    mark = _published(local_store, 1, {"a": 1})
    known = Catalogs(local_store)
    assert known.at("main", mark) == {"a": 1}
    local_store.delete(layout.plan_key("main", 1))
    assert known.at("main", mark) == {"a": 1}
    with pytest.raises(Definite):
        Catalogs(local_store).at("main", mark)


def test_the_catalog_of_a_later_mark_is_folded_on(local_store: Store) -> None:
    marks = [_published(local_store, epoch, {f"key{epoch}": epoch}) for epoch in range(1, 5)]
    known = Catalogs(local_store)
    known.at("main", marks[1])
    local_store.delete(layout.plan_key("main", 1))
    assert known.at("main", marks[2]) == {"key1": 1, "key2": 2, "key3": 3}
    _published(local_store, 1, {"key1": 1})
    _published(local_store, 3, {"other": 1}, "restored")
    assert known.at("main", marks[3]) == {"key1": 1, "key2": 2, "other": 1, "key4": 4}


def test_another_plan_at_the_same_epoch_is_another_mark(local_store: Store) -> None:
    known = Catalogs(local_store)
    assert known.at("main", _published(local_store, 1, {"a": 1})) == {"a": 1}
    assert known.at("main", _published(local_store, 1, {"a": 2}, "restored")) == {"a": 2}


def test_the_catalog_that_was_asked_for_the_longest_time_ago_goes_first(local_store: Store) -> None:
    marks = [_published(local_store, epoch, {f"key{epoch}": epoch}) for epoch in (1, 2, 3)]
    known = Catalogs(local_store, most=4)  # the first two have three values, all three six
    for mark in (marks[0], marks[1], marks[0]):
        known.at("main", mark)
    assert known.at("main", marks[2]) == {"key1": 1, "key2": 2, "key3": 3}
    _published(local_store, 1, {"changed": 1}, "restored")
    assert known.at("main", replace(marks[0])) == {"key1": 1}
    assert "changed" in known.at("main", marks[1])


def test_a_record_counts_by_what_is_in_it(local_store: Store) -> None:
    wide = _published(local_store, 1, {"wide": {"columns": [{"name": 1}, {"name": 2}, {"name": 3}]}})
    later = _published(local_store, 2, {"narrow": 1})
    known = Catalogs(local_store, most=6)  # with the later one, which has both records: seven
    known.at("main", wide)
    known.at("main", later)
    _published(local_store, 1, {"changed": 1})
    assert known.at("main", wide) == {"changed": 1}


def test_cuts_of_one_lake_may_be_read_in_many_threads(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = [_published(local_store, epoch, {f"key{epoch}": epoch}) for epoch in range(1, 9)]
    folded = {mark.epoch: catalog.load(local_store, "main", mark.epoch) for mark in marks}
    monkeypatch.setattr(catalog, "load", lambda store, source, epoch: folded[epoch])
    known = Catalogs(local_store, most=10)

    def read(start: int) -> None:
        for number in range(start, start + READS):
            mark = marks[number * 5 % len(marks)]
            assert len(known.at("main", mark)) == mark.epoch

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(read, range(8))) == [None] * 8
    finally:
        sys.setswitchinterval(usual)
