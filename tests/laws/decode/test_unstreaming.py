"""Laws of unstreaming: a streamed transaction reads as if it had come whole."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.decode import pgoutput
from headrace.sources.contract.decoder import RunningTransaction
from headrace.sources.postgres.decode.decoder import PostgresDecoder
from tests.laws.decode.wire import array, begin, changes, oid, plugin, relation

DECODER = PostgresDecoder()
LSN, TIME, XID = 0x16B374D848, 1_795_132_800_000_123, 900
SERVER_TIME = TIME - 946_684_800_000_000
LAYOUT = relation([(1, b"id", 23, -1), (0, b"s", 25, -1)])
TYPE = b"Y" + oid(99) + b"public\0mood\0"

messages = st.lists(
    st.tuples(st.integers(XID, XID + 3), st.one_of(st.just(LAYOUT), st.just(TYPE), changes(2)))
)
Said = list[tuple[int, bytes]]


def _streamed(said: Said) -> bytes:
    return b"".join(plugin(m[:1] + struct.pack(">I", xid) + m[1:]) for xid, m in said)


@given(messages, st.sets(st.integers(XID + 1, XID + 3)))
def test_it_is_the_bytes_of_an_ordinary_one_without_what_was_rolled_back(
    said: Said, struck: set[int]
) -> None:
    context = DECODER.within(RunningTransaction(XID, LSN, TIME, tuple(sorted(struck))))
    found = DECODER.whole(array(_streamed(said)), context)
    lasting = [message for xid, message in said if xid not in struck and message[:1] != b"Y"]
    assert found.tobytes() == plugin(begin(LSN, SERVER_TIME, XID)) + b"".join(map(plugin, lasting))


@given(st.lists(messages, max_size=4))
def test_several_are_read_one_behind_the_other(each: list[Said]) -> None:
    heads = [RunningTransaction(XID + i, LSN + i, TIME + i) for i in range(len(each))]
    parts = [
        DECODER.whole(array(_streamed(said)), DECODER.within(head))
        for head, said in zip(heads, each, strict=True)
    ]
    data = np.concatenate([array(b""), *parts])
    found = pgoutput.begins(data, pgoutput.scan(data))
    assert found.commit_lsn.tolist() == [head.time for head in heads]
    assert found.commit_ts.tolist() == [head.commit_ts for head in heads]
    assert found.xid.tolist() == [head.number for head in heads]
