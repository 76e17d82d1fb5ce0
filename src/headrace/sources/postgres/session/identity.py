"""Identity: the proof that two connections reached the same source.

`PostgresIdentity` names the server (system id), its timeline and the database. `verify` refuses a connection
that reached another one: its name resolves to a pooler or a replica, or the server was promoted or replaced.
Call it for every connection before you read anything from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import pq

from headrace.core.errors import Misconfigured, PositionDoubtful, PositionLost
from headrace.core.records import from_record
from headrace.sources.contract.values import Json
from headrace.sources.postgres.session.statements import Session, ask


@dataclass(frozen=True, slots=True)
class PostgresIdentity:
    """The identity of a source: two connections with equal identities reached the same source."""

    system_id: str
    timeline: int
    version: int  # server_version_num, for example 180004
    database: str
    standby: bool = False

    def lasting_part(self) -> Json:
        """The lasting part, by which the lake recognises the source."""
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


def identify(connection: Session | pq.abc.PGconn) -> PostgresIdentity:
    """Identify the server, timeline and database that this connection reached."""
    pgconn = connection.pgconn if isinstance(connection, psycopg.Connection) else connection
    (row,) = ask(pgconn, _IDENTIFY)
    system_id, timeline, version, database, standby = (value or "" for value in row)
    return PostgresIdentity(system_id, int(timeline), int(version), database, standby == "true")


def verify(actual: PostgresIdentity, expected_identity: PostgresIdentity) -> None:
    """Refuse a connection that did not reach the source that `expected` describes."""
    if actual.system_id != expected_identity.system_id:
        raise another_server(f"system {actual.system_id}, was {expected_identity.system_id}")
    if actual.database != expected_identity.database:
        raise Misconfigured(
            "PG_ANOTHER_DATABASE",
            f'the connection reached database "{actual.database}", expected "{expected_identity.database}"',
            hint="check dbname in the connection string",
        )
    if actual.standby != expected_identity.standby:
        raise Misconfigured(
            "PG_ANOTHER_STANDBY",
            "the connection reached a standby of the source"
            if actual.standby
            else "the source was a standby and is a primary now",
            hint="give an address that always leads to the same server, "
            "or target_session_attrs=read-write with several hosts",
        )
    if actual.timeline != expected_identity.timeline:
        raise timeline_changed(actual.timeline, expected_identity.timeline)


def prove(actual: PostgresIdentity, record: Json) -> None:
    """Refuse a server that is not the one of a record, on the same timeline."""
    if "standby" in record:
        verify(actual, from_record(PostgresIdentity, record))
        return
    if (actual.system_id, actual.database) != (record["system_id"], record["database"]):
        raise another_server(
            f"system {actual.system_id}, was {record['system_id']}; "
            f'database "{actual.database}", was "{record["database"]}"'
        )
    if actual.timeline != record["timeline"]:
        raise timeline_changed(actual.timeline, record["timeline"])


class AnotherPostgresServer(Misconfigured, PositionDoubtful):
    """The address leads to another server or database."""

    codes = ("PG_ANOTHER_SERVER",)


class TimelineChanged(Misconfigured, PositionLost):
    """The server's log continued from a place before ours."""

    codes = ("PG_TIMELINE_CHANGED",)


def another_server(detail: str) -> AnotherPostgresServer:
    return AnotherPostgresServer(
        "PG_ANOTHER_SERVER",
        "the address leads to another server or database than the mirror is of",
        detail=detail,
        hint="correct the address; if the server was replaced: headrace run --reconcile",
    )


def timeline_changed(actual: int, recorded_timeline: int) -> TimelineChanged:
    return TimelineChanged(
        "PG_TIMELINE_CHANGED",
        "the server is on another timeline: it was promoted, or restored to a point in time",
        detail=f"timeline {actual}, was {recorded_timeline}",
        hint="headrace run --reconcile copies its tables anew and writes the difference",
    )
