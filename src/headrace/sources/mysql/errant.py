"""Errant transactions: a server executed them while it was a replica, before others that the lake holds.

    the lake holds     a1 a2 a3          of server A
    the log of B       a1 a2 b1 a3 b2    b1 is errant: in the lake it would come behind a3
                                         b2 came after B took over, and follows in order

Two transactions that change the same row must come in the order in which B executed them. Names do not show
which of B's own are errant: their places in its log do. So the log is read from the first file with a
transaction that the lake lacks, up to the last one that it holds: on a server that took over in order, a part
of a file.

A replica that applies in parallel may execute transactions of its source in another order, but never two that
change the same row. So a transaction counts as errant only if the server itself, or a server of which the
lake holds nothing, gave it its name; on MariaDB, the server itself, or any server in a domain of which the
lake holds nothing. Within a domain `gtid_strict_mode`, which is required, keeps the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headrace.core.errors import Misconfigured, PositionDoubtful
from headrace.sources.mysql.gtid_set import Gtid, GtidSet, Interval
from headrace.sources.mysql.mariadb_position import MariadbGtid, MariadbPosition
from headrace.sources.mysql.position import MariadbProgress, MysqlProgress
from headrace.sources.mysql.session import log_end
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.identity import MysqlIdentity
from headrace.sources.mysql.session.statements import MysqlConnection, query
from headrace.sources.mysql.stream import history

_NAMED = 20  # transactions in a message
Name = Gtid | MariadbGtid
Place = TypeVar("Place", GtidSet, MariadbPosition)


class ErrantTransactions(Misconfigured, PositionDoubtful):
    """The server executed transactions of its own before others that the lake holds."""

    codes = ("MY_ERRANT_TRANSACTIONS",)


@dataclass(frozen=True, slots=True)
class HeldTransactions:
    """The transactions of a server's log that the lake holds, and where to begin to read it."""

    file: str
    remaining: int  # held ones that end the reading, once they have all come
    is_held: Callable[[Name], bool]
    ends_reading: Callable[[Name], bool]  # one of `remaining`
    is_foreign: Callable[[Name], bool]  # of one that is not held: it may be errant


def refuse_errant(
    session: MysqlConnection,
    address: MysqlAddress,
    identity: MysqlIdentity,
    progress: MysqlProgress | MariadbProgress,
) -> None:
    """Refuse a server with errant transactions in its log, by their names."""
    if isinstance(progress, MariadbProgress):
        held = _held_by_mariadb(session, identity, progress.read)
    else:
        held = _held_by_mysql(session, identity, progress.brought_gtids)
    if not held.remaining:
        return
    found = errant_gtids(held, history.names_from(address, identity, held.file))
    if found:
        raise ErrantTransactions(
            "MY_ERRANT_TRANSACTIONS",
            "the server executed transactions of its own before others that the lake holds",
            detail=f"on {identity.server}: {_show(found)}",
            hint="let the address lead to a server without them; or copy the tables of this one anew: "
            "headrace run --reconcile",
        )


def errant_gtids(lake: HeldTransactions, names: Iterator[Name]) -> list[Name]:
    """Find the foreign transactions that stand before a held one."""
    errant: list[Name] = []
    foreign: list[Name] = []
    remaining = lake.remaining
    for name in names:
        if lake.is_held(name):
            errant += foreign
            foreign = []
            remaining -= lake.ends_reading(name)
            if not remaining:
                break
        elif lake.is_foreign(name):
            foreign.append(name)
    return errant


def _held_by_mysql(session: MysqlConnection, identity: MysqlIdentity, brought: GtidSet) -> HeldTransactions:
    file, before = _start(session, lambda file: log_end.previous_gtids(session, file), brought)
    never_sent = before | log_end.unlogged_gtids(session)
    known = {origin.server for origin, _ in brought.parts} - {identity.server}
    return HeldTransactions(
        file,
        (brought | never_sent).count - never_sent.count,
        lambda name: isinstance(name, Gtid) and name in brought,
        lambda _: True,
        lambda name: isinstance(name, Gtid) and name.origin.server not in known,
    )


def _held_by_mariadb(
    session: MysqlConnection, identity: MysqlIdentity, read: MariadbPosition
) -> HeldTransactions:
    file, before = _start(session, lambda file: log_end.begin_of_file(session, file), read)
    last = {gtid for gtid in read.newest if gtid not in before}
    domains = {gtid.domain for gtid in read.newest}
    return HeldTransactions(
        file,
        len(last),
        lambda name: isinstance(name, MariadbGtid) and name in read,
        lambda name: name in last,
        lambda name: (
            isinstance(name, MariadbGtid)
            and (name.server == identity.server_id or name.domain not in domains)
        ),
    )


def _start(session: MysqlConnection, begin_of: Callable[[str], Place], held: Place) -> tuple[str, Place]:
    """Find the newest file before which the lake holds everything; else the oldest file."""
    files = [str(row[0]) for row in query(session, "SHOW BINARY LOGS")]
    for file in reversed(files[1:]):
        if (before := begin_of(file)) <= held:
            return file, before
    return files[0], begin_of(files[0])


def _show(names: Sequence[Name]) -> str:
    """Print names as the server prints sets of them."""
    gtids = [name for name in names if isinstance(name, Gtid)]
    if gtids:
        spans = {gtid.origin: list[Interval]() for gtid in gtids}
        for gtid in gtids:
            spans[gtid.origin].append((gtid.number, gtid.number + 1))
        return str(GtidSet.of(spans))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ",".join(map(str, names[:_NAMED])) + more
