"""Identity: the proof that two connections reached the same server.

A MySQL server has a `server_uuid`, made when its data folder is first used without one. MariaDB has none.
There `server_id`, host and `gtid_domain_id` stand for it, and in newer releases `server_uid`, a digest of the
machine and the port.

    whole identity  for connections at the same time as this one: if a name leads to two servers, or a copy of
                    the data folder runs beside the first, host and port show it
    lasting part    the part that survives restarts, by which the lake recognises the source

Neither shows that a data folder was set back to an earlier state. The log shows that: the executed
transactions no longer include all that we have. The stream checks it at each connect.
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
    """The identity of a server: two connections with equal identities reached the same one."""

    flavour: str
    server: str  # MySQL's uuid; MariaDB's id, domain, host and, if it has one, uid
    server_id: int
    host: str
    port: int
    folder: str
    version: str

    def lasting_part(self) -> Json:
        """The lasting part, by which the lake recognises the source."""
        return {"flavour": self.flavour, "server": self.server}


class AnotherMysqlServer(Misconfigured, PositionDoubtful):
    """The address leads to another server."""

    codes = ("MY_ANOTHER_SERVER",)


_COMMON = "@@global.server_id, @@global.hostname, @@global.port, @@global.datadir"


def identify(session: MysqlConnection) -> MysqlIdentity:
    """Identify the server that this connection reached."""
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
    """MariaDB's digest of its machine and port, if it has one."""
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
    """Refuse a server that is not the one of a record; the record is an identity or its lasting part."""
    if "folder" in record:
        verify(actual, from_record(MysqlIdentity, record))
    elif actual.lasting_part() != {name: record.get(name) for name in ("flavour", "server")}:
        raise another_server(f"{_show(actual)}, was {Flavour(record['flavour']).label} {record['server']}")


def prove_kind(actual: MysqlIdentity, flavour: Flavour) -> None:
    """Refuse a server of the other kind: a lake has positions of the kind that its address names."""
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
        hint="correct the address; headrace run goes on by itself with a server that has all that was read "
        "and all that follows; if another one replaced it: headrace run --reconcile",
    )
