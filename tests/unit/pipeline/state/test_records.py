"""The record of a table in the catalog."""

from __future__ import annotations

from dataclasses import replace

from headrace.core.errors import Definite
from headrace.core.names import TableName
from headrace.core.records import from_record, to_record
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_state import State
from tests.places import place_at
from tests.unit.core.batches import text_table

LIVE = TableRecord(TableName("public", "t"), State.LIVE, 5, text_table(), {}, None, since=7)
ERROR = Definite("TABLE_CHANGED", "it is another", hint="copy it anew")
OTHER = Definite("LAKE_FOREIGN_COMMIT", "somebody wrote to it", hint="stop that program")


def test_a_table_that_stops_says_why_and_up_to_where_it_was_followed() -> None:
    stopped = LIVE.with_error(ERROR, place_at(0x15))
    assert (stopped.state, stopped.error, stopped.stopped_at) == (State.STOPPED, ERROR, place_at(0x15))
    assert stopped.stop is not None
    assert stopped.stop.detail == 'public.t was followed up to "0/15"'
    again = from_record(TableRecord, to_record(stopped))
    assert again.stop is not None
    assert str(again.stop) == str(stopped.stop)
    assert replace(again, error=ERROR) == stopped


def test_a_table_that_is_stopped_already_stays_where_it_stopped() -> None:
    first = LIVE.with_error(ERROR, place_at(0x15))
    stopped = first.with_error(OTHER, place_at(0x99))
    assert (stopped.error, stopped.stopped_at) == (OTHER, place_at(0x15))
    assert stopped.stopped_since == first.stopped_since is not None
