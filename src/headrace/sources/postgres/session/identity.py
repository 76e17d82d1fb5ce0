"""Identity: the proof that two connections reached the same source.

`PostgresIdentity` names the server (system id), its timeline and the database. `verify` refuses a connection
that reached another one: its name resolves to a pooler or a replica, or the server was promoted or replaced.
Call it for every connection before you read anything from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import pq

from headrace.core.errors import Misconfigured, PositionDoubtful, PositionLost, Transient
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
    if actual.standby and not expected_identity.standby:
        raise Misconfigured(
            "PG_ANOTHER_STANDBY",
            "the connection reached a standby of the source",
            hint="give an address that always leads to the same server, "
            "or target_session_attrs=read-write with several hosts",
        )
    if (actual.standby, actual.timeline) != (expected_identity.standby, expected_identity.timeline):
        raise promoted_meanwhile(actual, expected_identity)


def prove(actual: PostgresIdentity, record: Json) -> None:
    """Refuse a server that is not the one of a record, on the same timeline."""
    if "standby" in record:
        verify(actual, from_record(PostgresIdentity, record))
        return
    prove_cluster(actual, record)
    if actual.timeline != record["timeline"]:
        raise another_timeline(actual.timeline, record["timeline"])


def prove_cluster(actual: PostgresIdentity, record: Json) -> None:
    """Refuse a server of another cluster than that of a record; a promoted standby is of the same."""
    if (actual.system_id, actual.database) != (record["system_id"], record["database"]):
        raise another_server(
            f"system {actual.system_id}, was {record['system_id']}; "
            f'database "{actual.database}", was "{record["database"]}"'
        )


class AnotherPostgresServer(Misconfigured, PositionDoubtful):
    """The address leads to another server or database."""

    codes = ("PG_ANOTHER_SERVER",)


class TimelineChanged(Misconfigured, PositionLost):
    """The server's log left ours at a place before our position."""

    codes = ("PG_TIMELINE_CHANGED",)


class TimelineLeft(Misconfigured, PositionDoubtful):
    """The server is on a timeline that the mirror has left: probably the old primary is back."""

    codes = ("PG_TIMELINE_LEFT",)


class TimelineMoved(Transient):
    """The server was promoted while a run was connected: the next attempt finds out whether it goes on."""

    codes = ("PG_PROMOTED",)


def another_server(detail: str) -> AnotherPostgresServer:
    return AnotherPostgresServer(
        "PG_ANOTHER_SERVER",
        "the address leads to another server or database than the mirror is of",
        detail=detail,
        hint="correct the address; if the server was replaced: headrace run --reconcile",
    )


def another_timeline(actual: int, recorded_timeline: int) -> TimelineChanged:
    return TimelineChanged(
        "PG_TIMELINE_CHANGED",
        "the server is on another timeline than the mirror: it was promoted, or restored to a point in time",
        detail=f"timeline {actual}, was {recorded_timeline}",
        hint="headrace run goes on there if its log has all that the lake holds; if it stops with this: "
        "headrace run --reconcile",
    )


def timeline_parted(detail: str) -> TimelineChanged:
    return TimelineChanged(
        "PG_TIMELINE_CHANGED",
        "the server lacks log that the lake holds: it was promoted without it, or set back",
        detail=detail,
        hint="headrace run --reconcile copies its tables anew and writes the difference",
    )


def timeline_left(actual: int, recorded_timeline: int) -> TimelineLeft:
    return TimelineLeft(
        "PG_TIMELINE_LEFT",
        "the server is on a timeline that the mirror has left",
        detail=f"timeline {actual}, was {recorded_timeline}",
        hint="if the old primary is back, let the address lead to the new one; if this server shall be "
        "mirrored: headrace run --reconcile",
    )


def promoted_meanwhile(actual: PostgresIdentity, before: PostgresIdentity) -> TimelineMoved:
    return TimelineMoved(
        "PG_PROMOTED",
        "the source was promoted while the run was connected",
        detail=f"a connection before reached timeline {before.timeline}, this one timeline {actual.timeline}",
        hint="nothing to do: the next attempt goes on there; if it comes back, give an address that always "
        "leads to the same server",
    )
