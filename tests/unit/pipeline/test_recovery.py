"""A lost position is left once for each time that somebody asks for it, and the break is counted."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.lake.format import layout
from headrace.lake.store.local import LocalStore
from headrace.pipeline.recovery import RecoveryPolicy, renew, was_begun
from headrace.sources.contract.mirror import StreamOrigin
from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.session.stream_errors import publication_missing, server_behind
from tests.places import place_at
from tests.records import source_record


@pytest.mark.parametrize("another", [False, True])
def test_another_life_is_another_incarnation(another: bool) -> None:
    source = source_record()
    origin = StreamOrigin({"system_id": "72"}, {"slot": "new"}, place_at(9), True, None, another_life=another)
    again = renew(source, origin)
    assert (again.identity, again.upstream) == (origin.identity, origin.upstream)
    assert (again.start, again.recovering) == (place_at(9), place_at(9))
    assert again.incarnation == source.incarnation + another


def test_what_a_run_had_begun_need_not_be_asked_for_again(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    ledger: Any = SimpleNamespace(name="main", store=store, source=source_record(start=place_at(64)))
    assert not was_begun(ledger)
    store.put(layout.recovery_note_key("main"), json.dumps({"start": {"time": 64, "text": "0/40"}}).encode())
    assert was_begun(ledger)
    ledger.source = source_record(start=place_at(72))
    assert not was_begun(ledger), "another position was left since"


def test_a_remedy_is_tried_once_for_each_time_that_it_is_asked_for() -> None:
    asked = RecoveryPolicy(on_request=True, auto=False)
    assert asked.fits(publication_missing("p"))
    assert not asked.fits(publication_missing("p"))
    asked.use_up()
    assert not asked.fits(server_behind(Lsn(1), Lsn(2)))
    always = RecoveryPolicy(on_request=False, auto=True)
    assert always.fits(server_behind(Lsn(1), Lsn(2)))
    always.use_up()
    assert always.fits(server_behind(Lsn(1), Lsn(2)))
