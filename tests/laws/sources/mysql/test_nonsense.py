"""Events and frames that are sound and say nonsense: each is coded, or read as something else.

Without checksums (`binlog_checksum = NONE`) nobody else notices damage; and who sends may mean harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import Definite
from headrace.decode.kernel import Bytes
from headrace.sources.contract.decoder import TableFilter
from headrace.sources.mysql.stream import events
from headrace.sources.mysql.stream.frames import HEADER
from tests.effort import examples
from tests.laws.decode.mysql.events import SCHEMA, frame
from tests.laws.decode.wire import damaged
from tests.laws.sources.mysql.test_decoder import BETWEEN, DECODER, TABLES, _frames, streams
from tests.laws.sources.mysql.test_ordinary import OTHER_SERVER, mariadb, mysql, same
from tests.unit.sources.mysql.stream import logged
from tests.unit.sources.mysql.stream.logged import SERVER

LAWS = examples(30)
STARTS = {"mysql": f"{SERVER}:1-10,{OTHER_SERVER}:1-4", "mariadb": "0-1-10,7-1-3"}
SERVERS = frozenset({events.TABLE_MAP, *events.ROWS})  # our own are never damaged: the spool has sums
KINDS = st.one_of(st.integers(0, 45), st.integers(158, 173))


@st.composite
def nonsense(draw: st.DrawFn, sent: Sequence[bytes]) -> list[bytes]:
    """Give some events another kind or other bytes, and checksums that fit."""
    found = list(sent)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(found) - 1))
        event = found[at]
        kind = draw(st.one_of(st.just(event[4]), KINDS))
        body = draw(damaged(st.just(event[HEADER.size : -4])))
        found[at] = logged.event(kind, body, server=draw(st.sampled_from([0, 1, (1 << 32) - 1])))
    return found


@LAWS
@given(st.data())
def test_events_that_say_nonsense_are_refused_or_read_alike_both_ways(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(STARTS)))
    sent = data.draw(nonsense(data.draw(mysql() if kind == "mysql" else mariadb())))
    same(STARTS[kind], sent, [])


@settings(LAWS, max_examples=30)
@given(st.data())
def test_names_of_the_other_kind_of_server_are_refused(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(STARTS)))
    sent = data.draw(mariadb() if kind == "mysql" else mysql())
    assert same(STARTS[kind], sent, []).taken == 0


def _has_servers_frames(stream: Bytes) -> bool:
    return any(each[4] in SERVERS for each in _frames(stream))


@LAWS
@given(streams().filter(_has_servers_frames), st.data())
def test_frames_that_say_nonsense_are_changes_or_coded_failures(stream: Bytes, data: st.DataObject) -> None:
    frames = _frames(stream)
    at = data.draw(st.sampled_from([at for at, each in enumerate(frames) if each[4] in SERVERS]))
    frames[at] = frame(frames[at][4], data.draw(damaged(st.just(frames[at][HEADER.size :]))))
    changed = np.frombuffer(b"".join(frames), np.uint8)
    wanted = {number: TableFilter(name, SCHEMA, 0) for number, name in TABLES.items()}
    for read in (
        lambda: list(DECODER.decode(changed, BETWEEN, wanted)),
        lambda: [DECODER.split(changed, BETWEEN)],
        lambda: [DECODER.select(changed, BETWEEN, TABLES)],
        lambda: [DECODER.truncations(changed, BETWEEN, dict.fromkeys(TABLES, 0))],
    ):
        assert _code(read) in {None, "MY_BAD_FRAME", "MY_BAD_TABLE_MAP"}


def _code(read: Callable[[], object]) -> str | None:
    try:
        read()
    except Definite as error:
        return error.code
    return None
