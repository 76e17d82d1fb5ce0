"""Identity: the proof that two connections reached the same source.

`Identity` names the server (system id), its timeline and the database. `verify` refuses a connection that
reached another one: a name that resolves to a pooler or a replica, a server that was promoted or replaced.
Called for every connection before anything is read from it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import psycopg
from psycopg import pq

from headrace.core.errors import Misconfigured, PositionDoubtful, PositionLost
from headrace.sources.contract.record import Json
from headrace.sources.postgres.session.statements import Session, ask


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a source: two connections that have the same reached the same."""

    system_id: str
    timeline: int
    version: int  # server_version_num, for example 180004
    database: str
    standby: bool = False

    def as_record(self) -> Json:
        """All of it, for connections that are made at the same time as this one."""
        return asdict(self)

    def known(self) -> Json:
        """The part that lasts: by it the lake knows the source again."""
        return {"system_id": self.system_id, "timeline": self.timeline, "database": self.database}


_IDENTIFY = """
SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system())::text,
       CASE WHEN pg_catalog.pg_is_in_recovery()
            THEN (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint())
            -- The control file learns of a promotion at its first checkpoint, the log at once.
            ELSE ('x' || pg_catalog.left(
                     pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)
                 )::bit(32)::int
       END::text,
       pg_catalog.current_setting('server_version_num'),
       pg_catalog.current_database(),
       pg_catalog.pg_is_in_recovery()::text
"""


def identify(connection: Session | pq.abc.PGconn) -> Identity:
    """Identify the server, timeline and database that this connection reached."""
    pgconn = connection.pgconn if isinstance(connection, psycopg.Connection) else connection
    (row,) = ask(pgconn, _IDENTIFY)
    system_id, timeline, version, database, standby = (value or "" for value in row)
    return Identity(system_id, int(timeline), int(version), database, standby == "true")


def verify(found: Identity, expected: Identity) -> None:
    """Refuse a connection that did not reach the source that `expected` describes."""
    if found.system_id != expected.system_id:
        raise another_server(f"system {found.system_id}, was {expected.system_id}")
    if found.database != expected.database:
        raise Misconfigured(
            "PG_ANOTHER_DATABASE",
            f'the connection reached database "{found.database}", expected "{expected.database}"',
            hint="check dbname in the connection string",
        )
    if found.standby != expected.standby:
        raise Misconfigured(
            "PG_ANOTHER_STANDBY",
            "the connection reached a standby of the source"
            if found.standby
            else "the source was a standby and is a primary now",
            hint="give an address that always leads to the same server, "
            "or target_session_attrs=read-write with several hosts",
        )
    if found.timeline != expected.timeline:
        raise timeline_changed(found.timeline, expected.timeline)


def prove(found: Identity, known: Json) -> None:
    """Refuse a server that is not the one of a record, on the same timeline."""
    if "standby" in known:
        verify(found, Identity(**known))
        return
    if (found.system_id, found.database) != (known["system_id"], known["database"]):
        raise another_server(
            f"system {found.system_id}, was {known['system_id']}; "
            f'database "{found.database}", was "{known["database"]}"'
        )
    if found.timeline != known["timeline"]:
        raise timeline_changed(found.timeline, known["timeline"])


class AnotherServer(Misconfigured, PositionDoubtful):
    """The address leads elsewhere."""

    codes = ("PG_ANOTHER_SERVER",)


class TimelineChanged(Misconfigured, PositionLost):
    """The server's log went on from an earlier place than ours."""

    codes = ("PG_TIMELINE_CHANGED",)


def another_server(detail: str) -> AnotherServer:
    return AnotherServer(
        "PG_ANOTHER_SERVER",
        "the address leads to another server or database than the mirror is of",
        detail=detail,
        hint="correct the address; if the server was replaced: headrace run --reconcile",
    )


def timeline_changed(found: int, expected: int) -> TimelineChanged:
    return TimelineChanged(
        "PG_TIMELINE_CHANGED",
        "the server is on another timeline: it was promoted, or restored to a point in time",
        detail=f"timeline {found}, was {expected}",
        hint="headrace run --reconcile copies its tables anew and writes the difference",
    )
