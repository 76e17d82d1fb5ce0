"""A lake that version 1 wrote: read as it is, and taken over by its next mark.

`version_1.tar.gz` was written by the last program of version 1: tables that are live, one that stopped, one
that was added and waits for its copy, a new copy that was asked for; `told.json` says what each mark held.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import Misconfigured
from headrace.core.position import Position
from headrace.lake.format import formatfile, layout
from headrace.lake.format.version_1 import upgraded
from headrace.lake.log import catalog
from headrace.lake.read.lake import Lake
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.pipeline.ingest.last_commits import last_commits_of
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import STAGED_PREFIX, source_of, tables_of
from headrace.status import sentences
from headrace.status.picture import pictures
from tests.records import upstream_of

SAMPLE = Path(__file__).with_name("version_1.tar.gz")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    with tarfile.open(SAMPLE) as archive:
        archive.extractall(tmp_path / "lake")
    return Lake(tmp_path / "lake")


def _told(lake: Lake) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(lake.store.get("told.json") or b"")
    return found


def _shows_what_it_did(lake: Lake) -> None:
    """Contents, times and positions of all marks that version 1 published."""
    marks = {mark.epoch: mark for mark in lake.marks()}
    for told in _told(lake):
        mark = marks[told["epoch"]]
        assert (mark.time, mark.frontier) == (told["time"], told["frontier"])
        for cut in (
            lake.at(epoch=mark.epoch),
            *([lake.at(position=mark.frontier)] if told["tables"] else ()),
        ):
            for name, rows in told["tables"].items():
                assert cut.arrow(name).sort_by("id").to_pylist() == sorted(rows, key=lambda row: row["id"])
    last = _told(lake)[-1]
    between = lake.at(position=Position(last["time"] - 4, ""))
    assert between.places["main"].frontier == f"0/{last['time'] - 4:X}"


def test_it_is_read_as_it_is(lake: Lake) -> None:
    _shows_what_it_did(lake)
    records = lake.catalog()
    source, tables = source_of(records), tables_of(records)
    assert source is not None
    assert (source.start, source.start.text, upstream_of(source).base) == (
        Position(0x1B03738, ""),
        "0/1B03738",
        0,
    )
    states = {str(name): (record.state.value, record.stopped_at) for name, record in tables.items()}
    assert {name: state for name, (state, _) in states.items()} == {
        "public.altered": "stopped",
        "public.late": "pending",
        "public.orders": "live",
        "public.whole": "live",
    }
    assert str(states["public.altered"][1]) == "0/1B03A28"
    assert list(map(str, tables_of(records, STAGED_PREFIX))) == ["public.orders"]
    assert all(record.handoff is None or record.handoff.until is not None for record in tables.values())
    known = last_commits_of(records)
    assert known is not None
    assert known.since == 0x1B03738
    assert known.newest == 768
    assert formatfile.open_lake(lake.store).version == 1


def test_its_status_says_of_each_table_where_it_stopped_and_since_when_it_is_exact(lake: Lake) -> None:
    """No run of today has told of it: the catalog's own records are spelled as a run would."""
    assert lake.store.get(layout.status_key("main")) is None
    [source] = pictures(lake.store.url)
    altered = source.tables["public.altered"]
    assert (altered.state, altered.stopped_at, altered.since) == ("stopped", "0/1B03A28", "0/1B03770")
    line = sentences.stop("public.altered", altered)
    assert line is not None
    assert line.startswith("public.altered stopped at 0/1B03A28: TABLE_CHANGED: ")
    assert source.tables["public.late"].since is None


def test_its_next_mark_makes_it_one_of_today(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(lake.catalog())
    ledger = Ledger(lake.store, "main")
    assert formatfile.open_lake(lake.store).version == formatfile.VERSION == 2
    _shows_what_it_did(lake)  # a crash here has changed nothing
    assert ledger.source is not None
    plan = ledger.publish(Epoch("empty", ledger.source.at(ledger.frontier.time + 8, ledger.frontier)))
    assert plan.state.keys() == before.keys() - {"unseen"}
    assert catalog.load(lake.store, "main", plan.epoch).old == frozenset()
    assert dict(lake.catalog()) == before
    _shows_what_it_did(lake)
    _is_refused_by_version_1(lake.store, monkeypatch)


def _is_refused_by_version_1(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatfile, "VERSION", 1)
    with pytest.raises(Misconfigured) as raised:
        formatfile.open_lake(open_store(store.url))
    assert raised.value.code == "LAKE_TOO_NEW"
    assert raised.value.hint


def test_the_positions_of_a_server_that_was_set_back_become_its_own() -> None:
    """What was reached before keeps the text that it had: no server has another one for it."""
    shift = 1 << 32
    handoff = {"by": "xid", "snapshot": "1:1:", "settled": {"kind": "lsn", "text": "1/300"}}
    chunks = {"by": "chunk", "rounds": 0, "chunks": [[None, None, handoff]]}
    identity = {"system_id": "7", "timeline": 1, "database": "d"}
    source = {"kind": "postgres", "slot": "s", "shift": shift, "start": "1/100", "healing": "1/180"}
    records = {
        "source": {**source, **identity},
        "commits": {"since": "1/100", "commits": [], "xid": 7},
        "late/file": {"reached": "1/200"},
        "table/public.t": {"applied": "1/100", "stopped_at": "0/FF", "handoff": handoff},
        "staged/public.t": {"applied": None, "handoff": chunks},
    }
    found = upgraded(records)
    settled = {**handoff, "settled": {"time": shift + 0x300, "text": "0/300"}}
    assert found == {
        "source": {
            "kind": "postgres",
            "identity": identity,
            "upstream": {"slot": "s", "base": shift},
            "start": {"time": shift + 0x100, "text": "0/100"},
            "recovering": {"time": shift + 0x180, "text": "0/180"},
        },
        "commits": {"since": shift + 0x100, "commits": [], "newest": 7},
        "late/file": {"reached": {"time": shift + 0x200, "text": "0/200"}},
        "table/public.t": {
            "applied": {"time": shift + 0x100, "text": "0/100"},
            "stopped_at": {"time": 0xFF, "text": "0/FF"},
            "handoff": settled,
        },
        "staged/public.t": {
            "applied": None,
            "handoff": {"by": "chunk", "rounds": 0, "chunks": [[None, None, settled]]},
        },
    }
    assert upgraded(found) == found


@pytest.mark.parametrize(
    ("word", "beside", "state"),
    [
        ("chosen", {"kept": True}, "pending"),
        ("joining", {"kept": True, "late": True}, "catching_up"),
        ("joining", {}, "joining"),
        ("live", {"kept": False}, "live"),
        ("live", {"stage": "4-0"}, "ready"),
        ("stopped", {}, "stopped"),
    ],
)
def test_what_set_states_of_one_word_apart_is_a_word_of_its_own(
    word: str, beside: dict[str, Any], state: str
) -> None:
    record = {"state": word, "shadows": [2], "oid": 5, "look": {"kind": "r"}, **beside}
    found = upgraded({"table/public.t": record})["table/public.t"]
    renewed, live = beside.get("stage"), beside.get("late", False)
    own = {"number": 5, "details": {"kind": "r"}}
    assert found == {"state": state, "raw_columns": [2], "added_live": live, "copy_id": renewed, **own}
    assert upgraded({"table/public.t": found})["table/public.t"] == found


def test_a_table_that_version_1_let_wait_and_kept_nothing_for_was_held_back() -> None:
    for kept in ({}, {"kept": False}):
        record = {"state": "chosen", "shadows": [], "oid": 5, "look": {}, **kept}
        assert upgraded({"table/public.t": record})["table/public.t"]["held_back"]
