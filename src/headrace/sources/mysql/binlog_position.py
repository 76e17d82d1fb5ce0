"""Positions in a binlog: which transactions it has brought, which of those are prepared, and their times.

    R         the names of all transactions that the stream has brought, where it began included
    count     MySQL: |R|     MariaDB: the sum of the domains' numbers     it grows with each transaction
    time      8 x count + base; a transaction's own time is the one of the position right before it

So a time follows from a text. It is sound because a server executes in the order of its binlog: of two sets
that one server has had, the larger one holds the smaller one. Two servers of one history may differ in the
order, and then agree wherever both have the same set.

A *prepared* XA transaction is brought by the name of its PREPARE, and its rows count at another name, that of
its end. Until then its text says so, and from where on the server has to send it again:

    MySQL      uuid:1-5:7 open uuid:6            all of 1-7 was brought; the server sends 6 again, as it is
                                                 not in the set that it is asked to go on from
    MariaDB    0-1-5 read 0-1-9 open 0-1-6       all up to 9 was brought; it is sent again from behind 5 on

Without prepared transactions a text is the server's own spelling alone. `count` is of all that was brought.

A server that was set back, or replaced by another, counts from a smaller number on: `Log` holds the base that
lets times grow on, as PostgreSQL's does (`sources.postgres.lsn`). Nothing here may round a set to its
greatest number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.core.errors import Misconfigured
from headrace.core.position import STEP, Position
from headrace.sources.mysql.gtid_set import Gtid, GtidSet, Origin
from headrace.sources.mysql.mariadb_position import MariadbGtid, MariadbPosition

FURTHER = 1 << 32  # by multiples of this a base grows
_OPEN, _READ = " open ", " read "
_NO_GTIDS, _NOWHERE = GtidSet(), MariadbPosition()


@dataclass(frozen=True, slots=True)
class MysqlProgress:
    """The transactions that a MySQL binlog has brought: those that ended, and those that are prepared."""

    ended: GtidSet = _NO_GTIDS
    prepared: GtidSet = _NO_GTIDS

    @classmethod
    def parse(cls, text: str) -> MysqlProgress:
        """Read `SET` or `SET open SET`."""
        ended, found, prepared = f" {text}".partition(_OPEN)
        progress = cls(GtidSet.parse(ended), GtidSet.parse(prepared))
        if (found and not progress.prepared.parts) or _overlap(progress.ended, progress.prepared):
            raise _malformed(text)
        return progress

    def __str__(self) -> str:
        return f"{self.ended}{_OPEN}{self.prepared}".lstrip() if self.prepared.parts else str(self.ended)

    @property
    def resume(self) -> str:
        """The place that the server is asked to go on from."""
        return str(self.ended)

    @property
    def brought(self) -> GtidSet:
        """All that came, prepared or ended."""
        return self.ended | self.prepared

    @property
    def count(self) -> int:
        return self.ended.count + self.prepared.count

    def behind(self, gtid: Gtid, *, prepared: bool = False) -> MysqlProgress:
        """The progress behind a further transaction."""
        one = _only(gtid)
        if prepared:
            return replace(self, prepared=self.prepared | one)
        return replace(self, ended=self.ended | one)

    def without_open(self, gtid: Gtid) -> MysqlProgress:
        """The same where a prepared transaction, by the name of its PREPARE, has ended."""
        kept = {
            origin: [piece for span in spans for piece in _cut(span, gtid, origin)]
            for origin, spans in self.prepared.parts
        }
        return MysqlProgress(self.ended | _only(gtid), GtidSet.of(kept))


@dataclass(frozen=True, slots=True)
class MariadbProgress:
    """The place up to which a MariaDB binlog was read, and where its oldest prepared transaction begins.

    `start` is the place before the oldest of `prepared`; without any it is `read`.
    """

    read: MariadbPosition = _NOWHERE
    start: MariadbPosition = _NOWHERE
    prepared: tuple[MariadbGtid, ...] = ()

    @classmethod
    def parse(cls, text: str) -> MariadbProgress:
        """Read `POSITION`, or `POSITION read POSITION open GTID,...`."""
        whole, found, opened = f" {text}".partition(_OPEN)
        start, also, read = whole.partition(_READ)
        if bool(found) != bool(also):
            raise _malformed(text)
        place = MariadbPosition.parse(start)
        if not found:
            return cls(place, place)
        prepared = tuple(sorted(MariadbGtid.parse(name) for name in opened.split(",")))
        progress = cls(MariadbPosition.parse(read), place, prepared)
        fits = all(gtid in progress.read and gtid not in place for gtid in prepared)
        if not place <= progress.read or not fits or len(set(prepared)) != len(prepared):
            raise _malformed(text)
        return progress

    def __str__(self) -> str:
        if not self.prepared:
            return str(self.read)
        return f"{self.start}{_READ}{self.read}{_OPEN}{','.join(map(str, self.prepared))}".lstrip()

    @property
    def resume(self) -> str:
        """The place that the server is asked to go on from."""
        return str(self.start)

    @property
    def count(self) -> int:
        return self.read.count


BinlogProgress = MysqlProgress | MariadbProgress


def parse(text: str) -> BinlogProgress:
    """Read a text of either kind; of an empty one, which is of both, as MySQL's."""
    # The first part of a set begins with a server's UUID, that of a position with two short numbers.
    first = text.strip().split(",")[0]
    if first.startswith("read ") or (first and ":" not in first):
        return MariadbProgress.parse(text.strip())
    return MysqlProgress.parse(text.strip())


def count(text: str) -> int:
    """Count the transactions that a text stands for, as times count them."""
    return parse(text).count


def holds(text: str, other: str) -> bool:
    """Tell whether one position has brought all that the other one has, of one history."""
    one, another = parse(text), parse(other)
    if isinstance(one, MysqlProgress) and isinstance(another, MysqlProgress):
        return another.brought <= one.brought
    if isinstance(one, MariadbProgress) and isinstance(another, MariadbProgress):
        return another.read <= one.read
    return not another.count  # of an empty text nobody can tell which kind it is


@dataclass(frozen=True, slots=True)
class Log:
    """One life of a server's binlog: what is added to its counts to make times of them.

    `unlogged` are the transactions that count as executed there and never were in it: those that did when the
    stream began (`session.log_end`).
    """

    base: int = 0
    unlogged: str = ""

    def time(self, counted: int) -> int:
        return STEP * counted + self.base

    def position(self, text: str) -> Position:
        """A place in the binlog as one of our positions."""
        return Position(self.time(count(text)), text)

    def behind(self, reached: Position, start: str) -> Log:
        """The next life, whose binlog is read from `start` on: its times lie behind all that was reached."""
        missing = max(0, reached.time - self.position(start).time)
        return replace(self, base=self.base + (missing // FURTHER + 1) * FURTHER)


def _only(gtid: Gtid) -> GtidSet:
    return GtidSet.of({gtid.origin: [(gtid.number, gtid.number + 1)]})


def _overlap(one: GtidSet, other: GtidSet) -> bool:
    return (one | other).count < one.count + other.count


def _cut(span: tuple[int, int], gtid: Gtid, origin: Origin) -> list[tuple[int, int]]:
    """The interval of an origin without a transaction; what is empty of it means nothing."""
    start, stop = span
    if gtid.origin != origin:
        return [span]
    return [(start, min(stop, gtid.number)), (max(start, gtid.number + 1), stop)]


def _malformed(text: str) -> Misconfigured:
    return Misconfigured(
        "POSITION_MALFORMED",
        f"{text[:100]!r} is not a position in a binlog",
        hint="write it as the server prints it: a GTID set, or MariaDB's last GTID of each domain",
    )
