"""The law of the stream: wherever reads end, what is received is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sources.contract.stream import StreamRead
from headrace.sources.mysql.position import MysqlTimeline
from tests.unit.sources.mysql.stream import logged
from tests.unit.sources.mysql.stream.logged import SERVER
from tests.unit.sources.mysql.stream.test_transactions import BASE, ORDERS, OTHER, Feed

LOG = MysqlTimeline(BASE)
LAWS = settings(max_examples=100, deadline=None)
ROWS = st.builds(
    logged.rows, st.sampled_from([1, 2]), st.binary(max_size=9), kind=st.sampled_from([30, 31, 39])
)
ALONE = ["TRUNCATE orders", "DROP TABLE crm.people", "FROBNICATE", "GRANT ALL ON *.* TO u"]


@st.composite
def binlogs(draw: st.DrawFn) -> list[bytes]:
    """Some transactions, prepared ones among them, of which some end."""
    found: list[bytes] = []
    opened: list[str] = []
    for number in range(11, 11 + draw(st.integers(1, 6))):
        found.append(logged.gtid(number))
        kind = draw(st.sampled_from(["rows", "rows", "alone", "prepare", "one phase", "end"]))
        rows = [ORDERS, OTHER, *draw(st.lists(ROWS, max_size=4))]
        if kind == "rows":
            found += [logged.query("BEGIN"), *rows, logged.xid()]
        elif kind in ("prepare", "one phase"):
            name = chr(97 + number)
            start = logged.query(f"XA START X'{name.encode().hex()}',X'',1")
            found += [start, *rows, logged.xa_prepare(name, one_phase=kind != "prepare")]
            opened += [name] if kind == "prepare" else []
        elif kind == "end" and opened:
            verb = draw(st.sampled_from(["COMMIT", "ROLLBACK"]))
            found.append(logged.query(f"XA {verb} X'{opened.pop(0).encode().hex()}',X'',1"))
        else:
            found.append(logged.query(draw(st.sampled_from(ALONE))))
    return found


class Stored:
    """Store reads as a receiver does in `ingest.store_stream`."""

    def __init__(self) -> None:
        self.data, self.open = b"", -1
        self.ended: list[tuple[Any, ...]] = []
        self.running: dict[int, bytes] = {}
        self.gone: set[int] = set()
        self.places: dict[int, str] = {}

    def take(self, received: StreamRead) -> None:
        for number, data in received.running.items():
            self.running[number] = self.running.get(number, b"") + data.tobytes()
        self.gone |= set(received.rolled_back)
        for position in received.positions:
            assert position == LOG.position(position.text)
            assert self.places.setdefault(position.time, position.text) == position.text
        said = {position.time for position in received.positions}
        assert received.complete in said
        assert not len(received.transactions) or int(received.transactions[-1]["end"]) in said
        base = len(self.data)
        self.data += received.data.tobytes()
        for each in received.transactions.tolist():
            start = self.open if each[7] < 0 else base + each[7]
            self.ended.append((*each[:7], start, base + each[8]))
        if received.open is not None and received.open.start >= 0:
            self.open = base + received.open.start

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stored) and all(
            getattr(self, name) == getattr(other, name) for name in ("data", "ended", "running", "gone")
        )

    __hash__ = None  # type: ignore[assignment]


@LAWS
@given(binlogs(), st.data())
def test_any_cut_of_the_stream_gives_the_same(sent: list[bytes], data: st.DataObject) -> None:
    whole, pieces = Stored(), Stored()
    one, other = Feed(), Feed()
    last = one.send(*sent)
    whole.take(last)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=5)))
    for start, stop in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        received = other.send(*sent[start:stop])
        pieces.take(received)
        assert received.amid or received.open or received.complete == other.finder.time
    assert whole == pieces
    assert all(pieces.places.get(time, text) == text for time, text in whole.places.items())
    assert (one.position, last.complete) == (other.position, other.finder.time)
    times = np.array([each[1] for each in whole.ended])
    assert np.all(np.diff(times) > 0)


@LAWS
@given(binlogs(), st.data())
def test_a_stream_that_is_begun_anew_ends_where_the_first_one_did(
    sent: list[bytes], data: st.DataObject
) -> None:
    whole, before = Feed(), Feed()
    stored, again = Stored(), Stored()
    stored.take(whole.send(*sent))
    groups = [at for at, each in enumerate(sent) if each[4] == 33]
    cut = data.draw(st.sampled_from([*groups, len(sent)]))
    known = before.send(*sent[:cut])
    after = Feed(before.position)
    missing = [number for at, number in zip(groups, range(11, 99), strict=False) if at >= cut]
    ends = [*groups[1:], len(sent)]
    opened = before.position.partition(f" open {SERVER}")[2]
    for start, stop, number in zip(groups, ends, range(11, 99), strict=False):
        if number in missing or number in numbers(opened):
            again.take(after.send(*sent[start:stop]))
    assert after.position == whole.position
    assert after.finder.time == whole.finder.time
    assert [each[:7] for each in again.ended] == [
        each[:7] for each in stored.ended if each[1] >= known.complete
    ]
    for number in {each[4] for each in again.ended if each[0]}:
        assert again.running[number] == stored.running[number]


def numbers(text: str) -> set[int]:
    """The numbers of intervals as a GTID set prints them."""
    found: set[int] = set()
    for part in filter(None, text.split(":")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found
