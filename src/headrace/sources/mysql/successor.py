"""Another server in the place of the one that was followed: may it go on where that was left?

    it has executed all that was reached    MySQL by its set, MariaDB in each domain
    and purged nothing else                 what follows is still in its log
    and begins to send it                   MariaDB: what a dump brought there is executed, and in no log

By names: a name is of the transaction wherever it is executed. Where it may not, a person has to look:
the address may be wrong, and then nothing shall be copied anew from there. Called where an attempt begins.
The stream asks the same of it again, as of any server (`stream.dump`).
"""

from __future__ import annotations

from dataclasses import replace

from headrace.core.position import Position
from headrace.sources.contract.record import Json
from headrace.sources.contract.session import Successor
from headrace.sources.mysql.binlog_position import Logged, MariadbProgress, MysqlProgress, parse_of
from headrace.sources.mysql.gtid_set import GtidSet
from headrace.sources.mysql.mariadb_position import MariadbGtid, MariadbPosition
from headrace.sources.mysql.session import log_end
from headrace.sources.mysql.session.address import Address
from headrace.sources.mysql.session.identity import Identity, another_server
from headrace.sources.mysql.session.statements import Session
from headrace.sources.mysql.stream import dump
from headrace.sources.mysql.upstream import Upstream


def successor(
    session: Session, address: Address, identity: Identity, known: Json, upstream: Upstream, reached: Position
) -> Successor | None:
    """The server here, where it is another one than was followed; None where it is the same."""
    if identity.known() == known:
        return _with_another_log(session, known, upstream, reached)
    if identity.flavour != known["flavour"]:
        raise another_server(f"{identity.flavour}, was {known['flavour']}")
    progress = parse_of(reached.text, mariadb=session.release.is_mariadb)
    executed, purged = log_end.executed(session), log_end.purged(session)
    if not _holds(progress, executed, purged):
        raise another_server(
            f"{identity.server} has executed {executed or 'nothing'} and purged {purged or 'nothing'}; "
            f"of {known['server']} was read up to {progress.resume}"
        )
    if isinstance(progress, MariadbProgress) and (reason := dump.refused(address, identity, reached)):
        raise another_server(
            f"{identity.server} does not send what follows: {reason.detail or reason.primary}"
        )
    unlogged = str(log_end.unlogged(session))
    return Successor(identity.known(), replace(upstream, unlogged=unlogged).as_record())


def _with_another_log(
    session: Session, known: Json, upstream: Upstream, reached: Position
) -> Successor | None:
    """The same server whose log begins anew behind all that the lake holds, or forgot a domain of it.

    MySQL    under another basename. What was in the old files is executed, and in no log any more; the lake
             has all of it, and no more than that.
    MariaDB  by FLUSH BINARY LOGS DELETE_DOMAIN_ID. In the log one of another domain that the lake holds stood
             behind that domain's last transaction; the stream sees that it still does (`stream.history`).
    """
    progress = parse_of(reached.text, mariadb=session.release.is_mariadb)
    if isinstance(progress, MariadbProgress):
        gone = forgotten(progress, MariadbPosition.parse(log_end.executed(session)))
        unlogged = None if gone is None or progress.prepared else str(MariadbPosition.of(gone))
    else:
        found = log_end.unlogged(session)
        unlogged = str(found) if found == progress.ended and not progress.prepared.parts else None
    if unlogged is None or unlogged == upstream.unlogged:
        return None
    return Successor(known, replace(upstream, unlogged=unlogged).as_record())


def forgotten(progress: MariadbProgress, at: MariadbPosition) -> list[MariadbGtid] | None:
    """The last transactions of the domains that the log has no more; None where nothing proves them."""
    gone = {str(gtid): gtid for gtid in progress.read.newest if at.last(gtid.domain) is None}
    there = [place for place in progress.last if place.gtid and place.gtid not in gone]
    for place in progress.last:
        if place.gtid in gone and not any(_is_behind(other, place) for other in there):
            return None
    known = {place.gtid for place in progress.last}
    return list(gone.values()) if gone.keys() <= known else None


def _is_behind(one: Logged, other: Logged) -> bool:
    """Tell whether a transaction stands behind another one in the log of one server."""
    (name, number), (base, least) = (place.file.rpartition(".")[::2] for place in (one, other))
    if (one.server, name) != (other.server, base) or not (number.isdigit() and least.isdigit()):
        return False
    return (int(number), one.at) > (int(least), other.at)


def _holds(progress: MysqlProgress | MariadbProgress, executed: str, purged: str) -> bool:
    if isinstance(progress, MariadbProgress):
        has = progress.read <= MariadbPosition.parse(executed)
        return has and MariadbPosition.parse(purged) <= progress.start
    has = progress.brought <= GtidSet.parse(executed)
    return has and GtidSet.parse(purged) <= progress.ended
