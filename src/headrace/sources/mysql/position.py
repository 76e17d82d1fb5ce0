"""Positions in a binlog: the transactions that it has brought, those of them that are prepared, and their
times.

    R         the names of all transactions that the stream has brought, with those before its start
    count     MySQL: |R|     MariaDB: the sum of the domains' numbers     it grows with each transaction
    time      8 x count + base + 1; a transaction's own time is 8 x (the count before it + 1) + base

So a position lies right behind its last transaction. Before the next one's time there is room for marks of
tables that are copied anew, even if nothing else happens on the server.

So a time follows from a text. This is sound because a server executes in the order of its binlog: of two sets
that one server has had, the larger one includes the smaller one. Two servers of one history may differ in the
order, but they agree wherever both have the same set.

A *prepared* XA transaction comes under the name of its PREPARE. Its rows count under another name, that of
its end. Until then the text names it, and says from where on the server must send it again:

    MySQL      uuid:1-5:7 open uuid:6            all of 1-7 was brought; the server sends 6 again, as it is
                                                 not in the set that it is asked to go on from
    MariaDB    0-1-5 read 0-1-9 open 0-1-6       all up to 9 was brought; it is sent again from behind 5 on

Without prepared transactions a text is the server's own spelling alone. `count` counts all brought
transactions.

Names do not distinguish one life of a server from another life that assigned the same names again. So a text
from the stream also says where the last transaction stands in the log; on MariaDB, the last one of each
domain:

    uuid:1-5 last uuid:5@1763856000123456@1234@6f2c01aa@binlog.000002
                  its name, its time, its place in the file, whose file, the file

This part does not matter to the order of positions, and a text that a person types has none.

A server that was set back or replaced counts from a smaller number on. The base in `MysqlTimeline` makes
times grow all the same, as for PostgreSQL (`sources.postgres.position`). Nothing here may round a set to its
greatest number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import quote, unquote

from headrace.core.errors import Misconfigured
from headrace.core.position import RECOGNISED, STEP, Position
from headrace.sources.mysql.gtid_set import Gtid, GtidSet
from headrace.sources.mysql.mariadb_position import MariadbGtid, MariadbPosition

FURTHER = 1 << 32  # a base grows by multiples of this
_OPEN, _READ, _LAST = " open ", " read ", RECOGNISED
_ESCAPES = "surrogateescape"  # a file's name may have any bytes
_LOGGED = re.compile(r"([^@\s]*)@(\d+)@(\d+)@([0-9a-f]*)@([^@\s]+)\Z")
_NO_GTIDS, _NOWHERE = GtidSet(), MariadbPosition()


class LoggedTransaction(NamedTuple):
    """The place of a transaction in a file of its server's log; without a name, the log's end back then."""

    gtid: str
    commit_ts: int
    at: int
    server: str  # a digest of its identity: another server has other files
    file: str

    def __str__(self) -> str:
        return f"{self.gtid}@{self.commit_ts}@{self.at}@{self.server}@{quote(self.file, errors=_ESCAPES)}"

    @classmethod
    def parse(cls, text: str) -> LoggedTransaction:
        """Read a text that `str` made."""
        found = _LOGGED.match(text)
        if found is None:
            raise _malformed_error(text)
        gtid, commit_ts, at, server, file = found.groups()
        return cls(gtid, int(commit_ts), int(at), server, unquote(file, errors=_ESCAPES))


@dataclass(frozen=True, slots=True)
class MysqlProgress:
    """The transactions that a MySQL binlog has brought: ended and prepared ones."""

    ended_gtids: GtidSet = _NO_GTIDS
    prepared_gtids: GtidSet = _NO_GTIDS
    last: tuple[LoggedTransaction, ...] = ()

    @classmethod
    def parse(cls, text: str) -> MysqlProgress:
        """Read `SET` or `SET open SET`."""
        brought, last = _split_text(text)
        ended, found, prepared = brought.partition(_OPEN)
        progress = cls(GtidSet.parse(ended), GtidSet.parse(prepared), last)
        if (found and not progress.prepared_gtids.parts) or _overlap(
            progress.ended_gtids, progress.prepared_gtids
        ):
            raise _malformed_error(text)
        return progress

    def __str__(self) -> str:
        opened = f"{_OPEN}{self.prepared_gtids}" if self.prepared_gtids.parts else ""
        return f"{self.ended_gtids}{opened}{_print(self.last)}".lstrip()

    @property
    def resume(self) -> str:
        """The place that the server is asked to go on from."""
        return str(self.ended_gtids)

    @property
    def brought_gtids(self) -> GtidSet:
        """All transactions that came, prepared or ended."""
        return self.ended_gtids | self.prepared_gtids

    @property
    def count(self) -> int:
        return self.ended_gtids.count + self.prepared_gtids.count

    def behind(self, gtid: Gtid, *, is_prepared: bool = False) -> MysqlProgress:
        """The progress behind a further transaction."""
        one = _only(gtid)
        if is_prepared:
            return replace(self, prepared_gtids=self.prepared_gtids | one)
        return replace(self, ended_gtids=self.ended_gtids | one)


@dataclass(frozen=True, slots=True)
class MariadbProgress:
    """The place up to which a MariaDB binlog was read, and the start of its oldest prepared transaction.

    `start` is the place before the oldest prepared transaction; if there is none, it equals `read`.
    """

    read: MariadbPosition = _NOWHERE
    start: MariadbPosition = _NOWHERE
    prepared_gtids: tuple[MariadbGtid, ...] = ()
    last: tuple[LoggedTransaction, ...] = ()

    @classmethod
    def parse(cls, text: str) -> MariadbProgress:
        """Read `POSITION`, or `POSITION read POSITION open GTID,...`."""
        brought, last = _split_text(text)
        whole, found, opened = brought.partition(_OPEN)
        start, also, read = whole.partition(_READ)
        if bool(found) != bool(also):
            raise _malformed_error(text)
        place = MariadbPosition.parse(start)
        if not found:
            return cls(place, place, last=last)
        prepared = tuple(sorted(MariadbGtid.parse(name) for name in opened.split(",")))
        progress = cls(MariadbPosition.parse(read), place, prepared, last)
        fits = all(gtid in progress.read and gtid not in place for gtid in prepared)
        if not place <= progress.read or not fits or len(set(prepared)) != len(prepared):
            raise _malformed_error(text)
        return progress

    def __str__(self) -> str:
        last = _print(self.last)
        if not self.prepared_gtids:
            return f"{self.read}{last}".lstrip()
        return (
            f"{self.start}{_READ}{self.read}{_OPEN}{','.join(map(str, self.prepared_gtids))}{last}".lstrip()
        )

    @property
    def resume(self) -> str:
        """The place that the server is asked to go on from."""
        return str(self.start)

    @property
    def count(self) -> int:
        return self.read.count


BinlogProgress = MysqlProgress | MariadbProgress


def parse(text: str) -> BinlogProgress:
    """Read a text of either kind of server; an empty text, which both have, counts as MySQL's."""
    # A set begins with a server's UUID, a position with two short numbers.
    first = text.strip().split(",")[0]
    mariadb = first.startswith("read ") or ":" not in f" {first}".partition(_LAST)[0]
    return parse_of(text, mariadb=mariadb and bool(_split_text(text.strip())[0].strip()))


def parse_of(text: str, *, mariadb: bool) -> BinlogProgress:
    """Read a text of one kind of server, which may have executed nothing yet."""
    return (MariadbProgress if mariadb else MysqlProgress).parse(text.strip())


def count(text: str) -> int:
    """The count of a text, from which its time follows."""
    return parse(text).count


def holds(text: str, other: str) -> bool:
    """Tell whether a position has brought everything that another one has, within one history."""
    one, another = parse(text), parse(other)
    if isinstance(one, MysqlProgress) and isinstance(another, MysqlProgress):
        return another.brought_gtids <= one.brought_gtids
    if isinstance(one, MariadbProgress) and isinstance(another, MariadbProgress):
        return another.read <= one.read
    return not another.count  # an empty text may be of either kind


@dataclass(frozen=True, slots=True)
class MysqlTimeline:
    """One life of a server's binlog: the base that is added to make times of its counts.

    `unlogged_gtids` are the transactions that counted as executed when the stream began, and never were in
    the log (`session.log_end`).
    """

    base: int = 0
    unlogged_gtids: str = ""

    def time(self, count: int) -> int:
        """The time of the position behind so many transactions."""
        return STEP * count + self.base + 1

    def next_time(self, count: int) -> int:
        """The own time of the transaction that follows so many."""
        return STEP * (count + 1) + self.base

    def position(self, text: str) -> Position:
        """Convert a place in the binlog to our position."""
        return Position(self.time(count(text)), text)

    def behind(self, frontier: Position, start: str) -> MysqlTimeline:
        """The next life, whose binlog is read from `start` on: all its times are later than `frontier`."""
        missing = max(0, frontier.time - self.position(start).time)
        return replace(self, base=self.base + (missing // FURTHER + 1) * FURTHER)


def _split_text(text: str) -> tuple[str, tuple[LoggedTransaction, ...]]:
    """Split a text into its main part and its last transactions."""
    brought, _, last = f" {text}".partition(_LAST)
    return brought, tuple(map(LoggedTransaction.parse, last.split()))


def _print(last: tuple[LoggedTransaction, ...]) -> str:
    return f"{_LAST}{' '.join(map(str, last))}" if last else ""


def _only(gtid: Gtid) -> GtidSet:
    return GtidSet.of({gtid.origin: [(gtid.number, gtid.number + 1)]})


def _overlap(one: GtidSet, other: GtidSet) -> bool:
    return (one | other).count < one.count + other.count


def _malformed_error(text: str) -> Misconfigured:
    return Misconfigured(
        "POSITION_MALFORMED",
        f"{text[:100]!r} is not a position in a binlog",
        hint="write it as the server prints it: a GTID set, or MariaDB's last GTID of each domain",
    )
