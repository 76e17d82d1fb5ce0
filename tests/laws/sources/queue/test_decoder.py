"""The laws of the queue's decoder: cutting and choosing changes nothing that is said, in whatever order it
stands."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Definite
from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.core.schema import Column, TableSchema
from headrace.core.truncation import Truncation
from headrace.decode.kernel import Bytes
from headrace.decode.queue import framing
from headrace.sources.contract.decoder import Context, TableChanges, TableFailure, TableFilter
from headrace.sources.queue.decode.context import QueueStreamContext
from headrace.sources.queue.decode.decoder import QueueDecoder

DECODER = QueueDecoder()
TABLES = (16384, 4_000_000_000)
COLUMNS = (
    Column("id", pa.int32(), "int", "integer", nullable=False),
    Column("name", pa.string(), "text", "text"),
)
SCHEMA = TableSchema(COLUMNS, ("id",), full=True, is_ordered=False)
# A virtual column stands in a row's text, and nobody mirrors it.
DETAILS = {
    "attributes": [
        {"number": 1, "name": "id", "generated": "", "type": 23, "typmod": -1},
        {"number": 3, "name": "twice", "generated": "v", "type": 23, "typmod": -1},
        {"number": 4, "name": "name", "generated": "", "type": 25, "typmod": -1},
    ],
    "memberships": [],
}
CAME, WENT, EMPTIED, BEGUN, UNCLEAR = 1, -1, 0, 2, 3


def numbered(place: int, tx: int) -> int:
    """The number of an event that its transaction wrote there."""
    return place * 65536 + tx % 65536


def event(
    place: int, table: int, diff: int, row: str | None = None, tx: int = 7, layout: int | None = None
) -> bytes:
    """An event as COPY writes it."""
    text = struct.pack(">i", -1) if row is None else struct.pack(">i", len(row.encode())) + row.encode()
    return struct.pack(">hiqiqiIiIih", 6, 8, 8 * place, 8, tx, 4, table, 4, layout or table, 2, diff) + text


ROWS = st.sampled_from(["(1,,a)", "(2,,)", '(3,,"x ""y"", (z)")', "(-4,,ä)"])


@st.composite
def streams(draw: st.DrawFn) -> Bytes:
    """Ticks of two tables, events in any order of their numbers."""
    numbers = draw(st.permutations(range(1 << 44, (1 << 44) + 24)))
    parts: list[bytes] = []
    for tick in range(1, draw(st.integers(1, 4)) + 1):
        parts.append(framing.head(8 * tick, 1000 + tick, tick))
        for _ in range(draw(st.integers(0, 6))):
            diff = draw(st.sampled_from([CAME, WENT, CAME, WENT, EMPTIED, BEGUN]))
            row = draw(ROWS) if abs(diff) == 1 else None
            tx = draw(st.integers(1, 1 << 40))
            parts.append(event(numbers.pop(), draw(st.sampled_from(TABLES)), diff, row, tx))
    return np.frombuffer(b"".join(parts), np.uint8)


def said(data: Bytes, context: Context, tables: Iterable[int] = TABLES) -> dict[int, list[Any]]:
    """All that bytes say of the tables: each row, and where they are emptied; in no order."""
    wanted = {
        number: TableFilter(TableName("public", str(number)), SCHEMA, 0, 0, DETAILS) for number in tables
    }
    found: dict[int, list[Any]] = {}
    for each in DECODER.decode(data, context, wanted):
        assert isinstance(each, TableChanges)
        found.setdefault(each.table, []).extend(each.batch.to_pylist())
    for number, places in DECODER.truncations(data, context, dict.fromkeys(wanted, 0)).items():
        found.setdefault(number, []).extend(places)
    return {number: sorted(each, key=repr) for number, each in found.items()}


def together(parts: Iterable[dict[int, list[Any]]]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for part in parts:
        for number, each in part.items():
            found.setdefault(number, []).extend(each)
    return {number: sorted(each, key=repr) for number, each in found.items()}


@given(streams(), st.lists(st.integers(1, 300), max_size=8))
def test_any_split_of_a_stream_decodes_to_the_same(data: Bytes, lengths: list[int]) -> None:
    pieces, at, context = [], 0, DECODER.between(())
    for length in [*lengths, len(data)]:
        taken, behind = DECODER.split(data[at : at + length], context)
        pieces.append((data[at : at + taken], context))
        at, context = at + taken, behind
    assert at == len(data)
    assert together(said(*piece) for piece in pieces) == said(data, DECODER.between(()))
    assert context == DECODER.split(data, DECODER.between(()))[1]


@given(streams(), st.lists(st.sampled_from(TABLES), min_size=1, unique=True), st.integers(0, 300))
def test_a_selection_says_all_of_its_tables_and_nothing_of_others(
    data: Bytes, tables: list[int], first: int
) -> None:
    taken, context = DECODER.split(data[:first], DECODER.between(()))
    data = data[taken:]
    everything = said(data, context, tables)
    selected = DECODER.select(data, context, tables)
    if selected is None:
        assert everything == {}
        return
    assert said(selected.data, selected.context, tables) == everything
    assert said(selected.data, selected.context, set(TABLES) - set(tables)) == {}
    assert selected.changes == sum(len(each) for each in everything.values())
    assert selected.truncates == any(isinstance(s, Truncation) for each in everything.values() for s in each)


@given(streams(), st.integers(0, 300))
def test_a_context_travels_and_is_kept(data: Bytes, length: int) -> None:
    context = DECODER.split(data[:length], DECODER.between(()))[1]
    assert pickle.loads(pickle.dumps(context)) == context
    assert DECODER.restore(json.loads(json.dumps(to_record(context)))) == context
    assert pickle.loads(pickle.dumps(DECODER)) == DECODER


def test_rows_go_to_the_side_that_they_are_on() -> None:
    data = framing.head(16, 5_000_000, 2) + event(9, TABLES[0], WENT, "(1,,a)", 70)
    data += event(4, TABLES[0], CAME, "(1,,)", 71) + event(5, TABLES[1], EMPTIED, None, 72)
    found = said(np.frombuffer(data, np.uint8), DECODER.between(()))
    came, went = sorted(found[TABLES[0]], key=lambda row: row["_ordinal"])
    assert (came["_ordinal"], came["_transaction"], came["_time"]) == (numbered(4, 71), 71, 16)
    assert (came["n0"], came["n1"], came["o0"]) == (1, None, None)
    assert (went["n0"], went["o0"], went["o1"]) == (None, 1, "a")
    assert found[TABLES[1]] == [Truncation(16, numbered(5, 72), 72, 5_000_000)]


def _failure(data: bytes) -> Definite:
    wanted = TableFilter(TableName("public", "t"), SCHEMA, 0, 0, DETAILS)
    [found] = DECODER.decode(np.frombuffer(data, np.uint8), QueueStreamContext(), {TABLES[0]: wanted})
    assert isinstance(found, TableFailure)
    return found.failure


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (event(1, TABLES[0], CAME, "(1,,a,b)"), "TABLE_ALTERED"),
        (event(1, TABLES[0], CAME, "(4294967290,,a)"), "TABLE_ALTERED"),
        (event(1, TABLES[0], CAME, "(1,,a"), "QUEUE_BAD_ROW"),
        (event(1, TABLES[0], UNCLEAR), "QUEUE_TRUNCATE_UNCLEAR"),
    ],
)
def test_what_cannot_be_told_of_a_table_stops_it_alone(data: bytes, code: str) -> None:
    assert _failure(framing.head(8, 0, 1) + data).code == code


@given(st.binary(max_size=200), streams())
def test_nonsense_is_refused_or_left_and_never_read_beyond(nonsense: bytes, data: Bytes) -> None:
    with_nonsense = np.concatenate([data, np.frombuffer(nonsense, np.uint8)])
    with suppress(Definite):
        taken, _ = DECODER.split(with_nonsense, DECODER.between(()))
        assert len(data) <= taken <= len(with_nonsense)


# --- rows of partitions -----------------------------------------------------------------------------

ROOT = 16384
KNOWN = [
    {"oid": 20001, "made": "", "numbers": [1, 3, 4], "attached": None, "before": 0},
    {"oid": 20002, "made": "", "numbers": [3, 4, 1], "attached": 70, "before": 0},
    {"oid": 20003, "made": "", "numbers": [4, 1, 3], "attached": 80, "before": 100},
    {"oid": 20004, "made": "", "numbers": [], "attached": None, "before": 0},
]
OF_ROOT = DETAILS | {"kind": "p", "partitions": KNOWN}
TEXTS = {20001: "({0},,{1})", 20002: "(,{1},{0})", 20003: "({1},{0},)"}


def of_root(events: Iterable[bytes]) -> list[TableChanges | TableFailure]:
    data = np.frombuffer(framing.head(16, 5, 2) + b"".join(events), np.uint8)
    wanted = {ROOT: TableFilter(TableName("public", "r"), SCHEMA, 0, 0, OF_ROOT)}
    return list(DECODER.decode(data, QueueStreamContext(), wanted))


@given(st.lists(st.tuples(st.sampled_from(sorted(TEXTS)), st.integers(-99, 99), st.sampled_from("xyz"))))
def test_rows_of_partitions_come_in_the_columns_of_their_root(rows: list[tuple[int, int, str]]) -> None:
    events = [
        event(place, ROOT, CAME, TEXTS[leaf].format(number, name), 1000, leaf)
        for place, (leaf, number, name) in enumerate(rows)
    ]
    found = [
        row
        for each in of_root(events)
        if isinstance(each, TableChanges)
        for row in zip(each.batch["n0"].to_pylist(), each.batch["n1"].to_pylist(), strict=True)
    ]
    assert found == [(number, name) for _, number, name in rows]


@pytest.mark.parametrize(
    ("leaf", "tx"),
    [
        pytest.param(20009, 1000, id="of one that no look has seen"),
        pytest.param(ROOT, 1000, id="of the root, which has none"),
        pytest.param(20004, 1000, id="of a root beneath, which has none"),
        pytest.param(20002, 70, id="of the transaction that made it"),
        pytest.param(20002, (1 << 32) + 69, id="of one that is older, in another epoch"),
        pytest.param(20003, 99, id="of one that the look showed which found it empty"),
    ],
)
def test_rows_of_which_the_root_may_have_others_are_its_failure(leaf: int, tx: int) -> None:
    good = event(1, ROOT, CAME, "(1,,x)", 1000, 20001)
    row = TEXTS.get(leaf, TEXTS[20001]).format(1, "x")
    [found] = of_root([good, event(2, ROOT, CAME, row, tx, leaf)])
    assert isinstance(found, TableFailure)
    assert found.failure.code == "TABLE_ALTERED"
    assert not isinstance(of_root([good])[0], TableFailure)
