"""Buffers of the stream end up in the spool as whole transactions, however they were cut."""

from __future__ import annotations

import struct
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import Definite, Transient
from headrace.core.records import from_record, to_record
from headrace.decode.kernel import Bytes
from headrace.ingest import replay_check
from headrace.ingest.last_commits import LastCommits
from headrace.ingest.replay_check import RecentTransactions
from headrace.ingest.store_stream import Intake
from headrace.pipeline.stream.batches import own_files
from headrace.sources.postgres.decode.decoder import PostgresDecoder
from headrace.sources.postgres.position import PostgresTimeline
from headrace.sources.postgres.session.stream_errors import sends_others
from headrace.sources.postgres.stream.transactions import PostgresTransactionFinder
from headrace.spool.layout import Kind
from headrace.spool.reader import SpoolReader, prepare
from headrace.spool.writer import SpoolWriter

EPOCH = 946_684_800_000_000
TABLE = 16400
OTHERS = partial(sends_others, PostgresTimeline())


def data(message: bytes) -> bytes:
    payload = b"w" + struct.pack(">QQQ", 0, 0, 0) + message
    return b"d" + struct.pack(">i", len(payload) + 4) + payload


def begin(lsn: int, xid: int) -> bytes:
    return data(b"B" + struct.pack(">QqI", lsn, lsn * 7, xid))


def commit(lsn: int, end: int) -> bytes:
    return data(b"C" + struct.pack(">BQQq", 0, lsn, end, lsn * 7))


def insert(size: int = 1) -> bytes:
    return data(b"I" + struct.pack(">I", TABLE) + b"N" + struct.pack(">HcI", 1, b"t", size) + b"x" * size)


def relation(name: str = "t") -> bytes:
    columns = struct.pack(">HB", 1, 1) + b"a\0" + struct.pack(">Ii", 23, -1)
    return data(b"R" + struct.pack(">I", TABLE) + b"public\0" + name.encode() + b"\0d" + columns)


def keepalive(wal_end: int) -> bytes:
    payload = b"k" + struct.pack(">QqB", wal_end, wal_end * 3, 0)
    return b"d" + struct.pack(">i", len(payload) + 4) + payload


def whole(lsn: int, end: int, xid: int, changes: int) -> list[bytes]:
    return [begin(lsn, xid), *[insert(i + 1) for i in range(changes)], commit(lsn, end)]


@dataclass
class Spooled:
    """A spool in a folder, with an intake of one session."""

    folder: Path
    frontier: int = 0
    start: int = 0  # of the slot
    lake: tuple[LastCommits, int] | tuple[()] = ()  # what it remembers, up to which position
    writer: SpoolWriter = field(init=False)
    known: RecentTransactions = field(init=False)
    finder: PostgresTransactionFinder = field(init=False)
    intake: Intake = field(init=False)

    def __enter__(self) -> Spooled:
        prepare(self.folder, {}, self.frontier)
        self.writer = SpoolWriter(self.folder, 1 << 30, self.frontier, segment_bytes=1 << 16)
        self.known = RecentTransactions.of(self.folder, OTHERS, *self.lake).from_start(self.start)
        self.finder = PostgresTransactionFinder()
        self.intake = Intake(self.writer, self.known)
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()

    def take(self, *frames: bytes) -> None:
        self.intake.take(self.finder.take(buffer(*frames)))

    @property
    def times(self) -> list[int]:
        return [int(time) for time in SpoolReader(self.folder).transactions(0)["time"]]


def take_each(spooled: Spooled, buffers: list[list[bytes]]) -> None:
    for frames in buffers:
        spooled.take(*frames)


def buffer(*frames: bytes) -> Bytes:
    return np.frombuffer(b"".join(frames), np.uint8)


transactions = st.lists(st.integers(0, 5), min_size=1, max_size=8)


@settings(max_examples=60)
@given(transactions, st.data())
def test_any_cut_gives_the_same_index(sizes: list[int], draw: st.DataObject) -> None:
    frames: list[bytes] = []
    expected = []
    for i, changes in enumerate(sizes):
        lsn = 100 + 50 * i
        frames += [keepalive(lsn), *whole(lsn, lsn + 50, 700 + i, changes), keepalive(lsn + 50)]
        expected.append((lsn, lsn + 50, lsn * 7 + EPOCH, 700 + i, changes))
    cuts = draw.draw(st.lists(st.integers(0, len(frames)), max_size=6).map(sorted))
    with tempfile.TemporaryDirectory() as folder, Spooled(Path(folder) / "spool") as spooled:
        for start, stop in zip([0, *cuts], [*cuts, len(frames)], strict=True):
            if start < stop:
                spooled.take(*frames[start:stop])
        reader = SpoolReader(spooled.folder)
        found = reader.transactions(0)
        assert found[["time", "end", "commit_ts", "transaction", "changes"]].tolist() == expected
        for record, (lsn, end, _, xid, changes) in zip(found, expected, strict=True):
            stored = reader.read(int(record["start"]), int(record["stop"])).tobytes()
            assert stored == b"".join(whole(lsn, end, xid, changes))
        assert spooled.writer.frontier == expected[-1][1]


def test_a_keepalive_is_a_frontier_only_between_transactions(tmp_path: Path) -> None:
    with Spooled(tmp_path) as spooled:
        spooled.take(begin(100, 1), insert(), keepalive(900))
        spooled.intake.settle()
        assert spooled.writer.frontier == 0
        spooled.take(commit(100, 120))
        assert spooled.writer.frontier == 120
        spooled.take(keepalive(200))
        assert spooled.writer.frontier == 120
        spooled.intake.settle()
        assert spooled.writer.frontier == 200
        # The position of a keepalive may be where the next commit starts: it is not in it.
        spooled.take(*whole(200, 210, 2, 1))
        assert spooled.times == [100, 200]


def test_keepalives_alone_take_no_room(tmp_path: Path) -> None:
    with Spooled(tmp_path) as spooled:
        for i in range(50):
            spooled.take(keepalive(i), keepalive(i + 1))
        assert spooled.writer.address == 0


def test_what_comes_again_is_not_stored_twice(tmp_path: Path) -> None:
    history = [whole(lsn, lsn + 10, lsn, 2) for lsn in (100, 110, 120, 130)]
    with Spooled(tmp_path) as spooled:
        spooled.take(*history[0], *history[1], begin(120, 120), insert())
    with Spooled(tmp_path) as again:
        before = again.writer.address
        again.take(begin(100, 100), relation(), insert(1))
        again.take(insert(2), *history[0][3:], *history[1])
        assert again.writer.address == before
        again.take(*history[2], *history[3])
        assert again.times == [100, 110, 120, 130]
        reader = SpoolReader(tmp_path)
        third = reader.transactions(0)[2]
        assert third["session"] == 2
        stored = reader.read(int(third["start"]), int(third["stop"])).tobytes()
        assert stored == b"".join(history[2])
        assert reader.layouts_before(int(third["start"])) == [relation()]


def test_a_known_transaction_that_ends_in_the_buffer_of_a_new_one(tmp_path: Path) -> None:
    with Spooled(tmp_path, frontier=110) as spooled:
        spooled.take(begin(100, 1), insert())
        assert spooled.intake.needed_from is None
        spooled.take(insert(), commit(100, 110), begin(110, 2), insert())
        assert spooled.intake.needed_from == 0
        spooled.take(commit(110, 130))
        (record,) = SpoolReader(tmp_path).transactions(0)
        stored = SpoolReader(tmp_path).read(int(record["start"]), int(record["stop"])).tobytes()
        assert stored == begin(110, 2) + insert() + commit(110, 130)
        assert record["changes"] == 1


@pytest.mark.parametrize(
    "again",
    [
        [(105, 7), (130, 8)],  # none of them
        [(150, 7)],  # none of them, and nothing at their places
        [(100, 1), (111, 2)],  # another position
        [(100, 1), (110, 9)],  # another transaction at the position
        [(100, 1), (120, 3)],  # one is missing
        [(100, 1), (105, 7), (110, 2)],  # one more
        [(100, 1), (130, 7)],  # the last ones are missing
    ],
)
def test_another_history_is_an_error(tmp_path: Path, again: list[tuple[int, int]]) -> None:
    with Spooled(tmp_path) as spooled:
        for lsn, xid in [(100, 1), (110, 2), (120, 3)]:
            spooled.take(*whole(lsn, lsn + 10, xid, 1))
    with Spooled(tmp_path) as second, pytest.raises(Definite) as caught:
        take_each(second, [whole(lsn, lsn + 5, xid, 1) for lsn, xid in again])
    assert caught.value.code == "PG_HISTORY_CHANGED"


def test_the_same_positions_at_other_moments_are_another_history(tmp_path: Path) -> None:
    """Two lives that begin at one moment may agree in the next positions and transactions."""
    with Spooled(tmp_path) as spooled:
        spooled.take(*whole(100, 110, 1, 1))
    later = data(b"B" + struct.pack(">QqI", 100, 701, 1))
    with Spooled(tmp_path) as second, pytest.raises(Definite) as caught:
        second.take(later, insert(), commit(100, 110))
    assert caught.value.code == "PG_HISTORY_CHANGED"


def test_a_server_that_says_there_is_nothing_where_there_was_has_another_history(tmp_path: Path) -> None:
    with Spooled(tmp_path) as spooled:
        spooled.take(*whole(100, 110, 1, 1), keepalive(500))
        spooled.intake.settle()
    for frames in ([keepalive(101)], [keepalive(100), *whole(200, 210, 1, 0), keepalive(300)]):
        with Spooled(tmp_path) as second, pytest.raises(Definite) as caught:
            second.take(*frames)
        assert caught.value.code == "PG_HISTORY_CHANGED"
    with Spooled(tmp_path) as second:
        second.take(keepalive(100))
        second.take(*whole(100, 110, 1, 1), keepalive(300), *whole(300, 310, 2, 0))
        # Where nothing was there may not be anything either: it would be dropped as known.
        with pytest.raises(Definite) as caught:
            second.take(*whole(400, 410, 2, 1))
        assert caught.value.code == "PG_HISTORY_CHANGED"


def test_what_comes_again_is_confirmed_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Spooled(tmp_path) as spooled:
        for lsn in (100, 110, 120):
            spooled.take(*whole(lsn, lsn + 10, lsn, 1))
        spooled.take(keepalive(500))
        spooled.intake.settle()
    with Spooled(tmp_path, start=100) as second:
        confirmed = []
        for frames in ([keepalive(100)], whole(100, 110, 100, 1), whole(110, 120, 110, 1)):
            second.take(*frames)
            confirmed.append(second.known.confirmed_until)
        assert confirmed == [0, 101, 111]
        second.take(*whole(120, 130, 120, 1), keepalive(499))
        assert second.known.confirmed_until == 499
        second.take(keepalive(500))
        assert second.known.confirmed_until is None
    monkeypatch.setattr(
        replay_check, "MOST_KNOWN", 2
    )  # of more the newest are compared, and stand for the others
    with Spooled(tmp_path, start=100) as third:
        third.take(*whole(100, 110, 100, 1))
        assert third.known.confirmed_until == 0
        third.take(*whole(110, 120, 110, 1))
        assert third.known.confirmed_until == 111


def test_what_the_lake_remembers_counts_where_the_spool_is_lost(tmp_path: Path) -> None:
    with Spooled(tmp_path / "first") as spooled:
        for lsn in range(100, 200, 10):
            spooled.take(*whole(lsn, lsn + 10, lsn, 1))
        records = SpoolReader(spooled.folder).transactions(0)
    id_of = PostgresDecoder(150).transaction_id
    last = LastCommits(0).followed_by(records[:2], id_of).followed_by(records[2:], id_of)
    assert [commit.time for commit in last.commits] == list(range(120, 200, 10))
    assert (last.since, last.newest) == (120, 190)
    assert from_record(LastCommits, to_record(last)) == last
    again = [whole(lsn, lsn + 10, lsn, 1) for lsn in range(90, 220, 10) if lsn != 150]
    for name, frontier in (("lost", 120), ("older", 170)):  # what a spool has of them besides does no harm
        lake = (last, 200)
        with (
            Spooled(tmp_path / name, frontier, lake=lake) as second,
            pytest.raises(Definite) as caught,
        ):
            take_each(second, again)
        assert caught.value.code == "PG_HISTORY_CHANGED"
        with Spooled(tmp_path / name, frontier, lake=lake) as third:
            take_each(third, [*again[:6], whole(150, 160, 150, 1), *again[6:]])
            assert third.times[-2:] == [200, 210]


def test_a_spool_with_a_gap_knows_only_what_came_behind_it(tmp_path: Path) -> None:
    """Another machine went on meanwhile: what it saw is not here."""
    with Spooled(tmp_path) as spooled:
        spooled.take(*whole(100, 110, 1, 1))
    with Spooled(tmp_path, 200) as second:
        second.take(*whole(100, 110, 1, 1), *whole(150, 160, 2, 1), *whole(200, 210, 3, 1))
    with Spooled(tmp_path, 200) as third:
        third.take(*whole(100, 110, 1, 1), *whole(150, 160, 2, 1), *whole(200, 210, 3, 1))
        third.take(*whole(210, 220, 4, 1))
        assert third.times == [100, 200, 210]


def test_a_later_start_of_the_slot_is_no_other_history(tmp_path: Path) -> None:
    with Spooled(tmp_path) as spooled:
        for lsn in (100, 110, 120):
            spooled.take(*whole(lsn, lsn + 10, lsn, 1))
    with Spooled(tmp_path, start=110) as second:
        for lsn in (110, 120, 130):
            second.take(*whole(lsn, lsn + 10, lsn, 1))
        assert second.times == [100, 110, 120, 130]


STREAM_START = data(b"S" + struct.pack(">IB", 7, 1))
PREPARE = data(b"P" + struct.pack(">BQQqI", 0, 1, 2, 3, 4) + b"gid\0")


@pytest.mark.parametrize(
    "frames",
    [
        [commit(100, 110)],
        [insert()],
        [begin(100, 1), begin(110, 2)],
        [begin(100, 1), commit(101, 110)],
        [*whole(100, 110, 1, 1), insert()],
        [*whole(100, 110, 1, 1), *whole(90, 120, 2, 1)],
        [STREAM_START],
        [PREPARE],
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_a_stream_that_breaks_the_rules_is_an_error(tmp_path: Path, frames: list[bytes], apart: bool) -> None:
    with Spooled(tmp_path) as spooled, pytest.raises(Definite) as caught:
        take_each(spooled, [[frame] for frame in frames] if apart else [frames])
    assert caught.value.code == "PG_STREAM_DISORDERED"


def test_the_stray_abort_of_postgresql_18_is_ignored(tmp_path: Path) -> None:
    stray = data(b"A" + struct.pack(">II", 7, 7))
    with Spooled(tmp_path) as spooled:
        spooled.take(*whole(100, 110, 1, 1), stray)
        spooled.take(stray)
        spooled.take(stray, *whole(110, 120, 2, 1), stray)
        assert spooled.times == [100, 110]


# --- transactions that are streamed while they run ---------------------------------------------


def start(xid: int, *, first: bool) -> bytes:
    return data(b"S" + struct.pack(">IB", xid, first))


def stop() -> bytes:
    return data(b"E")


def within(xid: int, size: int = 1) -> bytes:
    tuple_data = b"N" + struct.pack(">HcI", 1, b"t", size) + b"x" * size
    return data(b"I" + struct.pack(">II", xid, TABLE) + tuple_data)


def layout_within(xid: int, name: str) -> bytes:
    columns = struct.pack(">HB", 1, 1) + b"a\0" + struct.pack(">Ii", 23, -1)
    return data(b"R" + struct.pack(">II", xid, TABLE) + b"public\0" + name.encode() + b"\0d" + columns)


def abort(xid: int, subxid: int) -> bytes:
    return data(b"A" + struct.pack(">II", xid, subxid))


def stream_commit(xid: int, lsn: int, end: int) -> bytes:
    return data(b"c" + struct.pack(">IBQQq", xid, 0, lsn, end, lsn * 7))


@contextmanager
def streaming(folder: Path, frontier: int = 0) -> Iterator[Spooled]:
    with Spooled(folder, frontier) as spooled:
        spooled.finder = PostgresTransactionFinder(streaming=True)
        spooled.intake = Intake(spooled.writer, RecentTransactions.of(folder, OTHERS))
        yield spooled


# What the server sends of three transactions that overlap: 7 commits, 8 is rolled back, 9 commits later.
OVERLAPPING = [
    keepalive(90),
    start(7, first=True),
    layout_within(7, "t"),
    within(7),
    within(71, 2),
    stop(),
    *whole(100, 110, 1, 2),
    start(8, first=True),
    within(8),
    stop(),
    start(7, first=False),
    within(72, 3),
    stop(),
    abort(7, 71),
    start(9, first=True),
    layout_within(91, "renamed"),
    within(91),
    stop(),
    stream_commit(7, 200, 210),
    abort(8, 8),
    abort(55, 55),
    *whole(210, 220, 2, 1),
    abort(9, 91),
    start(9, first=False),
    within(9),
    stop(),
    stream_commit(9, 300, 310),
    keepalive(400),
]


@settings(max_examples=60)
@given(st.lists(st.integers(0, len(OVERLAPPING)), max_size=8).map(sorted))
def test_streamed_transactions_stand_in_the_order_of_their_commits(cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name, streaming(Path(name) / "spool") as spooled:
        for first, last in zip([0, *cuts], [*cuts, len(OVERLAPPING)], strict=True):
            if first < last:
                spooled.take(*OVERLAPPING[first:last])
        reader = SpoolReader(spooled.folder)
        found = reader.transactions(0)
        assert found[["time", "end", "transaction", "changes", "kind"]].tolist() == [
            (100, 110, 1, 2, Kind.TRANSACTION),
            (200, 210, 7, 2, Kind.STREAMED),
            (210, 220, 2, 1, Kind.TRANSACTION),
            (300, 310, 9, 1, Kind.STREAMED),
        ]
        for record, expected in zip(
            found[found["kind"] == Kind.TRANSACTION],
            (whole(100, 110, 1, 2), whole(210, 220, 2, 1)),
            strict=True,
        ):
            assert reader.read(int(record["start"]), int(record["stop"])).tobytes() == b"".join(expected)
        contents = {7: [2, 3, 4, 14], 9: [18, 19, 29]}
        for record in found[found["kind"] == Kind.STREAMED]:
            own = own_files(record)
            stored = reader.read_streamed(own, 0, int(record["length"])).tobytes()
            assert stored == b"".join(OVERLAPPING[i] for i in contents[own.number])
        assert [reader.aborted_parts(own_files(r)).tolist() for r in found[found["length"] > 0]] == [
            [71],
            [91],
        ]
        assert reader.running() == {}
        assert len(spooled.intake.running) == 0
        spooled.intake.settle()
        assert spooled.writer.frontier == 400


def test_layouts_of_a_streamed_transaction_hold_for_others_from_its_commit_on(tmp_path: Path) -> None:
    with streaming(tmp_path) as spooled:
        spooled.take(*OVERLAPPING)
        reader = SpoolReader(tmp_path)
        starts = [int(record["start"]) for record in reader.transactions(0)]
        known = [[frame[-20:] for frame in reader.layouts_before(start)] for start in starts]
        # What subtransaction 91 said of the table was rolled back with it.
        assert known == [[], [layout_within(7, "t")[-20:]], *2 * [[layout_within(7, "t")[-20:]]]]


def test_a_keepalive_within_a_block_is_no_frontier(tmp_path: Path) -> None:
    with streaming(tmp_path) as spooled:
        spooled.take(start(7, first=True), within(7), keepalive(900))
        spooled.intake.settle()
        assert spooled.writer.frontier == 0
        spooled.take(within(7), stop())
        spooled.intake.settle()
        assert spooled.writer.frontier == 0
        spooled.take(keepalive(950))
        spooled.intake.settle()
        # The transaction is open, and will commit behind every position that was read so far.
        assert spooled.writer.frontier == 950


def test_what_was_open_is_forgotten_with_its_connection(tmp_path: Path) -> None:
    with streaming(tmp_path) as spooled:
        spooled.take(start(7, first=True), within(7), stop(), *whole(100, 110, 1, 1))
        assert len(SpoolReader(tmp_path).running()) == 1
    with streaming(tmp_path) as again:
        assert SpoolReader(tmp_path).running() == {}
        again.take(start(7, first=True), within(7, 9), stop(), *whole(100, 110, 1, 1))
        again.take(stream_commit(7, 200, 210))
        [record] = SpoolReader(tmp_path).transactions(0)[1:]
        assert record["length"] == len(within(7, 9))


def test_a_streamed_transaction_that_comes_again_is_not_kept_twice(tmp_path: Path) -> None:
    frames = [start(7, first=True), within(7), stop(), stream_commit(7, 200, 210)]
    with streaming(tmp_path) as spooled:
        spooled.take(*frames)
    with streaming(tmp_path) as again:
        before = again.writer.address
        again.take(*frames)
        assert again.writer.address == before
        assert again.times == [200]
        assert len(list(tmp_path.glob("*-7.raw"))) == 1


@pytest.mark.parametrize("streamed_before", [True, False])
def test_what_took_back_all_it_did_may_come_or_not(tmp_path: Path, streamed_before: bool) -> None:
    """Whole it is not sent at all, streamed its commit is: the server chooses; history is the same."""
    empty = [start(7, first=True), within(71), stop(), abort(7, 71), stream_commit(7, 110, 120)]
    around = [whole(100, 110, 1, 1), empty, whole(120, 130, 2, 1)]
    with streaming(tmp_path) as spooled:
        take_each(spooled, around if streamed_before else [around[0], around[2]])
    with streaming(tmp_path) as again:
        take_each(again, [around[0], around[2]] if streamed_before else around)
        again.take(*whole(130, 140, 3, 1))
        assert again.times == [100, *([110] if streamed_before else []), 120, 130]


@pytest.mark.parametrize(
    "frames",
    [
        [start(7, first=False), within(7)],
        [start(7, first=True), within(7), stop(), start(7, first=True)],
        [stream_commit(7, 200, 210)],
        [begin(100, 1), start(7, first=True), stop()],
        [start(7, first=True), stop(), stream_commit(7, 200, 210), *whole(150, 160, 2, 1)],
    ],
)
def test_a_disordered_stream_of_running_transactions_is_refused(tmp_path: Path, frames: list[bytes]) -> None:
    with streaming(tmp_path) as spooled, pytest.raises(Definite) as caught:
        spooled.take(*frames)
    assert caught.value.code == "PG_STREAM_DISORDERED"


def test_an_unknown_message_within_a_block_is_refused(tmp_path: Path) -> None:
    with streaming(tmp_path) as spooled, pytest.raises(Definite) as caught:
        spooled.take(start(7, first=True), within(7), data(b"?" + struct.pack(">I", 7)), stop())
    assert caught.value.code == "PG_UNKNOWN_MESSAGE"


def test_streaming_that_was_not_asked_for_is_refused(tmp_path: Path) -> None:
    with Spooled(tmp_path) as spooled, pytest.raises(Definite) as caught:
        spooled.take(start(7, first=True), stop())
    assert caught.value.code == "PG_STREAM_DISORDERED"


def test_the_spool_gives_up_a_streamed_transaction_with_its_place(tmp_path: Path) -> None:
    with streaming(tmp_path) as spooled:
        spooled.take(*OVERLAPPING)
        reader = SpoolReader(tmp_path)
        found = reader.transactions(0)
        seven, nine = (own_files(found[i]) for i in (1, 3))
        reader.discard(int(found["stop"][2]))
        assert not reader.has_streamed(seven)
        assert reader.has_streamed(nine)
        with pytest.raises(Transient) as caught:
            reader.read_streamed(seven, 0, 1)
        assert caught.value.code == "SPOOL_DISCARDED"


def test_damage_to_a_streamed_transaction_is_noticed(tmp_path: Path) -> None:
    with streaming(tmp_path) as spooled:
        spooled.take(*OVERLAPPING)
        reader = SpoolReader(tmp_path)
        own = own_files(reader.transactions(0)[1])
        for suffix in ("raw", "end"):
            path = own.path(tmp_path, suffix)
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        for read in (lambda: reader.read_streamed(own, 0, 10), lambda: reader.aborted_parts(own)):
            with pytest.raises(Transient) as caught:
                read()
            assert caught.value.code == "SPOOL_DAMAGED"


def test_a_subtransaction_takes_a_few_bytes_while_its_transaction_runs(tmp_path: Path) -> None:
    """An exception block in a loop makes these: each inserts a row, every other one is rolled back."""
    count = 8_000
    subtransactions = range(1000, 1000 + count)
    with streaming(tmp_path / "spool") as spooled:
        spooled.take(start(7, first=True), within(7), stop())
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for low in range(0, count, 1000):
            some = subtransactions[low : low + 1000]
            spooled.take(start(7, first=False), *map(within, some), stop())
            spooled.take(*(abort(7, each) for each in some if each % 2))
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        spooled.take(stream_commit(7, 200, 210))
        reader = SpoolReader(spooled.folder)
        [record] = reader.transactions(0)
        assert record["changes"] == 1 + count // 2
        assert reader.aborted_parts(own_files(record)).tolist() == [
            each for each in subtransactions if each % 2
        ]
    assert grown < 40 * count, f"{grown / count:.0f} bytes each"
