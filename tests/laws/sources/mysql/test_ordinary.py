"""The law of the kernel: what is received is the same, at once or event by event."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import HeadraceError
from headrace.sources.contract.stream import StreamRead
from headrace.sources.mysql.stream import events
from headrace.sources.mysql.stream.ordinary import LARGEST, OUT, ReadPackets
from tests.effort import examples
from tests.laws.sources.mysql.test_transactions import Stored
from tests.unit.sources.mysql.stream import logged
from tests.unit.sources.mysql.stream.logged import SERVER
from tests.unit.sources.mysql.stream.test_transactions import Feed

LAWS = examples(60)
OTHER_SERVER = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
PLENTY = 1 << 20
FILE = logged.event(events.ROTATE, bytes(8) + b"binlog.000002")

TABLES = [("shop", "orders"), ("shop", "others"), ("shop", "Items"), ("crm", "people"), ("shop", "order")]
NUMBERS = [1, 2, 3, 1025, 1 << 40]  # 1 and 1025 lie in one place of the kernel's


class QuickFeed(Feed):
    """A feed whose packets come together: the kernel has the first go at each."""

    def __init__(self, start: str) -> None:
        super().__init__(start)
        self.taken = 0

    def send(self, *data: bytes) -> StreamRead:
        sizes = np.array([len(each) + 5 for each in data], np.int64)
        stops = np.cumsum(sizes)
        whole = np.frombuffer(b"".join(b"hdr_\0" + each for each in data), np.uint8)
        at = alone = 0
        while at < len(data):
            if self.reader.trailer is not None and at >= alone:
                packets = ReadPackets(whole, stops - sizes + 4, stops, at, self.reader.trailer)
                before = at
                at, alone = self.finder.take_many(packets, PLENTY)
                self.taken += at - before
                alone += 1
                if at == len(data):
                    break
            event = self.reader.read(memoryview(data[at]))
            if event is not None:
                self.finder.take(event)
            at += 1
        return self.finder.as_arrival(sum(map(len, data)))


@st.composite
def changes(draw: st.DrawFn) -> list[bytes]:
    """Maps and rows, as statements log them; maps without rows and rows of a former map, too."""
    found: list[bytes] = []
    numbers: list[int] = []
    for _ in range(draw(st.integers(0, 4))):
        for number in draw(st.lists(st.sampled_from(NUMBERS), max_size=2)):
            found.append(logged.table_map(number, *draw(st.sampled_from(TABLES))))
            numbers.append(number)
        if draw(st.booleans()) and numbers:
            data = draw(st.binary(max_size=9)) * draw(st.sampled_from([1, 1, 1, LARGEST // 8]))
            kind = draw(st.sampled_from([23, 24, 25, 30, 31, 32, 39]))
            found.append(logged.rows(draw(st.sampled_from(numbers)), data, kind=kind))
    return found


@st.composite
def mysql(draw: st.DrawFn) -> list[bytes]:
    """Transactions of a MySQL server, most of them ordinary."""
    found: list[bytes] = []
    last = {SERVER: 10, OTHER_SERVER: 4}
    for number in range(draw(st.integers(1, 12))):
        server = draw(st.sampled_from([SERVER, SERVER, SERVER, OTHER_SERVER]))
        last[server] += draw(st.sampled_from([1, 1, 1, 2]))
        kind = draw(st.sampled_from(["rows"] * 6 + ["alone", "prepare", "tagged", "savepoint"]))
        name = logged.gtid(last[server], server, replicated=draw(st.booleans()))
        if kind == "tagged":
            name = logged.tagged(number + 1, "blue")
        begin, rows = logged.query("BEGIN"), draw(changes())
        if kind == "alone":
            found += [name, logged.query(draw(st.sampled_from(["TRUNCATE orders", "GRANT ALL ON *.* TO u"])))]
        elif kind == "prepare":
            xa = chr(97 + number)
            start = logged.query(f"XA START X'{xa.encode().hex()}',X'',1")
            found += [name, start, *rows, logged.xa_prepare(xa)]
        elif kind == "savepoint":
            found += [name, begin, *rows, logged.query("SAVEPOINT `s`"), *draw(changes())]
            found += [logged.query("ROLLBACK TO `s`"), *draw(changes()), logged.xid()]
        else:
            end = logged.query("COMMIT") if draw(st.integers(0, 5)) == 0 else logged.xid()
            found += [name, begin, *rows, end]
    return found


@st.composite
def mariadb(draw: st.DrawFn) -> list[bytes]:
    """Transactions of a MariaDB server in two domains."""
    found: list[bytes] = []
    last = {0: 10, 7: 3}
    for _ in range(draw(st.integers(1, 12))):
        domain = draw(st.sampled_from([0, 0, 0, 7]))
        last[domain] += draw(st.sampled_from([1, 1, 1, 3]))
        alone, server = draw(st.integers(0, 5)) == 0, draw(st.sampled_from([1, 1, 1, 2]))
        flags = draw(st.sampled_from([0, 2, 4, 12, 36])) | alone
        found.append(logged.mariadb(last[domain], domain, server=server, flags=flags))
        found += [logged.query("TRUNCATE orders")] if alone else [*draw(changes()), logged.xid()]
    return found


def same(start: str, sent: Sequence[bytes], cuts: Sequence[int]) -> QuickFeed:
    """Send it both ways, cut alike; the connection whose packets came together."""
    one, other = Feed(start), QuickFeed(start)
    for feed in (one, other):
        feed.send(FILE)
    slow, quick = Stored(), Stored()
    for low, high in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        outcomes = []
        for feed, stored in ((one, slow), (other, quick)):
            try:
                stored.take(feed.send(*sent[low:high]))
                outcomes.append("")
            except HeadraceError as error:
                stored.take(feed.finder.as_arrival(0))
                outcomes.append(f"{error.code}: {error.detail}")
        assert outcomes[0] == outcomes[1]
        assert slow == quick
        assert slow.places == quick.places
        assert slow.open == quick.open
        assert one.position == other.position
        if outcomes[0]:
            break
    return other


@LAWS
@given(st.data())
def test_what_is_taken_at_once_is_what_is_taken_event_by_event(data: st.DataObject) -> None:
    start, binlogs = data.draw(
        st.sampled_from([(f"{SERVER}:1-10,{OTHER_SERVER}:1-4", mysql()), ("0-1-10,7-1-3", mariadb())])
    )
    sent = data.draw(binlogs)
    same(start, sent, sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=4))))


@LAWS
@given(mysql(), st.data())
def test_what_is_damaged_is_found_and_what_came_before_it_is_there(
    sent: list[bytes], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(sent) - 1))
    event = bytearray(sent[at])
    event[data.draw(st.integers(0, len(event) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    same(f"{SERVER}:1-10,{OTHER_SERVER}:1-4", [*sent[:at], bytes(event), *sent[at + 1 :]], [])


def ordinary(number: int, table: int = 1, name: str = "orders") -> list[bytes]:
    rows = [logged.table_map(table, "shop", name), logged.rows(table), logged.rows(table, kind=31)]
    return [logged.gtid(number), logged.query("BEGIN"), *rows, logged.xid()]


def test_ordinary_transactions_are_taken_at_once() -> None:
    """All but the first one, which says what the maps mean; and those in which nothing is wanted."""
    sent = [event for number in range(11, 111) for event in ordinary(number)]
    sent += [event for number in range(111, 211) for event in ordinary(number, 2, "others")]
    feed = same(f"{SERVER}:1-10", sent, [])
    assert feed.taken >= len(sent) - 2 * 6
    assert feed.position.startswith(f"{SERVER}:1-210 last {SERVER}:210@")


def test_the_rows_of_a_large_transaction_are_taken_at_once() -> None:
    rows = [each for _ in range(200) for each in (logged.table_map(1, "shop", "orders"), logged.rows(1))]
    sent = [logged.gtid(11), logged.query("BEGIN"), *rows, logged.xid()]
    feed = same(f"{SERVER}:1-10", sent, [150, 300])
    assert feed.taken > 390


def test_a_number_that_means_another_table_by_now_is_learned_anew() -> None:
    sent = [*ordinary(11), *ordinary(12), *ordinary(13, 1, "others"), *ordinary(14, 1), *ordinary(15, 1)]
    assert same(f"{SERVER}:1-10", sent, []).taken >= 2 * 6


def test_more_maps_than_are_kept_are_learned_anew() -> None:
    sent = [event for number in range(2000) for event in ordinary(11 + number, 1 + number)]
    sent += [event for number in range(2000, 2010) for event in ordinary(11 + number, 2000)]
    assert same(f"{SERVER}:1-10", sent, []).taken >= 9 * 6


@pytest.mark.parametrize("most", [1, 5 * 200])
def test_a_run_ends_where_enough_is_written(most: int) -> None:
    sent = [event for number in range(11, 61) for event in ordinary(number)]
    feed = QuickFeed(f"{SERVER}:1-10")
    feed.send(FILE, *sent[:6])
    data = np.frombuffer(b"".join(b"hdr_\0" + each for each in sent[6:]), np.uint8)
    sizes = np.array([len(each) + 5 for each in sent[6:]], np.int64)
    stops = np.cumsum(sizes)
    behind, _ = feed.finder.take_many(ReadPackets(data, stops - sizes + 4, stops, 0, 4), most)
    written = feed.finder.gathering.size
    assert behind % 6 == 0
    assert most <= written < most + 300


def test_a_map_that_ends_within_its_names_is_no_other_tables() -> None:
    short = logged.event(events.TABLE_MAP, logged.table_map(1, "shop", "orders")[19:-4][:15])
    cut = [logged.gtid(13), logged.query("BEGIN"), short, *ordinary(13)[2:]]
    feed = same(f"{SERVER}:1-10", [*ordinary(11), *ordinary(12), *cut, *ordinary(14), *ordinary(15)], [])
    assert feed.position.startswith(f"{SERVER}:1-12 ")


def test_rows_of_a_map_of_another_transaction_are_refused() -> None:
    stray = [logged.gtid(13), logged.query("BEGIN"), logged.rows(1), logged.xid()]
    same(f"{SERVER}:1-10", [*ordinary(11), *ordinary(12), *stray, *ordinary(14)], [])
    others = [logged.table_map(2, "shop", "others"), logged.rows(1)]
    opened = [logged.gtid(13), logged.query("BEGIN"), *others, logged.xid()]
    same(f"{SERVER}:1-10", [*ordinary(11), *ordinary(12), *opened, *ordinary(14)], [])


def test_an_event_that_only_looks_like_a_begin_is_none() -> None:
    begin = logged.query("BEGIN")[19:-4]
    for kind in (events.USER_VAR, events.ROWS_QUERY, events.EXECUTE_LOAD):
        odd = [logged.gtid(13), logged.event(kind, begin), *ordinary(13)[2:]]
        same(f"{SERVER}:1-10", [*ordinary(11), *ordinary(12), *odd, *ordinary(14)], [])


def test_wherever_the_packets_end_it_is_the_same() -> None:
    """Between a map and its rows too, of a transaction that has rows already."""
    more = [logged.table_map(2, "shop", "others"), logged.table_map(3, "crm", "people"), logged.rows(3)]
    sent = [*ordinary(11)[:-1], *more, *ordinary(11)[2:], *ordinary(12), *ordinary(13)]
    for cut in range(len(sent)):
        same(f"{SERVER}:1-10", sent, [cut])


@pytest.mark.parametrize("start", ["0-1-10", "0-1-10,7-1-3"])
def test_names_of_mariadb_are_what_they_are_event_by_event(start: str) -> None:
    """Other servers, other domains, gaps, and each flag."""
    rows = [logged.table_map(1, "shop", "orders"), logged.rows(1), logged.xid()]
    plain = [event for number in (11, 12) for event in (logged.mariadb(number), *rows)]
    for odd in (
        *(logged.mariadb(13, flags=flags) for flags in range(256)),
        logged.mariadb(13, server=2),
        logged.mariadb(14),
        logged.mariadb(13, 7),
        logged.mariadb(12),
    ):
        feed = same(start, [*plain, odd, *rows, logged.mariadb(15), *rows, logged.mariadb(16), *rows], [])
        assert feed.taken >= 4


def test_what_comes_again_of_a_prepared_transaction_is_not_counted_twice() -> None:
    start = f"{SERVER}:1-10:12 open {SERVER}:11"
    sent = [logged.gtid(11), logged.query("XA START X'61',X'',1"), *ordinary(11)[2:5], logged.xa_prepare("a")]
    feed = same(start, [*sent, *ordinary(13), *ordinary(14)], [])
    assert feed.position.startswith(f"{SERVER}:1-10:12-14 open {SERVER}:11")
    other = same(start, [*ordinary(13), *ordinary(14), *sent, *ordinary(15)], [])
    assert other.position.startswith(f"{SERVER}:1-10:12-15 open {SERVER}:11")


def test_a_transaction_that_there_is_no_room_for_is_taken_event_by_event() -> None:
    rows = [logged.rows(1, bytes(8000))] * (OUT // 8000 + 10)
    large = [
        logged.gtid(12),
        logged.query("BEGIN"),
        logged.table_map(1, "shop", "orders"),
        *rows,
        logged.xid(),
    ]
    same(f"{SERVER}:1-10", [*ordinary(11), *large, *ordinary(13), *ordinary(14)], [])
