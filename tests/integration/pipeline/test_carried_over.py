"""A lake that an earlier version left while tables were being copied goes on, and ends exact.

That version kept nothing of the stream for them: it held the source's acknowledgement back, and would have
read the stream again from where each table stood.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from headrace.core.position import Position
from headrace.lake.store.open import open_store
from headrace.pipeline.commands import ask
from headrace.pipeline.resync.replacement import staged
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_state import State
from headrace.testing import validators
from tests.integration.pipeline import everytype
from tests.integration.pipeline.conftest import Mirrors

pytestmark = pytest.mark.server

NAMES = ("begun", "joins", "stands", "copied_anew", "other")
FILL = """
CREATE TABLE {0} (id int PRIMARY KEY, s text, at timestamp);
ALTER TABLE {0} REPLICA IDENTITY FULL;
INSERT INTO {0} SELECT i, 'row', CASE i % 10 WHEN 0 THEN 'infinity' ELSE '2026-11-22' END::timestamp
  FROM generate_series(1, 40) i
"""
CHANGE = "UPDATE {0} SET s = '{1}' WHERE id % 4 = 0; DELETE FROM {0} WHERE id = {1}"


def _change(mirrors: Mirrors, number: int) -> None:
    mirrors.database.execute(";".join(CHANGE.format(name, number) for name in NAMES), user="app")


def _as_left(mirrors: Mirrors, start: Position, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that wait behind the newest mark, one that waits at it, and a new copy that waits."""
    ledger = Ledger(open_store(str(mirrors.path)), "main")
    tables = {name.name: record for name, record in ledger.tables.items()}
    left = [
        replace(tables["begun"], state=State.PENDING, applied=start, since=None),
        replace(tables["joins"], state=State.JOINING, applied=start, since=None),
        tables["stands"],
        staged(tables["copied_anew"], "1-0", start),
    ]
    written = TableRecord.as_record

    def of_then(record: TableRecord) -> dict[str, Any]:
        told = written(record)
        return told | {"held_back": True} if told["state"] == "pending" else told

    with monkeypatch.context() as patch:
        patch.setattr(TableRecord, "as_record", of_then)
        ledger.publish(Epoch("stream", ledger.frontier, records=tuple(left)))


def test_a_lake_that_was_left_while_it_held_the_source_back_goes_on(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [f"public.{name}" for name in NAMES if name != "stands"]
    mirrors.database.execute(";".join(FILL.format(name) for name in NAMES), user="app")
    mirrors.once(*tables)
    [start] = [mark.position for mark in mirrors.lake.marks() if mark.kind == "open"]
    _change(mirrors, 1)
    mirrors.once(*tables)
    url = mirrors.database.url(user="app")
    ask.ask(str(mirrors.path), "tables.add", {"tables": ["public.stands"]}, url=url)
    _as_left(mirrors, start, monkeypatch)
    _change(mirrors, 2)
    mirrors.once(*tables)
    _change(mirrors, 3)
    lake = mirrors.once(*tables)
    assert "adopt" in {mark.kind for mark in lake.marks()}
    assert validators.exact(lake, mirrors.database.url(), values=True) == []
    assert validators.definite(lake) == []
    assert validators.travelled(lake) == []
    for name in NAMES:
        rows = mirrors.database.execute(f"SELECT id, at::text FROM {name} WHERE NOT isfinite(at)")
        assert everytype.standing(lake, name) == Counter((i, "at", text) for i, text in rows)
    records = {name: mirrors.record(f"public.{name}") for name in NAMES}
    assert {record.state for record in records.values()} == {State.LIVE}
    told = {name for name, record in records.items() if record.since == start.time}
    assert told == {"copied_anew", "other"}, "the others' history begins at their copies"
