"""Identity: the proof that two connections reached the same server.

A MySQL server has a `server_uuid`, made when its data folder is first used without one. MariaDB has none:
there `server_id`, host and `gtid_domain_id` stand for it, and `server_uid`, a digest of the machine and the
port, where its release has that.

    the record   all that is known, for connections made at the same time as this one: a name that leads to
                 two servers, or a copy of the data folder started beside the first, shows in host and port
    known        what lasts over restarts: by it the lake knows the source again

Neither tells a server from one whose data folder was put back to an earlier state. That shows in its log: the
transactions that it has executed no longer hold all that we have (the stream looks, at each connect).
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.errors import Misconfigured, PositionDoubtful
from headrace.core.records import from_record
from headrace.sources.contract.values import Json
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.session.statements import MysqlConnection, query


@dataclass(frozen=True, slots=True)
class MysqlIdentity:
    """The marks by which two connections are known to reach the same server."""

    flavour: str
    server: str  # MySQL's uuid; of MariaDB its id, domain, host and, where it has one, uid
    server_id: int
    host: str
    port: int
    folder: str
    version: str

    def lasting_part(self) -> Json:
        """The part that lasts: by it the lake knows the source again."""
        return {"flavour": self.flavour, "server": self.server}


class AnotherMysqlServer(Misconfigured, PositionDoubtful):
    """The address leads elsewhere."""

    codes = ("MY_ANOTHER_SERVER",)


_COMMON = "@@global.server_id, @@global.hostname, @@global.port, @@global.datadir"


def identify(session: MysqlConnection) -> MysqlIdentity:
    """Ask which server this connection reached."""
    release = session.release
    own = "@@global.gtid_domain_id" if release.is_mariadb else "@@global.server_uuid"
    [(server_id, host, port, folder, mark)] = query(session, f"SELECT {_COMMON}, {own}")
    server = str(mark)
    if release.is_mariadb:
        server = f"{_integer(server_id)}-{_integer(mark)}@{host!s}{_uid(session)}"
    return MysqlIdentity(
        flavour=release.flavour.value,
        server=server,
        server_id=_integer(server_id),
        host=str(host),
        port=_integer(port),
        folder=str(folder),
        version=str(release.number),
    )


def _uid(session: MysqlConnection) -> str:
    """MariaDB's digest of its machine and port, where it has one."""
    [*found] = query(session, "SHOW GLOBAL VARIABLES LIKE 'server_uid'")
    return f" {found[0][1]!s}" if found else ""


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError("no number")
    return value


def verify(actual: MysqlIdentity, expected_identity: MysqlIdentity) -> None:
    """Refuse a connection that did not reach the server that `expected` describes."""
    same = actual.lasting_part() == expected_identity.lasting_part() and (
        actual.server_id,
        actual.host,
        actual.port,
        actual.folder,
    ) == (
        expected_identity.server_id,
        expected_identity.host,
        expected_identity.port,
        expected_identity.folder,
    )
    if not same:
        raise another_server(f"{_show(actual)}, was {_show(expected_identity)}")


def prove(actual: MysqlIdentity, record: Json) -> None:
    """Refuse a server that is not the one of a record: an identity, or what lasts of it."""
    if "folder" in record:
        verify(actual, from_record(MysqlIdentity, record))
    elif actual.lasting_part() != {name: record.get(name) for name in ("flavour", "server")}:
        raise another_server(f"{_show(actual)}, was {Flavour(record['flavour']).label} {record['server']}")


def prove_kind(actual: MysqlIdentity, flavour: Flavour) -> None:
    """Refuse a server of the other kind: a lake's positions are of the kind that its address names."""
    if actual.flavour != flavour.value:
        there = Flavour(actual.flavour)
        raise Misconfigured(
            "MY_ANOTHER_KIND",
            f"the address says {flavour.label}, and a {there.label} server answers",
            hint=f"write {there.value}://... instead of {flavour.value}://...",
        )


def _show(identity: MysqlIdentity) -> str:
    label = Flavour(identity.flavour).label
    return f"{label} {identity.server} on {identity.host}:{identity.port} in {identity.folder}"


def another_server(detail: str) -> AnotherMysqlServer:
    return AnotherMysqlServer(
        "MY_ANOTHER_SERVER",
        "the address leads to another server than the mirror is of",
        detail=detail,
        hint="correct the address; a server that has all that was read, and what follows, is gone on with by "
        "headrace run; if it was replaced by another one: headrace run --reconcile",
    )
