"""Preflight of the server: version, settings, free slots and connections, log held back during the copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.names import quote_identifier
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.postgres.copy.visibility import refuse_standby
from headrace.sources.postgres.declaration import SLOT
from headrace.sources.postgres.preflight.wish import PostgresWish
from headrace.sources.postgres.publication import late_tables_lost
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import replication
from headrace.sources.postgres.session.ddl import event_triggers
from headrace.sources.postgres.session.identity import PostgresIdentity, prove
from headrace.sources.postgres.session.refusals import ReplicationRefused
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.stream import synchronous
from headrace.sources.postgres.writers import blockers

OLDEST, NEWEST = 15, 18
STANDBY_DECODES = 160000

# Besides the copy's own: the receiver, the leader, its observer, and the connection of the mirror.
_OTHER_CONNECTIONS = 4
_OLD_TRANSACTION = 10  # seconds
# Bytes per second of a copy, for an estimate; measured at 100 MB/s and more on small machines.
_COPY_RATE = 50_000_000
_HELD_BACK = 16 << 20  # bytes of log, while nothing is committed for us (`pipeline.stream.cadence`)
_LIMIT_MEGABYTES = 1024


@dataclass(frozen=True, slots=True)
class _Facts:
    settings: Mapping[str, str]
    slots: int
    senders: int
    sessions: int
    encoding: str
    log_rate: float  # bytes per second, on average since the statistics began


_COMMANDS = tuple(f"{verb} PUBLICATION" for verb in ("CREATE", "ALTER", "DROP"))  # tags of our own DDL

_SETTINGS = (
    "wal_level",
    "max_replication_slots",
    "max_wal_senders",
    "max_connections",
    "superuser_reserved_connections",
    "max_slot_wal_keep_size",
    "idle_replication_slot_timeout",
)


def check_server(
    address: PostgresAddress,
    connection: Session,
    identity: PostgresIdentity,
    wish: PostgresWish,
    copy_bytes: int,
) -> Iterator[Finding]:
    """Check everything about the server that a run depends on."""
    facts = _facts(connection)
    yield from _identity(identity, wish)
    yield from check_version(identity, wish)
    yield from _standby(identity, wish)
    yield from _settings(facts, identity)
    yield from _synchronous(connection)
    yield from _free(facts, wish)
    yield from _replication(address, facts, connection)
    yield from _log(facts, copy_bytes)
    yield from _waiting(connection, wish)
    if wish.publication is None and not identity.standby:
        yield from check_event_triggers(connection, _COMMANDS)


def check_event_triggers(connection: Session, commands: Sequence[str]) -> Iterator[Finding]:
    """Name the event triggers that run with our own commands, which have these tags."""
    triggers = event_triggers(connection, commands)
    if triggers:
        yield Finding(
            Level.INFO,
            Misconfigured(
                "PG_EVENT_TRIGGERS",
                "event triggers of this database run with the commands by which we choose tables",
                detail="; ".join(triggers),
                hint="see that our role may run their functions: one that fails makes our command fail",
            ),
        )


def _facts(connection: Session) -> _Facts:
    settings = query(
        connection,
        "SELECT name, setting FROM pg_settings WHERE name = ANY (%s)",
        [list(_SETTINGS)],
    )
    ((slots, senders, sessions, encoding, log_rate),) = query(
        connection,
        "SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_stat_replication),"
        " (SELECT sum(numbackends) FROM pg_stat_database)::bigint, current_setting('server_encoding'),"
        " (SELECT wal_bytes / greatest(1, EXTRACT(epoch FROM now() - COALESCE(stats_reset,"
        " pg_postmaster_start_time()))) FROM pg_stat_wal)::float8",
    )
    return _Facts(dict(settings), slots, senders, sessions or 0, encoding, log_rate or 0.0)


def _identity(identity: PostgresIdentity, wish: PostgresWish) -> Iterator[Finding]:
    if wish.identity is None:
        return
    try:
        prove(identity, wish.identity)
    except HeadraceError as error:
        yield Finding(Level.ERROR, error)


def check_version(identity: PostgresIdentity, wish: PostgresWish) -> Iterator[Finding]:
    """Check that this version of the server can be mirrored, and that tables can be added later."""
    yield from check_support(identity)
    lost = late_tables_lost(identity.version)
    if lost is not None:
        yield Finding(Level.WARNING if wish.identity is None else Level.ERROR, lost)


def check_support(identity: PostgresIdentity) -> Iterator[Finding]:
    """Check that this version of the server can be read."""
    major = identity.version // 10000
    if major < OLDEST:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_VERSION_UNSUPPORTED",
                f"the server is PostgreSQL {major}, the oldest supported is {OLDEST}",
                hint=f"upgrade the server to PostgreSQL {OLDEST} or later",
            ),
        )
    if major > NEWEST:
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "PG_VERSION_NEW",
                f"the server is PostgreSQL {major}, the newest that was tried is {NEWEST}",
                hint="watch the first run, and see whether a newer headrace knows this version",
            ),
        )


def _standby(identity: PostgresIdentity, wish: PostgresWish) -> Iterator[Finding]:
    if identity.standby and identity.version < STANDBY_DECODES:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_STANDBY_UNFIT",
                "the server is a standby, and before PostgreSQL 16 only a primary streams changes",
                hint="give the address of the primary",
            ),
        )
    elif identity.standby:
        yield Finding(
            Level.WARNING if wish.publication is not None else Level.ERROR,
            Misconfigured(
                "PG_STANDBY",
                "the server is a standby: no publication can be made there",
                hint="set hot_standby_feedback = on there, make the publication on the primary and name "
                "it with --publication",
            ),
        )
    if wish.handoff != SLOT:
        try:
            refuse_standby(identity)
        except Misconfigured as error:
            yield Finding(Level.ERROR, error)


def _settings(facts: _Facts, identity: PostgresIdentity) -> Iterator[Finding]:
    mend: tuple[str, ...]
    if facts.settings["wal_level"] != "logical":
        mend = ("ALTER SYSTEM SET wal_level = logical",)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_WAL_LEVEL",
                f"wal_level is {facts.settings['wal_level']}, changes can be streamed with logical only",
                hint=f"{hint_of(mend)}; then restart the server",
            ),
            mend=mend,
            restart=True,
        )
    if facts.settings.get("idle_replication_slot_timeout", "0") != "0":
        mend = ("ALTER SYSTEM SET idle_replication_slot_timeout = 0", "SELECT pg_reload_conf()")
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "PG_SLOT_TIMEOUT",
                "idle_replication_slot_timeout is set: the server gives up slots that nobody reads",
                hint=hint_of(mend),
            ),
            mend=mend,
        )
    yield from check_encoding(facts.encoding)


def check_encoding(encoding: str) -> Iterator[Finding]:
    """Check that the server knows the encoding of its texts."""
    if encoding == "SQL_ASCII":
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "PG_ENCODING",
                "the database's encoding is SQL_ASCII: text that is not UTF-8 stops its table",
                hint="dump and restore into a database with ENCODING 'UTF8'",
            ),
        )


def _synchronous(connection: Session) -> Iterator[Finding]:
    ((setting, standbys),) = query(connection, synchronous.ASK)
    error = synchronous.refusal(setting, standbys)
    if error is not None:
        known = (standbys or "").split("\n") if standbys else []
        yield Finding(Level.ERROR, error, mend=synchronous.statements(setting, sorted(known)))


def _free(facts: _Facts, wish: PostgresWish) -> Iterator[Finding]:
    # One for the stream, unless it runs already; one more, temporary, if a slot joins the snapshot to it.
    wanted = int(wish.identity is None) + int(wish.handoff == SLOT)
    more = _too_few(facts, "max_replication_slots", facts.slots, wanted)
    if more:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_SLOTS_FULL",
                f"{facts.slots} replication slots are in use, {wanted} more are needed",
                hint=f"{hint_of(more)}; then restart the server",
            ),
            mend=more,
            restart=True,
        )
    more = _too_few(facts, "max_wal_senders", facts.senders, wanted)
    if more:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_SENDERS_FULL",
                f"{facts.senders} walsenders are in use, {wanted} more are needed",
                hint=f"{hint_of(more)}; then restart the server",
            ),
            mend=more,
            restart=True,
        )
    most, reserved = (
        int(facts.settings[name]) for name in ("max_connections", "superuser_reserved_connections")
    )
    yield from check_connections(most, reserved, facts.sessions, wish.connections + _OTHER_CONNECTIONS)


def check_connections(most: int, reserved_count: int, used: int, sessions: int) -> Iterator[Finding]:
    """Check that the server has room for so many sessions of ours."""
    free = most - reserved_count - used
    if free < sessions:
        mend = (f"ALTER SYSTEM SET max_connections = {most + sessions}",)
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "PG_CONNECTIONS_FEW",
                f"{free} connections are free, up to {sessions} are used during the copy",
                hint=f"{hint_of(mend)}; then restart the server, or lower snapshot_connections",
            ),
            mend=mend,
            restart=True,
        )


def _too_few(facts: _Facts, setting: str, used: int, wanted: int) -> tuple[str, ...]:
    """The statement that makes room; none if there is room."""
    if int(facts.settings[setting]) - used >= wanted:
        return ()
    return (f"ALTER SYSTEM SET {setting} = {used + wanted + 2}",)


def _replication(address: PostgresAddress, facts: _Facts, connection: Session) -> Iterator[Finding]:
    """Check that we may open a replication connection, by opening one (pg_hba.conf, managed services)."""
    if facts.settings["wal_level"] == "minimal" or int(facts.settings["max_wal_senders"]) <= facts.senders:
        return  # it would fail for a reason that is reported already
    try:
        replication(address, role="check").finish()
    except HeadraceError as error:
        role = quote_identifier(connection.info.user)
        lacking = isinstance(error, ReplicationRefused)
        yield Finding(Level.ERROR, error, mend=(f"ALTER ROLE {role} REPLICATION",) if lacking else ())


def _log(facts: _Facts, copy_bytes: int) -> Iterator[Finding]:
    limit = int(facts.settings["max_slot_wal_keep_size"]) * 1_000_000
    if 0 <= limit < 4 * _HELD_BACK:
        mend = (
            f"ALTER SYSTEM SET max_slot_wal_keep_size = '{_LIMIT_MEGABYTES}MB'",
            "SELECT pg_reload_conf()",
        )
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "PG_LOG_LIMIT",
                f"the server gives up a slot at {_size(limit)} of log",
                detail=f"a mirror holds back up to {_size(_HELD_BACK)} of it between two marks, "
                "and all that is written while nobody runs it",
                hint=hint_of(mend),
            ),
            mend=mend,
        )
    seconds = copy_bytes / _COPY_RATE
    kept = _size(int(seconds * facts.log_rate))
    yield Finding(
        Level.INFO,
        Misconfigured(
            "PG_STREAM_KEPT",
            f"while tables are copied the lake will keep up to about {kept} of the stream",
            detail=f"copying {_size(copy_bytes)} takes {seconds / 60:.1f} min at {_size(_COPY_RATE)}/s; "
            f"the server writes {_size(int(facts.log_rate))}/s of log on average",
            hint="see that the lake's disk has room; it is freed once the stream is written to the tables",
        ),
    )


def _size(count: int) -> str:
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"


def _waiting(connection: Session, wish: PostgresWish) -> Iterator[Finding]:
    waiting = blockers(connection, older_than=_OLD_TRANSACTION)
    if waiting:
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "PG_TRANSACTIONS_OPEN",
                "making a slot and a snapshot waits for transactions that are open now",
                detail="; ".join(waiting),
                hint="end them (COMMIT, ROLLBACK PREPARED, pg_terminate_backend), or wait",
            ),
        )
