"""A binlog that is altered or cut on its way: coded, nothing of it is kept, and the stream goes on exactly.

log      40 small transactions, one of 100 statements among them     one of 1.2 MB, one of 17 MB
         ─────────────────────────────────────────────────────       ───────────────────────────
faults   a bit, an unknown event, an end at a byte                   ends at a byte
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from headrace.core.errors import HeadraceError, Misconfigured, PositionDoubtful, Transient
from headrace.sources.contract.stream import Orders
from headrace.sources.mysql.stream import dump, events
from headrace.sources.mysql.stream.ordinary import ReadPackets
from headrace.sources.mysql.stream.transactions import MysqlTransactionFinder
from headrace.sources.mysql.upstream import MysqlUpstream
from headrace.spool.reader import SpoolReader
from headrace_testing.mysql import Database
from headrace_testing.mysql.event_faults import LONGEST, PACKET_HEADER, altered, flipped, of_kind
from headrace_testing.postmaster import wait_for
from headrace_testing.proxy import Altering, Proxy
from tests.integration.mysql.mirrors.judging import kinds
from tests.integration.mysql.stream.reading import plain, position
from tests.integration.mysql.stream.test_dump import run
from tests.integration.mysql.stream.test_received import orders_of, receiving

pytestmark = pytest.mark.server

SMALL = 20  # transactions before the one of many statements, and behind it
STATEMENTS = 100
NEVER = 1 << 40  # as many packets at once: the kernel has no go
Spooled = list[tuple[int, int, int, bytes]]  # time, time of the commit, changes and bytes of each transaction


@pytest.fixture(params=["mysql", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found


@dataclass
class Line:
    """A receiver's way to the server."""

    proxy: Proxy
    orders: Orders
    end: int  # the time up to which there is a log
    taken: list[int] = field(default_factory=list)  # packets, each time that the kernel had a go
    size: int = 0  # bytes that are waited for before they are read

    def receive(self, folder: Path) -> HeadraceError | None:
        """A session that goes up to where the server is, or to an error."""
        folder.mkdir(exist_ok=True)
        begun = self.proxy.counts.bytes_to_client
        with receiving(folder, self.orders) as (writer, intake, stream):
            wait_for(lambda: self.proxy.counts.bytes_to_client >= begun + self.size, "all is here")
            try:
                while writer.frontier < self.end:
                    came = stream.read(1.0)
                    if came is not None:
                        intake.take(came)
                        intake.settle()
            except HeadraceError as error:
                return error
        return None

    def whole(self, folder: Path) -> Spooled:
        """The spool of a session that nothing befell."""
        assert self.receive(folder) is None
        return spooled(folder)

    def goes_on(self, folder: Path, altering: Altering, expected: Spooled, before: int) -> HeadraceError:
        """A session that is altered ends behind so many transactions; the next one, healed, has them all."""
        self.proxy.alter(altering)
        error = self.receive(folder)
        assert error is not None
        assert error.hint
        assert spooled(folder) == expected[:before]
        self.proxy.heal()
        assert replace(self, size=0).whole(folder) == expected
        return error


def spooled(folder: Path) -> Spooled:
    """The transactions of a spool, each with its bytes."""
    reader = SpoolReader(folder)
    found = reader.transactions(0)
    return [
        (*each.tolist(), reader.read(int(start), int(stop)).tobytes())
        for each, start, stop in zip(
            found[["time", "commit_ts", "changes"]], found["start"], found["stop"], strict=True
        )
        if each["changes"]
    ]


@contextmanager
def line_of(database: Database, monkeypatch: pytest.MonkeyPatch, write: Callable[[], None]) -> Iterator[Line]:
    """A line to a server, whose log has what is written here."""
    server = database.server
    run(database, "CREATE TABLE t (id int PRIMARY KEY, v longtext)")
    orders = orders_of(database)
    write()
    end = MysqlUpstream.of(orders.upstream).log.position(position(server)).time
    with Proxy(server.host, server.port) as proxy:
        line = Line(proxy, replace(orders, address=plain(server, proxy.port)), end)
        take = MysqlTransactionFinder.take_many

        def counted(finder: MysqlTransactionFinder, packets: ReadPackets, most: int) -> tuple[int, int]:
            behind, alone = take(finder, packets, most)
            line.taken.append(behind - packets.first)
            return behind, alone

        monkeypatch.setattr(MysqlTransactionFinder, "take_many", counted)
        yield line


@dataclass(frozen=True)
class Kinds:
    """The numbers of events of one kind of server."""

    name: int
    rows: int

    @classmethod
    def of(cls, database: Database) -> Kinds:
        mariadb = database.server.flavour.is_mariadb
        return cls(events.MARIADB_GTID, 23) if mariadb else cls(events.GTID, 30)


def write_small(database: Database) -> None:
    small = [f"INSERT INTO t VALUES ({number}, 'abc')" for number in range(2 * SMALL)]
    many = [f"INSERT INTO t VALUES ({1000 + number}, 'abc')" for number in range(STATEMENTS)]
    run(database, *small[:SMALL], "BEGIN", *many, "COMMIT", *small[SMALL:])


def before(kind: int, number: int) -> int:
    """Count the transactions that end before an event, of those with this number of its kind."""
    if kind in (events.ROTATE, events.FORMAT):
        return 0
    if kind in (events.GTID, events.MARIADB_GTID, events.XID):
        return number - 1
    return number - 1 if number <= SMALL else max(SMALL, number - STATEMENTS)


def damages(kinds: Kinds) -> Iterator[tuple[int, int, int]]:
    """Kind and number of an event, and the byte of it that is damaged.

    The first transaction teaches the kernel which table is meant, so its first batch begins with the second.
    """
    yield from ((events.ROTATE, 1, 30), (events.FORMAT, 1, -5))  # the file's name, and that it has checksums
    yield from ((kinds.name, 2, 25), (kinds.rows, SMALL // 2, 30), (events.XID, 2 * SMALL + 1, -1))
    for number in (SMALL + 1, SMALL + STATEMENTS // 2, SMALL + STATEMENTS):
        yield events.TABLE_MAP, number, 4


def all_damages(kinds: Kinds) -> Iterator[tuple[int, int, int]]:
    for number in (1, 2, SMALL, SMALL + 1, SMALL + 2, 2 * SMALL + 1):
        yield from ((kinds.name, number, at) for at in (4, 13, 25))
        yield from ((events.XID, number, at) for at in (0, 17, -1))
    for number in (1, 2, SMALL, SMALL + 1, SMALL + 50, SMALL + STATEMENTS, 2 * SMALL + STATEMENTS):
        yield from ((kind, number, 30) for kind in (events.TABLE_MAP, kinds.rows))


@pytest.mark.parametrize("many", [dump.MANY, NEVER], ids=["kernel", "plain"])
@pytest.mark.parametrize("cases", [damages, pytest.param(all_damages, marks=pytest.mark.full)])
def test_a_damaged_event_is_not_kept_and_what_came_before_it_is(
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cases: Callable[[Kinds], Iterator[tuple[int, int, int]]],
    many: int,
) -> None:
    monkeypatch.setattr(dump, "MANY", many)
    with line_of(database, monkeypatch, lambda: write_small(database)) as line:
        expected = line.whole(tmp_path / "whole")
        assert [changes for _, _, changes, _ in expected] == [1] * SMALL + [STATEMENTS] + [1] * SMALL
        line.size = line.proxy.counts.bytes_to_client * 9 // 10
        for case, (kind, number, at) in enumerate(cases(Kinds.of(database))):
            line.taken.clear()
            damaged = altered(kind, number, flipped(at, case % 8))
            error = line.goes_on(tmp_path / str(case), damaged, expected, before(kind, number))
            assert (error.code, type(error).__bases__) == ("MY_EVENT_DAMAGED", (Transient, PositionDoubtful))
            assert (max(line.taken, default=0) > SMALL) is (many != NEVER)


@pytest.mark.parametrize("many", [dump.MANY, NEVER], ids=["kernel", "plain"])
def test_an_unknown_event_stops_the_stream_unless_it_may_be_passed_over(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(dump, "MANY", many)

    def with_unknown(event: bytes, *, ignorable: bool = False) -> Sequence[bytes]:
        return [of_kind(event, 200, ignorable=ignorable), event]

    with line_of(database, monkeypatch, lambda: write_small(database)) as line:
        expected = line.whole(tmp_path / "whole")
        for number in (2, 2 * SMALL + 1):
            unknown = altered(events.XID, number, with_unknown)
            error = line.goes_on(tmp_path / f"unknown-{number}", unknown, expected, number - 1)
            assert (error.code, isinstance(error, Misconfigured)) == ("MY_EVENT_UNKNOWN", True)
            assert error.detail == "kind 200"
            line.proxy.alter(altered(events.XID, number, lambda event: with_unknown(event, ignorable=True)))
            assert line.whole(tmp_path / f"passed-{number}") == expected
            line.proxy.heal()


def ends_within(sizes: Sequence[int]) -> Iterator[int]:
    """Bytes of an event's packets at which a connection ends: in each header, behind it, amid each piece."""
    at = 0
    for size in sizes:
        yield from (at + 2, at + PACKET_HEADER, at + PACKET_HEADER + size // 2)
        at += PACKET_HEADER + size


def test_a_connection_that_ends_within_an_event_goes_on_exactly(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = Kinds.of(database)
    with line_of(database, monkeypatch, lambda: write_small(database)) as line:
        expected = line.whole(tmp_path / "whole")
        for kind, number in ((kinds.name, SMALL), (kinds.rows, SMALL + 50), (events.XID, 2 * SMALL + 1)):
            for ends in (0, *ends_within([30])):
                cut = altered(kind, number, ends=ends)
                folder = tmp_path / f"{kind}-{number}-{ends}"
                error = line.goes_on(folder, cut, expected, before(kind, number))
                assert (error.code, isinstance(error, Transient)) == ("MY_CONNECTION_LOST", True)


@kinds("mysql")
def test_a_connection_that_ends_within_a_large_transaction_goes_on_exactly(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first part is in the spool by then; and one of its events comes in two packets."""
    run(database, "SET GLOBAL max_allowed_packet = 268435456")

    def write() -> None:
        values = [("a", 10), ("b", 600_000), ("c", 600_000), ("d", 10), ("e", LONGEST + 1_000_000), ("f", 10)]
        rows = [f"INSERT INTO t VALUES ({at}, REPEAT('{v}', {n}))" for at, (v, n) in enumerate(values)]
        run(database, rows[0], "BEGIN", *rows[1:4], "COMMIT", *rows[4:])

    kind = Kinds.of(database).rows
    with line_of(database, monkeypatch, write) as line:
        expected = line.whole(tmp_path / "whole")
        assert [changes for _, _, changes, _ in expected] == [1, 3, 1, 1]
        for number, ends in ((3, 300_000), (4, 10), *((5, at) for at in ends_within([LONGEST, 1_000_000]))):
            cut = altered(kind, number, ends=ends)
            error = line.goes_on(tmp_path / f"{number}-{ends}", cut, expected, 1 + (number == 5))
            assert error.code == "MY_CONNECTION_LOST"
        damaged = altered(kind, 5, flipped(LONGEST + 7))
        assert line.goes_on(tmp_path / "damaged", damaged, expected, 2).code == "MY_EVENT_DAMAGED"
