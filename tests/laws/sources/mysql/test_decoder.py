"""The laws of MySQL's decoder: cutting, choosing, joining changes nothing that is said."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.decode.kernel import Bytes
from headrace.sources.contract.decoder import (
    Context,
    RunningTransaction,
    TableChanges,
    TableFailure,
    TableFilter,
)
from headrace.sources.mysql.catalog.table_def import table_number
from headrace.sources.mysql.ddl.steps import Reason
from headrace.sources.mysql.decode.context import MysqlStreamContext
from headrace.sources.mysql.decode.decoder import MysqlDecoder
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.stream import frames
from tests.laws.decode.mysql.events import SCHEMA, begin, events, frame, image, told

DECODER = MysqlDecoder(Flavour.MYSQL)
TABLES = {table_number(TableName("d", name)): TableName("d", name) for name in ("t", "u")}
BETWEEN = DECODER.between([])
Pieces = list[tuple[Bytes, Context]]


@st.composite
def streams(draw: st.DrawFn) -> Bytes:
    """Whole transactions over two tables; server's numbers of tables go round."""
    parts = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        parts.append(begin(number))
        for _ in range(draw(st.integers(0, 4))):
            match draw(st.sampled_from(["rows", "rows", "rows", "truncate"])):
                case "rows":
                    parts.append(told(7, draw(st.sampled_from([b"t", b"u"]))))
                    parts.extend(draw(st.lists(events(), min_size=1, max_size=2)))
                case _:
                    parts.append(frame(251, frames.truncate("d", draw(st.sampled_from(["t", "u"])))))
    return np.frombuffer(b"".join(parts), np.uint8)


def said(data: Bytes, context: Context, tables: Iterable[int] = tuple(TABLES)) -> list[tuple[int, Any]]:
    """All that bytes say of the tables: each row, then where they are emptied."""
    wanted = {number: TableFilter(TABLES[number], SCHEMA, 0) for number in tables}
    found: list[tuple[int, Any]] = []
    for each in DECODER.decode(data, context, wanted):
        assert isinstance(each, TableChanges)
        found.extend((each.table, row) for row in each.batch.to_pylist())
    for number, places in DECODER.truncations(data, context, dict.fromkeys(wanted, 0)).items():
        found.extend((number, place) for place in places)
    return found


def cut(data: Bytes, context: Context, lengths: list[int]) -> Pieces:
    """Cut at the last place that the decoder allows before each window's end."""
    pieces: Pieces = []
    at = 0
    for length in [*lengths, len(data)]:
        taken, behind = DECODER.split(data[at : at + length], context)
        pieces.append((data[at : at + taken], context))
        at, context = at + taken, behind
    assert at == len(data)
    return pieces


def in_order(found: list[tuple[int, Any]]) -> list[str]:
    return sorted(map(repr, found))


@settings(max_examples=80)
@given(streams(), st.lists(st.integers(0, 400), max_size=8))
def test_any_split_says_the_same(data: Bytes, lengths: list[int]) -> None:
    pieces = cut(data, BETWEEN, lengths)
    assert in_order([each for piece in pieces for each in said(*piece)]) == in_order(said(data, BETWEEN))


@given(streams(), st.lists(st.integers(0, 400), max_size=4))
def test_a_context_survives_its_record_and_a_pickle(data: Bytes, lengths: list[int]) -> None:
    for _, context in cut(data, BETWEEN, lengths):
        assert DECODER.restore(json.loads(json.dumps(to_record(context)))) == context
        assert pickle.loads(pickle.dumps(context)) == context


@settings(max_examples=80)
@given(streams(), st.lists(st.integers(0, 400), max_size=4), st.sampled_from([*TABLES]))
def test_a_selection_says_all_of_its_tables_and_nothing_of_others(
    data: Bytes, lengths: list[int], table: int
) -> None:
    found: list[tuple[int, Any]] = []
    changes = 0
    for piece in cut(data, BETWEEN, lengths):
        selected = DECODER.select(*piece, {table})
        if selected is None:
            assert said(*piece, [table]) == []
            continue
        assert selected.tables == {table}
        changes += selected.changes
        found += said(selected.data, selected.context)
    assert in_order(found) == in_order(said(data, BETWEEN, [table]))
    assert changes == sum(isinstance(what, dict) for _, what in found)


@given(streams())
def test_a_transaction_that_came_while_it_ran_says_the_same_as_a_whole_one(data: Bytes) -> None:
    body = [each for each in _frames(data) if each[4] != frames.BEGIN]
    end = frame(frames.BEGIN, frames.begin(80, 5, "g"))
    running = RunningTransaction(1, 80, 5, (), end)
    plain = np.frombuffer(b"".join(body), np.uint8)
    context = DECODER.within(running)
    assert DECODER.transaction_name(running) == "g"
    assert said(plain, context) == said(DECODER.whole(plain, context), BETWEEN)


def _frames(data: Bytes) -> list[bytes]:
    rest, found = data.tobytes(), []
    while rest:
        size = struct.unpack_from("<I", rest, 9)[0]
        found.append(rest[:size])
        rest = rest[size:]
    return found


@pytest.mark.parametrize(
    ("reason", "code"),
    [(Reason.BY_STATEMENT, "MY_CHANGES_UNTOLD"), (Reason.ALTERED, "TABLE_ALTERED")],
)
def test_what_rows_do_not_tell_fails_the_tables_that_it_names_and_keeps_what_came_before(
    reason: Reason, code: str
) -> None:
    rows = frame(23, (7).to_bytes(6, "little") + bytes(2) + b"\x03\x07" + image((None, b"x", None)))
    parts = [begin(1), told(7), rows, frame(252, frames.altered_frame(reason, "d", "t")), rows]
    data = np.frombuffer(b"".join([*parts, begin(2), told(7, b"u"), rows]), np.uint8)
    wanted = {number: TableFilter(name, SCHEMA, 0) for number, name in TABLES.items()}
    before, failure, other = DECODER.decode(data, BETWEEN, wanted)
    assert isinstance(before, TableChanges)
    assert isinstance(failure, TableFailure)
    assert isinstance(other, TableChanges)
    assert (before.batch.num_rows, other.batch.num_rows) == (1, 1)
    assert failure.failure.code == code
    later = {number: TableFilter(name, SCHEMA, 9) for number, name in TABLES.items()}
    [other] = DECODER.decode(data, BETWEEN, later)
    assert isinstance(other, TableChanges)
    anything = np.frombuffer(begin(1) + frame(252, frames.altered_frame(Reason.UNCLEAR, "", "")), np.uint8)
    assert len(list(DECODER.decode(anything, MysqlStreamContext(), wanted))) == 2
    selected = DECODER.select(anything, MysqlStreamContext(), TABLES)
    assert selected is not None
    assert selected.tables == TABLES.keys()
