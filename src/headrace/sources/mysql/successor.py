"""Another server in place of the one that was followed: may it go on from there?

    it has executed all that was received   MySQL by its set, MariaDB in each domain
    it has purged nothing else              later transactions are still in its log
    it executed none of its own before      in the lake they would come too late: see below
    it begins to send them                  MariaDB: transactions that a restored dump brought are executed
                                            there, and in no log

Names decide: a transaction has the same name wherever it is executed. If the server may not go on, a person
must look: the address may be wrong, and then nothing must be copied anew from there. This is checked when an
attempt begins. The stream checks it again, as for any server (`stream.dump`).

A transaction is *errant* if a server executed it while it was a replica, before others that the lake holds.

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

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from headrace.core.errors import Misconfigured, PositionDoubtful
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.sources.contract.mirror import Successor
from headrace.sources.contract.values import Json
from headrace.sources.mysql.gtid_set import Gtid, GtidSet, Interval
from headrace.sources.mysql.mariadb_position import MariadbGtid, MariadbPosition
from headrace.sources.mysql.position import LoggedTransaction, MariadbProgress, MysqlProgress, parse_of
from headrace.sources.mysql.session import log_end
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.identity import MysqlIdentity, another_server
from headrace.sources.mysql.session.statements import MysqlConnection, query
from headrace.sources.mysql.stream import dump, history
from headrace.sources.mysql.upstream import MysqlUpstream


def successor(
    session: MysqlConnection,
    address: MysqlAddress,
    identity: MysqlIdentity,
    record: Json,
    upstream: MysqlUpstream,
    received_until: Position,
) -> Successor | None:
    """The server here, if it is another one than was followed, or has another log; None if it is the same."""
    if identity.lasting_part() == record:
        return _with_another_log(session, record, upstream, received_until)
    if identity.flavour != record["flavour"]:
        raise another_server(f"{identity.flavour}, was {record['flavour']}")
    progress = parse_of(received_until.text, mariadb=session.release.is_mariadb)
    executed, purged = log_end.executed_gtids(session), log_end.purged_gtids(session)
    if not _holds(progress, executed, purged):
        raise another_server(
            f"{identity.server} has executed {executed or 'nothing'} and purged {purged or 'nothing'}; "
            f"of {record['server']} was read up to {progress.resume}{_missing(session, progress, executed)}"
        )
    refuse_errant(session, address, identity, progress)
    if isinstance(progress, MariadbProgress) and (
        reason := dump.refused_error(address, identity, received_until)
    ):
        raise another_server(
            f"{identity.server} does not send what follows: {reason.detail or reason.primary}"
        )
    unlogged = str(log_end.unlogged_gtids(session))
    return Successor(identity.lasting_part(), to_record(replace(upstream, unlogged_gtids=unlogged)))


def _with_another_log(
    session: MysqlConnection, known: Json, upstream: MysqlUpstream, reached: Position
) -> Successor | None:
    """Accept the same server if its log begins anew behind everything that the lake holds, or forgot a
    domain.

    MySQL    The log has another basename. The transactions of the old files are executed, and in no log any
             more; the lake has exactly these.
    MariaDB  FLUSH BINARY LOGS DELETE_DOMAIN_ID removed a domain. In the log, a transaction of another domain
    that
             the lake holds stood behind the last one of the removed domain; the stream checks that it still
             stands there (`stream.history`). And that was the domain's last one: the server removes no domain
             that is in a file. So nothing of it came later if the other's file still exists, or if the oldest
             file begins behind it.
    """
    progress = parse_of(reached.text, mariadb=session.release.is_mariadb)
    if isinstance(progress, MariadbProgress):
        at = MariadbPosition.parse(log_end.executed_gtids(session))
        begin, files = MariadbPosition(), set[str]()
        if not all(at.last(gtid.domain) for gtid in progress.read.newest):
            begin = MariadbPosition.parse(log_end.purged_gtids(session))
            files = {str(row[0]) for row in query(session, "SHOW BINARY LOGS")}
        gone = forgotten_gtids(progress, at, begin, files)
        unlogged = None if gone is None or progress.prepared_gtids else str(MariadbPosition.of(gone))
    else:
        found = log_end.unlogged_gtids(session)
        unlogged = str(found) if found == progress.ended_gtids and not progress.prepared_gtids.parts else None
    if unlogged is None or unlogged == upstream.unlogged_gtids:
        return None
    return Successor(known, to_record(replace(upstream, unlogged_gtids=unlogged)))


def forgotten_gtids(
    progress: MariadbProgress, at: MariadbPosition, begin: MariadbPosition, files: Container[str]
) -> list[MariadbGtid] | None:
    """Find the last transactions of the domains that the log does not have any more; None if not proven.

    `begin` is the place behind which the oldest of the log's `files` begins.
    """
    gone = {str(gtid): gtid for gtid in progress.read.newest if at.last(gtid.domain) is None}
    there = [place for place in progress.last if place.gtid and place.gtid not in gone]
    for place in progress.last:
        if place.gtid not in gone:
            continue
        behind = [other for other in there if _is_behind(other, place)]
        is_last = gone[place.gtid] in begin.newest or any(other.file in files for other in behind)
        if not (behind and is_last):
            return None
    known = {place.gtid for place in progress.last}
    return list(gone.values()) if gone.keys() <= known else None


def _is_behind(one: LoggedTransaction, other: LoggedTransaction) -> bool:
    """Tell whether a transaction stands behind another one in the same server's log."""
    (name, number), (base, least) = (place.file.rpartition(".")[::2] for place in (one, other))
    if (one.server, name) != (other.server, base) or not (number.isdigit() and least.isdigit()):
        return False
    return (int(number), one.at) > (int(least), other.at)


def _missing(session: MysqlConnection, progress: MysqlProgress | MariadbProgress, executed: str) -> str:
    """Name the transactions that the lake holds and the server never executed."""
    if isinstance(progress, MariadbProgress):
        return ""  # the positions show it
    [(missing,)] = query(session, "SELECT GTID_SUBTRACT(%s, %s)", [str(progress.brought_gtids), executed])
    return f"; it lacks {missing!s}" if missing else ""


def _holds(progress: MysqlProgress | MariadbProgress, executed: str, purged: str) -> bool:
    if isinstance(progress, MariadbProgress):
        has = progress.read <= MariadbPosition.parse(executed)
        return has and MariadbPosition.parse(purged) <= progress.start
    has = progress.brought_gtids <= GtidSet.parse(executed)
    return has and GtidSet.parse(purged) <= progress.ended_gtids


# --- errant transactions --------------------------------------------------------------------------


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
