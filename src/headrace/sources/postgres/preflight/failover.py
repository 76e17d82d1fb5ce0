"""Preflight of a failover (PostgreSQL 17 and later): what keeps a standby from taking over our stream.

    on the primary   each standby streams through a slot (`primary_slot_name`) and sends feedback, one of them
                     synchronises slots, and `synchronized_standby_slots` names all of their slots
    on a standby     `sync_replication_slots`, `hot_standby_feedback`, `primary_slot_name`, and the name of a
                     database in `primary_conninfo`; no slot of its own has our slot's name

A primary shows only what its standbys do. The settings of a standby are read if the address names it, as one
of several hosts or as the only one. A server without standbys gets no finding. All findings are warnings: a
mirror runs without all this, and is copied anew after a failover.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.postgres.preflight.wish import PostgresWish
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import PostgresIdentity, identify
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.slot import FAILOVER_SINCE, slot_state

_RELOAD = "SELECT pg_reload_conf()"
_SYNC = "ALTER SYSTEM SET sync_replication_slots = on"
_FEEDBACK = "ALTER SYSTEM SET hot_standby_feedback = on"

# Walsenders that are no logical ones, with their slots; a standby's feedback is in its slot.
_STANDBYS = """
SELECT r.application_name, s.slot_name, s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL
  FROM pg_catalog.pg_stat_replication r
  LEFT JOIN pg_catalog.pg_replication_slots s ON s.active_pid = r.pid
 WHERE s.slot_type IS DISTINCT FROM 'logical' AND r.application_name NOT LIKE 'headrace %'
   AND r.application_name NOT LIKE 'pg_basebackup%' AND r.application_name NOT LIKE 'pg_receivewal%'
 ORDER BY 2, 1
"""
_WORKERS = "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE application_name LIKE '%slotsync worker'"
_HELD_FOR = """
SELECT btrim(name, ' "'), EXISTS (SELECT FROM pg_catalog.pg_replication_slots s
                                 WHERE s.slot_name = btrim(name, ' "') AND s.active)
  FROM unnest(string_to_array(pg_catalog.current_setting('synchronized_standby_slots'), ',')) name
 WHERE btrim(name) <> ''
"""
_SETTINGS = """
SELECT name, setting FROM pg_catalog.pg_settings
 WHERE name IN ('sync_replication_slots', 'hot_standby_feedback', 'primary_slot_name', 'primary_conninfo')
"""


def check_failover(
    address: PostgresAddress, connection: Session, identity: PostgresIdentity, wish: PostgresWish
) -> Iterator[Finding]:
    """Check what a standby needs to take over our stream."""
    if not wish.failover or identity.version < FAILOVER_SINCE:
        return
    if identity.standby:
        if wish.publication is None:  # else this standby is the source
            yield from _on_standby(connection, wish, "this standby")
        return
    yield from _on_primary(connection)
    yield from _own_slot(connection, wish)
    for other in _other_hosts(address, connection):
        yield from _on_other(other, identity, wish)


def _on_primary(connection: Session) -> Iterator[Finding]:
    held_for: dict[str, bool] = dict(query(connection, _HELD_FOR))
    absent = [name for name, active in held_for.items() if not active]
    if absent:
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "PG_FAILOVER_HELD",
                "the stream waits for standbys that are not connected",
                detail=f"synchronized_standby_slots names {', '.join(absent)}",
                hint="start these standbys, or take their slots out of synchronized_standby_slots; "
                + _RELOAD,
            ),
        )
    standbys = query(connection, _STANDBYS)
    if not standbys:
        return
    slots = [slot for _, slot, _ in standbys if slot is not None]
    if len(slots) < len(standbys):
        names = ", ".join(f'"{name}"' for name, slot, _ in standbys if slot is None)
        yield _no_slot(f"walsenders without a slot: {names}")
    silent = [slot for _, slot, feedback in standbys if slot is not None and not feedback]
    if silent:
        yield _no_feedback(f"on the standbys of the slots {', '.join(silent)}: ")
    [(workers,)] = query(connection, _WORKERS)
    if not workers:
        yield _no_sync("no standby synchronises logical slots now")
    ahead = [slot for slot in slots if slot not in held_for]
    if ahead:
        yield _ahead([*held_for, *ahead], ahead)


def _own_slot(connection: Session, wish: PostgresWish) -> Iterator[Finding]:
    """Check a slot of the user's: a lake's own is altered by the next run."""
    state = None if wish.slot is None or wish.owns_slot else slot_state(connection, wish.slot)
    if state is not None and not state.failover:
        yield Finding(
            Level.INFO,
            Misconfigured(
                "PG_FAILOVER_SLOT",
                f'the slot "{wish.slot}" is not made for failovers',
                hint=f"make it with SELECT pg_create_logical_replication_slot('{wish.slot}', 'pgoutput', "
                "failover => true), or let the mirror have a slot of its own",
            ),
        )


def _other_hosts(address: PostgresAddress, connection: Session) -> Iterator[PostgresAddress]:
    """The other hosts of the address, each by itself."""
    said = address.parameters
    hosts, ports = said.get("host", "").split(","), said.get("port", "").split(",")
    if "hostaddr" in said or len(hosts) < 2:
        return
    reached = (connection.info.host, str(connection.info.port))
    for number, host in enumerate(hosts):
        port = ports[number % len(ports)] or "5432"
        if (host, port) != reached:
            alone = {**said, "host": host, "port": port, "target_session_attrs": "any"}
            yield replace(address, conninfo=make_conninfo(**alone))


def _on_other(address: PostgresAddress, primary: PostgresIdentity, wish: PostgresWish) -> Iterator[Finding]:
    try:
        connection = connect(address, role="check")
    except HeadraceError as error:
        yield Finding(
            Level.INFO,
            Misconfigured(
                "PG_FAILOVER_UNASKED",
                f'another host of the address cannot be asked whether it may take over: "{address.safe()}"',
                detail=f"{error.code}: {error.primary}",
                hint="see that it is running and reachable from here",
            ),
        )
        return
    with closing(connection):
        identity = identify(connection)
        if identity.standby and identity.system_id == primary.system_id:
            yield from _on_standby(connection, wish, f'the standby at "{address.safe()}"')


def _on_standby(connection: Session, wish: PostgresWish, where: str) -> Iterator[Finding]:
    settings: dict[str, str] = dict(query(connection, _SETTINGS))
    if settings["sync_replication_slots"] != "on":
        yield _no_sync(f"sync_replication_slots is off on {where}")
    # Only some users may see the address of the primary.
    conninfo = settings.get("primary_conninfo")
    if conninfo is not None and "dbname" not in conninfo_to_dict(conninfo):
        yield _no_sync(f"primary_conninfo of {where} names no database")
    if settings["hot_standby_feedback"] != "on":
        yield _no_feedback(f"on {where}: ")
    if not settings["primary_slot_name"]:
        yield _no_slot(f"primary_slot_name is empty on {where}")
    state = None if wish.slot is None else slot_state(connection, wish.slot)
    if state is not None and not state.is_copy:
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "PG_FAILOVER_SLOT_TAKEN",
                f'{where} has a slot of its own with the name of ours, "{wish.slot}"',
                detail="an old primary that becomes a standby keeps its slots, and cannot synchronise them",
                hint=f"on it: SELECT pg_drop_replication_slot('{wish.slot}')",
            ),
        )


def _no_sync(detail: str) -> Finding:
    return Finding(
        Level.WARNING,
        Misconfigured(
            "PG_FAILOVER_NO_SYNC",
            "no copy of our slot is kept on a standby",
            detail=detail,
            hint=f"on the standby: {_SYNC}; add dbname=... to its primary_conninfo; {_RELOAD}",
        ),
    )


def _no_feedback(where: str) -> Finding:
    return Finding(
        Level.WARNING,
        Misconfigured(
            "PG_FAILOVER_NO_FEEDBACK",
            "a standby sends no feedback, so the primary may remove rows that its copy of our slot needs",
            hint=f"{where}{_FEEDBACK}; {_RELOAD}",
        ),
    )


def _no_slot(detail: str) -> Finding:
    return Finding(
        Level.WARNING,
        Misconfigured(
            "PG_FAILOVER_NO_SLOT",
            "a standby streams without a slot on the primary: it cannot synchronise ours, or be waited for",
            detail=detail,
            hint="on the primary: SELECT pg_create_physical_replication_slot('standby_1'); on the standby: "
            f"ALTER SYSTEM SET primary_slot_name = 'standby_1'; {_RELOAD}",
        ),
    )


def _ahead(wanted: Sequence[str], missing: Sequence[str]) -> Finding:
    mend = (f"ALTER SYSTEM SET synchronized_standby_slots = '{', '.join(wanted)}'", _RELOAD)
    return Finding(
        Level.WARNING,
        Misconfigured(
            "PG_FAILOVER_AHEAD",
            "the lake may get ahead of a standby: if that is promoted then, all tables are copied anew",
            detail=f"synchronized_standby_slots does not name {', '.join(missing)}",
            hint=hint_of(mend),
        ),
        mend=mend,
    )
