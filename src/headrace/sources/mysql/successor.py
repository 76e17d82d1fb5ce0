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
from headrace.sources.mysql.binlog_position import MariadbProgress, MysqlProgress, parse_of
from headrace.sources.mysql.gtid_set import GtidSet
from headrace.sources.mysql.mariadb_position import MariadbPosition
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
        return None
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


def _holds(progress: MysqlProgress | MariadbProgress, executed: str, purged: str) -> bool:
    if isinstance(progress, MariadbProgress):
        has = progress.read <= MariadbPosition.parse(executed)
        return has and MariadbPosition.parse(purged) <= progress.start
    has = progress.brought <= GtidSet.parse(executed)
    return has and GtidSet.parse(purged) <= progress.ended
