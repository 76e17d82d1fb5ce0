"""Another server takes the place of the one that was followed: copies that were joining are made again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.lake.store.open import open_store
from headrace.pipeline import recovery
from headrace.pipeline.resync.replacement import staged_record
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.table_state import State
from headrace.sources.contract.mirror import Successor
from headrace_testing import validators
from tests.integration.pipeline.conftest import Mirrors

pytestmark = pytest.mark.server

NAMES = ("catches_up", "joins", "copied_anew", "live")


def test_copies_that_are_joining_are_made_again_and_live_tables_stay(mirrors: Mirrors) -> None:
    for name in NAMES:
        mirrors.database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, s text)", user="app")
        mirrors.database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL", user="app")
        mirrors.database.execute(
            f"INSERT INTO {name} SELECT i, 'row' FROM generate_series(1, 40) i", user="app"
        )
    mirrors.once()
    ledger = Ledger(open_store(str(mirrors.path)), "main")
    tables = {name.name: record for name, record in ledger.tables.items()}
    behind, anew = ledger.position, tables["copied_anew"]
    left = (
        replace(tables["catches_up"], state=State.CATCHING_UP, frontier=behind, since=None),
        replace(tables["joins"], state=State.JOINING, since=None),
        replace(staged_record(anew, "1-0", behind), state=State.JOINING, frontier=None, handoff=anew.handoff),
    )
    ledger.publish(Epoch("stream", ledger.frontier, records=left))
    assert ledger.source is not None
    of_another = Successor({**ledger.source.identity}, {**ledger.source.upstream})
    ledger.publish(recovery.switch_epoch(ledger, of_another))
    states = {record.name.name: record.state for record in ledger.present if record.copy_id is None}
    assert states == dict.fromkeys(NAMES, State.LIVE) | {"catches_up": State.PENDING, "joins": State.PENDING}
    [copy] = ledger.staged.values()
    assert (copy.state, copy.handoff, copy.copy_id != "1-0") == (State.PENDING, None, True)
    for name in NAMES:
        mirrors.database.execute(f"DELETE FROM {name} WHERE id % 4 = 0", user="app")
    lake = mirrors.once()
    assert "switch" in {mark.kind for mark in lake.marks()}
    assert validators.exact(lake, mirrors.database.url(), values=True) == []
    assert validators.definite(lake) == []
    assert {mirrors.record(f"public.{name}").state for name in NAMES} == {State.LIVE}
