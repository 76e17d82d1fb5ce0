"""The laws of a decoder (`sources.contract`): cutting, choosing, joining changes nothing that is said."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.records import to_record
from headrace.decode.kernel import Bytes
from headrace.pipeline.tasks.slices import Slice
from headrace.sources.contract.decoder import Context, RunningTransaction
from tests.laws.sources.streams import (
    DECODER,
    TABLES,
    begin,
    changes,
    frame,
    insert,
    plain,
    relation,
    said,
    streamed,
    truncate,
)

slices = st.one_of(plain(), streamed())
Pieces = list[tuple[Bytes, Context]]


def bytes_of(piece: Slice) -> Bytes:
    return np.frombuffer(piece.data or b"", np.uint8)


def cut(data: Bytes, context: Context, lengths: list[int]) -> Pieces:
    """Cut at the last place that the decoder allows before each window's end."""
    pieces: Pieces = []
    at = 0
    for length in [*lengths, len(data)]:
        taken, behind = DECODER.split(data[at : at + length], context)
        if taken:
            pieces.append((data[at : at + taken], context))
            at, context = at + taken, behind
    assert at == len(data)
    return pieces


def by_table(found: Iterable[tuple[int, Any]]) -> dict[int, list[Any]]:
    """The rows of each table in the order of the log, and its truncations behind them."""
    rows: dict[int, list[Any]] = {}
    for oid, some in found:
        rows.setdefault(oid, []).extend(some)
    return {oid: sorted(each, key=repr) for oid, each in rows.items()}


@given(slices, st.lists(st.integers(1, 400), max_size=6))
def test_any_split_of_a_stream_decodes_to_the_same(piece: Slice, lengths: list[int]) -> None:
    data = bytes_of(piece)
    pieces = cut(data, piece.context, lengths)
    assert by_table(each for part in pieces for each in said(*part)) == by_table(said(data, piece.context))


@given(slices, st.lists(st.integers(1, 400), max_size=6))
def test_what_stands_behind_a_piece_does_not_depend_on_how_it_was_cut(
    piece: Slice, lengths: list[int]
) -> None:
    data = bytes_of(piece)
    last, context = cut(data, piece.context, lengths)[-1] if len(data) else (data, piece.context)
    assert DECODER.split(last, context)[1] == DECODER.split(data, piece.context)[1]


@given(slices, st.lists(st.sampled_from(TABLES), min_size=1, unique=True))
def test_a_selection_says_all_of_its_tables_and_nothing_of_others(piece: Slice, oids: list[int]) -> None:
    data = bytes_of(piece)
    everything = by_table(said(data, piece.context, oids))
    selected = DECODER.select(data, piece.context, oids)
    if selected is None:
        assert everything == {}
        return
    assert by_table(said(selected.data, selected.context, oids)) == everything
    others = [oid for oid in TABLES if oid not in oids]
    rows = [row for _, some in said(selected.data, _with_layouts(selected.context), others) for row in some]
    assert not [row for row in rows if isinstance(row, dict)]  # a TRUNCATE names all of its tables


def _with_layouts(context: Context) -> Context:
    """The context of a selection, with the layouts of the tables that were not selected."""
    layouts = to_record(DECODER.between(map(relation, TABLES)))
    return DECODER.restore({**layouts, "inside": to_record(context)["inside"]})


@given(slices, st.integers(1, 400))
def test_a_context_travels_and_is_kept(piece: Slice, length: int) -> None:
    for context in (piece.context, DECODER.split(bytes_of(piece)[:length], piece.context)[1]):
        assert pickle.loads(pickle.dumps(context)) == context
        assert DECODER.restore(json.loads(json.dumps(to_record(context)))) == context
    assert len(pickle.dumps(DECODER)) < 100
    assert pickle.loads(pickle.dumps(DECODER)) == DECODER


@given(st.lists(st.tuples(changes, st.integers(800, 803)), max_size=9), st.sets(st.integers(801, 803)))
def test_a_transaction_that_came_while_it_ran_says_the_same_as_a_whole_one(
    done: list[tuple[Any, int]], aborted: set[int]
) -> None:
    layouts = b"".join(relation(oid, struct.pack(">I", 800)) for oid in TABLES)
    while_it_ran = [_change(change, struct.pack(">I", xid)) for change, xid in done]
    data = np.frombuffer(layouts + b"".join(while_it_ran), np.uint8)
    context = DECODER.within(RunningTransaction(800, 2000, 946_684_800_014_000, tuple(sorted(aborted))))
    lasting = [_change(change) for change, xid in done if xid not in aborted]
    whole = begin(2000, 800) + b"".join(map(relation, TABLES)) + b"".join(lasting)
    expected = by_table(said(np.frombuffer(whole, np.uint8), DECODER.between(())))
    assert by_table(said(data, context)) == expected
    assert by_table(said(DECODER.whole(data, context), DECODER.between(()))) == expected


def _change(change: Any, xid: bytes = b"") -> bytes:
    if isinstance(change, list):
        return truncate(tuple(change), xid)
    oid, text = change
    return insert(oid, text, xid)


def test_before_its_end_changes_carry_the_part_of_the_transaction_that_made_them() -> None:
    xids = (800, 801, 800)
    data = b"".join(insert(TABLES[0], b"x", struct.pack(">I", xid)) for xid in xids)
    layouts = relation(TABLES[0], struct.pack(">I", 800))
    found = dict(said(np.frombuffer(layouts + data, np.uint8), DECODER.within(RunningTransaction(800))))
    assert [(row["_transaction"], row["_ordinal"]) for row in found[TABLES[0]]] == [
        (800, 0),
        (801, 1),
        (800, 2),
    ]


def test_the_head_of_a_cut_transaction_is_known_behind_its_end_no_more() -> None:
    end = frame(b"C" + struct.pack(">BQQq", 0, 1000, 1005, 7))
    opened = np.frombuffer(begin(1000, 701) + relation(TABLES[0]) + insert(TABLES[0], b"x"), np.uint8)
    behind = DECODER.split(opened, DECODER.between(()))[1]
    assert behind != DECODER.between([relation(TABLES[0])])
    ended = DECODER.split(np.frombuffer(end, np.uint8), behind)[1]
    assert ended == DECODER.between([relation(TABLES[0])])
